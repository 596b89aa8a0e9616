//! S-2, S-3, S-18 to S-22, S-28: schedulers that divide the link among queue pairs by rates (SCR, NSDI'25, section
//! 5.1), over the engine's ledger, limiter and ring. The network is ideal: packets and acknowledgements arrive at once,
//! so only the sender's link is shared.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use rnic_base::{BitRate, Duration, Time};
use rnic_engine::*;
use rnic_policy::{Params, PolicyState, ScheduleActions, ScheduleEvent, SchedulePolicy, ScheduleView};
use rnic_wire::Qpn;

const LINE: BitRate = BitRate::gbps(100);

/// Bytes of a packet on the wire beside its payload.
const OVERHEAD: u64 = 78;

/// The requests that a queue pair is given.
#[derive(Clone, Copy)]
enum Demand {
    /// Messages of so many packets, two at a time, without a pause.
    Backlog(u32),
    /// A message of four packets in each period.
    Each(Duration),
    /// Nothing.
    None,
}

struct Sender {
    qpn: Qpn,
    demand: Demand,
    /// Number of messages in the send queue.
    queued: u32,
    next_post: Time,
    /// Bytes on the wire since the last measurement.
    bytes: u64,
}

/// The queue pairs of one engine that share its link.
struct Sharing {
    pair: Pair,
    setup: Setup,
    op: fn(&Pair) -> SendOp,
    senders: Vec<Sender>,
    index: BTreeMap<u32, usize>,
    /// Sender whose packets are lost.
    cut_off: Option<Qpn>,
    now: Time,
}

fn write(pair: &Pair) -> SendOp {
    SendOp::Write { remote: pair.right.remote(0), immediate: None }
}

impl Sharing {
    /// Returns an engine with one queue pair for each demand, whose schedulers decide at once.
    fn new(options: &[(&str, &str)], demands: &[Demand]) -> Self {
        Self::with(Setup::new("irn", &[&[("cap_packets", "0")], options].concat()), demands)
    }

    /// As `new`, with schedulers that run on processors with the published latencies.
    fn on_processors(options: &[(&str, &str)], demands: &[Demand]) -> Self {
        let setup = Setup::new("irn", &[&[("cap_packets", "0")], options].concat());
        Self::with(Setup { processors: Some(ProcessorConfig::Modelled(PoolConfig::figures(LINE))), ..setup }, demands)
    }

    fn with(setup: Setup, demands: &[Demand]) -> Self {
        let pair = Pair::new(&setup);
        let (senders, index) = (Vec::new(), BTreeMap::new());
        let mut sharing = Self { pair, setup, op: write, senders, index, cut_off: None, now: Time::ZERO };
        for demand in demands {
            sharing.add(*demand);
        }
        sharing
    }

    /// Adds a queue pair.
    fn add(&mut self, demand: Demand) -> usize {
        let (qpn, _) = match self.senders.is_empty() {
            true => (self.pair.left.qpn, self.pair.right.qpn),
            false => self.pair.another(&self.setup),
        };
        self.index.insert(qpn.get(), self.senders.len());
        self.senders.push(Sender { qpn, demand, queued: 0, next_post: self.now, bytes: 0 });
        self.senders.len() - 1
    }

    fn post(&mut self) {
        let op = (self.op)(&self.pair);
        for sender in &mut self.senders {
            let (messages, packets) = match sender.demand {
                Demand::Backlog(packets) => (2 - sender.queued.min(2), packets),
                Demand::Each(period) if sender.next_post <= self.now && sender.queued < 8 => {
                    sender.next_post = self.now + period;
                    (1, 4)
                }
                _ => (0, 0),
            };
            for _ in 0..messages {
                let sges = [self.pair.left.sge(0, packets * MTU)];
                let request = SendRequest { wr_id: 0, op, sges: &sges, flags: SendFlags::SIGNALED };
                self.pair.left.engine.post_send(sender.qpn, &request).expect("the send queue is not full");
                sender.queued += 1;
            }
        }
    }

    /// Carries all packets that the right side has to send, which use none of the shared link.
    fn respond(&mut self) {
        let Self { pair: Pair { left, right, .. }, now, .. } = self;
        while let Some(sent) = right.engine.transmit(*now).and_then(Departure::roce).copied() {
            let payload = vec![0; sent.packet.payload_len as usize];
            left.receive(*now, sent.format, &sent.packet, RxMeta { peer: PeerId(7), congested: false }, &payload);
        }
        for completion in left.completions() {
            let sender = &mut self.senders[self.index[&completion.qpn.get()]];
            sender.queued -= 1;
        }
    }

    /// Lets the link carry packets until `end`.
    fn run_until(&mut self, end: Time) {
        while self.now < end {
            self.post();
            let Pair { left, right, .. } = &mut self.pair;
            // Timeouts are processed in time, however busy the link is.
            if left.engine.next_timeout().is_some_and(|next| next <= self.now) {
                left.engine.tick(self.now);
            }
            if let Some(sent) = left.engine.transmit(self.now).and_then(Departure::roce).copied() {
                let wire = u64::from(sent.packet.payload_len) + OVERHEAD;
                if let Some(sender) = self.index.get(&sent.from.get()) {
                    self.senders[*sender].bytes += wire;
                }
                self.now += LINE.serialize(wire);
                if self.cut_off == Some(sent.from) {
                    continue;
                }
                let payload = vec![0; sent.packet.payload_len as usize];
                let meta = RxMeta { peer: PeerId(7), congested: false };
                right.receive(self.now, sent.format, &sent.packet, meta, &payload);
                self.respond();
                continue;
            }
            let timers = [left.engine.next_timeout(), right.engine.next_timeout()].into_iter().flatten();
            let posts = self.senders.iter().filter(|sender| matches!(sender.demand, Demand::Each(_)));
            // A sender with a full queue posts when one of its messages completes.
            let posts = posts.map(|sender| sender.next_post).filter(|at| *at > self.now);
            let next = timers.chain(posts).chain([end]).min().expect("there is an end");
            self.now = self.now.max(next);
            left.engine.tick(self.now);
            right.engine.tick(self.now);
            self.respond();
        }
    }

    /// Lets the link carry packets for `span`, and returns the part of it that each queue pair has used, in percent.
    fn percent_in(&mut self, span: Duration) -> Vec<f64> {
        let begin = self.now;
        self.senders.iter_mut().for_each(|sender| sender.bytes = 0);
        self.run_until(begin + span);
        let total = LINE.bytes_in(self.now.since(begin)) as f64;
        self.senders.iter().map(|sender| sender.bytes as f64 * 100.0 / total).collect()
    }

    fn rate(&self, sender: usize) -> BitRate {
        let info = self.pair.left.engine.query_qp(self.senders[sender].qpn).expect("the queue pair exists");
        info.dequeue_rate.expect("the scheduler sets a rate")
    }
}

/// Asserts that `measured` percentages are within `tolerance` of `expected`.
fn near(measured: &[f64], expected: &[f64], tolerance: f64) {
    let is_near = measured.iter().zip(expected).all(|(one, other)| (one - other).abs() <= tolerance);
    assert!(is_near && measured.len() == expected.len(), "{measured:?} instead of {expected:?}");
}

const WF: (&str, &str) = ("schedule", "water-filling");
const STATIC: (&str, &str) = ("schedule", "static");

/// A message of 4408 bytes on the wire each 3.5264 us: 10 Gbit/s.
const TENTH: Demand = Demand::Each(Duration::from_ps(3_526_400));

#[test]
fn s19_static_shares_are_equal_whatever_the_sizes_of_messages_and_do_not_move() {
    let mut sharing = Sharing::new(&[STATIC], &[Demand::Backlog(1), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(200));
    near(&sharing.percent_in(Duration::from_ms(1)), &[50.0, 50.0], 1.0);
    // The part that one of them does not use is lost.
    sharing.senders[0].demand = TENTH;
    sharing.run_until(sharing.now + Duration::from_us(200));
    near(&sharing.percent_in(Duration::from_ms(1)), &[10.0, 50.0], 1.0);
}

#[test]
fn s21_the_floor_is_the_rate_of_many_static_shares() {
    let floor = ("share_floor", "1Gbps");
    let mut sharing = Sharing::new(&[STATIC, floor], &[Demand::Backlog(1); 128]);
    sharing.run_until(Time::from_us(400));
    assert!((0..128).all(|sender| sharing.rate(sender) == BitRate::gbps(1)));
    // 128 Gbit/s of rates on a link of 100: the turns below them decide.
    let percent: f64 = sharing.percent_in(Duration::from_us(500)).iter().sum();
    assert!(percent > 98.0, "{percent} percent of the link is used");
}

#[test]
fn s19_water_filling_shares_equally_whatever_the_sizes_of_messages() {
    let mut sharing = Sharing::new(&[WF, ("calibration", "figure-11")], &[Demand::Backlog(1), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(1_000));
    near(&sharing.percent_in(Duration::from_ms(1)), &[50.0, 50.0], 2.5);
}

#[test]
fn s19_water_filling_hands_on_what_a_queue_pair_does_not_use() {
    let mut sharing = Sharing::new(&[WF], &[TENTH, Demand::Backlog(4), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(1_000));
    let percent = sharing.percent_in(Duration::from_ms(1));
    // A quarter more than it uses stays with the first one, and one part in a hundred stays free.
    near(&percent, &[10.0, 43.0, 43.0], 1.5);
}

#[test]
fn s19_weights_divide_the_link() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(4), Demand::Backlog(4)]);
    let second = sharing.senders[1].qpn;
    sharing.pair.left.engine.sharing().set_weight(Time::ZERO, second, 3).expect("a valid weight");
    sharing.run_until(Time::from_us(1_000));
    near(&sharing.percent_in(Duration::from_ms(1)), &[25.0, 75.0], 2.5);
    // Weights change while the queue pairs send.
    sharing.pair.left.engine.sharing().set_weight(sharing.now, second, 1).expect("a valid weight");
    sharing.run_until(sharing.now + Duration::from_ms(1));
    near(&sharing.percent_in(Duration::from_ms(1)), &[50.0, 50.0], 2.5);
    for weight in [0, WEIGHT_MAX + 1] {
        assert!(sharing.pair.left.engine.sharing().set_weight(sharing.now, second, weight).is_err(), "{weight}");
    }
}

/// A queue pair that had little to send has given its share back. When it has more, the others make way, although
/// nothing is left.
#[test]
fn s19_water_filling_has_a_way_back_up() {
    let mut sharing = Sharing::new(&[WF], &[TENTH, Demand::Backlog(64), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(2_000));
    assert!(sharing.rate(0) < BitRate::gbps(20), "{}", sharing.rate(0));
    sharing.senders[0].demand = Demand::Backlog(64);
    sharing.run_until(sharing.now + Duration::from_us(500));
    near(&sharing.percent_in(Duration::from_ms(1)), &[33.3, 33.3, 33.3], 2.5);
}

/// The same among many queue pairs, whose parts are small beside a step.
#[test]
fn s19_one_of_many_queue_pairs_has_a_way_back_up() {
    for number in [16, 32] {
        let mut demands = vec![Demand::Backlog(64); number];
        demands[0] = Demand::Each(Duration::from_us(70));
        let mut sharing = Sharing::new(&[WF], &demands);
        sharing.run_until(Time::from_us(4_000));
        let part = LINE.scaled(1, number as u64);
        assert!(sharing.rate(0) < part.scaled(1, 2), "{number}: {}", sharing.rate(0));
        sharing.senders[0].demand = Demand::Backlog(64);
        sharing.run_until(sharing.now + Duration::from_ms(3));
        near(&sharing.percent_in(Duration::from_ms(1)), &vec![100.0 / number as f64; number], 10.0 / number as f64);
    }
}

/// Weights hold on a slow link as on a fast one.
#[test]
fn s19_weights_divide_a_slow_link() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(4), Demand::Backlog(4)]);
    let second = sharing.senders[1].qpn;
    sharing.pair.left.engine.sharing().set_capacity(Some(BitRate::gbps(2)));
    sharing.pair.left.engine.sharing().set_weight(Time::ZERO, second, 9).expect("a valid weight");
    sharing.run_until(Time::from_us(20_000));
    near(&sharing.percent_in(Duration::from_ms(20)), &[0.2, 1.8], 0.1);
}

/// A queue pair that a user holds below its part gives the rest of that part to the others.
#[test]
fn s19_a_queue_pair_with_a_lower_limit_gives_its_rate_back() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(64); 3]);
    let limit = Some(RateLimit { rate: BitRate::gbps(5), burst_bytes: None });
    let engine = &mut sharing.pair.left.engine;
    engine.set_rate_limit(Time::ZERO, sharing.senders[0].qpn, LimitSource::Operator, limit).expect("a valid limit");
    sharing.run_until(Time::from_us(3_000));
    near(&sharing.percent_in(Duration::from_ms(1)), &[5.0, 46.0, 46.0], 2.0);
}

/// A queue pair whose work cannot be sent does not keep a part of the link for it.
#[test]
fn s20_a_queue_pair_that_cannot_send_leaves() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(64); 2]);
    sharing.run_until(Time::from_us(1_000));
    let stopped = sharing.senders[0].qpn;
    sharing.pair.left.engine.modify_to_sqd(stopped).expect("the queue pair sends");
    sharing.run_until(sharing.now + Duration::from_ms(2));
    assert_eq!(sharing.pair.left.engine.shares().members, 1);
    near(&sharing.percent_in(Duration::from_ms(1)), &[0.0, 99.0], 2.5);
}

/// Retransmissions to a peer that is silent are no data, for which the others would have to make way.
#[test]
fn s20_a_queue_pair_whose_peer_is_silent_leaves_and_does_not_return() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(16); 2]);
    sharing.run_until(Time::from_us(1_000));
    sharing.cut_off = Some(sharing.senders[0].qpn);
    sharing.run_until(sharing.now + Duration::from_us(1_500));
    for _ in 0..20 {
        sharing.run_until(sharing.now + Duration::from_us(100));
        assert_eq!(sharing.pair.left.engine.shares().members, 1, "at {:?}", sharing.now);
    }
}

/// Requests of Reads use the peer's link: no scheduler holds them.
#[test]
fn s22_a_queue_pair_that_only_reads_is_not_held_where_it_requests() {
    for schedule in [WF, STATIC] {
        let mut sharing = Sharing::new(&[schedule], &[Demand::Backlog(4), Demand::Backlog(64)]);
        sharing.op = |pair| SendOp::Read { remote: pair.right.remote(0) };
        sharing.run_until(Time::from_us(500));
        assert_eq!(sharing.pair.left.engine.shares().members, 0);
        for sender in &sharing.senders {
            let info = sharing.pair.left.engine.query_qp(sender.qpn).expect("the queue pair exists");
            assert_eq!(info.dequeue_rate, None, "{schedule:?}");
        }
    }
}

/// With its next data after it has left, a queue pair is a newcomer: no rate of the past holds it until then.
#[test]
fn s20_a_queue_pair_that_returns_is_a_newcomer() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Each(Duration::from_us(70)), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(4_000));
    assert!(sharing.rate(0) < BitRate::gbps(20), "{}", sharing.rate(0));
    sharing.senders[0].demand = Demand::None;
    sharing.run_until(sharing.now + Duration::from_ms(2));
    let info = sharing.pair.left.engine.query_qp(sharing.senders[0].qpn).expect("the queue pair exists");
    assert_eq!(info.dequeue_rate, None);
    sharing.senders[0].demand = Demand::Backlog(64);
    near(&sharing.percent_in(Duration::from_us(200)), &[50.0, 50.0], 5.0);
}

/// A service without acknowledgements is scheduled as one with them.
#[test]
fn s19_unreliable_connections_share_the_link() {
    let setup = Setup::new("irn", &[WF, ("calibration", "figure-11")]);
    let setup = Setup { service: Service::UnreliableConnection, ..setup };
    let mut sharing = Sharing::with(setup, &[Demand::Backlog(1), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(1_000));
    near(&sharing.percent_in(Duration::from_ms(1)), &[50.0, 50.0], 2.5);
    assert_eq!(sharing.pair.left.engine.shares().members, 2);
}

/// The paper's law without that way: what is given back is gone.
#[test]
fn s19_without_max_min_a_queue_pair_that_was_small_stays_small() {
    let options = [WF, ("max_min", "false")];
    let mut sharing = Sharing::new(&options, &[TENTH, Demand::Backlog(64), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(2_000));
    sharing.senders[0].demand = Demand::Backlog(64);
    sharing.run_until(sharing.now + Duration::from_us(500));
    let percent = sharing.percent_in(Duration::from_ms(1));
    assert!(percent[0] < 20.0, "{percent:?}");
}

#[test]
fn s20_a_newcomer_gets_its_part_at_once_and_the_others_make_way() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(64); 3]);
    sharing.run_until(Time::from_us(1_000));
    sharing.add(Demand::Backlog(64));
    sharing.run_until(sharing.now + Duration::from_us(20));
    near(&sharing.percent_in(Duration::from_us(200)), &[25.0; 4], 2.5);
}

#[test]
fn s20_restart_begins_anew_for_all_and_keep_gives_a_newcomer_what_is_left() {
    let mut sharing = Sharing::new(&[WF, ("share_arrival", "restart")], &[Demand::Backlog(64); 3]);
    sharing.run_until(Time::from_us(1_000));
    sharing.add(Demand::Backlog(64));
    sharing.run_until(sharing.now + Duration::from_us(4));
    assert!((0..3).all(|sender| sharing.rate(sender) < BitRate::gbps(20)), "all rates begin anew");
    sharing.run_until(sharing.now + Duration::from_us(500));
    near(&sharing.percent_in(Duration::from_us(500)), &[25.0; 4], 2.5);

    let options = [WF, ("share_arrival", "keep"), ("max_min", "false")];
    let mut sharing = Sharing::new(&options, &[Demand::Backlog(64); 3]);
    sharing.run_until(Time::from_us(1_000));
    sharing.add(Demand::Backlog(64));
    sharing.run_until(sharing.now + Duration::from_us(500));
    let percent = sharing.percent_in(Duration::from_us(500));
    assert!(percent[3] < 5.0, "{percent:?}");
}

/// The rates of members never add up to more than the link, except for what a newcomer gets while others have not
/// had an event yet.
#[test]
fn s19_rates_add_up_to_the_link() {
    let mut sharing = Sharing::new(&[WF], &[]);
    for _ in 0..8 {
        sharing.add(Demand::Backlog(16));
        sharing.run_until(sharing.now + Duration::from_us(200));
        let Shares { allocated, capacity, members, .. } = sharing.pair.left.engine.shares();
        assert_eq!(members as usize, sharing.senders.len());
        assert!(allocated <= capacity && allocated.as_bps() * 100 >= capacity.as_bps() * 94, "{allocated}");
    }
}

/// A queue pair leaves when it has had nothing to send for the idle time, or is destroyed; its rate is given out again.
#[test]
fn s20_departures_return_their_rate() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(16); 4]);
    sharing.run_until(Time::from_us(1_000));
    assert_eq!(sharing.pair.left.engine.shares().members, 4);
    sharing.senders[0].demand = Demand::None;
    sharing.run_until(sharing.now + Duration::from_us(900));
    assert_eq!(sharing.pair.left.engine.shares().members, 4, "a pause shorter than the idle time is no departure");
    sharing.run_until(sharing.now + Duration::from_us(300));
    assert_eq!(sharing.pair.left.engine.shares().members, 3);
    let gone = sharing.senders[1].qpn;
    sharing.senders[1].demand = Demand::None;
    sharing.run_until(sharing.now + Duration::from_us(100));
    sharing.pair.left.engine.destroy_qp(gone).expect("the queue pair exists");
    let Shares { members, weights, allocated, capacity, .. } = sharing.pair.left.engine.shares();
    assert_eq!((members, weights), (2, 2));
    assert!(allocated < capacity);
    sharing.run_until(sharing.now + Duration::from_us(500));
    near(&sharing.percent_in(Duration::from_ms(1)), &[0.0, 0.0, 50.0, 50.0], 2.5);
}

/// The driver may share the link with others: members divide what they have together.
#[test]
fn s19_members_divide_the_capacity_that_the_driver_sets() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(4), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(1_000));
    sharing.pair.left.engine.sharing().set_capacity(Some(BitRate::gbps(20)));
    sharing.run_until(sharing.now + Duration::from_ms(1));
    near(&sharing.percent_in(Duration::from_ms(1)), &[10.0, 10.0], 0.7);
    sharing.pair.left.engine.sharing().set_capacity(None);
    sharing.run_until(sharing.now + Duration::from_ms(1));
    near(&sharing.percent_in(Duration::from_ms(1)), &[50.0, 50.0], 2.5);
}

/// No queue pair that has work and an open window starves: each sends within 2 x (queue pairs) x (time of a packet at
/// the lowest rate).
#[test]
fn s19_no_queue_pair_starves() {
    for schedule in [WF, STATIC] {
        let demands = [Demand::Backlog(64), Demand::Backlog(1), TENTH, Demand::Backlog(256)];
        let mut sharing = Sharing::new(&[schedule, ("share_floor", "10Mbps")], &demands.repeat(8));
        sharing.run_until(Time::from_us(1_000));
        let slowest = BitRate::bps(10_000_000).serialize(u64::from(MTU) + OVERHEAD);
        let percent = sharing.percent_in(slowest * 2);
        assert!(percent.iter().all(|percent| *percent > 0.0), "{schedule:?}: {percent:?}");
    }
}

/// Responses to the peer's Reads are scheduled where their data come from, and count as requests do.
#[test]
fn s22_responses_share_the_link_as_requests_do() {
    let mut sharing = Sharing::new(&[WF], &[Demand::Backlog(16)]);
    let setup = sharing.setup.clone();
    let (left, right) = sharing.pair.another(&setup);
    sharing.index.insert(left.get(), 1);
    sharing.senders.push(Sender { qpn: left, demand: Demand::None, queued: 0, next_post: Time::ZERO, bytes: 0 });
    let mut percent = Vec::new();
    for _ in 0..200 {
        // The right side reads from the left: 16 packets at a time, so that there is always one Read in progress.
        let sges = [sharing.pair.right.sge(0, 16 * MTU)];
        let op = SendOp::Read { remote: sharing.pair.left.remote(0) };
        for _ in 0..4 {
            let request = SendRequest { wr_id: 0, op, sges: &sges, flags: SendFlags::default() };
            let _ = sharing.pair.right.engine.post_send(right, &request);
        }
        sharing.pair.right.completions();
        percent = sharing.percent_in(Duration::from_us(10));
    }
    near(&percent, &[50.0, 50.0], 5.0);
    assert_eq!(sharing.pair.left.engine.shares().members, 2);
}

/// Schedulers on processors decide on records of several packets, and later: the shares are the same.
#[test]
fn s3_processors_reach_the_shares_that_are_reached_at_once() {
    let mut sharing = Sharing::on_processors(&[WF], &[TENTH, Demand::Backlog(4), Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(2_000));
    near(&sharing.percent_in(Duration::from_ms(1)), &[10.0, 43.0, 43.0], 2.5);
    let sent = sharing.pair.left.engine.shares().records.expect("there are processors");
    assert!(sent.events > 0 && sent.events * 2 < sent.pushed, "{sent:?}: records hold several packets");
}

/// Two threads of the operating system, with whatever time they take. The network is simulated, so only the shares can
/// be judged.
#[test]
fn s12_threads_of_the_operating_system_reach_the_shares_that_are_reached_at_once() {
    for count in [1, 2] {
        let threads = SchedulerThreads { count, spawn: rnic_scr::thread::spawn };
        let setup = Setup::new("irn", &[("cap_packets", "0"), WF]);
        let setup = Setup { processors: Some(ProcessorConfig::Threads(threads)), ..setup };
        let mut sharing = Sharing::with(setup, &[TENTH, Demand::Backlog(4), Demand::Backlog(64)]);
        // The threads may wait for processors while simulated time goes on.
        let reaches = |sharing: &mut Sharing, expected: [f64; 3]| {
            let is_near = (0..100).any(|_| {
                let measured = sharing.percent_in(Duration::from_ms(1));
                measured.iter().zip(expected).all(|(one, other)| (one - other).abs() < 5.0)
            });
            assert!(is_near, "{count} threads: never near {expected:?}");
        };
        reaches(&mut sharing, [10.0, 43.0, 43.0]);
        // A queue pair that has nothing more to send leaves, and the others divide its part.
        sharing.senders[2].demand = Demand::None;
        reaches(&mut sharing, [10.0, 86.0, 0.0]);
    }
}

/// A thread that is busy works for 4 us on a record, and the rate that it decides applies 6 us after that. A change is
/// seen by the record in work at the earliest, and by the next one at the latest.
#[test]
fn s28_a_rate_applies_after_the_latencies_of_the_loop() {
    let mut sharing = Sharing::on_processors(&[WF], &[Demand::Backlog(64)]);
    sharing.run_until(Time::from_us(1_000));
    sharing.pair.left.engine.sharing().set_capacity(Some(BitRate::gbps(10)));
    let begin = sharing.now;
    let changed_after = (1..60u64).find(|us| {
        sharing.run_until(begin + Duration::from_us(*us));
        sharing.rate(0) < BitRate::gbps(50)
    });
    let changed_after = changed_after.expect("the rate changes");
    assert!((6..=14).contains(&changed_after), "{changed_after} us");
}

/// Events that a scheduler has received and its actions, by queue pair.
type ScheduleLog = BTreeMap<usize, Vec<(ScheduleEvent, ScheduleView, ScheduleActions)>>;

thread_local! {
    /// The scheduler that [`record`] calls, and its log.
    static RECORDED: RefCell<(Option<SchedulePolicy>, ScheduleLog)> = const { RefCell::new((None, BTreeMap::new())) };
}

/// Forwards an event to the recorded scheduler, and logs it. The state of a queue pair is where it has been all along.
fn record(state: &mut PolicyState, event: &ScheduleEvent, view: &ScheduleView, params: &Params) -> ScheduleActions {
    let key = &raw const *state as usize;
    RECORDED.with_borrow_mut(|(policy, log)| {
        let actions = (policy.expect("a scheduler is recorded").on_event)(state, event, view, params);
        log.entry(key).or_default().push((*event, *view, actions));
        actions
    })
}

/// The rates that a scheduler sets follow from what it is told: decisions that are made again from the log alone are
/// the same, whether the scheduler has run at once or on processors (S-13).
#[test]
fn s2_rates_follow_from_what_the_scheduler_is_told() {
    for processors in [None, Some(ProcessorConfig::Modelled(PoolConfig::figures(LINE)))] {
        let mut profile = rnic_transports::select("irn", [("cap_packets", "0"), WF]).expect("the transport exists");
        let (policy, params) = (profile.schedule.policy, profile.schedule.params);
        RECORDED.set((Some(policy), ScheduleLog::new()));
        profile.schedule.policy.on_event = record;
        let transport = Arc::new(Transport::new(profile).expect("the profile is valid"));
        let setup = Setup { transport, processors, ..Setup::new("irn", &[]) };
        let mut sharing = Sharing::with(setup, &[TENTH, Demand::Backlog(4), Demand::Backlog(64)]);
        sharing.run_until(Time::from_us(2_000));
        let (_, log) = RECORDED.take();
        assert_eq!(log.len(), 3);
        for events in log.values() {
            assert!(events.len() > 50, "{} events", events.len());
            let (mut state, _) = (policy.start)(&params, &ScheduleView::alone(Time::ZERO, LINE));
            for (event, view, actions) in events {
                assert_eq!((policy.on_event)(&mut state, event, view, &params), *actions, "{event:?}");
            }
        }
    }
}
