//! Connections with several flows: how the first window is divided among them, and which parts of the adaptive
//! engine's state they share wherever it is stored (F-25, F-40).

mod two_ends;

use rnic_base::{Duration, Psn32, RandomStreams, Time};
use rnic_fae::StateLocation;
use rnic_falcon::adaptive::Location;
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::{Arrival, Departure};
use rnic_falcon::transaction::{Kind, Submission};
use rnic_policy::Cwnd;
use rnic_wire::falcon::{Acknowledgement, Body, Nack, NackCode, Packet, Timestamp, Window};
use two_ends::driver::{Nic, TRANSACTIONS, control, engine};
use two_ends::idle::Idle;
use two_ends::{config_of, micros};

/// A connection that sends packets one by one, each on the next flow, and gets each acknowledged immediately.
struct Sender {
    connection: Connection,
    nic: Nic,
    now: Time,
    sent: u32,
}

impl Sender {
    fn new(program: &str, options: &[(&str, &str)], flows: u8, form: StateLocation) -> Self {
        let mut nic = Nic::new(engine(control(program, options), form, Location::Inline, 64));
        let mut delivery = config_of("rack-tlp", "spray");
        (delivery.flows, delivery.accept_stale) = (flows, flows > 1);
        let config = ConnectionConfig { transactions: TRANSACTIONS, delivery, first_rsn: [Psn32::new(0); 2] };
        let connection = Connection::new(&config, &mut nic.adaptive, 0).expect("a number is free");
        Self { connection, nic, now: Time::from_us(1_000), sent: 0 }
    }

    fn send(&mut self) -> Departure {
        let tag = u64::from(self.sent);
        let push = Submission { kind: Kind::Push, length: 64, payload_len: 64, ulp: None, tag, continues: false };
        self.connection.submit(&mut self.nic.resources, &push).expect("resources are available");
        self.sent += 1;
        self.nic.transmit(self.now, &mut self.connection, &mut Idle).expect("a window is open")
    }

    /// Sends a packet 5 us later and delivers an acknowledgement or a NACK for it with a round trip of 20 us and this
    /// buffer level of the receiver. Returns the windows of all flows together, and ncwnd as far as it is the
    /// smaller.
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
        self.nic.receive(self.now, &mut self.connection, &mut Idle, &arrival);
        (self.connection.fcwnd(), self.connection.delivery().window())
    }
}

/// ncwnd belongs to the connection, and so does the limit of one change per round trip: four flows that are
/// acknowledged within one round trip change it once, whether their state travels or is stored. (Of more than four
/// flows a table stores some together, and their round trips differ.)
#[test]
fn f18_f40_all_flows_together_change_ncwnd_once_per_round_trip() {
    for (seed, flows) in (1..=6).flat_map(|seed| [2, 3, 4].map(|flows| (seed, flows))) {
        let options = [("initial_window", "256")];
        let [mut table, mut stateless] =
            [StateLocation::Table, StateLocation::Stateless].map(|form| Sender::new("swift", &options, flows, form));
        let mut random = RandomStreams::new(seed).stream("levels");
        let (mut level, mut least, mut most) = (0, u64::MAX, 0);
        for step in 0..1_500 {
            // Buffers fill, and are then empty for a long time.
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

/// Shares of resources belong to the connection, wherever state is stored: the timeout of a flow whose last report
/// was good does not undo what the report of another flow has lowered since.
#[test]
fn f36_a_timeout_of_one_flow_does_not_raise_a_share_lowered_by_another() {
    for form in [StateLocation::Table, StateLocation::Stateless] {
        let mut sender = Sender::new("swift", &[("rx_target", "3")], 2, form);
        for _ in 0..8 {
            sender.step(0, false);
            sender.step(31, false);
        }
        let share = |sender: &Sender| sender.connection.transactions().usage().request_alpha.shift();
        let lowered = share(&sender);
        assert!(lowered >= 6, "{form:?}: 2^(3 - {lowered}), not an eighth or less");
        sender.send();
        sender.now += Duration::from_ms(20);
        sender.nic.expire(sender.now, &mut sender.connection, &mut Idle);
        assert_eq!(sender.connection.delivery().timeouts(), 1, "{form:?}");
        assert!(share(&sender) >= lowered, "{form:?}: 2^(3 - {}) after 2^(3 - {lowered})", share(&sender));
    }
}

/// A window that is not divisible by the number of flows does not shrink through the division: neither initially nor
/// later while nothing changes it.
#[test]
fn f25_shares_of_flows_add_up_to_the_window() {
    for (window, flows) in [2, 7, 8, 32, 64].into_iter().flat_map(|window| (1..=8).map(move |flows| (window, flows))) {
        let whole = Cwnd::packets(window);
        let text = window.to_string();
        let swift = Sender::new("swift", &[("initial_window", &text)], flows, StateLocation::Table);
        assert_eq!(swift.connection.fcwnd(), whole, "{flows} flows");
        let mut fixed = Sender::new("fixed-window", &[("window", &text)], flows, StateLocation::Table);
        for _ in 0..32 {
            assert_eq!(fixed.step(0, false), (whole, window), "{flows} flows");
        }
    }
}
