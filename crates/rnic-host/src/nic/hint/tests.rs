//! S-9: hints that a program writes into memory, and what its NIC makes of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rnic_engine::{QpAttributes, Service, Transport};

use super::*;
use crate::config::NicConfig;
use crate::defaults::default_transports;
use crate::nic::Nic;
use crate::observe::{ControlReply, Identity, LimitRequest};
use crate::settings::Settings;
use crate::share::ShareConfig;

fn open(config: NicConfig) -> Nic {
    Nic::open(NicConfig { bind: "127.0.0.1:0".parse().expect("an address"), ..config }).expect("a free port")
}

/// Returns a NIC that draws from a link of 2 Gbit/s that no other test uses, with the weight 1.
fn sharing() -> Nic {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let group = format!("hint-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let share = ShareConfig { weight: 1, link_rate: Some(BitRate::gbps(2)), group };
    open(NicConfig { share: Some(share), ..NicConfig::default() })
}

/// Creates `count` queue pairs, which are not connected.
fn create(nic: &mut Nic, count: usize) -> Vec<Qpn> {
    let choice = default_transports().into_iter().next().expect("there is one");
    let mut verbs = nic.verbs();
    let cq = verbs.create_cq(16).expect("a legal size");
    let attributes = QpAttributes {
        pd: verbs.create_pd().expect("a protection domain"),
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: false,
        service: Service::ReliableConnection,
        transport: Arc::new(Transport::new(choice.profile).expect("a valid transport")),
        number: None,
        nvme: None,
    };
    (0..count).map(|_| verbs.create_qp(&attributes).expect("a free number")).collect()
}

/// Writes a hint in a thread of its own, which has no access to the NIC and makes no system call between its start and
/// its end.
fn write(nic: &Nic, weight: u32, cap_kbps: u32) {
    let line = Arc::clone(nic.device.hint.line());
    std::thread::spawn(move || line.write(Hint { weight, cap_kbps })).join().expect("it ends");
}

/// Drives the NIC more often than a hint needs.
fn turns(nic: &mut Nic) {
    for _ in 0..3 {
        nic.progress();
    }
}

/// Returns the weight at the shared link, and the rate in force of each of `queue_pairs` in Mbit/s.
fn state(nic: &Nic, queue_pairs: &[Qpn]) -> (u16, Vec<Option<u64>>) {
    let rate = |qpn: &Qpn| nic.query_qp(*qpn).expect("it exists").dequeue_rate.map(|rate| rate.as_bps() / 1_000_000);
    (nic.share_status().expect("it takes part").weight, queue_pairs.iter().map(rate).collect())
}

#[test]
fn s9_a_hint_takes_effect_with_the_next_turn_of_the_nic() {
    let mut nic = sharing();
    let mut queue_pairs = create(&mut nic, 2);
    write(&nic, 3, 50_000);
    assert_eq!(state(&nic, &queue_pairs), (1, vec![None; 2]), "it was applied outside of a turn");
    nic.progress();
    queue_pairs.extend(create(&mut nic, 1));
    assert_eq!(state(&nic, &queue_pairs), (3, vec![Some(50); 3]));
    nic.progress();
    let snapshot = nic.snapshot(&Identity::of_process("rnic0", "UDP", &Settings::default()));
    assert_eq!(snapshot.share.expect("it takes part").weight, 3);
    assert_eq!((snapshot.counters.hints_applied, snapshot.counters.hints_rejected), (1, 0));
    assert!(snapshot.queue_pairs.iter().all(|pair| pair.dequeue_gbps == Some(0.05)));
    // A program that posts after a hint does not send before the hint is in force.
    write(&nic, 4, 0);
    nic.doorbell();
    assert_eq!(state(&nic, &queue_pairs), (4, vec![None; 3]));
}

#[test]
fn s9_the_hint_of_a_nic_without_a_shared_link_limits_its_queue_pairs() {
    let mut nic = open(NicConfig::default());
    let queue_pair = create(&mut nic, 1)[0];
    write(&nic, 1_000, 1_000);
    nic.progress();
    assert!(nic.share_status().is_none());
    assert_eq!(nic.query_qp(queue_pair).expect("it exists").dequeue_rate, Some(RATE_LIMIT_MIN));
}

#[test]
fn s9_invalid_and_torn_hints_change_nothing_and_are_counted() {
    let mut nic = sharing();
    let queue_pairs = create(&mut nic, 2);
    write(&nic, 3, 50_000);
    nic.progress();
    let line_kbps = u32::try_from(nic.config().line_rate.as_bps() / 1_000).expect("100 Gbit/s");
    let weights = [0, 1_001, u32::from(u16::MAX) + 2, u32::MAX].map(|weight| (weight, 40_000));
    let caps = [1, 999, line_kbps + 1, u32::MAX].map(|cap| (5, cap));
    for (count, (weight, cap)) in weights.into_iter().chain(caps).enumerate() {
        write(&nic, weight, cap);
        turns(&mut nic);
        assert_eq!(state(&nic, &queue_pairs), (3, vec![Some(50); 2]), "weight {weight}, {cap} kbit/s");
        assert_eq!((nic.stats().hints_applied, nic.stats().hints_rejected), (1, 1 + count as u64));
    }
    nic.device.hint.line().begin(Hint { weight: 7, cap_kbps: 70_000 });
    turns(&mut nic);
    assert_eq!(state(&nic, &queue_pairs), (3, vec![Some(50); 2]), "a torn hint");
    assert_eq!((nic.stats().hints_applied, nic.stats().hints_rejected), (1, 9));
    for (weight, cap) in [(1, 1_000), (1_000, line_kbps)] {
        write(&nic, weight, cap);
        nic.progress();
        assert_eq!(state(&nic, &queue_pairs).1, vec![Some(u64::from(cap) / 1_000); 2]);
    }
    assert_eq!((nic.stats().hints_applied, nic.stats().hints_rejected), (3, 9));
}

#[test]
fn s9_no_hint_lifts_a_limit_of_the_operator() {
    let mut nic = sharing();
    let queue_pairs = create(&mut nic, 2);
    let limit = |nic: &mut Nic, mbps: Option<u64>| {
        let request = LimitRequest { queue_pair: None, rate_bps: mbps.map(|mbps| mbps * 1_000_000) };
        assert_eq!(request.apply(nic), ControlReply::QueuePairs(2));
    };
    limit(&mut nic, Some(100));
    for (cap_kbps, expected) in [(1_000_000, 100), (50_000, 50), (200_000, 100), (0, 100)] {
        write(&nic, 1, cap_kbps);
        nic.progress();
        assert_eq!(state(&nic, &queue_pairs).1, vec![Some(expected); 2], "{cap_kbps} kbit/s");
    }
    // Nor does an operator who removes a limit remove the program's.
    write(&nic, 1, 70_000);
    nic.progress();
    limit(&mut nic, None);
    assert_eq!(state(&nic, &queue_pairs).1, vec![Some(70); 2]);
}

/// Without a new hint, a turn of the NIC reads one word, so its time does not depend on the number of queue pairs. The
/// least time of many rounds is that of an undisturbed one. A whole turn is measured: reading the word takes two
/// cycles, and how many of them a processor hides is no question of queue pairs.
#[test]
fn s9_a_turn_without_a_hint_costs_the_same_with_many_queue_pairs() {
    const QUEUE_PAIRS: usize = 1_000;
    const TURNS: u32 = 200;
    let mut nics = [1, QUEUE_PAIRS].map(|count| {
        let mut nic = open(NicConfig::default());
        create(&mut nic, count);
        nic
    });
    let mut least = [Duration::MAX; 2];
    for _ in 0..50 {
        for (nic, least) in nics.iter_mut().zip(&mut least) {
            let start = Instant::now();
            for _ in 0..TURNS {
                std::hint::black_box(&mut *nic).progress();
            }
            *least = start.elapsed().min(*least);
        }
    }
    let [one, many] = least.map(|time| time.as_secs_f64() * 1e9 / f64::from(TURNS));
    println!("a turn without a hint: {one:.2} ns with 1 queue pair, {many:.2} ns with {QUEUE_PAIRS}");
    assert!(many < one * 1.5, "{many} ns with {QUEUE_PAIRS} queue pairs, {one} ns with 1");
}
