//! Watching this process, and things that are not what they seem.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rnic_base::Probability;

use super::credentials::own_user;
use super::*;
use crate::{Nic, NicConfig, Settings};

const PATIENCE: Duration = Duration::from_secs(20);

/// Held by tests that watch: the number of one that has ended goes to the next, and then somebody answers there again.
static NAMES: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
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
fn a_nic_is_watched_while_it_lives_and_gone_afterwards() {
    let _alone = alone();
    let nic = Nic::open(NicConfig::at("127.0.0.1:0".parse().expect("an address"))).expect("a NIC");
    let mut settings = Settings::default();
    settings.impairment.loss = Probability::ratio(1, 100);
    let identity = Identity::of_process("rnic0", "RoCEv2 over UDP", &settings);
    let observer = serve(move || Some(nic.snapshot(&identity))).expect("a socket and a thread");
    let endpoint = endpoint_of(&observer);
    let snapshot = fetch(&endpoint, PATIENCE).expect("it answers");
    assert_eq!((snapshot.device.as_str(), snapshot.pid), ("rnic0", std::process::id()));
    assert_eq!(
        (snapshot.transport.as_str(), &snapshot.impairment[..]),
        ("irn", &["loss 1%".to_owned(), "seed 1".to_owned()][..])
    );
    assert!(!snapshot.program.is_empty() && snapshot.queue_pairs.is_empty());
    let again = fetch(&endpoint, PATIENCE).expect("it answers again");
    assert!(again.uptime_us >= snapshot.uptime_us);
    drop(observer);
    assert!(fetch(&endpoint, PATIENCE).is_err());
    assert!(!endpoints().expect("the list").contains(&endpoint));
}

#[test]
fn devices_of_one_process_have_names_of_their_own() {
    let _alone = alone();
    let named = |name: &str| {
        let snapshot = Snapshot { device: name.to_owned(), ..Snapshot::default() };
        serve(move || Some(snapshot.clone())).expect("a socket and a thread")
    };
    let (first, second) = (named("a"), named("b"));
    assert_ne!(first.name(), second.name());
    assert_eq!(fetch(&endpoint_of(&first), PATIENCE).expect("it answers").device, "a");
    let second = fetch(&endpoint_of(&second), PATIENCE).expect("it answers");
    assert_eq!((second.device.as_str(), second.pid), ("b", std::process::id()));
    assert_ne!(second.context, endpoint_of(&first).number);
}

#[test]
fn a_watcher_that_does_not_read_does_not_keep_others_waiting_for_long() {
    let _alone = alone();
    let program = "x".repeat(4 << 20);
    let observer = serve(move || Some(Snapshot { program: program.clone(), ..Snapshot::default() })).expect("a socket");
    let endpoint = endpoint_of(&observer);
    let address = SocketAddr::from_abstract_name(observer.name()).expect("a name");
    let _idle = UnixStream::connect_addr(&address).expect("it is taken");
    let snapshot = fetch(&endpoint, PATIENCE).expect("others are answered");
    assert_eq!(snapshot.program.len(), 4 << 20);
}

#[test]
fn a_device_that_does_not_answer_is_given_up() {
    let name = format!("rnic-top-{}-{}-900", own_user(), std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("a socket");
    let endpoint = Endpoint { user: own_user(), pid: std::process::id(), number: 900 };
    let start = Instant::now();
    let error = fetch(&endpoint, Duration::from_millis(50)).expect_err("nobody answers");
    assert!(matches!(error, ObserveError::System { .. }) && start.elapsed() < PATIENCE, "{error}");
    // Nonsense is not a snapshot.
    let (told, heard) = mpsc::channel();
    let liar = thread::spawn(move || {
        told.send(()).expect("the test waits");
        // The first is the one that was given up.
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            let _ = std::io::Write::write_all(&mut stream, b"[1, 2");
        }
    });
    heard.recv().expect("it runs");
    let error = fetch(&endpoint, PATIENCE).expect_err("no snapshot");
    assert!(matches!(error, ObserveError::Malformed { .. }), "{error}");
    liar.join().expect("it ends");
}

#[test]
fn a_name_of_another_user_is_not_believed() {
    let name = format!("rnic-top-{}-1-0", own_user() + 1);
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("a socket");
    let endpoint = Endpoint { user: own_user() + 1, pid: 1, number: 0 };
    let error = fetch(&endpoint, PATIENCE).expect_err("it is ours");
    assert!(matches!(error, ObserveError::Impostor { .. }), "{error}");
}

#[test]
fn names_that_are_not_ours_are_passed_over() {
    let text = Snapshot::default();
    let json = serde_json::to_string(&text).expect("it has names and numbers");
    assert_eq!(serde_json::from_str::<Snapshot>(&json).expect("it reads back"), text);
    // Of another version: what is missing is zero, what is new is passed over.
    let old: Snapshot = serde_json::from_str(r#"{"device":"rnic0","later":1}"#).expect("it is understood");
    assert_eq!(old.device, "rnic0");
}
