//! Tests of observing this process, and of endpoints that are not what they claim to be.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rnic_base::Probability;

use super::credentials::own_user;
use super::*;
use crate::{Nic, NicConfig, Settings};

const FETCH_TIMEOUT: Duration = Duration::from_secs(20);

/// Locked by tests that observe a process: after a process ends, its ID may be reused, and a different process then
/// responds under that ID.
static NAMES: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn endpoint_of(observer: &Observer) -> Endpoint {
    let found = endpoints().expect("the list can be read");
    let own = found
        .into_iter()
        .find(|endpoint| format!("rnic-top-{}-{}-{}", endpoint.user, endpoint.pid, endpoint.number) == observer.name());
    own.expect("the observer is listed")
}

#[test]
fn a_nic_is_observable_until_it_is_dropped() {
    let _exclusive = exclusive();
    let nic = Nic::open(NicConfig::at("127.0.0.1:0".parse().expect("an address"))).expect("a NIC");
    let mut settings = Settings::default();
    settings.impairment.loss = Probability::ratio(1, 100);
    let identity = Identity::of_process("rnic0", "RoCEv2 over UDP", &settings);
    let observer = serve(move || Some(nic.snapshot(&identity))).expect("a socket and a thread");
    let endpoint = endpoint_of(&observer);
    let snapshot = fetch(&endpoint, FETCH_TIMEOUT).expect("the other end responds");
    assert_eq!((snapshot.device.as_str(), snapshot.pid), ("rnic0", std::process::id()));
    assert_eq!(
        (snapshot.transport.as_str(), &snapshot.impairment[..]),
        ("irn", &["loss 1%".to_owned(), "seed 1".to_owned()][..])
    );
    assert!(!snapshot.program.is_empty() && snapshot.queue_pairs.is_empty());
    let again = fetch(&endpoint, FETCH_TIMEOUT).expect("the observer responds again");
    assert!(again.uptime_us >= snapshot.uptime_us);
    drop(observer);
    assert!(fetch(&endpoint, FETCH_TIMEOUT).is_err());
    assert!(!endpoints().expect("the list").contains(&endpoint));
}

#[test]
fn devices_of_one_process_have_separate_names() {
    let _exclusive = exclusive();
    let serve_named = |name: &str| {
        let snapshot = Snapshot { device: name.to_owned(), ..Snapshot::default() };
        serve(move || Some(snapshot.clone())).expect("a socket and a thread")
    };
    let (first, second) = (serve_named("a"), serve_named("b"));
    assert_ne!(first.name(), second.name());
    assert_eq!(fetch(&endpoint_of(&first), FETCH_TIMEOUT).expect("the other end responds").device, "a");
    let second = fetch(&endpoint_of(&second), FETCH_TIMEOUT).expect("the other end responds");
    assert_eq!((second.device.as_str(), second.pid), ("b", std::process::id()));
    assert_ne!(second.context, endpoint_of(&first).number);
}

#[test]
fn an_observer_that_does_not_read_delays_others_only_briefly() {
    let _exclusive = exclusive();
    let program = "x".repeat(4 << 20);
    let observer = serve(move || Some(Snapshot { program: program.clone(), ..Snapshot::default() })).expect("a socket");
    let endpoint = endpoint_of(&observer);
    let address = SocketAddr::from_abstract_name(observer.name()).expect("a name");
    let _idle = UnixStream::connect_addr(&address).expect("it is taken");
    let snapshot = fetch(&endpoint, FETCH_TIMEOUT).expect("others are answered");
    assert_eq!(snapshot.program.len(), 4 << 20);
}

#[test]
fn a_device_that_does_not_respond_times_out() {
    let name = format!("rnic-top-{}-{}-900", own_user(), std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("a socket");
    let endpoint = Endpoint { user: own_user(), pid: std::process::id(), number: 900 };
    let start = Instant::now();
    let error = fetch(&endpoint, Duration::from_millis(50)).expect_err("no response arrives");
    assert!(matches!(error, ObserveError::System { .. }) && start.elapsed() < FETCH_TIMEOUT, "{error}");
    // A response that cannot be parsed is not a snapshot.
    let (ready_sender, ready_receiver) = mpsc::channel();
    let fake_server = thread::spawn(move || {
        ready_sender.send(()).expect("the test waits");
        // The first connection is the one that timed out.
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let _ = std::io::Write::write_all(&mut stream, b"[1, 2");
        }
    });
    ready_receiver.recv().expect("it runs");
    let error = fetch(&endpoint, FETCH_TIMEOUT).expect_err("no snapshot");
    assert!(matches!(error, ObserveError::Malformed { .. }), "{error}");
    fake_server.join().expect("it ends");
}

/// Sends `request` to the control socket of `observer`, and returns the answer.
fn control(observer: &Observer, request: &[u8]) -> Vec<u8> {
    let name = observer.name().replace("rnic-top-", "rnic-ctl-");
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let mut stream = UnixStream::connect_addr(&address).expect("the control socket listens");
    // The server closes the connection after the largest request, and so may refuse the rest.
    let _ = std::io::Write::write_all(&mut stream, request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    answer
}

#[test]
fn requests_that_are_invalid_or_incomplete_change_nothing() {
    let _exclusive = exclusive();
    let (accepted_sender, accepted) = mpsc::channel();
    let set_limit = move |request| {
        accepted_sender.send(request).expect("the test receives");
        Some(ControlReply::QueuePairs(1))
    };
    let observer = serve_with_control(|| Some(Snapshot::default()), set_limit).expect("a socket and a thread");
    let invalid: [&[u8]; 9] = [
        b"",
        b"{}\n",
        br#"{"rate_bps":1000000}"#,
        br#"{"queue_pair":null,"rate_bps":-1}"#,
        br#"{"queue_pair":null,"rate_bps":null,"later":1}"#,
        b"\xff\xfe\n",
        b"{\"program_file\":[91,102",
        b"{\"program_file\":7}\n",
        &[b'['; 10_000],
    ];
    let too_long = format!("{{\"program_file\":[{}1]}}\n", "1,".repeat(super::CONTROL_LINE_MAX / 2));
    let answer = control(&observer, too_long.as_bytes());
    if let Ok(reply) = serde_json::from_slice::<ControlReply>(&answer) {
        assert!(matches!(&reply, ControlReply::Refused(reason) if reason.contains("longer than")), "{reply:?}");
    }
    for request in invalid {
        let answer = control(&observer, request);
        let reply: Option<ControlReply> = serde_json::from_slice(&answer).ok();
        assert!(!matches!(reply, Some(ControlReply::QueuePairs(_))), "{request:?}: {reply:?}");
    }
    assert!(accepted.try_recv().is_err(), "an invalid request was passed on");
    let answer = control(&observer, b"{\"queue_pair\":7,\"rate_bps\":null}\n");
    assert_eq!(serde_json::from_slice::<ControlReply>(&answer).expect("a reply"), ControlReply::QueuePairs(1));
    let limit = ControlRequest::Limit(LimitRequest { queue_pair: Some(7), rate_bps: None });
    assert_eq!(accepted.try_recv(), Ok(limit));
    let file = vec![255; rnic_transports::programs::FILE_BYTES_MAX];
    let request = ProgramRequest { program_file: Some(file) };
    let line = serde_json::to_string(&request).expect("it is JSON") + "\n";
    control(&observer, line.as_bytes());
    assert_eq!(accepted.try_recv(), Ok(ControlRequest::Program(request)), "the largest file is not accepted");
    control(&observer, b"{\"signals_max\":9}\n");
    assert_eq!(accepted.try_recv(), Ok(ControlRequest::Signals(SignalsRequest { signals_max: 9 })));
}

/// A client of the control socket that sends nothing delays others only briefly, and observers are served.
#[test]
fn a_silent_client_of_the_control_socket_does_not_block_others() {
    let _exclusive = exclusive();
    let observer = serve(|| Some(Snapshot::default())).expect("a socket and a thread");
    let name = observer.name().replace("rnic-top-", "rnic-ctl-");
    let _silent = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).expect("a name")).expect("it listens");
    fetch(&endpoint_of(&observer), FETCH_TIMEOUT).expect("observers are served");
    assert!(!control(&observer, b"{}\n").is_empty(), "the next client is not served");
}

#[test]
fn a_socket_name_with_another_user_is_refused() {
    let name = format!("rnic-top-{}-1-0", own_user() + 1);
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("a socket");
    let endpoint = Endpoint { user: own_user() + 1, pid: 1, number: 0 };
    let error = fetch(&endpoint, FETCH_TIMEOUT).expect_err("another user is named");
    assert!(matches!(error, ObserveError::Impostor { .. }), "{error}");
}

#[test]
fn unknown_fields_of_a_snapshot_are_ignored() {
    let text = Snapshot::default();
    let json = serde_json::to_string(&text).expect("the snapshot can be serialized");
    assert_eq!(serde_json::from_str::<Snapshot>(&json).expect("the snapshot is parsed"), text);
    // In a snapshot of another version, missing fields are zero and unknown fields are ignored.
    let old: Snapshot = serde_json::from_str(r#"{"device":"rnic0","later":1}"#).expect("the snapshot is parsed");
    assert_eq!(old.device, "rnic0");
}
