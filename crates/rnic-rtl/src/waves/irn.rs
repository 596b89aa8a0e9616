//! IRN: packets and timeouts of one connection, in which engine and specification must do the same.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};
use rnic_engine::{Arrival, Departure, DriverCall, Engine, Transmit};
use rnic_policy::Profile;
use rnic_wire::Qpn;

use super::{Count, Event, Recorded, Stimulus};
use crate::circuit::{Circuit, Timing};
use crate::spec::irn::{Acknowledgement, Answer, Effect, ReceiveContext, SendContext, Timer, WINDOW};

/// Wider window for which there is a circuit.
const WIDE: u32 = 256;

/// Inputs, after the time.
const INPUTS: [&str; 15] = [
    "start_i",
    "first_psn_i",
    "free_i",
    "has_new_i",
    "cap_i",
    "ack_i",
    "is_nack_i",
    "cumulative_i",
    "has_selective_i",
    "selective_i",
    "timeout_i",
    "low_packets_i",
    "data_i",
    "psn_i",
    "arrival_i",
];

/// Outputs.
const OUTPUTS: [&str; 13] = [
    "send_o",
    "psn_o",
    "is_again_o",
    "timer_o",
    "acts_o",
    "una_o",
    "next_o",
    "answer_o",
    "expected_o",
    "selective_o",
    "msn_o",
    "completions_o",
    "place_o",
];

/// Signals of the save file.
const SIGNALS: [&str; 16] = [
    "free_i",
    "psn_o",
    "is_again_o",
    "ack_i",
    "is_nack_i",
    "cumulative_i",
    "selective_i",
    "timeout_i",
    "acts_o",
    "una_o",
    "next_o",
    "data_i",
    "psn_i",
    "answer_o",
    "expected_o",
    "place_o",
];

/// Kinds of events, and their names.
const KINDS: [&str; 4] = ["packets sent", "acknowledgements", "timeouts", "packets received"];

/// Settings of the transport.
#[derive(Clone, Copy, Debug)]
struct Settings {
    cap: u32,
    rto_low: Duration,
    rto_high: Duration,
    low_packets: u32,
}

/// An acknowledgement that the receiver's engine has to send: all packets before `expected` have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owed {
    answer: Answer,
    selective: u32,
    expected: u32,
    msn: u32,
}

/// Recording of a connection with windows of `W` packets.
#[derive(Debug)]
struct Recording<const W: u32> {
    settings: Settings,
    /// Contexts of the specification, from the first packet on.
    contexts: Option<(SendContext<W>, ReceiveContext<W>)>,
    /// Time at which the sender's timer expires.
    deadline: Option<Time>,
    owed: VecDeque<Owed>,
    /// First difference between engine and specification.
    difference: Option<String>,
    events: Vec<Event>,
    counts: [u64; KINDS.len()],
}

/// Returns the recording of a connection with this transport.
///
/// # Errors
/// When an option is set of which the circuit knows nothing.
pub(super) fn recording(profile: &Profile) -> Result<Box<dyn Recorded>, String> {
    let recovery = &profile.recovery;
    let parameter = |name: &str| {
        let at = recovery.policy.params.iter().position(|spec| spec.name == name);
        at.map_or(0, |at| recovery.params.get(at))
    };
    let wrong = [
        ("sack_bitmap=false", parameter("sack_bitmap") == 0),
        ("nack_threshold above 1", parameter("nack_threshold") > 1),
        ("dynamic_rto=true", parameter("dynamic_rto") != 0),
        ("rto_from_nack=true", parameter("rto_from_nack") != 0),
        ("retransmit_fetch", profile.retransmit_fetch != Duration::ZERO),
        ("measured timeouts", profile.measured_timeouts),
        ("flows", profile.flows.is_some_and(|flows| flows > 1)),
        ("a window of more than 256 packets", profile.window_bits > WIDE),
    ];
    if let Some((option, _)) = wrong.iter().find(|(_, is_set)| *is_set) {
        return Err(format!("IRN's circuit does not have this option of transport `{}`: {option}", profile.name));
    }
    let duration = |name: &str| Duration::from_ps(parameter(name));
    let settings = Settings {
        cap: profile.cap_packets.unwrap_or(profile.window_bits).min(profile.window_bits),
        rto_low: duration("rto_low"),
        rto_high: duration("rto_high"),
        low_packets: parameter("rto_low_packets") as u32,
    };
    if profile.window_bits <= WINDOW {
        return Ok(Box::new(Recording::<WINDOW>::new(settings)));
    }
    Ok(Box::new(Recording::<WIDE>::new(settings)))
}

impl<const W: u32> Recording<W> {
    fn new(mut settings: Settings) -> Self {
        // More packets than a window has: the timer is never extended, as by the engine where RTO_high is not later.
        let all = 2 * W - 1;
        let extends = settings.rto_high > settings.rto_low;
        settings.low_packets = if extends { settings.low_packets.min(all) } else { all };
        Self {
            settings,
            contexts: None,
            deadline: None,
            owed: VecDeque::new(),
            difference: None,
            events: Vec::new(),
            counts: [0; KINDS.len()],
        }
    }

    /// Records an event with these inputs and outputs; the others are zero or not compared.
    fn add(&mut self, at: Time, inputs: &[(&str, u64)], outputs: &[(&str, u64)]) {
        self.events.push(Event::of(at, 0, [&INPUTS, &OUTPUTS], inputs, outputs));
    }

    fn differs(&mut self, at: Time, text: &str) {
        self.difference.get_or_insert_with(|| format!("at {at} {text}"));
    }

    /// Starts both contexts with the first packet, if they have not started.
    fn start(&mut self, at: Time, psn: u32) {
        if self.contexts.is_none() {
            self.contexts = Some((SendContext::new(psn), ReceiveContext { expected: psn, ..Default::default() }));
            self.add(at, &[("start_i", 1), ("first_psn_i", psn.into())], &[("una_o", psn.into())]);
        }
    }

    fn restart(&mut self, at: Time, timer: Timer) {
        let Settings { rto_low, rto_high, .. } = self.settings;
        match timer {
            Timer::Keep => {}
            Timer::Restart => self.deadline = Some(at + rto_low),
            Timer::Stop => self.deadline = None,
            Timer::Extend => self.deadline = Some(at + rto_high.saturating_sub(rto_low)),
        }
    }

    /// The sender's engine has sent a packet.
    fn sent(&mut self, at: Time, transmit: &Transmit) {
        let (psn, is_again) = (transmit.packet.psn.value(), transmit.kind.is_retransmission());
        self.start(at, psn);
        let cap = self.settings.cap;
        let Some((sender, _)) = &mut self.contexts else { return };
        let sent = sender.tx_free(true, cap);
        let (una, next) = (sender.una, sender.next);
        let Some(sent) = sent.filter(|sent| (sent.psn, sent.is_again) == (psn, is_again)) else {
            return self
                .differs(at, &format!("the engine sends {psn} (again: {is_again}), the specification {sent:?}"));
        };
        self.restart(at, sent.timer);
        self.counts[0] += 1;
        let outputs = [
            ("send_o", 1),
            ("psn_o", psn.into()),
            ("is_again_o", is_again.into()),
            ("timer_o", sent.timer as u64),
            ("una_o", una.into()),
            ("next_o", next.into()),
        ];
        self.add(at, &[("free_i", 1), ("has_new_i", 1), ("cap_i", cap.into())], &outputs);
    }

    /// The sender's engine has received an acknowledgement.
    fn acknowledged(&mut self, at: Time, ack: Acknowledgement) {
        let Some((sender, _)) = &mut self.contexts else { return };
        let timer = sender.receive_ack(ack).timer;
        let (una, next) = (sender.una, sender.next);
        self.restart(at, timer);
        self.counts[1] += 1;
        let inputs = [
            ("ack_i", 1),
            ("is_nack_i", ack.is_nack.into()),
            ("cumulative_i", ack.cumulative.into()),
            ("has_selective_i", ack.selective.is_some().into()),
            ("selective_i", ack.selective.unwrap_or(0).into()),
        ];
        self.add(at, &inputs, &[("timer_o", timer as u64), ("una_o", una.into()), ("next_o", next.into())]);
    }

    /// Time has passed at the sender's engine.
    fn expire(&mut self, at: Time) {
        if self.deadline.is_none_or(|deadline| deadline > at) {
            return;
        }
        let low_packets = self.settings.low_packets;
        let Some((sender, _)) = &mut self.contexts else { return };
        let expired = sender.timeout(low_packets);
        self.restart(at, expired.timer);
        self.counts[2] += 1;
        let outputs = [("acts_o", expired.acts.into()), ("timer_o", expired.timer as u64)];
        self.add(at, &[("timeout_i", 1), ("low_packets_i", low_packets.into())], &outputs);
    }

    /// The receiver's engine has received a data packet.
    fn arrived(&mut self, at: Time, psn: u32, effect: Effect) {
        let Some((_, receiver)) = &mut self.contexts else { return };
        let received = receiver.receive_data(psn, effect);
        let owed = Owed {
            answer: received.answer,
            selective: received.selective,
            expected: receiver.expected,
            msn: receiver.msn,
        };
        self.owed.push_back(owed);
        self.counts[3] += 1;
        let outputs = [
            ("answer_o", received.answer as u64),
            ("expected_o", owed.expected.into()),
            ("selective_o", received.selective.into()),
            ("msn_o", owed.msn.into()),
            ("completions_o", received.completions.into()),
            ("place_o", received.place.into()),
        ];
        self.add(at, &[("data_i", 1), ("psn_i", psn.into()), ("arrival_i", effect as u64)], &outputs);
    }

    /// The receiver's engine has sent an acknowledgement.
    fn answered(&mut self, at: Time, (ack, msn): (Acknowledgement, u32)) {
        let answer = match (ack.is_nack, ack.selective) {
            (false, _) => Answer::Ack,
            (true, Some(_)) => Answer::Nack,
            (true, None) => Answer::NackOutside,
        };
        let sent = Owed { answer, selective: ack.selective.unwrap_or(0), expected: ack.cumulative, msn };
        let owed = self.owed.pop_front();
        if owed != Some(sent) {
            self.differs(at, &format!("the engine answers {sent:?}, the specification {owed:?}"));
        }
    }

    fn at_sender(&mut self, now: Time, qpn: Qpn, call: &DriverCall<'_>) {
        match call {
            DriverCall::Transmit(Some(Departure::Roce(transmit)))
                if transmit.from == qpn && Effect::of(&transmit.packet).is_some() =>
            {
                self.sent(now, transmit);
            }
            DriverCall::Receive(Arrival::Roce(_, packet, _), _) if packet.dest_qpn == qpn => {
                if let Some((ack, _)) = Acknowledgement::of(packet) {
                    self.acknowledged(now, ack);
                }
            }
            DriverCall::Tick => self.expire(now),
            _ => {}
        }
    }

    fn at_receiver(&mut self, now: Time, qpn: Qpn, call: &DriverCall<'_>) {
        match call {
            DriverCall::Receive(Arrival::Roce(_, packet, _), _) if packet.dest_qpn == qpn => {
                if let Some(effect) = Effect::of(packet) {
                    self.arrived(now, packet.psn.value(), effect);
                }
            }
            DriverCall::Transmit(Some(Departure::Roce(transmit))) if transmit.from == qpn => {
                if let Some(ack) = Acknowledgement::of(&transmit.packet) {
                    self.answered(now, ack);
                }
            }
            _ => {}
        }
    }
}

impl<const W: u32> Recorded for Recording<W> {
    fn note(&mut self, _: &Engine, now: Time, end: usize, qpn: Qpn, call: &DriverCall<'_>) {
        if self.difference.is_none() {
            if end == 0 { self.at_sender(now, qpn, call) } else { self.at_receiver(now, qpn, call) }
        }
    }

    fn len(&self) -> usize {
        self.events.len()
    }

    fn take(&mut self) -> Result<Stimulus, String> {
        if let Some(difference) = self.difference.take() {
            return Err(difference);
        }
        let (id, distance) = (24, W.ilog2() + 1);
        let width = |name: &&str| match *name {
            "first_psn_i" | "cumulative_i" | "selective_i" | "psn_i" => id,
            "psn_o" | "una_o" | "next_o" | "expected_o" | "selective_o" | "msn_o" => id,
            "cap_i" | "low_packets_i" | "completions_o" => distance,
            "arrival_i" | "timer_o" | "answer_o" => 2,
            _ => 1,
        };
        let ports =
            |names: &[&'static str]| -> Vec<(&str, u32)> { names.iter().map(|name| (*name, width(name))).collect() };
        let inputs = [vec![("now_ps_i", 64)], ports(&INPUTS)].concat();
        let folders = ["irn", "lib"];
        let circuit = Circuit::written("irn_connection", &folders, Timing::WithoutReset, &inputs, &ports(&OUTPUTS));
        let counts = KINDS.iter().zip(self.counts).map(|(name, events)| Count { name, events }).collect();
        Ok(Stimulus {
            circuit: circuit.with("W", W.into()),
            events: std::mem::take(&mut self.events),
            counts,
            signals: SIGNALS.iter().map(|name| (*name).to_owned()).collect(),
        })
    }
}
