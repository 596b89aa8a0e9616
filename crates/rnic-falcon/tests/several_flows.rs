//! Connections with several flows: their shares of the first window, and what of the adaptive engine's state they have
//! in common wherever that lies (F-25, F-40).

mod two_ends;

use rnic_base::{BitRate, Duration, Psn32, RandomStreams, Time};
use rnic_fae::{Erased, Filter, Form, ProcessorConfig};
use rnic_falcon::adaptive::{AdaptiveEngine, Location, Placement};
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::{Arrival, Departure};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::transaction::{Kind, Ordering, Submission, TransactionConfig};
use rnic_policy::{Configured, Cwnd, Params};
use rnic_wire::falcon::{Acknowledgement, Body, Nack, NackCode, Packet, Timestamp, UlpProtocol, Window};
use two_ends::idle::Idle;
use two_ends::{config_of, micros};

/// A connection that sends one packet after the other, each on the next flow, and is answered at once.
struct Sender {
    connection: Connection,
    resources: Resources,
    engine: AdaptiveEngine,
    now: Time,
    sent: u32,
}

impl Sender {
    fn new(program: &str, options: &[(&str, &str)], flows: u8, form: Form) -> Self {
        let policy = rnic_transports::control::find(program).expect("a registered control policy");
        let mut params = Params::defaults(policy.params);
        for (name, value) in options {
            assert_eq!(params.set(policy.params, name, value), Ok(true), "{name}");
        }
        let config = ProcessorConfig { form, connections: 1, line_rate: BitRate::gbps(200), mtu: 4_096 };
        let placement = Placement { location: Location::Inline, queue: 64, filter: Filter::open(64) };
        let program = Erased(Configured { policy, params });
        let mut engine = AdaptiveEngine::new(program, &config, &placement).expect("it runs in this form");
        let mut delivery = config_of("rack-tlp", "spray");
        (delivery.flows, delivery.accept_stale) = (flows, flows > 1);
        let transactions = TransactionConfig {
            ordering: Ordering::Ordered,
            protocol: UlpProtocol::Rdma,
            mtu: 4_096,
            outstanding: 64,
            timeout: Duration::from_secs(5),
            isolation: Isolation::None,
        };
        let config = ConnectionConfig { transactions, delivery, first_rsn: [Psn32::new(0); 2] };
        let connection = Connection::new(&config, &mut engine, 0).expect("there is room");
        let resources = Resources::new(ResourceConfig::GBPS_200);
        Self { connection, resources, engine, now: Time::from_us(1_000), sent: 0 }
    }

    fn send(&mut self) -> Departure {
        let tag = u64::from(self.sent);
        let push = Submission { kind: Kind::Push, length: 64, payload_len: 64, ulp: None, tag, continues: false };
        self.connection.submit(&mut self.resources, &push).expect("there is room");
        self.sent += 1;
        self.connection.transmit(self.now, &mut self.resources, &mut Idle).expect("a window is open")
    }

    /// 5 us later a packet leaves, and an answer to it is here that says that it took 20 us, with a level of the
    /// receiver's buffers or a refusal. The windows of all flows, and that towards the NIC as far as it is the smaller.
    fn step(&mut self, rx_level: u8, refused: bool) -> (Cwnd, u64) {
        self.now += micros(5);
        let left = self.send();
        let before = |us: u64| Timestamp::at(Time::from_ps(self.now.as_ps() - micros(us).as_ps()));
        let (t1, t2) = (before(20), before(10));
        let body = if refused {
            let (psn, window, code) = (Psn32::new(self.sent - 1), Window::Data, NackCode::Resource);
            Body::Nack(Nack { t1, t2, hops: 3, rx_level, ecn: 0, metadata: 0, psn, window, code })
        } else {
            Body::Ack(Acknowledgement { t1, t2, hops: 3, rx_level, ..Acknowledgement::default() })
        };
        let mut answer = Packet { body, payload_len: 0, timestamp: t2, ..left.packet };
        answer.bases.data = Psn32::new(self.sent);
        let arrival = Arrival { packet: &answer, label: left.label, marked: false, hops: 3, csig: None };
        self.connection.receive(self.now, &arrival, &mut self.resources, &mut Idle);
        self.connection.report_to_fae(self.now, &self.resources, &mut self.engine);
        (self.connection.fcwnd(), self.connection.delivery().window())
    }
}

/// The window towards the NIC is the connection's, and so is the gate of one change a round trip: four flows that are
/// answered within one change it once, where their state travels as where it is kept. (Of more than four flows a table
/// keeps some together, and their round trips are not the same.)
#[test]
fn f18_f40_flows_share_the_gate_of_ncwnd_wherever_state_lies() {
    for (seed, flows) in (1..=6).flat_map(|seed| [2, 3, 4].map(|flows| (seed, flows))) {
        let options = [("initial_window", "256")];
        let [mut table, mut stateless] =
            [Form::Table, Form::Stateless].map(|form| Sender::new("swift", &options, flows, form));
        let mut random = RandomStreams::new(seed).stream("levels");
        let (mut level, mut least, mut most) = (0, u64::MAX, 0);
        for step in 0..1_500 {
            // Buffers fill, and then are empty for long.
            if random.below(60) == 0 {
                level = if level == 0 { random.between(16, 31) as u8 } else { 0 };
            }
            let refused = level > 0 && random.below(3) == 0;
            let (kept, travelled) = (table.step(level, refused), stateless.step(level, refused));
            assert_eq!(travelled, kept, "seed {seed}, {flows} flows, step {step}, level {level}, refused: {refused}");
            (least, most) = (least.min(kept.1), most.max(kept.1));
        }
        assert!(least < 8 && most > 60, "seed {seed}, {flows} flows: ncwnd went from {least} to {most}");
    }
}

/// Shares of resources are the connection's, wherever state lies: the timeout of a flow that was well when it was heard
/// of last does not undo what another has heard since.
#[test]
fn f36_a_timeout_of_one_flow_raises_no_share_that_another_has_lowered() {
    for form in [Form::Table, Form::Stateless] {
        let mut sender = Sender::new("swift", &[("rx_target", "3")], 2, form);
        for _ in 0..8 {
            sender.step(0, false);
            sender.step(31, false);
        }
        let share = |sender: &Sender| sender.connection.transactions().usage().request_alpha.shift();
        let lowered = share(&sender);
        assert!(lowered >= 6, "{form:?}: an eighth or less, and not 2^(3 - {lowered})");
        sender.send();
        sender.now += Duration::from_ms(20);
        sender.connection.expire(sender.now, &mut sender.resources, &mut Idle);
        assert_eq!(sender.connection.delivery().timeouts(), 1, "{form:?}");
        sender.connection.report_to_fae(sender.now, &sender.resources, &mut sender.engine);
        assert!(share(&sender) >= lowered, "{form:?}: 2^(3 - {}) after 2^(3 - {lowered})", share(&sender));
    }
}

/// A window that its flows cannot divide is not smaller for it: not at first, and not later where nothing changes it.
#[test]
fn f25_shares_of_flows_add_up_to_the_window() {
    for (window, flows) in [2, 7, 8, 32, 64].into_iter().flat_map(|window| (1..=8).map(move |flows| (window, flows))) {
        let whole = Cwnd::packets(window);
        let text = window.to_string();
        let swift = Sender::new("swift", &[("initial_window", &text)], flows, Form::Table);
        assert_eq!(swift.connection.fcwnd(), whole, "{flows} flows");
        let mut fixed = Sender::new("fixed-window", &[("window", &text)], flows, Form::Table);
        for _ in 0..32 {
            assert_eq!(fixed.step(0, false), (whole, window), "{flows} flows");
        }
    }
}
