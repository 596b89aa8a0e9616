//! FaSR: packets and timeouts of one connection, in which engine and specification must do the same.

use rnic_base::Time;
use rnic_engine::{Arrival, Departure, DriverCall, Engine, Transmit, TransmitKind};
use rnic_policy::{PoolShape, Profile, Store};
use rnic_wire::{Packet, Qpn};

use super::{Count, Event, Recorded, Stimulus};
use crate::circuit::{Circuit, Timing};
use crate::spec::fasr::sr::Sr;
use crate::spec::fasr::{BLOCKS, CAP, Endpoint, Event as SrEvent, Kind, Lost, REACH, Say};

/// Inputs, after the time.
const INPUTS: [&str; 12] = [
    "start_i",
    "first_psn_i",
    "send_i",
    "send_psn_i",
    "again_i",
    "ack_i",
    "kind_i",
    "cumulative_i",
    "selective_i",
    "lost_i",
    "data_i",
    "psn_i",
];

/// Outputs.
const OUTPUTS: [&str; 11] = [
    "busy_o",
    "una_o",
    "next_o",
    "recovering_o",
    "requested_o",
    "expected_o",
    "answer_o",
    "missing_o",
    "placed_o",
    "sender_blocks_o",
    "receiver_blocks_o",
];

/// Signals of the save file.
const SIGNALS: [&str; 20] = [
    "send_i",
    "send_psn_i",
    "again_i",
    "ack_i",
    "kind_i",
    "cumulative_i",
    "selective_i",
    "lost_i",
    "una_o",
    "next_o",
    "recovering_o",
    "requested_o",
    "sender_blocks_o",
    "data_i",
    "psn_i",
    "answer_o",
    "missing_o",
    "expected_o",
    "placed_o",
    "receiver_blocks_o",
];

/// Kinds of events, and their names.
const KINDS: [&str; 4] = ["packets sent", "acknowledgements", "timeouts", "packets received"];

/// One end in the specification.
#[derive(Debug)]
struct End {
    sr: Sr,
    endpoint: Endpoint,
    /// Number of the engine's timeouts.
    timeouts: u32,
}

/// Recording of a connection.
#[derive(Debug)]
pub(super) struct Recording {
    cap: u32,
    /// Sender and receiver, from the first packet on.
    ends: Option<[End; 2]>,
    /// First difference between engine and specification.
    difference: Option<String>,
    events: Vec<Event>,
    counts: [u64; KINDS.len()],
}

impl Recording {
    /// Returns the recording of a connection with this transport.
    ///
    /// # Errors
    /// When an option is set of which the circuit knows nothing.
    pub(super) fn new(profile: &Profile) -> Result<Self, String> {
        let wrong = [
            ("pool_units, pool_blocks, pool_block_bits", profile.store != Store::Pool(PoolShape::FASR)),
            ("flows", profile.flows.is_some_and(|flows| flows > 1)),
            ("a window of more than 512 packets", profile.window_bits > REACH),
        ];
        if let Some((option, _)) = wrong.iter().find(|(_, is_set)| *is_set) {
            return Err(format!("FaSR's circuit does not have this option of transport `{}`: {option}", profile.name));
        }
        let cap = profile.cap_packets.unwrap_or(CAP).min(profile.window_bits);
        Ok(Self { cap, ends: None, difference: None, events: Vec::new(), counts: [0; KINDS.len()] })
    }

    /// Records an event that takes so many further cycles.
    fn add(&mut self, at: Time, cycles: u32, inputs: &[(&str, u64)], outputs: &[(&str, u64)]) {
        self.events.push(Event::of(at, cycles as usize, [&INPUTS, &OUTPUTS], inputs, outputs));
    }

    /// Notes that the engine does not do what the specification does.
    fn differs(&mut self, engine: &Engine, at: Time, text: &str) {
        let reason = if engine.pool_stats().fallbacks == 0 {
            text
        } else {
            "engine and specification differ, likely because other connections have exhausted the NIC's pools, and the \
             circuit has pools of its own; choose a plan with fewer flows or losses"
        };
        self.difference.get_or_insert_with(|| format!("at {at}: {reason}"));
    }

    /// Starts both ends with the first packet, if they have not started.
    fn start(&mut self, at: Time, psn: u32) {
        if self.ends.is_none() {
            let end = || End { sr: Sr::default(), endpoint: Endpoint::new(0, psn, self.cap), timeouts: 0 };
            self.ends = Some([end(), end()]);
            let outputs = [("una_o", psn.into()), ("next_o", psn.into()), ("expected_o", psn.into())];
            self.add(at, 1, &[("start_i", 1), ("first_psn_i", psn.into())], &outputs);
        }
    }

    /// An engine has sent a packet.
    fn sent(&mut self, engine: &Engine, at: Time, end: usize, transmit: &Transmit) {
        let psn = transmit.packet.psn.value();
        let (is_data, is_again) = match transmit.kind {
            TransmitKind::Request => (true, false),
            TransmitKind::RequestRetransmission => (true, true),
            TransmitKind::Ack => (false, false),
            _ => return,
        };
        // The sender has no data to acknowledge.
        if is_data != (end == 0) {
            return;
        }
        if is_data {
            self.start(at, psn);
        }
        let Some(ends) = &mut self.ends else { return };
        let endpoint = &mut ends[end].endpoint;
        if let Err(difference) = endpoint.sent(transmit) {
            return self.differs(engine, at, &difference);
        }
        if is_data {
            let next = endpoint.next();
            self.counts[0] += 1;
            let inputs = [("send_i", 1), ("send_psn_i", psn.into()), ("again_i", is_again.into())];
            self.add(at, 1, &inputs, &[("next_o", next.into()), ("busy_o", 0)]);
        }
    }

    /// The sender's engine has received an acknowledgement, or its timer has expired.
    fn acknowledged(&mut self, at: Time, event: &SrEvent, kind: usize) {
        let Some([End { sr, endpoint, .. }, _]) = &mut self.ends else { return };
        let outcome = endpoint.step(sr, event);
        let requested: usize = outcome.retransmissions.iter().map(|sent| sent.packets().count()).sum();
        let (una, is_recovering) = (endpoint.context().una, endpoint.context().recovering);
        let blocks = BLOCKS as u64 - u64::from(sr.free_blocks());
        let inputs = [
            ("ack_i", 1),
            ("kind_i", event.kind as u64),
            ("cumulative_i", event.cumulative.into()),
            ("selective_i", event.psn.into()),
            ("lost_i", code(event.lost)),
        ];
        let outputs = [
            ("una_o", una.into()),
            ("recovering_o", is_recovering.into()),
            ("requested_o", requested as u64),
            ("sender_blocks_o", blocks),
            ("busy_o", 0),
        ];
        self.counts[kind] += 1;
        self.add(at, outcome.cycles + 1, &inputs, &outputs);
    }

    /// The receiver's engine has received a data packet.
    fn arrived(&mut self, at: Time, event: &SrEvent) {
        let Some([_, End { sr, endpoint, .. }]) = &mut self.ends else { return };
        let outcome = endpoint.step(sr, event);
        let expected = endpoint.context().rcv_nxt;
        let blocks = BLOCKS as u64 - u64::from(sr.free_blocks());
        let (say, lost, is_placed) =
            outcome.ack.map_or((Say::Nothing, Lost::default(), false), |ack| (ack.say, ack.lost, ack.placed));
        let outputs = [
            ("expected_o", expected.into()),
            ("answer_o", say as u64),
            ("missing_o", code(lost)),
            ("placed_o", is_placed.into()),
            ("receiver_blocks_o", blocks),
            ("busy_o", 0),
        ];
        self.counts[3] += 1;
        self.add(at, outcome.cycles + 1, &[("data_i", 1), ("psn_i", event.cumulative.into())], &outputs);
    }

    /// An engine has received a packet.
    fn received(&mut self, at: Time, end: usize, packet: &Packet) {
        let Some(ends) = &self.ends else { return };
        let Some(event) = ends[end].endpoint.event_of(packet) else { return };
        let is_data = event.kind == Kind::Data;
        match (end, is_data) {
            (0, false) => self.acknowledged(at, &event, 1),
            (1, true) => self.arrived(at, &event),
            _ => {}
        }
    }

    /// Records a timeout of the sender's engine, if there was one.
    fn expire(&mut self, engine: &Engine, at: Time, qpn: Qpn) {
        let Some([End { endpoint, timeouts, .. }, _]) = &mut self.ends else { return };
        let Some(queried) = engine.query_qp(qpn) else { return };
        if queried.stats.timeouts != *timeouts {
            *timeouts = queried.stats.timeouts;
            let event = endpoint.timeout();
            self.acknowledged(at, &event, 2);
        }
    }
}

/// Returns the code of a number of missing packets.
fn code(lost: Lost) -> u64 {
    u64::from(lost.overflow) << 3 | u64::from(lost.count)
}

impl Recorded for Recording {
    fn note(&mut self, engine: &Engine, now: Time, end: usize, qpn: Qpn, call: &DriverCall<'_>) {
        if self.difference.is_some() {
            return;
        }
        if end == 0 {
            self.expire(engine, now, qpn);
        }
        match call {
            DriverCall::Transmit(Some(Departure::Roce(transmit))) if transmit.from == qpn => {
                self.sent(engine, now, end, transmit);
            }
            DriverCall::Receive(Arrival::Roce(_, packet, _), _) if packet.dest_qpn == qpn => {
                self.received(now, end, packet);
            }
            _ => {}
        }
    }

    fn len(&self) -> usize {
        self.events.len()
    }

    fn take(&mut self) -> Result<Stimulus, String> {
        if let Some(difference) = self.difference.take() {
            return Err(difference);
        }
        let width = |name: &&str| match *name {
            "first_psn_i" | "send_psn_i" | "cumulative_i" | "selective_i" | "psn_i" => 24,
            "una_o" | "next_o" | "expected_o" => 24,
            "requested_o" => 10,
            "sender_blocks_o" | "receiver_blocks_o" => 7,
            "kind_i" | "lost_i" | "missing_o" => 4,
            "answer_o" => 3,
            _ => 1,
        };
        let ports =
            |names: &[&'static str]| -> Vec<(&str, u32)> { names.iter().map(|name| (*name, width(name))).collect() };
        let inputs = [vec![("now_ps_i", 64)], ports(&INPUTS)].concat();
        let circuit = Circuit::written("fasr_connection", &["fasr", "lib"], Timing::Clocked, &inputs, &ports(&OUTPUTS));
        let counts = KINDS.iter().zip(self.counts).map(|(name, events)| Count { name, events }).collect();
        Ok(Stimulus {
            circuit,
            events: std::mem::take(&mut self.events),
            counts,
            signals: SIGNALS.iter().map(|name| (*name).to_owned()).collect(),
        })
    }
}
