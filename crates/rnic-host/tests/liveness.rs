//! A process that ends without notice: queue pairs that only wait for receives detect it too.
//!
//! The other process is this test binary in the role at the end of this file.

mod common;

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Side, drive_for};
use rnic_base::Psn;
use rnic_engine::{
    AsyncEvent, Completion, QpAttributes, QpConnection, QpState, QpTiming, RnrTimer, SendOp, Service, Transport,
    WcStatus,
};
use rnic_host::{NicConfig, RxDrop, TransportChoice};
use rnic_wire::Qpn;
use rustix::process::{Pid, Signal, kill_process};

/// Time limit promised in the issue and in the documentation.
const DETECTION_TIME: Duration = Duration::from_secs(3);
const RECEIVES: u64 = 3;

fn open(bypass: bool) -> Side {
    Side::open(NicConfig { bypass, ..NicConfig::shared() })
}

fn new_qp(side: &mut Side, service: Service) -> Qpn {
    let choice = TransportChoice::named("irn", &[]).expect("a transport that exists");
    // Unreliable services use no parameter of it.
    let transport = Transport::new(choice.profile).expect("a complete profile");
    let attributes = QpAttributes {
        pd: side.pd,
        send_cq: side.cq,
        recv_cq: side.cq,
        srq: None,
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: false,
        service,
        transport: Arc::new(transport),
        number: None,
        nvme: None,
    };
    let qpn = side.nic.verbs().create_qp(&attributes).expect("a free number");
    side.nic.verbs().modify_to_init(qpn).expect("the queue pair is new");
    qpn
}

fn connect(side: &mut Side, qpn: Qpn, dest_qpn: Qpn, address: &str) {
    let address: IpAddr = address.parse().expect("an address");
    let peer = side.nic.acquire_host(address, None).expect("loopback");
    let mtu = side.nic.wire_mtu_to(peer);
    let min_rnr_timer = RnrTimer::at_least(rnic_base::Duration::from_us(100));
    let connection = QpConnection { peer, dest_qpn, rq_psn: Psn::new(5), mtu, min_rnr_timer, max_dest_rd_atomic: 1 };
    side.nic.verbs().modify_to_rtr(qpn, &connection).expect("legal attributes");
    let timing = QpTiming { sq_psn: Psn::new(5), retry_count: 7, rnr_retry: None, max_rd_atomic: 1 };
    side.nic.verbs().modify_to_rts(qpn, &timing).expect("legal attributes");
}

fn post_receives(side: &mut Side, qpn: Qpn) {
    for wr_id in 0..RECEIVES {
        let sge = side.sge(0, 64);
        side.post_recv(qpn, wr_id, &[sge]);
    }
}

/// Drives one side, sleeping in between, until it has `count` completions or the time `timeout` is over.
fn completions_of(side: &mut Side, count: usize, timeout: Duration) -> Vec<Completion> {
    let (start, mut found) = (Instant::now(), Vec::new());
    while found.len() < count && start.elapsed() < timeout {
        if !side.nic.progress() {
            side.nic.wait(rnic_base::Duration::from_secs(10).min(to_base(timeout))).expect("the system call succeeds");
        }
        found.extend(side.completions());
    }
    found
}

fn to_base(duration: Duration) -> rnic_base::Duration {
    rnic_base::Duration::from_ms(duration.as_millis() as u64)
}

fn check_flushed(side: &mut Side, qpn: Qpn) {
    let flushed = completions_of(side, RECEIVES as usize, DETECTION_TIME);
    let expected: Vec<_> = (0..RECEIVES).map(|wr_id| (wr_id, WcStatus::WrFlushed)).collect();
    let found: Vec<_> = flushed.iter().map(|completion| (completion.wr_id, completion.status)).collect();
    assert_eq!(found, expected, "{:?}", side.nic.stats());
    assert_eq!(side.nic.query_qp(qpn).expect("the queue pair exists").state, QpState::Error);
    let events: Vec<_> = std::iter::from_fn(|| side.nic.verbs().poll_event()).collect();
    assert!(events.contains(&AsyncEvent::QpFatal(qpn)), "{events:?}");
    assert_eq!(side.nic.stats().peers_gone, 1);
}

#[test]
fn a_queue_pair_in_rnr_wait_fails_when_the_other_nic_exits() {
    for (service, bypass, address) in [
        (Service::ReliableConnection, true, "127.0.0.1"),
        (Service::ReliableConnection, false, "127.0.0.1"),
        (Service::ReliableConnection, false, "::1"),
        (Service::UnreliableConnection, false, "127.0.0.1"),
    ] {
        let (mut left, mut right) = (open(bypass), open(bypass));
        let (from, to) = (new_qp(&mut left, service), new_qp(&mut right, service));
        connect(&mut left, from, to, address);
        connect(&mut right, to, from, address);
        post_receives(&mut left, from);
        post_receives(&mut right, to);
        let sge = right.sge(0, 8);
        right.post(to, 9, SendOp::Send { immediate: None }, &[sge]);
        drive_for(&mut left, &mut right, Duration::from_millis(100));
        assert_eq!(left.completions().len(), 1, "the Send was not completed");
        let sge = left.sge(0, 64);
        left.post_recv(from, 0, &[sge]);
        drop(right);
        let flushed = completions_of(&mut left, RECEIVES as usize, DETECTION_TIME);
        assert_eq!(flushed.len(), RECEIVES as usize, "{service:?} {bypass} {address}: {:?}", left.nic.stats());
        assert!(flushed.iter().all(|completion| completion.status == WcStatus::WrFlushed), "{flushed:?}");
        assert_eq!(left.nic.verbs().poll_event(), Some(AsyncEvent::QpFatal(from)));
        assert_eq!(completions_of(&mut left, 1, Duration::from_millis(400)), []);
        assert_eq!(left.nic.next_deadline(), None, "a timer is pending");
    }
}

#[test]
fn only_queue_pairs_to_the_exited_nic_fail_with_retry_exceeded() {
    let [mut left, mut staying, mut exiting] = [(); 3].map(|()| open(false));
    let service = Service::ReliableConnection;
    let (live, idle, busy) = (new_qp(&mut left, service), new_qp(&mut left, service), new_qp(&mut left, service));
    let (other, exited_qp, other_exited_qp) =
        (new_qp(&mut staying, service), new_qp(&mut exiting, service), new_qp(&mut exiting, service));
    connect(&mut left, live, other, "127.0.0.1");
    connect(&mut left, idle, exited_qp, "127.0.0.1");
    connect(&mut left, busy, other_exited_qp, "127.0.0.1");
    drop(exiting);
    let sge = left.sge(0, 8);
    left.post(busy, 7, SendOp::Send { immediate: None }, &[sge]);
    drive_for(&mut left, &mut staying, DETECTION_TIME);
    let state = |side: &Side, qpn| side.nic.query_qp(qpn).expect("the queue pair exists").state;
    assert_eq!(state(&left, live), QpState::ReadyToSend);
    assert_eq!((state(&left, idle), state(&left, busy)), (QpState::Error, QpState::Error));
    let found: Vec<_> = left.completions().iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(found, [(7, WcStatus::RetryExceeded)]);
    assert_eq!(left.nic.verbs().poll_event(), Some(AsyncEvent::QpFatal(idle)));
    assert_eq!(left.nic.verbs().poll_event(), None, "an unexpected event");
    let stats = staying.nic.stats();
    assert!(stats.probes_received >= 3, "{stats:?}");
    assert_eq!(RxDrop::ALL.map(|reason| stats.dropped(reason)), [0; RxDrop::COUNT], "a probe was dropped");
}

/// A process in the role below; it is killed when this is dropped.
struct Silent(Child);

impl Silent {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_silent(dest: Qpn, bypass: bool) -> (Silent, Qpn) {
    let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
    command.args(["silent_role", "--exact", "--ignored", "--nocapture"]).stdout(Stdio::piped());
    command.env("RNIC_TEST_QPN", dest.get().to_string()).env("RNIC_TEST_BYPASS", bypass.to_string());
    let mut child = command.spawn().expect("this binary runs");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let number = output
        .lines()
        .map(|line| line.expect("text"))
        .find_map(|line| line.split_once("NUMBER ").map(|(_, number)| number.trim().parse().expect("a number")));
    (Silent(child), Qpn::new(number.expect("the role prints its number")))
}

#[test]
fn a_killed_process_counts_as_exited_and_a_stopped_one_does_not() {
    for bypass in [true, false] {
        let mut side = open(bypass);
        let qpn = new_qp(&mut side, Service::ReliableConnection);
        let (other, dest) = start_silent(qpn, bypass);
        connect(&mut side, qpn, dest, "127.0.0.1");
        post_receives(&mut side, qpn);
        assert_eq!(completions_of(&mut side, 1, Duration::from_secs(2)), [], "failed while the peer is silent");
        other.signal(Signal::STOP);
        assert_eq!(completions_of(&mut side, 1, DETECTION_TIME), [], "failed while the peer is stopped");
        assert!(side.nic.stats().probes_sent >= 6, "{:?}", side.nic.stats());
        assert_eq!(side.nic.query_qp(qpn).expect("the queue pair exists").state, QpState::ReadyToSend);
        other.signal(Signal::KILL);
        check_flushed(&mut side, qpn);
    }
}

/// Role: connects a queue pair, and sends nothing until it is killed.
#[test]
#[ignore = "a role of the other tests"]
fn silent_role() {
    let (Ok(dest), Ok(bypass)) = (std::env::var("RNIC_TEST_QPN"), std::env::var("RNIC_TEST_BYPASS")) else { return };
    let mut side = open(bypass == "true");
    let qpn = new_qp(&mut side, Service::ReliableConnection);
    connect(&mut side, qpn, Qpn::new(dest.parse().expect("a number")), "127.0.0.1");
    println!("NUMBER {}", qpn.get());
    completions_of(&mut side, 1, Duration::from_secs(60));
}
