//! A whole connection on four paths, one of which is late: PLB as who watches the wire sees it (F-30).

mod two_ends;

use std::collections::{BTreeMap, BTreeSet};

use rnic_base::{BitRate, Duration, Psn32, Time};
use rnic_fae::{Erased, Filter, ProcessorConfig};
use rnic_falcon::adaptive::{AdaptiveEngine, Placement};
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::Arrival;
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::transaction::{
    Completion, Kind, Ordering, PullReply, PushReply, Request, Submission, TransactionConfig, UpperLayer,
};
use rnic_policy::{Configured, Params};
use rnic_wire::falcon::{FlowLabel, Packet, Ulp, UlpProtocol};
use two_ends::{config_of, us};

/// Of the wire, each way.
const DELAY: Duration = Duration::from_us(2);
/// A packet on the late path takes so much longer.
const LATE: Duration = Duration::from_us(30);
const FLOWS: u8 = 4;
/// Of each flow, in packets, always: Swift is told so.
const WINDOW: u64 = 16;

struct Taking;

impl UpperLayer for Taking {
    fn push(&mut self, _: Time, _: &Request) -> PushReply {
        PushReply::Done
    }

    fn pull(&mut self, _: Time, _: &Request) -> PullReply {
        unreachable!("nobody pulls")
    }

    fn complete(&mut self, _: Time, _: &Completion) {}
}

struct End {
    connection: Connection,
    resources: Resources,
    adaptive: AdaptiveEngine,
    busy_until: Time,
}

impl End {
    fn new(plb_rounds: &str) -> Self {
        let policy = rnic_transports::control::find("swift").expect("a registered control policy");
        let mut params = Params::defaults(policy.params);
        let (all, least) = ((u64::from(FLOWS) * WINDOW).to_string(), (WINDOW * 1_024).to_string());
        for (name, value) in [
            ("plb_rounds", plb_rounds),
            ("prr_timeouts", "0"),
            ("initial_window", &all),
            ("window_min", &least),
            ("increase", "1"),
            ("base_target", "10us"),
            ("scaling_range", "0us"),
        ] {
            assert_eq!(params.set(policy.params, name, value), Ok(true), "{name}");
        }
        let line_rate = BitRate::gbps(200);
        let config = ProcessorConfig { form: AdaptiveEngine::FORM, connections: 1, line_rate, mtu: 4_096 };
        let placement = Placement { latency: None, queue: 64, filter: Filter::open(64) };
        let adaptive = AdaptiveEngine::new(Erased(Configured { policy, params }), &config, &placement);
        let mut adaptive = adaptive.expect("Swift understands reports");
        let mut delivery = config_of("rack-tlp", "largest-window");
        (delivery.flows, delivery.accept_stale, delivery.coalesce_count) = (FLOWS, true, 1);
        let transactions = TransactionConfig {
            ordering: Ordering::Unordered,
            protocol: UlpProtocol::Rdma,
            mtu: 4_096,
            outstanding: 1_024,
            timeout: Duration::from_secs(5),
            isolation: Isolation::None,
        };
        let config = ConnectionConfig { transactions, delivery, first_rsn: [Psn32::new(0); 2] };
        let connection = Connection::new(&config, &mut adaptive, 0).expect("there is room");
        let resources = Resources::new(ResourceConfig::GBPS_200);
        Self { connection, resources, adaptive, busy_until: Time::ZERO }
    }

    /// When it has something to do; what is due leaves when the link is free.
    fn wake(&self) -> Option<Time> {
        let own = [self.connection.timeout(), self.connection.departure()];
        own.into_iter().flatten().map(|at| at.max(self.busy_until)).min()
    }
}

enum Event {
    Arrive(usize, Box<Packet>, FlowLabel),
    Free,
}

/// End 0 sends for as long as the run takes, and the wire has one path for each label.
struct Wire {
    now: Time,
    ends: [End; 2],
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    late: Option<FlowLabel>,
    /// Packets that have left on that path.
    sent_late: u64,
    /// Labels of flows on the wire, with how many late packets had left before.
    seen: [BTreeMap<FlowLabel, u64>; FLOWS as usize],
}

impl Wire {
    fn new(plb_rounds: &str) -> Self {
        let ends = [End::new(plb_rounds), End::new(plb_rounds)];
        Self {
            now: us(1_000),
            ends,
            events: BTreeMap::new(),
            count: 0,
            late: None,
            sent_late: 0,
            seen: Default::default(),
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn pump(&mut self, from: usize) {
        while self.ends[from].busy_until <= self.now {
            let End { connection, resources, adaptive, busy_until } = &mut self.ends[from];
            let push = Submission { kind: Kind::Push, length: 4_096, payload_len: 4_096, ulp: Ulp::None, tag: 0 };
            while from == 0 && connection.submit(resources, &push).is_ok() {}
            let departure = connection.transmit(self.now, resources, &mut Taking);
            connection.consult(self.now, resources, adaptive);
            let Some(departure) = departure else { return };
            *busy_until = self.now + Duration::from_ns(100);
            let (free, label) = (*busy_until, departure.label);
            if from == 0 {
                self.seen[usize::from(label.flow(2))].entry(label).or_insert(self.sent_late);
            }
            self.schedule(free, Event::Free);
            let is_late = from == 0 && self.late == Some(label);
            self.sent_late += u64::from(is_late);
            let late = if is_late { LATE } else { Duration::ZERO };
            self.schedule(self.now + DELAY + late, Event::Arrive(1 - from, Box::new(departure.packet), label));
        }
    }

    fn run_until(&mut self, until: Time) {
        loop {
            self.pump(0);
            self.pump(1);
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let wakes = [0, 1].map(|end| self.ends[end].wake().map(|at| at.max(self.now)));
            let next = [event, wakes[0], wakes[1]].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = next;
            if event == Some(next) {
                let Some((_, Event::Arrive(to, packet, label))) = self.events.pop_first() else { continue };
                let End { connection, resources, adaptive, .. } = &mut self.ends[to];
                let arrival = Arrival { packet: &packet, label, marked: false, hops: 0 };
                connection.receive(next, &arrival, resources, &mut Taking);
                connection.consult(next, resources, adaptive);
                continue;
            }
            for (end, _) in self.ends.iter_mut().zip(wakes).filter(|(_, wake)| *wake == Some(next)) {
                end.connection.expire(next, &mut end.resources, &mut Taking);
                end.connection.consult(next, &end.resources, &mut end.adaptive);
            }
        }
        self.now = until;
    }
}

/// Runs with one path late from some time on. Answers how many packets took it until its flow had another label, if
/// ever.
fn moved_after(plb_rounds: &str) -> Option<u64> {
    let mut wire = Wire::new(plb_rounds);
    wire.run_until(us(2_000));
    let labels: BTreeSet<FlowLabel> = wire.seen.iter().flat_map(BTreeMap::keys).copied().collect();
    assert_eq!(labels.len(), 4, "while no path is late each flow has one label");
    let late = *wire.seen[2].first_key_value().expect("it was used").0;
    wire.late = Some(late);
    wire.run_until(us(4_000));
    let others = [0, 1, 3].map(|flow| wire.seen[flow].len());
    assert_eq!(others, [1; 3], "flows on other paths stay there");
    let mut moves = wire.seen[2].iter().filter(|(label, _)| **label != late).map(|(_, sent)| *sent);
    let first = moves.next();
    assert_eq!(moves.next(), None, "the new path is not late, so the flow stays there");
    first
}

#[test]
fn f30_a_flow_on_a_congested_path_takes_another_after_so_many_rounds() {
    for rounds in [2, 5, 12] {
        let sent = moved_after(&rounds.to_string()).expect("it was moved");
        // A round is a window's worth of acknowledgements, half of them late at least. Half of the first one may have
        // left before; if more has, it does not count. And a window is under way when the last one ends.
        let (least, most) = (rounds * WINDOW - WINDOW / 2, (rounds + 2) * WINDOW);
        assert!((least..=most).contains(&sent), "{rounds} rounds: after {sent} late packets, not {least} to {most}");
    }
}

#[test]
fn f30_without_rounds_a_flow_stays_on_its_congested_path() {
    assert_eq!(moved_after("0"), None);
}
