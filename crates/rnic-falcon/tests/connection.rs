//! Whole connections: both layers and the adaptive engine, two ends and a bad link, driven as a NIC would.
//!
//! A failing run names its seed; `FALCON_SEED=<seed> cargo test -p rnic-falcon --test connection` runs it alone.
#![expect(clippy::disallowed_methods, reason = "the environment selects longer runs")]

mod two_ends;

use rnic_base::{Duration, Psn32, RandomStream, RandomStreams, Time};
use rnic_fae::{Latency, StateLocation};
use rnic_falcon::adaptive::Location;
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::{Arrival, DeliveryCounters, Departure};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{
    Completion, Ordering, PullReply, PullResponse, PushReply, Request, TransactionConfig, UpperLayer,
};
use rnic_policy::Cwnd;
use rnic_wire::Qpn;
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag};
use rnic_wire::falcon::{CompletionCode, RnrTimer, Rsn, Ulp, WindowBases};
use two_ends::driver::{Nic, TRANSACTIONS as DEFAULTS, control, engine};
use two_ends::link::{Fate, Side, Wire};
use two_ends::{any_submission, config_of};

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

/// Returns `true` if the transaction with this tag is submitted with its headers; for the others the upper layer
/// supplies them later.
fn comes_with_headers(tag: u64) -> bool {
    tag % 3 == 1
}

/// An upper layer that accepts every request, but is sometimes not ready.
struct Taking {
    random: RandomStream,
    /// RSN of its first request.
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
        assert_eq!(request.ulp, headers_of(request.rsn, false), "wrong headers of a Push");
        self.requests.push(request.rsn);
        PushReply::Done
    }

    fn headers(&self, tag: u64) -> Ulp {
        assert!(!comes_with_headers(tag), "the headers of {tag} were submitted");
        headers_of(self.first.plus(tag as u32), false)
    }

    fn pulled(&mut self, _: Time, tag: u64, data: &PulledData) {
        assert_eq!(data.ulp, headers_of(self.first.plus(tag as u32), true), "wrong headers of the response to {tag}");
    }

    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        assert_eq!(request.ulp, headers_of(request.rsn, false), "wrong headers of a Pull");
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
    nic: Nic,
    ulp: Taking,
    submitted: u64,
}

impl End {
    /// Answers the pending Pulls and applies the adaptive engine's responses, as the embedding code must after each
    /// call.
    fn follow_up(&mut self, now: Time) {
        let Self { connection, nic, ulp, .. } = self;
        while let Some((rsn, length)) = ulp.pulls.first().copied() {
            let length = u32::from(length);
            let answer = PullResponse { payload_len: length, length, ulp: headers_of(rsn, true) };
            if connection.respond(&mut nic.resources, rsn, &answer).is_err() {
                break;
            }
            ulp.pulls.remove(0);
        }
        while let Some((name, response)) = nic.adaptive.poll(now) {
            assert_eq!(name, 7, "a response for another connection");
            connection.apply_response(&response);
        }
    }

    fn submit(&mut self) {
        while self.submitted < TRANSACTIONS {
            let tag = self.submitted;
            let headers = comes_with_headers(tag).then(|| headers_of(self.ulp.first.plus(tag as u32), false));
            let submission = any_submission(&mut self.ulp.random, tag, headers);
            if self.connection.submit(&mut self.nic.resources, &submission).is_err() {
                return;
            }
            self.submitted += 1;
        }
    }
}

impl Side for End {
    fn transmit(&mut self, now: Time) -> Option<Departure> {
        self.submit();
        let departure = self.nic.transmit(now, &mut self.connection, &mut self.ulp);
        self.follow_up(now);
        departure
    }

    fn receive(&mut self, now: Time, arrival: &Arrival<'_>) {
        self.nic.receive(now, &mut self.connection, &mut self.ulp, arrival);
        self.follow_up(now);
    }

    fn expire(&mut self, now: Time) {
        self.nic.expire(now, &mut self.connection, &mut self.ulp);
        self.follow_up(now);
    }

    fn wake(&self, free_at: Time) -> Option<Time> {
        let own = self.nic.wake(&self.connection).map(|at| at.max(free_at));
        [own, self.nic.adaptive.next_at()].into_iter().flatten().min()
    }
}

type Pair = Wire<'static, End>;

/// Result of a run: the number of events, and each end's packets and window.
fn told(pair: &Pair) -> (u64, [(DeliveryCounters, Cwnd); 2]) {
    let of = |end: &End| (end.connection.delivery().counters(), end.connection.fcwnd());
    (pair.events(), [of(&pair.ends[0]), of(&pair.ends[1])])
}

/// Properties of the connections in a run.
#[derive(Clone, Copy)]
struct Variant {
    ordering: Ordering,
    flows: u8,
    form: StateLocation,
    location: Location,
}

fn end(seed: u64, variant: Variant, ours: u32, theirs: u32) -> End {
    let Variant { ordering, flows, form, location } = variant;
    let mut nic = Nic::new(engine(control("swift", &[]), form, location, 64));
    let mut delivery = config_of("rack-tlp", "largest-window");
    (delivery.flows, delivery.accept_stale, delivery.ordered) = (flows, flows > 1, ordering == Ordering::Ordered);
    let first_rsn = [Psn32::new(ours), Psn32::new(theirs)];
    (delivery.first_sent, delivery.first_received) = (WindowBases::both(first_rsn[0]), WindowBases::both(first_rsn[1]));
    let transactions = TransactionConfig { ordering, isolation: Isolation::Dynamic, ..DEFAULTS };
    let config = ConnectionConfig { transactions, delivery, first_rsn };
    let connection = Connection::new(&config, &mut nic.adaptive, 7).expect("a connection number is free");
    let random = RandomStreams::new(seed).stream(if ours > theirs { "left" } else { "right" });
    let first = first_rsn[0];
    let ulp = Taking { random, first, requests: Vec::new(), pulls: Vec::new(), completions: Vec::new() };
    End { connection, nic, ulp, submitted: 0 }
}

fn variant(seed: u64, form: StateLocation) -> Variant {
    let mut random = RandomStreams::new(seed).stream("config");
    let ordering = if random.below(2) == 0 { Ordering::Ordered } else { Ordering::Unordered };
    let flows = [1, 4][random.below(2) as usize];
    let location = if random.below(2) == 0 { Location::Behind(Latency::FALCON) } else { Location::Inline };
    Variant { ordering, flows, form, location }
}

fn run(seed: u64, loss: u64, variant: Variant) -> Pair {
    let ordering = variant.ordering;
    // Each end has its own RSNs, and they wrap.
    let (left, right) = (u32::MAX - 20, 1_000);
    let ends = [end(seed, variant, left, right), end(seed, variant, right, left)];
    let mut network = RandomStreams::new(seed).stream("network");
    let rule = move |_, _, _: &_| -> Fate {
        [network.below(1_000) >= loss, network.below(1_000) < loss / 2].map(|copy| {
            copy.then(|| {
                let late = if network.below(5) == 0 { network.below(30_000) } else { 0 };
                Duration::from_ns(5_000 + late)
            })
        })
    };
    let mut pair = Pair::between(ends, Box::new(rule));
    pair.run_until(Time::from_us(4_000_000));
    for (side, end) in pair.ends.iter().enumerate() {
        let completions = &end.ulp.completions;
        assert_eq!(completions.len() as u64, TRANSACTIONS, "seed {seed}, end {side}");
        assert!(completions.iter().all(|done| done.code == CompletionCode::Ack), "seed {seed}, end {side}");
        let mut tags: Vec<u64> = completions.iter().map(|done| done.tag).collect();
        assert!(ordering == Ordering::Unordered || tags.is_sorted(), "seed {seed}, end {side}: out of order");
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..TRANSACTIONS), "seed {seed}, end {side}: each must complete once");
        assert_eq!(end.ulp.requests.len() as u64, TRANSACTIONS, "seed {seed}, end {side}: requests from its peer");
        assert!(end.nic.resources.is_idle() && !end.connection.is_terminated(), "seed {seed}, end {side}");
    }
    pair
}

#[test]
fn whole_connections_deliver_everything_exactly_once_over_a_bad_link() {
    if let Ok(seed) = std::env::var("FALCON_SEED") {
        let seed = seed.parse().expect("a seed is a number");
        run(seed, 60, variant(seed, StateLocation::Table));
        return;
    }
    (0..40).for_each(|seed| drop(run(seed, 60, variant(seed, StateLocation::Table))));
}

/// F-40: where state is stored makes no difference for a connection with one flow, and prefetching it makes none for
/// any connection. With several flows, each flow that carries its own state knows nothing of the others: their
/// decisions differ, but every transaction still completes.
#[test]
fn f40_the_state_location_does_not_affect_a_connection() {
    for seed in 0..20 {
        let table = variant(seed, StateLocation::Table);
        let expected = told(&run(seed, 60, table));
        assert_eq!(
            told(&run(seed, 60, Variant { form: StateLocation::PREFETCHING, ..table })),
            expected,
            "seed {seed}"
        );
        let stateless = told(&run(seed, 60, Variant { form: StateLocation::Stateless, ..table }));
        assert!(stateless == expected || table.flows > 1, "seed {seed}: {stateless:?} is not {expected:?}");
    }
}

/// F-1: a thread answers after an arbitrary time, and connections work regardless.
#[test]
fn f40_connections_with_an_engine_on_a_thread_deliver_everything_exactly_once() {
    let location = Location::Thread(rnic_fae::thread::spawn);
    for (seed, form) in
        (0..8).zip([StateLocation::Table, StateLocation::Stateless, StateLocation::PREFETCHING].into_iter().cycle())
    {
        let pair = run(seed, 60, Variant { location, ..variant(seed, form) });
        for end in &pair.ends {
            assert_ne!(end.connection.fcwnd(), Cwnd::packets(32), "seed {seed}: the window was not changed");
        }
    }
}

#[test]
fn the_decisions_of_the_adaptive_engine_are_applied() {
    let pair = run(1, 0, variant(1, StateLocation::Table));
    for end in &pair.ends {
        assert_ne!(end.connection.fcwnd(), Cwnd::packets(32), "the window was not changed");
    }
}
