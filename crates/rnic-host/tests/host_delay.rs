//! Reports of NICs on sockets, and the host delay in them: how long received packets wait until the NIC takes them. The
//! rules against hostile reports are tested in `hostile_messages.rs`.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{HALF, Side, chosen, connect_qps, drive, drive_for, new_qp_of};
use rnic_base::BitRate;
use rnic_engine::messages::cadence::Modes;
use rnic_engine::{SendOp, Service};
use rnic_host::observe::Identity;
use rnic_host::{MessagesConfig, NicConfig, Settings, TransportChoice, host_delay_of, messages_of};
use rnic_wire::Qpn;
use rnic_wire::scr::Type;

const PERIODIC: Modes = Modes { periodic: true, sampling_bytes: None, anomaly: false };
const ANOMALY: Modes = Modes { periodic: false, sampling_bytes: None, anomaly: true };

/// One test at a time: the others would delay its host.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two NICs, and the number of the left one's queue pair.
struct Ends {
    left: Side,
    right: Side,
    qpn: Qpn,
}

impl Ends {
    /// Connects two NICs of this machine, over UDP or through shared memory.
    fn connected(through_memory: bool, reports: [Modes; 2], choice: &TransportChoice) -> Self {
        Self::with(choice, |side| {
            let messages = MessagesConfig { reports: reports[side], ..MessagesConfig::default() };
            NicConfig { bypass: through_memory, messages: Some(messages), ..NicConfig::shared() }
        })
    }

    fn with(choice: &TransportChoice, config: impl Fn(usize) -> NicConfig) -> Self {
        let [mut left, mut right] = [0, 1].map(|side| Side::open(config(side)));
        let numbers = [&mut left, &mut right].map(|side| new_qp_of(side, Service::ReliableConnection, choice, 64));
        connect_qps(&mut left, &mut right, numbers.into(), 77);
        drive(&mut left, &mut right, |left, right| {
            let greeted = |side: &Side| messages_of(&side.nic).is_some_and(|on| on.stats().accepted(Type::Answer) > 0);
            (greeted(left) && greeted(right)).then_some(())
        });
        Self { left, right, qpn: numbers[0] }
    }

    fn post(&mut self, len: u32) {
        let (sge, remote) = (self.left.sge(0, len), self.right.region.remote(HALF));
        self.left.post(self.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    }

    /// Writes `len` bytes and drives both ends until they have arrived.
    fn write(&mut self, len: u32) {
        self.post(len);
        drive(&mut self.left, &mut self.right, |left, _| left.completions().pop());
    }

    fn reports_of(&self, side: &Side) -> u64 {
        messages_of(&side.nic).expect("messages are on").stats().sent(Type::NodeReport)
    }

    /// Writes `len` bytes, which wait at the right end for `absence`; returns the longest host delay that this end
    /// measures in the next milliseconds, and the longest that the left end is told of.
    fn write_to_absent(&mut self, len: u32, absence: Duration) -> [Duration; 2] {
        self.post(len);
        let posted = Instant::now();
        while posted.elapsed() < absence {
            self.left.nic.progress();
        }
        let (start, mut longest, mut written) = (Instant::now(), [Duration::ZERO; 2], 0);
        while start.elapsed() < Duration::from_millis(10) || written == 0 {
            let _ = self.left.nic.progress() | self.right.nic.progress();
            written += self.left.completions().len();
            let reported = messages_of(&self.left.nic).expect("on").host_delay_of_peer(self.qpn, self.left.nic.now());
            for (longest, delay) in longest.iter_mut().zip([host_delay_of(&self.right.nic), reported]) {
                *longest = (*longest).max(Duration::from_nanos(delay.unwrap_or_default().as_ns()));
            }
            assert!(start.elapsed() < common::TEST_TIMEOUT, "the Write has not arrived");
        }
        longest
    }
}

/// The right end is not driven for 8 ms after each Write: its packets wait for most of that, over UDP and in shared
/// memory, and the left end gets to know.
#[test]
fn s9_a_receiver_that_is_not_driven_measures_and_reports_its_delay() {
    let _alone = alone();
    let (absence, most) = (Duration::from_millis(8), Duration::from_millis(4));
    for through_memory in [false, true] {
        let mut ends = Ends::connected(through_memory, [PERIODIC; 2], &chosen("irn", &[]));
        // Also waits for the ring, which is offered with the first packets.
        (0..20).for_each(|_| ends.write(1_000));
        drive_for(&mut ends.left, &mut ends.right, Duration::from_millis(20));
        let absent: Vec<_> = (0..10).map(|_| ends.write_to_absent(50_000, absence)).collect();
        let driven: Vec<_> = (0..10).map(|_| ends.write_to_absent(50_000, Duration::ZERO)).collect();
        for end in [0, 1] {
            let longest = absent.iter().map(|delays| delays[end]).max().expect("ten rounds");
            let shortest = driven.iter().map(|delays| delays[end]).min().expect("ten rounds");
            assert!(longest > most, "{through_memory} {end}: {absent:?}");
            assert!(shortest < absence / 4, "{through_memory} {end}: {driven:?}");
        }
        let identity = Identity::of_process("rnic0", "UDP", &Settings::default());
        let [left, right] = [&ends.left, &ends.right].map(|side| side.nic.snapshot(&identity));
        assert!(right.host_delay_us.is_some_and(|us| us > 0.0), "{right:?}");
        assert!(left.queue_pairs[0].peer_host_delay_us.is_some_and(|us| us > 0.0), "{left:?}");
    }
    let silent = Side::at("127.0.0.1:0");
    assert_eq!(host_delay_of(&silent.nic), None, "nothing is measured without messages");
}

/// In 200 ms there are 50 periods of 4 ms. The sender gets only acknowledgements, so it reports nothing; and when
/// nothing arrives, nobody is woken for a report.
#[test]
fn s7_a_nic_reports_each_period_to_those_from_which_data_arrive() {
    let _alone = alone();
    for through_memory in [false, true] {
        let mut ends = Ends::connected(through_memory, [PERIODIC; 2], &chosen("irn", &[]));
        ends.write(1_000);
        let before = ends.reports_of(&ends.right);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            ends.write(20_000);
        }
        let sent = ends.reports_of(&ends.right) - before;
        let most = start.elapsed().as_micros() as u64 * 8 / (7 * 4_000) + 2;
        assert!((3..=most).contains(&sent), "{sent} reports, at most {most}");
        assert_eq!(ends.reports_of(&ends.left), 0);
        drive_for(&mut ends.left, &mut ends.right, Duration::from_millis(20));
        let resting = ends.reports_of(&ends.right);
        drive_for(&mut ends.left, &mut ends.right, Duration::from_millis(100));
        assert_eq!(ends.reports_of(&ends.right), resting, "reports without data");
        let accepted = messages_of(&ends.left.nic).expect("on").stats().accepted(Type::NodeReport);
        assert!(accepted > 0 && accepted <= resting, "{accepted} of {resting}");
    }
}

/// More arrives than the line of the receiver carries, all the time: its use is 100 % from the first period to the
/// last one.
#[test]
fn s7_a_steady_load_in_anomaly_mode_is_not_reported() {
    let _alone = alone();
    let messages = MessagesConfig { reports: ANOMALY, probe_interval: None, ..MessagesConfig::default() };
    let config = |_| NicConfig {
        bypass: false,
        line_rate: BitRate::bps(100_000_000),
        messages: Some(messages),
        ..NicConfig::shared()
    };
    let mut ends = Ends::with(&chosen("irn", &[]), config);
    // The first load is one of nearly nothing.
    drive_for(&mut ends.left, &mut ends.right, Duration::from_millis(20));
    let write_for = |ends: &mut Ends, span| {
        let start = Instant::now();
        while start.elapsed() < span {
            ends.write(50_000);
        }
        ends.reports_of(&ends.right)
    };
    // A process that is off its core for long enough changes the load; so the steadiest of several rounds counts.
    let began = write_for(&mut ends, Duration::from_millis(30));
    assert!(began > 0, "the load has risen from nothing");
    let mut reports = vec![began];
    for _ in 0..5 {
        reports.push(write_for(&mut ends, Duration::from_millis(100)));
    }
    assert!(reports.windows(2).any(|pair| pair[0] == pair[1]), "{reports:?}");
    let loaded = ends.reports_of(&ends.right);
    drive_for(&mut ends.left, &mut ends.right, Duration::from_millis(50));
    assert!(ends.reports_of(&ends.right) > loaded, "the load has gone");
}

/// The right end is driven once in 3 ms, and no round trip is above the target of the fabric, 1 s: the rate falls for
/// the reported delay, if its target is 1 ms, and not if that is 1 s.
#[test]
fn s23_swift_rate_slows_down_for_the_host_delay_of_the_receiver() {
    let _alone = alone();
    for (host_target, reacts) in [("1ms", true), ("1s", false)] {
        let rates = [("rate_min", "2Gbps"), ("rate_max", "20Gbps")];
        let options = [("control", "swift-rate"), ("base", "1s"), ("host_target", host_target), rates[0], rates[1]];
        let choice = TransportChoice::with_messages("irn", &options).expect("a composition");
        let mut ends = Ends::connected(false, [PERIODIC; 2], &choice);
        let rate = |ends: &Ends| {
            let mut pairs = ends.left.nic.queue_pairs();
            pairs.next().and_then(|(view, _)| view.allowed_rate).expect("it is controlled")
        };
        let start = Instant::now();
        let mut writes = 0;
        while if reacts { rate(&ends) > BitRate::gbps(2) } else { writes < 100 } {
            ends.post(20_000);
            writes += 1;
            let posted = Instant::now();
            while posted.elapsed() < Duration::from_millis(3) {
                ends.left.nic.progress();
            }
            drive(&mut ends.left, &mut ends.right, |left, _| left.completions().pop());
            assert!(start.elapsed() < common::TEST_TIMEOUT, "still {}", rate(&ends));
        }
        assert!(reacts || rate(&ends) > BitRate::gbps(2), "it is not the host delay that lowers the rate");
    }
}
