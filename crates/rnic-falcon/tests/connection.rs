//! Whole connections: both layers and the adaptive engine, two ends and a bad link, driven as a NIC would.
//!
//! A failing run names its seed; `FALCON_SEED=<seed> cargo test -p rnic-falcon --test connection` runs it alone.

mod two_ends;

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration, Psn32, RandomStream, RandomStreams, Time};
use rnic_fae::{Erased, Filter, Form, Latency, ProcessorConfig};
use rnic_falcon::adaptive::{AdaptiveEngine, Location, Placement};
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::Arrival;
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{
    Answer, Completion, Kind, Ordering, PullReply, PushReply, Request, Submission, TransactionConfig, UpperLayer,
};
use rnic_policy::{Configured, Params};
use rnic_wire::Qpn;
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag};
use rnic_wire::falcon::{CompletionCode, FlowLabel, Packet, RnrTimer, Rsn, Ulp, UlpProtocol, WindowBases};
use two_ends::config_of;

const TRANSACTIONS: u64 = 300;

/// Headers of the request `rsn`, or of its answer: no two are the same.
fn headers_of(rsn: Rsn, is_answer: bool) -> Ulp {
    Ulp::Rdma(Header {
        dest_qpn: Qpn::new(7),
        sn: rsn,
        solicited: is_answer,
        complete_in_error: false,
        operation: Operation::AtomicResponse { original: u64::from(rsn.value()), sink: SinkTag::default() },
    })
}

/// Whether the transaction with this tag is handed in with its headers; of the others the upper layer is asked.
fn comes_with_headers(tag: u64) -> bool {
    tag % 3 == 1
}

/// An upper layer that takes everything, but is not ready now and then.
struct Taking {
    random: RandomStream,
    /// The number of its first request.
    first: Rsn,
    requests: Vec<Rsn>,
    pulls: Vec<(Rsn, u16)>,
    completions: Vec<Completion>,
}

impl UpperLayer for Taking {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        if self.random.below(20) == 0 {
            return PushReply::NotReady(RnrTimer::from_code(1));
        }
        assert_eq!(request.ulp, headers_of(request.rsn, false), "a Push has its own headers, however often it is sent");
        self.requests.push(request.rsn);
        PushReply::Done
    }

    fn headers(&self, tag: u64) -> Ulp {
        assert!(!comes_with_headers(tag), "those of {tag} are known");
        headers_of(self.first.plus(tag as u32), false)
    }

    fn pulled(&mut self, _: Time, tag: u64, data: &PulledData) {
        assert_eq!(data.ulp, headers_of(self.first.plus(tag as u32), true), "the headers of the answer to {tag}");
    }

    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        assert_eq!(request.ulp, headers_of(request.rsn, false), "a Pull has its own headers");
        self.requests.push(request.rsn);
        self.pulls.push((request.rsn, request.length));
        PullReply::Later
    }

    fn complete(&mut self, _: Time, completion: &Completion) {
        self.completions.push(*completion);
    }
}

/// One end: a NIC with one connection.
struct End {
    connection: Connection,
    resources: Resources,
    adaptive: AdaptiveEngine,
    ulp: Taking,
    submitted: u64,
    busy_until: Time,
}

impl End {
    /// What a driver does after each input.
    fn follow_up(&mut self, now: Time) {
        let Self { connection, resources, adaptive, ulp, .. } = self;
        while let Some((rsn, length)) = ulp.pulls.first().copied() {
            let length = u32::from(length);
            let answer = Answer { payload_len: length, length, ulp: headers_of(rsn, true) };
            if connection.answer(resources, rsn, &answer).is_err() {
                break;
            }
            ulp.pulls.remove(0);
        }
        connection.report_to_fae(now, resources, adaptive);
        while let Some((name, response)) = adaptive.poll(now) {
            assert_eq!(name, 7, "the answer is for the connection that asked");
            connection.apply_response(&response);
        }
    }

    fn submit(&mut self) {
        while self.submitted < TRANSACTIONS {
            let kind = if self.ulp.random.below(2) == 0 { Kind::Push } else { Kind::Pull };
            let length = self.ulp.random.between(1, 4_096) as u16;
            let payload_len = if kind == Kind::Push { u32::from(length) } else { 0 };
            let tag = self.submitted;
            let ulp = comes_with_headers(tag).then(|| headers_of(self.ulp.first.plus(tag as u32), false));
            let submission = Submission { kind, length, payload_len, ulp, tag, continues: false };
            if self.connection.submit(&mut self.resources, &submission).is_err() {
                return;
            }
            self.submitted += 1;
        }
    }

    fn wake(&self) -> Option<Time> {
        // What is due leaves when the link is free.
        let own =
            [self.connection.timeout(), self.connection.departure()].map(|at| at.map(|at| at.max(self.busy_until)));
        own.into_iter().chain([self.adaptive.next_at()]).flatten().min()
    }
}

struct Pair {
    now: Time,
    ends: [End; 2],
    wire: BTreeMap<(Time, u64), Event>,
    count: u64,
    network: RandomStream,
    loss: u64,
}

enum Event {
    Arrive(usize, Box<Packet>, FlowLabel),
    Free,
}

impl Pair {
    /// What came of it: events in all, and each end's packets and window.
    fn told(&self) -> (u64, [(rnic_falcon::delivery::DeliveryCounters, rnic_policy::Cwnd); 2]) {
        let of = |end: &End| (end.connection.delivery().counters(), end.connection.fcwnd());
        (self.count, [of(&self.ends[0]), of(&self.ends[1])])
    }

    fn pump(&mut self, from: usize) {
        let now = self.now;
        loop {
            let end = &mut self.ends[from];
            if end.busy_until > now {
                return;
            }
            end.submit();
            let departure = end.connection.transmit(now, &mut end.resources, &mut end.ulp);
            end.follow_up(now);
            let Some(departure) = departure else { return };
            end.busy_until = now + Duration::from_ns(100);
            let free = end.busy_until;
            self.count += 1;
            self.wire.insert((free, self.count), Event::Free);
            for copy in [self.network.below(1_000) >= self.loss, self.network.below(1_000) < self.loss / 2] {
                if copy {
                    let late = if self.network.below(5) == 0 { self.network.below(30_000) } else { 0 };
                    self.count += 1;
                    let arrival = Event::Arrive(1 - from, Box::new(departure.packet), departure.label);
                    self.wire.insert((now + Duration::from_ns(5_000 + late), self.count), arrival);
                }
            }
        }
    }

    fn run_until(&mut self, until: Time) {
        loop {
            self.pump(0);
            self.pump(1);
            let event = self.wire.first_key_value().map(|((at, _), _)| *at);
            let wakes = [0, 1].map(|end| self.ends[end].wake().map(|at| at.max(self.now)));
            let next = [event, wakes[0], wakes[1]].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else { return };
            self.now = next;
            if event == Some(next) {
                let Some((_, Event::Arrive(to, packet, label))) = self.wire.pop_first() else { continue };
                let end = &mut self.ends[to];
                let arrival = Arrival { packet: &packet, label, marked: false, hops: 2, csig: None };
                end.connection.receive(next, &arrival, &mut end.resources, &mut end.ulp);
                end.follow_up(next);
                continue;
            }
            for end in self.ends.iter_mut().zip(wakes).filter(|(_, wake)| *wake == Some(next)).map(|(end, _)| end) {
                end.connection.expire(next, &mut end.resources, &mut end.ulp);
                end.follow_up(next);
            }
        }
    }
}

/// What the connections of a run are.
#[derive(Clone, Copy)]
struct Variant {
    ordering: Ordering,
    flows: u8,
    form: Form,
    location: Location,
}

fn end(seed: u64, variant: Variant, ours: u32, theirs: u32) -> End {
    let Variant { ordering, flows, form, location } = variant;
    let policy = rnic_transports::control::find("swift").expect("a registered control policy");
    let program = Erased(Configured { policy, params: Params::defaults(policy.params) });
    let line_rate = BitRate::gbps(200);
    let config = ProcessorConfig { form, connections: 1, line_rate, mtu: 4_096 };
    let placement = Placement { location, queue: 64, filter: Filter::open(64) };
    let mut adaptive = AdaptiveEngine::new(program, &config, &placement).expect("Swift understands reports");
    let mut delivery = config_of("rack-tlp", "largest-window");
    (delivery.flows, delivery.accept_stale, delivery.ordered) = (flows, flows > 1, ordering == Ordering::Ordered);
    let first_rsn = [Psn32::new(ours), Psn32::new(theirs)];
    (delivery.first_sent, delivery.first_received) = (WindowBases::both(first_rsn[0]), WindowBases::both(first_rsn[1]));
    let transactions = TransactionConfig {
        ordering,
        protocol: UlpProtocol::Rdma,
        mtu: 4_096,
        outstanding: 64,
        timeout: Duration::from_secs(5),
        isolation: Isolation::Dynamic,
    };
    let config = ConnectionConfig { transactions, delivery, first_rsn };
    let connection = Connection::new(&config, &mut adaptive, 7).expect("there is room");
    let random = RandomStreams::new(seed).stream(if ours > theirs { "left" } else { "right" });
    let first = first_rsn[0];
    let ulp = Taking { random, first, requests: Vec::new(), pulls: Vec::new(), completions: Vec::new() };
    let resources = Resources::new(ResourceConfig::GBPS_200);
    End { connection, resources, adaptive, ulp, submitted: 0, busy_until: Time::ZERO }
}

fn variant(seed: u64, form: Form) -> Variant {
    let mut random = RandomStreams::new(seed).stream("config");
    let ordering = if random.below(2) == 0 { Ordering::Ordered } else { Ordering::Unordered };
    let flows = [1, 4][random.below(2) as usize];
    let location = if random.below(2) == 0 { Location::Behind(Latency::FALCON) } else { Location::Inline };
    Variant { ordering, flows, form, location }
}

fn run(seed: u64, loss: u64, variant: Variant) -> Pair {
    let ordering = variant.ordering;
    // The numbers of either end are its own, and wrap.
    let (left, right) = (u32::MAX - 20, 1_000);
    let ends = [end(seed, variant, left, right), end(seed, variant, right, left)];
    let network = RandomStreams::new(seed).stream("network");
    let mut pair = Pair { now: Time::from_us(1_000), ends, wire: BTreeMap::new(), count: 0, network, loss };
    pair.run_until(Time::from_us(4_000_000));
    for (side, end) in pair.ends.iter().enumerate() {
        let completions = &end.ulp.completions;
        assert_eq!(completions.len() as u64, TRANSACTIONS, "seed {seed}, end {side}");
        assert!(completions.iter().all(|done| done.code == CompletionCode::Ack), "seed {seed}, end {side}");
        let mut tags: Vec<u64> = completions.iter().map(|done| done.tag).collect();
        assert!(ordering == Ordering::Unordered || tags.is_sorted(), "seed {seed}, end {side}: out of order");
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..TRANSACTIONS), "seed {seed}, end {side}: one completes twice");
        assert_eq!(end.ulp.requests.len() as u64, TRANSACTIONS, "seed {seed}, end {side}: of its peer");
        assert!(end.resources.is_idle() && !end.connection.is_dead(), "seed {seed}, end {side}");
    }
    pair
}

#[test]
fn whole_connections_bring_everything_once_over_a_bad_link() {
    if let Ok(seed) = std::env::var("FALCON_SEED") {
        let seed = seed.parse().expect("a seed is a number");
        run(seed, 60, variant(seed, Form::Table));
        return;
    }
    (0..40).for_each(|seed| drop(run(seed, 60, variant(seed, Form::Table))));
}

/// F-40: where state lies changes nothing for a connection with one flow, and fetching it ahead nothing at all. Of
/// several flows, each that carries its own state knows nothing of the others: they decide otherwise, and everything
/// arrives.
#[test]
fn f40_every_form_of_state_does_the_same_for_a_connection() {
    for seed in 0..20 {
        let table = variant(seed, Form::Table);
        let told = run(seed, 60, table).told();
        assert_eq!(run(seed, 60, Variant { form: Form::PREFETCHING, ..table }).told(), told, "seed {seed}");
        let stateless = run(seed, 60, Variant { form: Form::Stateless, ..table }).told();
        assert!(stateless == told || table.flows > 1, "seed {seed}: {stateless:?} is not {told:?}");
    }
}

/// F-1: a thread answers when it will, and connections live with that.
#[test]
fn f40_an_engine_on_a_thread_brings_everything_once() {
    let location = Location::Thread(rnic_fae::thread::spawn);
    for (seed, form) in (0..8).zip([Form::Table, Form::Stateless, Form::PREFETCHING].into_iter().cycle()) {
        let pair = run(seed, 60, Variant { location, ..variant(seed, form) });
        for end in &pair.ends {
            assert_ne!(end.connection.fcwnd(), rnic_policy::Cwnd::packets(32), "seed {seed}: it is heard");
        }
    }
}

#[test]
fn the_adaptive_engine_is_asked_and_obeyed() {
    let pair = run(1, 0, variant(1, Form::Table));
    for end in &pair.ends {
        assert_ne!(end.connection.fcwnd(), rnic_policy::Cwnd::packets(32), "it is not what it was at first");
    }
}
