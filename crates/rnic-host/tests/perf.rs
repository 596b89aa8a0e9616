//! Measurements and file transfers between two NICs, each with a thread of its own.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use rnic_base::{Duration, Probability};
use rnic_engine::{
    Access, Completion, CqId, RecvRequest, RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcOpcode, WcStatus,
};
use rnic_host::perf::{LatencyKind, Length, Op, PerfConfig, PerfError, ServeConfig, Served, measure, serve};
use rnic_host::transfer::{TransferConfig, send_bytes, send_file};
use rnic_host::{
    ConnectError, Connection, ConnectionConfig, Impairment, Nic, NicConfig, Protection, Region, TransportChoice,
};
use rnic_psp::Secret;
use rnic_wire::falcon::psp::Cipher;

use common::{SharedFile, TEST_TIMEOUT};

const ALL: [&str; 3] = ["irn", "roce-gbn", "falcon"];

fn open(name: &str) -> Nic {
    open_with_key(name, None)
}

/// Opens a NIC whose secret consists of the byte `key` repeated.
fn open_with_key(name: &str, key: Option<u8>) -> Nic {
    let bind = "127.0.0.1:0".parse().expect("an address");
    let protection = key.map(|key| Protection::new(Secret::new([key; 32]), Cipher::Gcm128));
    Nic::open(NicConfig { name: name.to_owned(), protection, ..NicConfig::at(bind) }).expect("a free port")
}

/// A serving NIC on a thread of its own.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Served>>,
}

impl Server {
    fn start(config: ServeConfig) -> Self {
        Self::with_key(config, None)
    }

    fn with_key(config: ServeConfig, key: Option<u8>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut nic = open_with_key("server", key);
            sender.send(nic.local_addr()).expect("the test waits");
            let mut sessions = Vec::new();
            serve(&mut nic, &config, || !stopped.load(Ordering::Relaxed), |served| sessions.push(served.clone()))
                .expect("it can listen");
            sessions
        });
        Self { address: receiver.recv().expect("it has opened its NIC"), stop, thread }
    }

    fn stop(self) -> Vec<Served> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread has not panicked")
    }
}

/// The operations that `transport` carries.
fn operations(transport: &str) -> impl Iterator<Item = Op> {
    let is_falcon = transport == "falcon";
    Op::ALL.into_iter().filter(move |op| is_falcon || !op.is_nvme())
}

fn short(op: Op) -> PerfConfig {
    let size_bytes = if op.is_nvme() { 5_120 } else { 5_000 };
    PerfConfig { op, size_bytes, depth: 8, length: Length::Count(200), verify: true, ..PerfConfig::default() }
}

/// The warm-up used to take a thousand rounds, however long they were: 20 s here.
#[test]
fn a_ping_pong_over_a_slow_path_ends_in_the_configured_time() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    let impairment = Impairment { delay: Duration::from_ms(10), ..Impairment::default() };
    let length = Length::Time(Duration::from_ms(200));
    let config = PerfConfig { depth: 1, ping_pong: true, length, impairment, ..short(Op::Send) };
    let start = std::time::Instant::now();
    let report = measure(&mut nic, server.address, &config).expect("the server serves");
    assert!(report.verified && report.ops > 0, "{report:?}");
    assert!(start.elapsed() < std::time::Duration::from_secs(8), "it took {:?}", start.elapsed());
    server.stop();
}

#[test]
fn every_operation_is_measured_and_verified_with_every_transport() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    for transport in ALL {
        for op in operations(transport) {
            let config = PerfConfig { transport: transport.to_owned(), qps: 3, ..short(op) };
            let report = measure(&mut nic, server.address, &config).expect("the server serves");
            assert_eq!((report.transport.as_str(), report.op.as_str()), (transport, op.name()));
            assert_eq!((report.ops, report.ops_verified, report.ops_wrong), (600, 600, 0), "{report:?}");
            assert!(report.verified, "{report:?}");
            assert_eq!(report.bytes, 600 * u64::from(config.operation_bytes()));
            assert!(report.goodput_gbps > 0.0 && report.latency_us.p50 > 0.0 && report.packets_sent >= 600);
            assert_eq!(report.latency_kind, LatencyKind::Operation);
            assert!(report.latency_us.p50 <= report.latency_us.p99 && report.latency_us.p99 <= report.latency_us.max);
        }
    }
    let sessions = server.stop();
    assert_eq!(sessions.len(), ALL.into_iter().flat_map(operations).count());
    assert!(sessions.iter().all(|session| session.problem.is_none()), "{sessions:?}");
}

#[test]
fn t26_streams_are_measured_and_verified_at_one_percent_loss() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    let impairment = Impairment { loss: Probability::ratio(1, 100), ..Impairment::default() };
    let mut retransmitted = 0;
    for (transport, ping_pong) in [("tonic-new-reno", false), ("tonic-new-reno", true), ("irn", false), ("tcp", true)] {
        let depth = if ping_pong { 1 } else { 8 };
        let config =
            PerfConfig { stream: true, ping_pong, depth, impairment, transport: transport.into(), ..short(Op::Send) };
        // So many packets that one of them is lost in all runs but one of 10^12.
        let config = PerfConfig { length: Length::Count(800), ..config };
        let report = measure(&mut nic, server.address, &config).expect("the server serves");
        assert_eq!((report.transport.as_str(), report.op.as_str()), (transport, "stream"));
        assert_eq!((report.ops, report.ops_verified, report.bytes), (800, 800, 4_000_000), "{report:?}");
        assert!(report.verified && report.ops_wrong == 0, "{report:?}");
        assert!(report.packets_sent >= 977 && report.latency_us.p50 > 0.0 && report.goodput_gbps > 0.0, "{report:?}");
        assert_eq!(report.latency_kind == LatencyKind::HalfRoundTrip, ping_pong);
        retransmitted += report.packets_retransmitted;
    }
    assert!(retransmitted > 0, "no packet was lost");
    let refused = measure(&mut nic, server.address, &PerfConfig { stream: true, size_bytes: 0, ..short(Op::Send) });
    assert!(refused.expect_err("no bytes").to_string().contains("at least 1"));
    let sessions = server.stop();
    assert_eq!(sessions.len(), 4);
    assert!(sessions.iter().all(|session| session.problem.is_none() && session.task == "stream"), "{sessions:?}");
}

#[test]
fn verification_succeeds_on_an_impaired_network() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    let percent = |percent| Probability::ratio(percent, 100);
    for transport in ALL {
        for op in operations(transport) {
            let impairment = Impairment {
                seed: 9,
                loss: percent(1),
                reorder: percent(2),
                duplicate: percent(1),
                ..Impairment::default()
            };
            let config = PerfConfig { transport: transport.to_owned(), impairment, ..short(op) };
            let report = measure(&mut nic, server.address, &config).expect("the server serves");
            assert!(report.verified, "{report:?}");
            assert!((report.loss - 0.01).abs() < 1e-9);
        }
    }
    let sessions = server.stop();
    let again: u64 = sessions.iter().map(|session| session.packets_retransmitted).sum();
    assert!(again > 0, "the server impairs its own packets too: {sessions:?}");
}

#[test]
fn a_ping_pong_reports_half_round_trips() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    let config = PerfConfig { size_bytes: 8, depth: 1, ping_pong: true, length: Length::Count(500), ..short(Op::Send) };
    let report = measure(&mut nic, server.address, &config).expect("the server serves");
    assert_eq!(
        (report.ops, report.latency_kind, report.verified),
        (500, LatencyKind::HalfRoundTrip, true),
        "{report:?}"
    );
    let timed = PerfConfig { length: Length::Time(Duration::from_ms(50)), verify: false, ..config };
    let report = measure(&mut nic, server.address, &timed).expect("the server serves");
    assert!(report.ops > 0 && report.elapsed_s >= 0.05, "{report:?}");
    assert!(!report.verified, "the data were verified");
    server.stop();
}

/// The response shows that a message has arrived, while the acknowledgements of that message and the one before may
/// be lost: then the send queue, which has two entries, is full.
#[test]
fn a_ping_pong_continues_when_acknowledgements_are_lost() {
    let server = Server::start(ServeConfig::default());
    let impairment = Impairment { loss: Probability::ratio(1, 10), seed: 3, ..Impairment::default() };
    for transport in ["irn", "roce-sr", "falcon"] {
        let mut nic = open("client");
        let transport = transport.to_owned();
        let length = Length::Count(2_000);
        let config =
            PerfConfig { size_bytes: 8, depth: 1, ping_pong: true, length, impairment, transport, ..short(Op::Send) };
        let report = measure(&mut nic, server.address, &config).expect("the thread ends");
        assert!(report.verified && report.ops == 2_000, "{report:?}");
    }
    server.stop();
}

#[test]
fn a_measurement_lasts_for_the_configured_time() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    let config = PerfConfig { verify: false, length: Length::Time(Duration::from_ms(100)), ..short(Op::Write) };
    let report = measure(&mut nic, server.address, &config).expect("the server serves");
    assert!((0.1..2.0).contains(&report.elapsed_s) && report.ops > 0, "{report:?}");
    server.stop();
}

#[test]
fn invalid_configurations_are_refused_by_the_client_or_the_server() {
    let server = Server::start(ServeConfig { memory_max_bytes: 1 << 20, ..ServeConfig::default() });
    let mut nic = open("client");
    let line = |nic: &mut Nic, config: &PerfConfig| {
        let error = measure(nic, server.address, config).expect_err("an invalid configuration").to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert_eq!(
        line(&mut nic, &PerfConfig { qps: 0, ..short(Op::Write) }),
        "invalid number of queue pairs: 0; expected 1 to 1024"
    );
    assert!(
        line(&mut nic, &PerfConfig { ping_pong: true, ..short(Op::Send) }).contains("invalid depth of a ping-pong: 8")
    );
    assert!(
        line(&mut nic, &PerfConfig { transport: "quic".to_owned(), ..short(Op::Write) }).contains("unknown transport")
    );
    let large_config = PerfConfig { size_bytes: 1 << 20, ..short(Op::Write) };
    assert!(line(&mut nic, &large_config).contains(
        "refused the session: the task needs 16777216 bytes of memory, but the server allows at most 1048576"
    ));
    // The server is still there.
    assert!(measure(&mut nic, server.address, &short(Op::Write)).expect("the server serves").verified);
    server.stop();
    let error = measure(&mut nic, "127.0.0.1:9".parse().expect("an address"), &short(Op::Write));
    assert!(matches!(error, Err(PerfError::Connect(ConnectError::Refused { .. }))), "{error:?}");
}

#[test]
fn the_server_continues_after_a_client_disappears() {
    let server = Server::start(ServeConfig { patience: Duration::from_ms(500), ..ServeConfig::default() });
    let address = server.address;
    std::thread::spawn(move || {
        let mut nic = open("client");
        let config = PerfConfig { length: Length::Time(Duration::from_ms(100)), ..short(Op::Write) };
        // Ends without notice after it has established its control connection.
        let pd = nic.verbs().create_pd().expect("a protection domain");
        let cq = nic.verbs().create_cq(64).expect("a legal size");
        let mut connection = rnic_host::ConnectionConfig::new(pd, cq);
        connection.private_data = [&b"C"[..], &[7; 12]].concat();
        nic.connect(address, config.port, &connection).expect("a control connection");
        nic.progress();
    })
    .join()
    .expect("the client ran");
    let mut nic = open("second client");
    let mut config = short(Op::Write);
    config.timeout = Duration::from_secs(5);
    assert!(measure(&mut nic, address, &config).expect("the server serves").verified);
    std::thread::sleep(std::time::Duration::from_millis(800));
    let problems = server.stop().into_iter().filter_map(|session| session.problem);
    assert_eq!(problems.filter(|problem| problem.contains("no packet has arrived")).count(), 1);
}

#[test]
fn a_server_with_once_serves_one_session() {
    let server = Server::start(ServeConfig { once: true, ..ServeConfig::default() });
    measure(&mut open("client"), server.address, &short(Op::Read)).expect("the server serves");
    assert_eq!(server.thread.join().expect("the thread has not panicked").len(), 1);
}

#[test]
fn a_file_arrives_unchanged() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    let path = std::env::current_exe().expect("a test has a file");
    let len = std::fs::metadata(&path).expect("the file exists").len();
    let unordered = ("falcon", vec![("ordering".to_owned(), "unordered".to_owned())]);
    for (transport, options) in ALL.into_iter().map(|transport| (transport, Vec::new())).chain([unordered]) {
        let percent = |percent| Probability::ratio(percent, 100);
        let impairment = Impairment { loss: percent(1), reorder: percent(1), ..Impairment::default() };
        let transport = transport.to_owned();
        let config = TransferConfig { transport, options, impairment, ..TransferConfig::default() };
        let report = send_file(&mut nic, server.address, &path, &config).expect("the server serves");
        assert!(report.verified && report.bytes == len, "{report:?}");
        assert!(report.packets_retransmitted > 0 && report.goodput_gbps > 0.0);
        assert_eq!(report.delivered.last().map(|(_, bytes)| *bytes), Some(len));
        assert!(report.delivered.is_sorted_by(|one, other| one.0 <= other.0 && one.1 < other.1));
    }
    for content in [&[][..], &[7], &[1; 100_000]] {
        let config = TransferConfig { chunk_bytes: 1_000, ..TransferConfig::default() };
        let report = send_bytes(&mut nic, server.address, content, &config).expect("the server serves");
        assert!(report.verified, "{} bytes: {report:?}", content.len());
    }
    let missing = std::path::Path::new("/nowhere/at/all");
    let error = send_file(&mut nic, server.address, missing, &TransferConfig::default()).expect_err("no such file");
    assert!(error.to_string().starts_with("cannot read /nowhere/at/all: No such file"), "{error}");
    server.stop();
}

fn falcon(op: Op) -> PerfConfig {
    PerfConfig { transport: "falcon".to_owned(), ..short(op) }
}

/// Without ordering, requests complete in any order, but queue entries become free in order.
#[test]
fn unordered_operations_without_order_requirements_are_verified() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    let impairment = Impairment {
        seed: 9,
        loss: Probability::ratio(2, 100),
        reorder: Probability::ratio(2, 100),
        ..Impairment::default()
    };
    let options = vec![("ordering".to_owned(), "unordered".to_owned())];
    for op in Op::ALL {
        for verify in [true, false] {
            let size_bytes = match op {
                Op::Read => 20_000,
                Op::NvmeRead | Op::NvmeWrite => 20_480,
                _ => 1_000,
            };
            let depth = if op == Op::CompareSwap { 1 } else { 16 };
            let config = PerfConfig { size_bytes, depth, verify, impairment, options: options.clone(), ..falcon(op) };
            let config = PerfConfig { length: Length::Count(1_000), ..config };
            let report = measure(&mut nic, server.address, &config).expect("the server serves");
            let verified = if verify { 1_000 } else { 0 };
            assert_eq!((report.ops, report.ops_verified, report.ops_wrong), (1_000, verified, 0), "{report:?}");
        }
    }
    let long = PerfConfig { size_bytes: 20_000, verify: false, options, ..falcon(Op::Write) };
    assert_eq!(measure(&mut nic, server.address, &long).expect("no immediate data, no bound").ops, 200);
    server.stop();
}

#[test]
fn nvme_operations_report_their_requirements() {
    let mut nic = open("client");
    let closed_port = "127.0.0.1:9".parse().expect("an address");
    let refused = |nic: &mut Nic, config: PerfConfig| {
        measure(nic, closed_port, &config).map(drop).expect_err("before anything is sent").to_string()
    };
    let irn = PerfConfig { transport: "irn".to_owned(), ..short(Op::NvmeRead) };
    assert_eq!(
        refused(&mut nic, irn),
        "operation nvme-read is an NVMe command, which transport irn does not support; use the transport falcon"
    );
    for size_bytes in [0, 1_000, (1 << 20) + 512] {
        let config = PerfConfig { size_bytes, ..falcon(Op::NvmeWrite) };
        assert!(
            refused(&mut nic, config).ends_with("expected a multiple of the block size of 512 bytes, at most 1 MiB")
        );
    }
    for depth in [8_193, 20_000] {
        let said = refused(&mut nic, PerfConfig { depth, ..falcon(Op::NvmeRead) });
        assert!(
            said.starts_with(&format!("invalid depth of a queue pair for NVMe: {depth}; expected at most 8192")),
            "{said}"
        );
        assert!(said.contains("reduce the depth or use more queue pairs") && said.lines().count() == 1, "{said}");
    }
    let max_depth = PerfConfig { depth: 8_192, ..falcon(Op::NvmeRead) };
    rnic_host::perf::check(&max_depth, 4_096).expect("the largest depth is valid");
}

/// Refused before a packet is sent: no program listens at that address.
#[test]
fn operations_that_require_order_are_refused_without_it() {
    let mut nic = open("client");
    let closed_port = "127.0.0.1:9".parse().expect("an address");
    let options = vec![("ordering".to_owned(), "unordered".to_owned())];
    for (op, expected_text) in [
        (Op::Send, "a Send with more than one packet (4096 bytes) requires order"),
        (Op::Write, "a verified Write (it has immediate data) with more than one packet"),
        (Op::CompareSwap, "a compare-and-swap with more than one operation in flight requires order"),
    ] {
        let config = PerfConfig { options: options.clone(), ..falcon(op) };
        let error = measure(&mut nic, closed_port, &config).expect_err("order is required");
        assert!(matches!(error, PerfError::NeedsOrder { .. }) && error.to_string().contains(expected_text), "{error}");
    }
}

/// With a key, none of a session's data is readable on the wire; without one it is.
#[test]
fn a_session_with_a_key_sends_no_cleartext() {
    for key in [None, Some(1)] {
        let server = Server::with_key(ServeConfig::default(), key);
        let mut nic = open_with_key("client", key);
        let file = SharedFile::default();
        nic.start_capture(Box::new(file.clone())).expect("memory");
        assert!(measure(&mut nic, server.address, &falcon(Op::Write)).expect("the server serves").verified);
        nic.stop_capture();
        let frames = file.frames();
        let in_clear = |word: &[u8]| frames.iter().any(|frame| frame.windows(word.len()).any(|found| found == word));
        for word in ["prepare", "ready", "rkey", "finish", "outcome"] {
            assert_eq!(in_clear(word.as_bytes()), key.is_none(), "{word:?} with key {key:?}");
        }
        server.stop();
    }
}

/// A client without the right key gets a one-line error, and the next client is served.
#[test]
fn a_server_with_a_key_serves_only_clients_with_the_key() {
    let server = Server::with_key(ServeConfig { patience: Duration::from_secs(1), ..ServeConfig::default() }, Some(1));
    let plain = Server::start(ServeConfig::default());
    let refused = |key, server: &Server, config: &PerfConfig| {
        let mut nic = open_with_key("client", key);
        let error = measure(&mut nic, server.address, config).expect_err("not with this key").to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    for config in [short(Op::Write), falcon(Op::Write)] {
        let error = refused(None, &server, &config);
        assert!(error.contains("falcon with the same --key"), "{error}");
    }
    let error = refused(Some(1), &plain, &falcon(Op::Write));
    assert!(error.contains("the client has a --key, but the server has none"), "{error}");
    let error = refused(Some(1), &server, &short(Op::Write));
    assert!(error.contains("transport irn does not encrypt packets"), "{error}");
    let error = refused(Some(2), &server, &falcon(Op::Write));
    assert!(error.contains("the other end uses falcon with") && error.contains("key "), "{error}");
    let start = Instant::now();
    let mut nic = open_with_key("client", Some(1));
    let report = loop {
        match measure(&mut nic, server.address, &falcon(Op::Read)) {
            Ok(report) => break report,
            Err(error) => assert!(error.to_string().contains("busy") && start.elapsed() < TEST_TIMEOUT, "{error}"),
        }
    };
    assert!(report.verified, "{report:?}");
    let problems: Vec<_> = server.stop().into_iter().map(|session| session.problem.is_some()).collect();
    assert_eq!(problems, [true, true, true, false]);
    plain.stop();
}

/// A client that sends arbitrary orders on its control connection.
struct ByHand {
    nic: Nic,
    config: ConnectionConfig,
    connection: Connection,
    cq: CqId,
    region: Region,
}

impl ByHand {
    fn connect(server: &Server, key: Option<u8>) -> Self {
        let mut nic = open_with_key("client", key);
        let (pd, cq) =
            (nic.verbs().create_pd().expect("a protection domain"), nic.verbs().create_cq(64).expect("a legal size"));
        let region = nic.verbs().register(pd, 1 << 16, Access::LOCAL_WRITE).expect("memory");
        let mut config = ConnectionConfig::new(pd, cq);
        if key.is_some() {
            config.transports = vec![TransportChoice::named("falcon", &[]).expect("a transport")];
        }
        config.private_data = [&b"C"[..], &[7; 12]].concat();
        let connection = nic.connect(server.address, PerfConfig::default().port, &config).expect("it is served");
        Self { nic, config, connection, cq, region }
    }

    fn post(&mut self, op: SendOp, sge: Sge) {
        let request = SendRequest { wr_id: 1, op, sges: &[sge], flags: SendFlags::SIGNALED };
        self.nic.verbs().post_send(self.connection.qpn, &request).expect("the send queue has space");
    }

    /// Returns the server's answer to `order`.
    fn order(&mut self, order: &str) -> serde_json::Value {
        let sges = [self.region.sge(8_192, 4_096)];
        self.nic.verbs().post_recv(self.connection.qpn, &RecvRequest { wr_id: 2, sges: &sges }).expect("a free entry");
        self.nic.bytes_mut(&self.region)[..order.len()].copy_from_slice(order.as_bytes());
        self.post(SendOp::Send { immediate: None }, self.region.sge(0, order.len() as u32));
        let answer = await_completion(&mut self.nic, self.cq, WcOpcode::Recv);
        assert_eq!(answer.status, WcStatus::Success);
        let answer = self.nic.bytes(&self.region)[8_192..8_192 + answer.byte_len as usize].to_vec();
        serde_json::from_slice(&answer).expect("a response has arrived")
    }
}

/// An order for one small Write.
const PREPARE: &str = r#"{"prepare":{"version":3,"task":{"perf":{"op":"write","size_bytes":64,"qps":1,"depth":1,
    "verify":false,"ping_pong":false}},"transport":{"name":"falcon","options":[]},"impairment":{"seed":0,
    "loss":0,"corrupt":0,"duplicate":0,"reorder":0,"reorder_packets":0,"reorder_hold_ps":0,"delay_ps":0,
    "jitter_ps":0,"rate_bps":null,"rate_queue_bytes":0}}}"#;

/// Clients that connect and send nothing, and one that stops after an order: neither blocks other clients for the
/// half minute after which a silent session ends.
#[test]
fn silent_clients_block_no_other_client() {
    let server = Server::start(ServeConfig::default());
    let mut silent = ByHand::connect(&server, None);
    let config = ConnectionConfig { private_data: [&b"C"[..], &[8; 12]].concat(), ..silent.config.clone() };
    // More than the server's queue of waiting clients.
    for _ in 0..80 {
        silent.nic.connect(server.address, PerfConfig::default().port, &config).expect("it listens");
    }
    let start = Instant::now();
    let mut nic = open("client");
    assert!(measure(&mut nic, server.address, &short(Op::Write)).expect("it is served").verified);
    assert!(start.elapsed() < std::time::Duration::from_secs(4), "served after {:?}", start.elapsed());

    let mut ordered = ByHand::connect(&server, None);
    assert!(ordered.order(PREPARE)["ready"].is_object());
    let start = Instant::now();
    let report = loop {
        match measure(&mut nic, server.address, &short(Op::Write)) {
            Ok(report) => break report,
            Err(error) => assert!(error.to_string().contains("busy"), "{error}"),
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "the server does not serve");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert!(report.verified && start.elapsed() < std::time::Duration::from_secs(12), "after {:?}", start.elapsed());
    server.stop();
}

/// A control connection learns the address of the memory but cannot access it: it has a protection domain of its own.
#[test]
fn a_control_connection_cannot_access_memory() {
    for key in [None, Some(1)] {
        let server = Server::with_key(ServeConfig::default(), key);
        let mut client = ByHand::connect(&server, key);
        let answer = client.order(PREPARE);
        let memory = &answer["ready"]["memory"];
        let number = |name: &str| memory[name].as_u64().unwrap_or_else(|| panic!("{name} in {answer}"));
        let remote = RemoteMemory { addr: number("addr"), rkey: number("rkey") as u32 };
        client.post(SendOp::Write { remote, immediate: None }, client.region.sge(0, 8));
        let written = await_completion(&mut client.nic, client.cq, WcOpcode::RdmaWrite);
        // The server disconnects, which may be noticed before its refusal.
        let is_refused = matches!(written.status, WcStatus::RemoteAccess | WcStatus::WrFlushed);
        assert!(is_refused, "with key {key:?}: {written:?}");
        drop(client);
        server.stop();
    }
}

/// A client that may order measurements can neither end the server nor use more of its memory than permitted.
#[test]
fn harmful_orders_are_refused() {
    let patience = Duration::from_ms(200);
    let server = Server::start(ServeConfig { patience, ..ServeConfig::default() });
    let mut client = ByHand::connect(&server, None);
    assert!(client.order(PREPARE)["ready"].is_object());
    let again = client.order(PREPARE);
    assert!(again["refused"]["reason"].as_str().is_some_and(|reason| reason.contains("already")), "{again}");
    drop(client);
    for (field, value) in [("delay_ps", u64::MAX), ("jitter_ps", u64::MAX), ("reorder_hold_ps", 60_000_000_000_001)] {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let mut client = ByHand::connect(&server, None);
        let order = PREPARE.replace(&format!("\"{field}\":0"), &format!("\"{field}\":{value}"));
        let answer = client.order(&order);
        let reason = answer["refused"]["reason"].as_str();
        assert!(reason.is_some_and(|reason| reason.contains("at most 60 s is allowed")), "{field}: {answer}");
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    let report = measure(&mut open("client"), server.address, &short(Op::Write)).expect("the server serves");
    assert!(report.verified, "{report:?}");
    server.stop();
}

/// The next completion of this kind, or of a failure.
fn await_completion(nic: &mut Nic, cq: CqId, opcode: WcOpcode) -> Completion {
    let start = Instant::now();
    loop {
        nic.progress();
        let found = nic.verbs().poll_cq_one(cq);
        if let Some(found) = found.filter(|found| found.opcode == opcode || found.status != WcStatus::Success) {
            return found;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "no {opcode:?}");
    }
}

fn falcon_at(delay: Duration, options: &[(&str, &str)]) -> PerfConfig {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    PerfConfig { options, impairment: Impairment { delay, ..Impairment::default() }, ..falcon(Op::Write) }
}

/// Over a path whose round trip is longer than any of Falcon's initial timeouts, data still arrives in both
/// directions.
#[test]
fn falcon_works_over_long_paths() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    let cases: [(u64, &[(&str, &str)]); 4] = [(20, &[]), (50, &[]), (5, &[("rto", "1s")]), (5, &[("rto_min", "1ms")])];
    for (delay, options) in cases {
        for op in [Op::Write, Op::Read] {
            let config = falcon_at(Duration::from_ms(delay), options);
            let config = PerfConfig { op, size_bytes: 8, depth: 1, length: Length::Count(5), ..config };
            let report = measure(&mut nic, server.address, &config);
            let report = report.unwrap_or_else(|error| panic!("{op:?}, {delay} ms, {options:?}: {error}"));
            assert!(report.verified && report.latency_us.p50 > 2_000.0 * delay as f64, "{report:?}");
        }
    }
    server.stop();
}

/// Swift does not treat the propagation delay of the path as congestion: windows grow as far as IRN's, only more
/// slowly (ncwnd by a packet per round trip, so this takes two seconds here).
#[test]
#[ignore = "a measurement: on a busy machine delays are anything"]
fn falcon_reaches_half_of_irns_goodput_on_a_long_path() {
    let server = Server::start(ServeConfig::default());
    let mut nic = open("client");
    for (delay, op) in [(1, Op::Write), (5, Op::Write), (5, Op::Read)] {
        let mut goodput = |transport: &str| {
            let config = PerfConfig {
                op,
                size_bytes: 64 << 10,
                depth: 32,
                verify: false,
                ..falcon_at(Duration::from_ms(delay), &[])
            };
            let length = Length::Time(Duration::from_ms(2_500));
            let config = PerfConfig { transport: transport.to_owned(), length, ..config };
            let report = measure(&mut nic, server.address, &config).expect("the server serves");
            report.goodput_gbps
        };
        let (falcon, irn) = (goodput("falcon"), goodput("irn"));
        println!("{delay} ms, {op:?}: falcon {falcon:.3}, irn {irn:.3} Gbit/s");
        assert!(falcon > irn / 2.0, "{delay} ms, {op:?}: falcon {falcon}, irn {irn} Gbit/s");
    }
    server.stop();
}
