//! Examples of the RFCs: each test names the rule that it shows.

use rnic_base::{Duration, Probability, Time};

use super::receiver::Receiver;
use super::rto::Rto;
use super::sender::Sender;
use super::*;

const SMSS: u32 = 1_000;

/// A sender with what it has sent and not shown yet, in segments.
struct Bench {
    sender: Sender,
    now: Time,
    sent: Vec<u32>,
}

impl Bench {
    fn new(first_window: u32) -> Self {
        let parameters = TcpParameters { first_window, receive_window: 1 << 30, ..TcpParameters::default() };
        let mut bench = Self { sender: Sender::new(parameters), now: Time::ZERO, sent: Vec::new() };
        bench.sender.send(bench.now, &mut |number, _| bench.sent.push(number / SMSS));
        bench
    }

    fn take(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.sent)
    }

    /// An acknowledgement of all segments before `segment`, 100 us later; returns what is sent.
    fn ack(&mut self, segment: u32) -> Vec<u32> {
        self.now += Duration::from_us(100);
        let ack = TcpSegment { connection: 0, sequence: 0, acknowledgement: segment * SMSS, window: 1 << 30, len: 0 };
        self.sender.receive(self.now, &ack, &mut |number, _| self.sent.push(number / SMSS));
        self.take()
    }

    fn expire(&mut self) -> Vec<u32> {
        self.now = self.sender.timer().expect("the timer runs");
        self.sender.time_out(self.now, &mut |number, _| self.sent.push(number / SMSS));
        self.take()
    }

    fn cwnd(&self) -> u64 {
        self.sender.view().cwnd
    }

    fn timeout(&self) -> Duration {
        self.sender.timer().expect("the timer runs").since(self.now)
    }
}

#[test]
fn slow_start_grows_by_a_segment_for_each_acknowledgement() {
    let mut bench = Bench::new(2);
    assert_eq!(bench.take(), [0, 1]);
    assert_eq!(bench.ack(1), [2, 3]);
    assert_eq!(bench.ack(3), [4, 5, 6], "of two segments too (RFC 5681, equation 2)");
    assert_eq!(bench.cwnd(), 4_000);
}

#[test]
fn the_third_duplicate_repeats_the_first_segment_and_inflates_the_window() {
    let mut bench = Bench::new(10);
    bench.take();
    assert!(bench.ack(0).is_empty() && bench.ack(0).is_empty(), "two duplicates may be reordering");
    assert_eq!(bench.ack(0), [0]);
    // Ten segments were in flight: half of them, and three that have left the network.
    assert_eq!((bench.sender.view().ssthresh, bench.cwnd()), (5_000, 8_000));
    assert!(bench.ack(0).is_empty() && bench.ack(0).is_empty(), "9 and 10 segments are in flight");
    assert_eq!(bench.ack(0), [10], "each further duplicate lets a new one leave");
}

#[test]
fn a_partial_acknowledgement_repeats_the_next_hole_and_stays_in_recovery() {
    let mut bench = Bench::new(10);
    bench.take();
    // Segments 0 and 4 are lost.
    (0..8).for_each(|_| drop(bench.ack(0)));
    assert_eq!(bench.cwnd(), 13_000);
    bench.take();
    let started = bench.sender.timer();
    assert_eq!(bench.ack(4), [4, 13], "the hole, then a new segment for the one that was repeated");
    assert_eq!(bench.cwnd(), 10_000, "deflated by what was acknowledged, plus a segment (RFC 6582, 3.2 step 3)");
    assert!(bench.sender.view().is_recovering);
    assert!(bench.sender.timer() > started, "the first partial acknowledgement restarts the timer");
    let restarted = bench.sender.timer();
    bench.ack(6);
    assert_eq!(bench.sender.timer(), restarted, "the second does not");
    assert_eq!(bench.sender.view().repeats, [0, 4_000, 6_000]);
}

#[test]
fn recovery_ends_when_all_is_acknowledged_that_was_sent_before_it() {
    let mut bench = Bench::new(10);
    bench.take();
    (0..8).for_each(|_| drop(bench.ack(0)));
    // 10, 11 and 12 have left in recovery, so 10 is the end of it.
    bench.ack(9);
    assert!(bench.sender.view().is_recovering, "9 is still partial");
    bench.ack(10);
    let view = bench.sender.view();
    assert!(!view.is_recovering);
    assert_eq!(view.cwnd, view.ssthresh.min(4_000 + 1_000), "what is in flight and a segment, at most the threshold");
}

#[test]
fn duplicates_of_what_a_recovery_covers_start_no_other_one() {
    let mut bench = Bench::new(10);
    bench.take();
    bench.expire();
    bench.ack(1);
    let threshold = bench.sender.view().ssthresh;
    (0..5).for_each(|_| drop(bench.ack(1)));
    let view = bench.sender.view();
    assert!(!view.is_recovering && view.ssthresh == threshold, "they are echoes of the timeout (RFC 6582, step 2)");
}

#[test]
fn a_timeout_starts_slowly_from_the_first_segment_and_backs_off() {
    let mut bench = Bench::new(10);
    bench.take();
    bench.ack(2);
    assert_eq!(bench.timeout(), Duration::from_ms(200), "the minimum, after a measurement");
    assert_eq!(bench.expire(), [2]);
    assert_eq!((bench.cwnd(), bench.sender.view().ssthresh), (1_000, 5_500), "half of the eleven in flight");
    assert_eq!(bench.timeout(), Duration::from_ms(400));
    assert_eq!(bench.expire(), [2]);
    assert_eq!(bench.timeout(), Duration::from_ms(800));
    assert_eq!(bench.sender.view().ssthresh, 5_500, "unchanged by the second expiry (RFC 5681, equation 4)");
    assert_eq!(bench.ack(3), [3, 4], "then the others again");
    // Karn: the acknowledgement of a repeated segment measures nothing, so that the back-off stays.
    assert_eq!(bench.timeout(), Duration::from_ms(800));
    assert_eq!(bench.ack(11), [11, 12, 13], "the receiver had kept the rest");
    assert_eq!(bench.timeout(), Duration::from_ms(800), "some of them were repeated");
    bench.ack(13);
    assert_eq!(bench.timeout(), Duration::from_ms(800), "these too");
    bench.ack(14);
    assert_eq!(bench.timeout(), Duration::from_ms(200), "a measurement ends it");
}

#[test]
fn congestion_avoidance_grows_by_about_a_segment_for_a_window() {
    let mut bench = Bench::new(10);
    bench.take();
    (0..8).for_each(|_| drop(bench.ack(0)));
    bench.ack(10);
    let start = bench.cwnd();
    assert!(start <= bench.sender.view().ssthresh);
    while bench.cwnd() < bench.sender.view().ssthresh {
        let next = (bench.sender.view().acknowledged / 1_000) as u32 + 1;
        bench.ack(next);
    }
    let (start, first) = (bench.cwnd(), (bench.sender.view().acknowledged / 1_000) as u32);
    (1..=start as u32 / 1_000).for_each(|step| drop(bench.ack(first + step)));
    let grown = bench.cwnd() - start;
    assert!((900..=1_000).contains(&grown), "{grown}");
}

#[test]
fn acknowledgements_that_cannot_be_are_ignored() {
    let mut bench = Bench::new(4);
    bench.take();
    assert!(bench.ack(5).is_empty(), "of data that was never sent");
    let half = TcpSegment { connection: 0, sequence: 0, acknowledgement: 500, window: 1 << 30, len: 0 };
    bench.sender.receive(bench.now, &half, &mut |number, _| panic!("{number} is sent"));
    assert_eq!((bench.cwnd(), bench.sender.view().acknowledged), (4_000, 0));
    bench.ack(2);
    assert!(bench.ack(1).is_empty(), "an old one");
    assert_eq!(bench.sender.view().acknowledged, 2_000);
}

#[test]
fn the_timeout_follows_the_round_trip_and_its_variation() {
    let limits = RtoLimits { min: Duration::from_us(1), ..RtoLimits::default() };
    let mut rto = Rto::new(limits);
    assert_eq!(rto.current(), Duration::from_secs(1));
    rto.measure(Duration::from_us(80));
    assert_eq!(rto.current(), Duration::from_us(80 + 4 * 40), "RFC 6298, 2.2");
    rto.measure(Duration::from_us(160));
    // 80 + 80 / 8, and 40 + (80 - 40) / 4.
    assert_eq!(rto.current(), Duration::from_us(90 + 4 * 50), "RFC 6298, 2.3");
    (0..40).for_each(|_| rto.back_off());
    assert_eq!(rto.current(), limits.max);
}

fn data(segment: u32) -> TcpSegment {
    TcpSegment { connection: 3, sequence: segment * SMSS, acknowledgement: 0, window: 0, len: SMSS as u16 }
}

fn acked(receiver: &mut Receiver, now: Time, segment: u32) -> Option<u32> {
    let ack = receiver.receive(now, &data(segment))?;
    Some(receiver.acknowledge(3, ack).acknowledgement / SMSS)
}

#[test]
fn every_second_segment_is_acknowledged_or_one_after_the_delay() {
    let mut receiver = Receiver::new(DelayedAcks::default(), 128_000);
    assert_eq!([0, 1, 2, 3].map(|segment| acked(&mut receiver, Time::ZERO, segment)), [None, Some(2), None, Some(4)]);
    assert_eq!(receiver.timer(), None);
    assert_eq!(acked(&mut receiver, Time::from_us(5), 4), None);
    assert_eq!(receiver.timer(), Some(Time::from_us(5) + ACK_DELAY));
    let ack = receiver.expire();
    assert_eq!((receiver.acknowledge(3, ack).acknowledgement, receiver.timer()), (5_000, None));
}

#[test]
fn gaps_and_their_repair_are_acknowledged_at_once() {
    let mut receiver = Receiver::new(DelayedAcks::default(), 128_000);
    acked(&mut receiver, Time::ZERO, 0);
    let answers = [2, 3, 5, 1, 4, 4, 6, 7].map(|segment| acked(&mut receiver, Time::ZERO, segment));
    // 1 fills the first of two gaps, 4 the second; 4 again is old; then every second one.
    assert_eq!(answers, [Some(1), Some(1), Some(1), Some(4), Some(6), Some(6), None, Some(8)]);
    assert_eq!(receiver.view().bytes, 8_000);
    assert_eq!(acked(&mut receiver, Time::ZERO, 8 + 128), Some(8), "beyond the window");
}

#[test]
fn losses_are_the_same_at_the_same_positions() {
    let lost = |order: &mut dyn Iterator<Item = u32>| {
        let mut loss = PositionLoss::new(Probability::ratio(1, 10), 7);
        order.filter(|segment| loss.loses(&data(*segment))).collect::<Vec<_>>()
    };
    let once = lost(&mut (0..1_000));
    assert!((60..140).contains(&once.len()), "{} of 1000", once.len());
    let again = lost(&mut (0..1_000).chain(once.iter().copied()).chain(0..1_000));
    assert_eq!(again[..once.len()], once, "the first arrivals are lost alike");
    let repeated = &again[once.len()..];
    assert!(!repeated.is_empty() && repeated.len() < once.len() / 2, "{repeated:?}: repeats are lost as often");
    assert!(repeated.iter().all(|segment| once.contains(segment)), "what has arrived is not lost later");
}

/// Two hosts and the wire between them, 50 us long: data arrives completely over a lossy link.
#[test]
fn a_lossy_connection_delivers_everything_in_order() {
    let mut hosts = [TcpHost::new(), TcpHost::new()];
    let rto = RtoLimits { min: Duration::from_ms(1), ..RtoLimits::default() };
    hosts[0].add_sender(9, 1, TcpParameters { rto, ..TcpParameters::default() });
    hosts[1].add_receiver(9, 0, DelayedAcks::default(), 128_000);
    hosts[1].set_loss(PositionLoss::new(Probability::ratio(1, 20), 1));
    let mut wire: VecDeque<(Time, usize, Datagram)> = VecDeque::new();
    let mut now = Time::ZERO;
    while now < Time::from_us(400_000) {
        for (side, host) in hosts.iter_mut().enumerate() {
            while let Some(Outgoing { to, datagram }) = host.transmit(now) {
                assert_eq!(to as usize, 1 - side);
                wire.push_back((now + Duration::from_us(50), 1 - side, datagram));
            }
        }
        let timers = hosts.iter().filter_map(Endpoint::next_event).min();
        let arrival = wire.front().map(|(at, _, _)| *at);
        now = timers.into_iter().chain(arrival).min().expect("something happens");
        if arrival == Some(now) {
            let (_, to, datagram) = wire.pop_front().expect("it arrives");
            hosts[to].receive(now, &Incoming { from: 1 - to as u32, datagram, is_marked: false });
        } else {
            hosts.iter_mut().for_each(|host| host.advance(now));
        }
    }
    let (sender, receiver) = (hosts[0].sender(9).expect("it sends"), hosts[1].receiver(9).expect("it receives"));
    assert!(receiver.bytes > 5_000_000 && sender.acknowledged <= receiver.bytes, "{receiver:?}");
    assert!(hosts[1].lost() > 300 && sender.timeouts > 10, "{} losses, {sender:?}", hosts[1].lost());
    let arrived = sender.segments - hosts[1].lost();
    assert!(receiver.segments <= arrived && receiver.segments + 128 >= arrived, "{arrived} of {receiver:?}");
}
