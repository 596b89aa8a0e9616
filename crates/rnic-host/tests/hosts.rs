//! NICs that share a machine's addresses, in processes of their own: through shared memory, over loopback, over a
//! 1500-byte link between namespaces. A process that is killed is detected, and none of its resources remain.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rnic_base::Psn;
use rnic_engine::{
    Access, CqId, QpAttributes, QpConnection, QpTiming, RemoteMemory, RnrTimer, SendFlags, SendOp, SendRequest,
    Service, Transport, WcStatus,
};
use rnic_host::{Nic, NicConfig, Region, TransportChoice};
use rnic_wire::Qpn;

const MEMORY: usize = 1 << 20;
const HALF: usize = MEMORY / 2;

/// A process of this test binary in a role, possibly in a network namespace.
struct Role {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Role {
    fn start(namespace: Option<&str>, environment: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = match namespace {
            None => Command::new(&program),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(&program);
                command
            }
        };
        command.args(["--ignored", "--exact", "--nocapture", "role"]).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, input, lines }
    }

    /// Returns what the role prints after `word`.
    fn wait_for(&self, word: &str) -> String {
        let start = Instant::now();
        loop {
            let left = Duration::from_secs(30).saturating_sub(start.elapsed());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|error| panic!("no {word}: {error}"));
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn send_line(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts an active and a passive process and exchanges their connection data.
fn start_pair(namespaces: [Option<&str>; 2], addresses: [&str; 2], environment: &[(&str, &str)]) -> (Role, Role) {
    let start = |namespace, to, active| {
        let mut all = vec![("RNIC_TEST_TO", to), ("RNIC_TEST_ACTIVE", active)];
        all.extend_from_slice(environment);
        Role::start(namespace, &all)
    };
    let mut active = start(namespaces[0], addresses[1], "yes");
    let mut passive = start(namespaces[1], addresses[0], "no");
    let (left, right) = (active.wait_for("CARD"), passive.wait_for("CARD"));
    passive.send_line(&left);
    passive.wait_for("READY");
    active.send_line(&right);
    (active, passive)
}

const LOOPBACK: [&str; 2] = ["127.0.0.1", "127.0.0.1"];

#[test]
fn processes_exchange_data_through_shared_memory_and_over_udp() {
    for (bypass, buffer) in [("on", "4194304"), ("off", "4194304"), ("on", "212992"), ("off", "106496")] {
        let environment = [("RNIC_TEST_BYPASS", bypass), ("RNIC_TEST_BUFFER", buffer)];
        let (active, _passive) = start_pair([None, None], LOOPBACK, &environment);
        assert_eq!(active.wait_for("VERIFIED"), "300", "bypass {bypass}, buffer {buffer}");
        let by_memory: u64 = active.wait_for("BYPASS").parse().expect("a number");
        assert_eq!(by_memory > 1_000, bypass == "on", "{by_memory} packets through memory, bypass {bypass}");
    }
}

#[test]
fn the_bypass_is_unused_if_one_end_disables_it() {
    let mut active = Role::start(None, &[("RNIC_TEST_TO", "127.0.0.1"), ("RNIC_TEST_ACTIVE", "yes")]);
    let environment = [("RNIC_TEST_TO", "127.0.0.1"), ("RNIC_TEST_ACTIVE", "no"), ("RNIC_TEST_BYPASS", "off")];
    let mut passive = Role::start(None, &environment);
    let (left, right) = (active.wait_for("CARD"), passive.wait_for("CARD"));
    passive.send_line(&left);
    passive.wait_for("READY");
    active.send_line(&right);
    assert_eq!(active.wait_for("VERIFIED"), "300");
    assert_eq!(active.wait_for("BYPASS"), "0");
}

#[test]
fn ipv6_works_between_processes() {
    let (active, _passive) = start_pair([None, None], ["::1", "::1"], &[("RNIC_TEST_BYPASS", "off")]);
    assert_eq!(active.wait_for("VERIFIED"), "300");
}

#[test]
fn connections_to_a_killed_process_fail_and_its_rings_are_released() {
    for bypass in ["on", "off"] {
        let environment = [("RNIC_TEST_BYPASS", bypass), ("RNIC_TEST_FOREVER", "yes")];
        let (active, passive) = start_pair([None, None], LOOPBACK, &environment);
        active.wait_for("BEGUN");
        std::thread::sleep(Duration::from_millis(200));
        let pid = passive.child.id();
        let killed = Instant::now();
        drop(passive);
        assert_eq!(active.wait_for("FAILED"), "RetryExceeded", "bypass {bypass}");
        assert!(killed.elapsed() < Duration::from_secs(10), "after {:?}", killed.elapsed());
        // Shared memory has no name outside the two processes, so no file is left over.
        assert_eq!(active.wait_for("RINGS"), "0", "the ring to process {pid} was not released");
    }
}

#[test]
fn packets_fit_a_link_of_1500_bytes() {
    let names = ["a", "b"].map(|end| format!("rnic-hosts-{end}{}", std::process::id()));
    let Some(_guard) = connect_namespaces(&names) else { return };
    let namespaces = [Some(names[0].as_str()), Some(names[1].as_str())];
    let (active, _passive) = start_pair(namespaces, ["10.98.0.1", "10.98.0.2"], &[]);
    assert_eq!(active.wait_for("MTU"), "1424");
    assert_eq!(active.wait_for("VERIFIED"), "300");
    assert_eq!(active.wait_for("BYPASS"), "0");
}

#[test]
fn real_roce_peers_are_reached_on_port_4791() {
    let names = ["c", "d"].map(|end| format!("rnic-hosts-{end}{}", std::process::id()));
    let Some(_guard) = connect_namespaces(&names) else { return };
    let namespaces = [Some(names[0].as_str()), Some(names[1].as_str())];
    let (active, _passive) = start_pair(namespaces, ["10.98.0.1", "10.98.0.2"], &[("RNIC_TEST_ROCE", "yes")]);
    assert_eq!(active.wait_for("MTU"), "1024", "not an InfiniBand MTU");
    assert_eq!(active.wait_for("VERIFIED"), "300");
}

/// The link's MTU becomes smaller than packets. Hardware adapters do not fragment packets, and this NIC does not
/// fragment those it sends to adapters: they are lost, a notice says so, and the connection fails. The process only
/// writes: while it waited for the response to a Read, only its peer would send packets that are too large.
#[test]
fn packets_to_real_roce_peers_are_not_fragmented() {
    let names = ["e", "f"].map(|end| format!("rnic-hosts-{end}{}", std::process::id()));
    let Some(_guard) = connect_namespaces(&names) else { return };
    let namespaces = [Some(names[0].as_str()), Some(names[1].as_str())];
    let environment = [("RNIC_TEST_ROCE", "yes"), ("RNIC_TEST_FOREVER", "yes"), ("RNIC_TEST_READS", "no")];
    let (active, _passive) = start_pair(namespaces, ["10.98.0.1", "10.98.0.2"], &environment);
    active.wait_for("BEGUN");
    std::thread::sleep(Duration::from_millis(200));
    for name in &names {
        run(&format!("ip -n {name} link set cable mtu 700")).expect("it may be changed");
    }
    assert_eq!(active.wait_for("FAILED"), "RetryExceeded");
    let notice = active.wait_for("NOTICE");
    assert!(notice.contains("10.98.0.2") && notice.contains("not fragmented"), "{notice}");
    assert_eq!(active.wait_for("FRAGMENTABLE"), "0");
}

/// Deletes the namespaces when it is dropped.
struct NamespaceGuard<'a>(&'a [String; 2]);

impl Drop for NamespaceGuard<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|name| drop(run(&format!("ip netns del {name}"))));
    }
}

/// Creates two namespaces connected by a link; returns `None`, and prints a reason, if that is not possible.
fn connect_namespaces(names: &[String; 2]) -> Option<NamespaceGuard<'_>> {
    let [here, there] = names;
    let guard = NamespaceGuard(names);
    let steps = [
        format!("ip netns add {here}"),
        format!("ip netns add {there}"),
        format!("ip -n {here} link add cable type veth peer name cable netns {there}"),
        format!("ip -n {here} addr add 10.98.0.1/24 dev cable"),
        format!("ip -n {there} addr add 10.98.0.2/24 dev cable"),
        format!("ip -n {here} link set cable mtu 1500 up"),
        format!("ip -n {there} link set cable mtu 1500 up"),
    ];
    for step in steps {
        if let Err(reason) = run(&step) {
            eprintln!("skipped: `{step}`: {reason}");
            return None;
        }
    }
    Some(guard)
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// Returns the number in an environment variable.
fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// Role: connects to the address it is given, then transfers data or serves the other process.
#[test]
#[ignore = "a role of the other tests"]
fn role() {
    let Ok(to) = std::env::var("RNIC_TEST_TO") else { return };
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let receive_buffer_bytes = number("RNIC_TEST_BUFFER").unwrap_or(4 << 20);
    let real_roce_peers = is("RNIC_TEST_ROCE", "yes");
    let bypass = !is("RNIC_TEST_BYPASS", "off");
    let mut nic = Nic::open(NicConfig { bypass, real_roce_peers, receive_buffer_bytes, ..NicConfig::shared() })
        .expect("a free port");
    let pd = nic.verbs().create_pd().expect("a protection domain");
    let cq = nic.verbs().create_cq(1_024).expect("a legal size");
    let region = nic.verbs().register(pd, MEMORY, Access::all()).expect("memory");
    nic.bytes_mut(&region).iter_mut().enumerate().for_each(|(index, byte)| *byte = (index * 11 + index / 253) as u8);
    let choice = TransportChoice::named("irn", &[]).expect("it exists");
    let attributes = QpAttributes {
        service: Service::ReliableConnection,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: false,
        transport: Arc::new(Transport::new(choice.profile).expect("a complete profile")),
        number: None,
        nvme: None,
    };
    let qpn = nic.verbs().create_qp(&attributes).expect("a free number");
    nic.verbs().modify_to_init(qpn).expect("the queue pair is new");
    let here = region.remote(0);
    println!("CARD {} {} {}", qpn.get(), here.addr, here.rkey);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the sender exists");
    let words: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let remote = RemoteMemory { addr: words[1], rkey: words[2] as u32 };
    let peer = nic.acquire_host(to.parse().expect("an address"), None).expect("there is a route to the peer");
    let mtu = nic.wire_mtu_to(peer);
    println!("MTU {mtu}");
    let connection = QpConnection {
        peer,
        dest_qpn: Qpn::new(words[0] as u32),
        rq_psn: Psn::new(1),
        mtu,
        min_rnr_timer: RnrTimer::at_least(rnic_base::Duration::from_us(100)),
        max_dest_rd_atomic: 8,
    };
    nic.verbs().modify_to_rtr(qpn, &connection).expect("valid");
    // Enough retries for a peer that is scheduled late on a busy machine; fewer for a peer that the test kills.
    let retry_count = if is("RNIC_TEST_FOREVER", "yes") { 200 } else { 5_000 };
    let timing = QpTiming { sq_psn: Psn::new(1), retry_count, rnr_retry: None, max_rd_atomic: 8 };
    nic.verbs().modify_to_rts(qpn, &timing).expect("valid");
    println!("READY");
    if is("RNIC_TEST_ACTIVE", "no") {
        serve(&mut nic);
    }
    let rounds = if is("RNIC_TEST_FOREVER", "yes") { u64::MAX } else { 300 };
    let reads = !is("RNIC_TEST_READS", "no");
    println!("BEGUN");
    let mut exchange = |round| exchange_data(&mut nic, (cq, qpn), &region, remote, round, reads);
    if let Err(status) = (0..rounds).try_for_each(&mut exchange) {
        println!("FAILED {status:?}");
        println!("RINGS {}", nic.bypass_rings());
        std::iter::from_fn(|| nic.poll_notice()).for_each(|notice| println!("NOTICE {notice}"));
        println!("FRAGMENTABLE {}", nic.stats().datagrams_fragmentable);
        return;
    }
    println!("VERIFIED {rounds}");
    println!("BYPASS {}", nic.stats().bypass_sent);
}

/// Writes data and, if `reads`, reads it back.
fn exchange_data(
    nic: &mut Nic,
    (cq, qpn): (CqId, Qpn),
    region: &Region,
    remote: RemoteMemory,
    round: u64,
    reads: bool,
) -> Result<(), WcStatus> {
    let len = [8, 1_000, 70_001, 300_000][round as usize % 4];
    nic.bytes_mut(region)[0] = round as u8;
    nic.bytes_mut(region)[HALF..HALF + len].fill(0);
    let there = RemoteMemory { addr: remote.addr + 4_096, ..remote };
    let write = SendOp::Write { remote: there, immediate: None };
    let requests = [(1, write, 0), (2, SendOp::Read { remote: there }, HALF)];
    let requests = &requests[..if reads { 2 } else { 1 }];
    for &(wr_id, op, at) in requests {
        let sges = [region.sge(at, len as u32)];
        let flags = SendFlags::SIGNALED | SendFlags::FENCE;
        nic.verbs().post_send(qpn, &SendRequest { wr_id, op, sges: &sges, flags }).expect("the send queue has space");
    }
    let mut done = 0;
    while done < requests.len() {
        if !nic.progress() {
            nic.wait(rnic_base::Duration::from_ms(50)).expect("the system call succeeds");
        }
        while let Some(completion) = nic.verbs().poll_cq_one(cq) {
            if completion.status != WcStatus::Success {
                return Err(completion.status);
            }
            done += 1;
        }
    }
    let bytes = nic.bytes(region);
    assert!(!reads || bytes[..len] == bytes[HALF..HALF + len], "round {round}: {len} bytes differ");
    Ok(())
}

/// Serves the other process until standard input ends.
fn serve(nic: &mut Nic) -> ! {
    std::thread::spawn(|| {
        // Standard input ends when the test that started this process does.
        let mut rest = String::new();
        let _ = std::io::stdin().read_line(&mut rest);
        std::process::exit(0);
    });
    loop {
        if !nic.progress() {
            nic.wait(rnic_base::Duration::from_secs(1)).expect("the system call succeeds");
        }
    }
}
