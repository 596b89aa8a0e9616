//! Checks the reports of connections to an adaptive engine, and that they apply its response (F-17, F-22, F-23, F-36).

mod two_ends;

use bytemuck::{Pod, Zeroable};
use rnic_base::{Csig, Duration, Psn32, Time};
use rnic_fae::StateLocation;
use rnic_falcon::adaptive::Location;
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::{AckRequestRule, Arrival, Delivery, DeliveryConfig, Departure, OutOfWindowRule};
use rnic_falcon::transaction::{Kind, Submission, TransactionConfig};
use rnic_policy::control::ControlInterest;
use rnic_policy::control::report::{AckRate, Alpha, Gap, RateLimit, ReportKind, Ticks};
use rnic_policy::{Configured, Control, ControlActions, ControlEvent, ControlPolicy, ControlView, Cwnd};
use rnic_policy::{FlowActions, FlowReport, ParamSpec, Params};
use rnic_wire::falcon::{Acknowledgement, Body, FlowLabel, Packet, Timestamp};
use two_ends::driver::{Nic, TRANSACTIONS, engine};
use two_ends::idle::Idle;
use two_ends::upper::Counting;
use two_ends::{config, micros};

const SENT: Time = Time::from_us(2_000_000);

/// No packet requests an acknowledgement: these are sent 8 us after the first packet that they cover.
fn silent() -> DeliveryConfig {
    let ack_request = AckRequestRule { threshold: Cwnd::from_fixed(0), share: 0, of: 256 };
    DeliveryConfig { ack_request, out_of_window: OutOfWindowRule::Drop, ..config() }
}

/// Sends two packets, the second 4 us after the first; those in `arrive` take 10 us to a receiver whose clock is
/// ahead by `skew`, and so does its acknowledgement. Returns what the sender reports.
fn report_of(skew: Duration, arrive: &[usize], change: impl Fn(&mut Packet)) -> FlowReport {
    let (mut sender, mut receiver) = (Delivery::new(silent()), Delivery::new(silent()));
    let (mut ours, mut theirs) = (Counting::new(), Counting::new());
    theirs.rx_level = 9;
    ours.pushes(2);
    let sent = [SENT, SENT + micros(4)];
    let mut left: Vec<Departure> = Vec::new();
    for at in sent {
        send_one(&mut sender, &mut ours, at, &mut left);
    }
    let mut due = None;
    for index in arrive {
        let mut packet = left[*index].packet;
        change(&mut packet);
        let at = sent[*index] + micros(10) + skew;
        let (label, hops, csig) = (left[*index].label, 4 + *index as u8, Some(Csig::from_value(10 + *index as u16)));
        let arrival = Arrival { packet: &packet, label, marked: true, hops, csig };
        receiver.receive(at, &arrival, &mut theirs);
        due.get_or_insert(at + micros(8));
    }
    let due = due.expect("a packet arrives");
    let answer = receiver.transmit(due, &mut theirs).expect("an acknowledgement is due");
    let arrival = Arrival { packet: &answer.packet, label: answer.label, marked: false, hops: 1, csig: None };
    let back = Time::from_ps(due.as_ps() - skew.as_ps()) + micros(10);
    sender.receive(back, &arrival, &mut ours);
    sender.signal().expect("an acknowledgement is reported")
}

/// Sends one packet.
fn send_one(sender: &mut Delivery, upper: &mut Counting, at: Time, left: &mut Vec<Departure>) {
    left.push(sender.transmit(at, upper).expect("a window is open"));
}

fn about(ticks: Ticks, duration: Duration) -> bool {
    ticks.get().abs_diff(Ticks::of(duration).get()) <= 2
}

#[test]
fn f17_f22_a_report_describes_the_latest_packet() {
    for skew in [Duration::ZERO, Duration::from_secs(1)] {
        let report = report_of(skew, &[0, 1], |_| {});
        assert_eq!((report.kind, report.flow, report.acked), (ReportKind::Acked, 0, 2));
        assert_eq!((report.hops, report.rx_level, report.ecn), (5, 9, 2), "path of the second packet, both marked");
        assert_eq!(report.csig, Some(Csig::from_value(11)), "the CSIG tag of the second packet");
        assert_eq!(report.label, Delivery::new(silent()).label(0).get());
        assert_eq!((report.extended, report.window_drop), (false, false));
        assert_eq!(report.t1, Ticks::at(SENT + micros(4)), "T1 of the latest packet");
        assert!(about(report.rtt(), micros(24)), "not with 4 us at the receiver: {:?}", report.rtt());
        assert!(about(report.delay(), micros(20)), "not without the time at the receiver: {:?}", report.delay());
        assert_eq!((report.in_force.fcwnd, report.in_force.ncwnd), (Cwnd::packets(32), 64));
    }
    let report = report_of(Duration::ZERO, &[1], |_| {});
    assert_eq!((report.acked, report.extended, report.window_drop), (1, true, false), "the first packet is missing");
    let far = |packet: &mut Packet| {
        if let Body::PushData { psn, .. } = &mut packet.body {
            *psn = Psn32::new(500);
        }
    };
    let report = report_of(Duration::ZERO, &[1], far);
    assert_eq!((report.acked, report.extended, report.window_drop), (0, true, true), "dropped beyond the window");
}

/// The number of marks is not reset when a packet times out, and each flow has its own.
#[test]
fn f22_a_timeout_report_repeats_the_count_of_marks() {
    let config = DeliveryConfig { flows: 2, accept_stale: true, ..two_ends::config_of("rack-tlp", "spray") };
    let (mut sender, mut upper) = (Delivery::new(config), Counting::new());
    upper.pushes(4);
    let mut left: Vec<Departure> = Vec::new();
    (0..4).for_each(|nth| send_one(&mut sender, &mut upper, SENT + micros(nth), &mut left));
    let (t1, t2) = (Timestamp::at(SENT), Timestamp::at(SENT + micros(10)));
    let told = Acknowledgement { t1, t2, ecn: 5_000, ..Acknowledgement::default() };
    let mut answer = Packet { body: Body::Ack(told), payload_len: 0, timestamp: t2, ..left[0].packet };
    answer.bases.data = Psn32::new(1);
    let arrival = Arrival { packet: &answer, label: left[0].label, marked: false, hops: 1, csig: None };
    sender.receive(SENT + micros(20), &arrival, &mut upper);
    let report = sender.signal().expect("an acknowledgement is reported");
    assert_eq!((report.kind, report.flow, report.flows, report.ecn), (ReportKind::Acked, 0, 2, 5_000));
    assert_eq!(report.csig, None, "no packet had a CSIG tag");
    for _ in 0..4 {
        let due = sender.expiry().expect("packets are in flight");
        sender.expire(due, &mut upper);
    }
    let marks: Vec<_> = std::iter::from_fn(|| sender.signal()).map(|report| (report.kind, report.ecn)).collect();
    let again = |ecn| (ReportKind::Retransmitted { count: 1, early: false }, ecn);
    assert!(marks.contains(&again(5_000)) && marks.contains(&again(0)), "{marks:?}");
    assert!(marks.iter().all(|(_, ecn)| [0, 5_000].contains(ecn)), "{marks:?}");
}

/// A program that returns the NIC's buffer level in its window, and a different value in each other field of its
/// response.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Teller(u64);

const FIRST: FlowActions = FlowActions {
    fcwnd: Cwnd::packets(32),
    ncwnd: 64,
    gap: Gap::NONE,
    rate: RateLimit::NONE,
    rto: Ticks::new(7_629),
    rack: Ticks::new(7_629),
    tlp: Ticks::new(7_629),
    repath: false,
    alpha_requests: Alpha::code(3),
    alpha_responses: Alpha::code(3),
    ack_rate: AckRate::code(4),
};

impl Control for Teller {
    const NAME: &'static str = "teller";
    const SUMMARY: &'static str = "returns the reported buffer level";
    const PARAMS: &'static [ParamSpec] = &[];

    fn start(_: &Params, _: &ControlView) -> (Self, ControlActions) {
        (Self(0), ControlActions { flow: Some(FIRST), ..ControlActions::default() })
    }

    fn interest(_: &Params) -> ControlInterest {
        ControlInterest { reports: true, ..ControlInterest::default() }
    }

    fn on_event(&mut self, event: &ControlEvent, _: &ControlView, _: &Params) -> ControlActions {
        let ControlEvent::Reported(report) = event else { return ControlActions::default() };
        let flow = FlowActions {
            fcwnd: Cwnd::packets(100 + u64::from(report.occupancy)),
            ncwnd: 3,
            gap: Gap::slots(2),
            rto: Ticks::of(micros(300)),
            repath: true,
            alpha_requests: Alpha::code(5),
            alpha_responses: Alpha::code(7),
            ack_rate: AckRate::ALL,
            ..FIRST
        };
        ControlActions { flow: Some(flow), ..ControlActions::default() }
    }
}

#[test]
fn f22_f23_f36_reports_and_responses_pass_through_a_connection() {
    let program = Configured { policy: ControlPolicy::of::<Teller>(), params: Params::defaults(&[]) };
    let mut nic = Nic::new(engine(program, StateLocation::Table, Location::Inline, 16));
    let resources = &mut nic.resources;
    let half = resources.capacity(rnic_falcon::resources::ResourcePart::RequestRx).buffers / 2;
    (0..30).for_each(|_| resources.set_backlog(half));
    let level = resources.rx_level();
    assert!(level > 10);

    let transactions = TransactionConfig { timeout: Duration::from_ms(100), ..TRANSACTIONS };
    let first_rsn = [Psn32::new(0); 2];
    let config = ConnectionConfig { transactions, delivery: two_ends::config(), first_rsn };
    let mut connection = Connection::new(&config, &mut nic.adaptive, 0).expect("a number is free");
    let label = connection.delivery().label(0);
    for tag in 0..10 {
        let push = Submission { kind: Kind::Push, length: 64, payload_len: 64, ulp: None, tag, continues: false };
        connection.submit(&mut nic.resources, &push).expect("resources are available");
    }
    let sent = nic.transmit(SENT, &mut connection, &mut Idle).expect("a window is open");
    let told = Acknowledgement { t1: Timestamp::at(SENT), t2: Timestamp::at(SENT), ..Acknowledgement::default() };
    let mut ack = Packet { body: Body::Ack(told), payload_len: 0, ..sent.packet };
    ack.bases.data = Psn32::new(1);
    let now = SENT + micros(20);
    let arrival = Arrival { packet: &ack, label: FlowLabel::new(0), marked: false, hops: 1, csig: None };
    nic.receive(now, &mut connection, &mut Idle, &arrival);

    assert_eq!(connection.fcwnd(), Cwnd::packets(100 + u64::from(level)), "the NIC's buffer level was reported");
    assert_ne!(connection.delivery().label(0), label, "the path was not changed");
    let usage = connection.transactions().usage();
    assert_eq!((usage.request_alpha.shift(), usage.data_alpha.shift()), (5, 7));
    // Two slots of 512 ns between packets; every packet requests an acknowledgement; three packets are in flight, and
    // time out after 300 us.
    let mut at = now;
    for nth in 0..3 {
        assert_eq!(nic.transmit(at, &mut connection, &mut Idle), None, "packet {nth} is paced");
        let departure = connection.departure().expect("the packet is paced");
        assert_eq!(departure, at + Duration::from_ns(1_024));
        at = departure;
        let left = nic.transmit(at, &mut connection, &mut Idle).expect("the departure time is reached");
        assert!(left.packet.ack_request, "packet {nth}");
    }
    let later = at + micros(100);
    assert_eq!((nic.transmit(later, &mut connection, &mut Idle), connection.departure()), (None, None));
    // The first expiry may be early: it was set for the packet that has been acknowledged.
    let look = connection.expiry().expect("packets are in flight");
    nic.expire(look, &mut connection, &mut Idle);
    let timeout = connection.expiry().expect("packets are in flight");
    assert!(timeout > now + micros(300) && timeout < now + micros(303), "{timeout:?} after {now:?}");
}
