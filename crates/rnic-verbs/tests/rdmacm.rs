//! Unmodified programs that use `librdmacm`, between two processes.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pcap_file::pcap::PcapReader;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Returns a port that is free for UDP and for TCP.
fn free_port() -> u16 {
    loop {
        let stream = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = stream.local_addr().expect("its address").port();
        if UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Returns `true` if a socket is bound to the port.
fn is_bound(port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    ["udp", "udp6", "tcp", "tcp6"].iter().any(|family| {
        let table = fs::read_to_string(format!("/proc/net/{family}")).unwrap_or_default();
        // The local address follows the line number.
        table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&wanted)))
    })
}

fn command(line: &str, variables: &[(&str, &str)]) -> Command {
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = common::command(&words, SECONDS);
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a server and waits until its port is bound.
fn start(line: &str, port: u16, variables: &[(&str, &str)]) -> Child {
    let mut server = command(line, variables).spawn().expect("timeout(1) starts");
    let end = Instant::now() + Duration::from_secs(u64::from(SECONDS));
    while !is_bound(port) {
        let status = server.try_wait().expect("the status of a child can be read");
        assert!(status.is_none() && Instant::now() < end, "{line}: no server at port {port}: {status:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

/// Ends a server that would not end by itself: timeout(1) forwards the signal.
fn stop(server: &Child) {
    let _ = kill_process(Pid::from_child(server), Signal::TERM);
}

/// Runs both sides; returns `None` if the program is not installed.
fn run(server: &str, client: &str, port: u16, variables: &[(&str, &str)]) -> Option<(Output, Output)> {
    let fill = |line: &str| line.replace("PORT", &port.to_string());
    for line in [server, client] {
        if !common::is_installed(line.split(' ').next().unwrap_or(line)) {
            return None;
        }
    }
    let mut server = start(&fill(server), port, variables);
    // A server that has bound its port may not listen yet: programs that do not retry are started again.
    loop {
        let client = command(&fill(client), variables).output().expect("timeout(1) starts");
        let too_early = common::output_text(&client).contains("RDMA_CM_EVENT_REJECTED; error: 8")
            || common::output_text(&client).contains("RDMA_CM_EVENT_UNREACHABLE; error: 1");
        if !too_early || !matches!(server.try_wait(), Ok(None)) {
            return Some((server.wait_with_output().expect("the server ends"), client));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Runs both sides, which must succeed.
fn pair(server: &str, client: &str, variables: &[(&str, &str)]) {
    let port = if server.contains("PORT") { free_port() } else { UDADDY_PORT };
    if let Some((served, asked)) = run(server, client, port, variables) {
        let both = served.status.success() && asked.status.success();
        assert!(both, "{client}\nclient: {}\nserver: {}", common::output_text(&asked), common::output_text(&served));
    }
}

/// Runs the same line as server, and as client with the address appended.
fn same(line: &str) {
    pair(line, &format!("{line} 127.0.0.1"), &[]);
}

#[test]
fn rping_checks_its_data() {
    for address in ["127.0.0.1", "::1"] {
        let line = |side: char| format!("rping -{side} -a {address} -p PORT -C 100 -V");
        pair(&line('s'), &line('c'), &[]);
    }
    // All addresses of both IP versions.
    pair("rping -s -a :: -p PORT -C 20 -V", "rping -c -a 127.0.0.1 -p PORT -C 20 -V", &[]);
}

#[test]
fn rping_checks_its_data_on_a_network_that_loses_and_reorders() {
    for transport in ["irn", "roce-gbn"] {
        let impaired = [("RNIC_TRANSPORT", transport), ("RNIC_LOSS", "1%"), ("RNIC_REORDER", "5%"), ("RNIC_SEED", "7")];
        let line = |side: char| format!("rping -{side} -a 127.0.0.1 -p PORT -C 100 -S 20000 -V");
        pair(&line('s'), &line('c'), &impaired);
    }
}

/// an unmodified program transfers and checks its data over FaSR; the library's own output confirms the
/// transport.
#[test]
fn r27_an_unmodified_program_checks_its_data_over_fasr() {
    let settings = [("RNIC_TRANSPORT", "fasr"), ("RNIC_LOSS", "1%"), ("RNIC_SEED", "7")];
    let line = |side: char| format!("rping -{side} -a 127.0.0.1 -p PORT -C 100 -S 20000 -V");
    let Some((served, asked)) = run(&line('s'), &line('c'), free_port(), &settings) else { return };
    for side in [served, asked] {
        let said = common::output_text(&side);
        assert!(side.status.success() && said.contains("transport fasr"), "{said}");
    }
}

#[test]
fn the_examples_of_librdmacm_run() {
    pair("ucmatose -c 8 -C 20 -p PORT", "ucmatose -c 8 -C 20 -p PORT -s 127.0.0.1", &[]);
    pair("ucmatose -c 2 -C 5 -m -p PORT", "ucmatose -c 2 -C 5 -m -p PORT -s 127.0.0.1", &[]);
    pair("udaddy -c 3 -C 10", "udaddy -c 3 -C 10 -s 127.0.0.1", &[]);
    pair("rdma_server -p PORT", "rdma_client -s 127.0.0.1 -p PORT", &[]);
    pair("rdma_xserver -p PORT", "rdma_xclient -s 127.0.0.1 -p PORT", &[]);
}

#[test]
fn many_connections_at_once_succeed() {
    // This server does not end by itself.
    let port = free_port();
    if !common::is_installed("cmtime") {
        return;
    }
    let mut server = start(&format!("cmtime -c 100 -p {port}"), port, &[]);
    let client = command(&format!("cmtime -c 100 -p {port} -s 127.0.0.1"), &[]).output().expect("timeout(1) starts");
    stop(&server);
    let _ = server.wait();
    assert!(client.status.success(), "{}", common::output_text(&client));
}

#[test]
fn multicast_is_refused_clearly() {
    if let Some(address) = outside_address()
        && common::is_installed("mckey")
    {
        let output = command(&format!("mckey -m 239.0.0.1 -b {address}"), &[]).output().expect("timeout(1) starts");
        let said = common::output_text(&output);
        assert!(said.contains("Operation not supported"), "{said}");
    }
}

#[test]
fn perftest_connects_by_address() {
    same("ib_write_bw -R -n 200 -p PORT");
    same("ib_read_bw -R -n 200 -p PORT");
    same("ib_send_lat -R -n 200 -p PORT");
    same("ib_send_bw -R -c UD -n 200 -s 1024 -p PORT");
    same("ib_send_lat -R -c UD -n 200 -p PORT");
}

/// The traffic class of a connection request is that of the connection in both directions, as in Linux; programs that
/// connect queue pairs themselves set it at each end.
#[test]
fn the_traffic_class_of_a_connection_is_in_its_packets() {
    if !common::is_installed("ib_write_bw") {
        return;
    }
    for (server, client, class) in
        [("-R", "-R -T 104", 104), ("-d rnic0 --tclass 72", "-d rnic0 --tclass 72", 72), ("-d rnic0", "-d rnic0", 0)]
    {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let line = |folder: &TempDir, options: &str| {
            let capture = folder.path().join("a.pcap");
            format!("env RNIC_BYPASS=off RNIC_PCAP={} ib_write_bw {options} -n 200 -p PORT", capture.display())
        };
        pair(&line(&folders[0], server), &format!("{} 127.0.0.1", line(&folders[1], client)), &[]);
        for folder in folders {
            // The class of received packets is not in a capture: the kernel is not asked for it.
            let sent = classes_in(&folder);
            assert!(sent.contains(&class), "{client}: {sent:?}");
            assert!(sent.iter().all(|found| [0, class].contains(found)), "{client}: {sent:?}");
        }
    }
}

/// The traffic classes of the IPv4 packets in the captures of a program.
fn classes_in(folder: &TempDir) -> BTreeSet<u8> {
    let mut classes = BTreeSet::new();
    for file in fs::read_dir(folder.path()).expect("a folder") {
        let bytes = fs::read(file.expect("a file").path()).expect("a capture");
        let mut reader = PcapReader::new(&bytes[..]).expect("a capture");
        while let Some(packet) = reader.next_packet() {
            classes.insert(packet.expect("the packet is complete").data[15]);
        }
    }
    classes
}

#[test]
fn libfabric_connects_by_address() {
    // The program ignores loopback addresses.
    let Some(address) = outside_address() else { return common::skip("this machine has loopback only") };
    for (provider, kind) in [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")] {
        let line = format!("fi_pingpong -p {provider} -e {kind}");
        pair(&format!("{line} -B PORT"), &format!("{line} -P PORT {address}"), &[]);
    }
}

#[test]
fn qperf_connects_by_address() {
    let port = free_port();
    if !common::is_installed("qperf") {
        return;
    }
    let mut server = start(&format!("qperf -lp {port}"), port, &[]);
    for test in ["rc_lat", "rc_bw", "rc_rdma_read_bw"] {
        let line = format!("qperf -lp {port} -t 1 -cm1 127.0.0.1 {test}");
        let client = command(&line, &[]).output().expect("timeout(1) starts");
        assert!(client.status.success(), "{line}: {}", common::output_text(&client));
    }
    stop(&server);
    let _ = server.wait();
}

#[test]
fn ends_with_different_transports_do_not_connect() {
    let (port, line) = (free_port(), "rping -s -a 127.0.0.1 -p PORT -C 1");
    if !common::is_installed("rping") {
        return;
    }
    let server = start(&line.replace("PORT", &port.to_string()), port, &[("RNIC_TRANSPORT", "irn")]);
    let line = format!("rping -c -a 127.0.0.1 -p {port} -C 1");
    let client = command(&line, &[("RNIC_TRANSPORT", "roce-gbn")]).output().expect("timeout(1) starts");
    stop(&server);
    let server = server.wait_with_output().expect("the process was killed");
    assert!(!client.status.success());
    let said = common::output_text(&client);
    assert!(said.contains("the other end uses irn; this end uses roce-gbn"), "{said}");
    drop(server);
}

/// Of several offered transports, the two ends agree on the first that both have, whichever end initiates; data is
/// transferred over it.
#[test]
fn a_common_transport_is_selected_from_several() {
    if !common::is_installed("rping") {
        return;
    }
    let transports = |value| [("RNIC_TRANSPORT", value)];
    let cases = [
        ("roce-gbn", "irn,roce-gbn", true),
        ("irn,roce-gbn", "roce-gbn", true),
        ("fasr,roce-gbn", "irn,roce-gbn", true),
        ("irn", "fasr,roce-gbn", false),
    ];
    for (ours, theirs, is_made) in cases {
        let port = free_port();
        let server = start(&format!("rping -s -a 127.0.0.1 -p {port} -C 20 -V"), port, &transports(ours));
        let line = format!("rping -c -a 127.0.0.1 -p {port} -C 20 -V");
        let client = retried(&line, &transports(theirs));
        if !is_made {
            stop(&server);
        }
        let server = server.wait_with_output().expect("the program ends");
        let said = common::output_text(&client);
        assert_eq!(client.status.success(), is_made, "{theirs} at {ours}: {said}");
        assert_eq!(server.status.success(), is_made, "{}", common::output_text(&server));
        let refused = format!("the other end uses {ours}; this end uses fasr");
        assert!(is_made || said.contains(&refused), "{said}");
    }
}

/// Runs a client, again while its server does not listen yet.
fn retried(line: &str, variables: &[(&str, &str)]) -> Output {
    loop {
        let client = command(line, variables).output().expect("timeout(1) starts");
        if !common::output_text(&client).contains("RDMA_CM_EVENT_REJECTED; error: 8") {
            return client;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// If no program listens at another host's address, a hardware adapter may be there, so a hint is printed; this test
/// uses an address of this machine. On loopback addresses there is no hint.
#[test]
fn an_unanswered_request_prints_a_hint_about_adapters() {
    let own = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let Ok(own) = own.map(|address| address.ip()) else {
        eprintln!("skipped: there is no way to other hosts");
        return;
    };
    if !common::is_installed("rping") {
        return;
    }
    for (address, variables, hints) in [
        (own.to_string(), &[][..], true),
        (own.to_string(), &[("RNIC_QUIET", "on")], false),
        ("127.0.0.1".to_owned(), &[], false),
    ] {
        let line = format!("rping -c -a {address} -p {} -C 1", free_port());
        let client = command(&line, variables).output().expect("timeout(1) starts");
        let said = common::output_text(&client);
        assert!(!client.status.success() && said.contains("RDMA_CM_EVENT_REJECTED"), "{said}");
        assert_eq!(said.contains("set `--peers roce` (RNIC_PEERS=roce)"), hints, "{variables:?}: {said}");
    }
}

/// When a process is killed, its host reports that the port is closed, and the other side ends.
#[test]
fn the_death_of_a_process_is_detected() {
    if !common::is_installed("rping") {
        return;
    }
    for kills_server in [true, false] {
        let port = free_port();
        // Without timeout(1), which would be killed instead of the program.
        let spawn = |side: &str| {
            let mut rping = Command::new("rping");
            rping.args([side, "-a", "127.0.0.1", "-p", &port.to_string(), "-C", "100000000"]);
            rping.env("LD_LIBRARY_PATH", common::libraries()).stdout(Stdio::piped()).stderr(Stdio::piped());
            rping.spawn().expect("rping starts")
        };
        let mut server = spawn("-s");
        let end = Instant::now() + Duration::from_secs(u64::from(SECONDS));
        while !is_bound(port) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut client = spawn("-c");
        std::thread::sleep(Duration::from_secs(1));
        let (victim, other) = if kills_server { (&mut server, &mut client) } else { (&mut client, &mut server) };
        assert!(matches!(victim.try_wait(), Ok(None)), "the process has ended early");
        victim.kill().expect("the process can be killed");
        let killed = Instant::now();
        while other.try_wait().expect("the status of a child can be read").is_none() {
            if killed.elapsed() > Duration::from_secs(20) {
                let _ = other.kill();
                panic!("the other side did not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = (server.wait(), client.wait());
    }
}

/// An address of this machine that is not a loopback one.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("203.0.113.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// Time limit for a program, in seconds.
const SECONDS: u32 = 90;

/// The fixed port of `udaddy`.
const UDADDY_PORT: u16 = 7_174;
