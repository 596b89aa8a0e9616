//! Events and responses in their transfer format: 512 bits each, one cache line.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 10.6.2 (fields and widths); the order of fields is that of
//! the public simulator's first generation. Bit 0 is the lowest bit of the first byte. The simulator's division of
//! `cc_metadata` into 2 and 22 bits is not adopted.
//!
//! Decisions:
//!
//! * the specification's response adds up to 508 bits; the missing four are the selectors of queue and delay, which
//!   the simulator places after the retransmission timeout. With them, as in this format, it has 512 bits;
//! * signals and results that only the paper (table 3) and later generations have use reserved bits, with the widths
//!   of the later generations. Event: flow 3 (bit 404), ACK-request rate 4, occupancy 5, CSIG 16 + 1 valid, first 1,
//!   flows of the connection less one 3, and flow label 20 (bit 448). Response: RACK 24 (bit 256), TLP 24, alpha of
//!   requests 4, of responses 4, ACK-request rate 4, flow 3. Only in this project: packets in flight 10 (bit 437),
//!   packets were lost 1, packets that arrived marked 10 (bit 468), packets sent 10, and the rate 20 in events, and
//!   the rate 20 (bit 320) in responses. All other reserved bits are zero;
//! * counters that do not fit saturate at their largest value: packets acknowledged, retransmissions, hops;
//! * *first* indicates that the connection number is new, and that the table has no state for it yet.

mod bits;

use rnic_base::Csig;
use rnic_policy::control::Cwnd;
use rnic_policy::control::lanes::{Acks, LANES, ResponseLanes};
use rnic_policy::control::report::{
    AckRate, Alpha, Carried, CurrentSettings, DelaySelect, FlowActions, FlowReport, Gap, RateLimit, ReportKind, Ticks,
    Times,
};

use bits::{LaneWords, get, get_short, put, put_lanes};
use multiversion::multiversion;

/// Number of connections that a 24-bit connection number can distinguish.
pub const CONNECTIONS_MAX: u32 = 1 << 24;

/// An event that a datapath reports to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Connection number, 24 bits.
    pub connection: u32,
    /// `true` if the engine has no state for the connection yet.
    pub first: bool,
    /// Index of one of four queues, for a datapath that has several.
    pub queue: u8,
    /// The report that the event conveys.
    pub report: FlowReport,
    /// The program's state, if it travels in events.
    pub carried: Carried,
}

/// A response of the engine to a datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// Connection number, 24 bits.
    pub connection: u32,
    /// Flow to which the event belonged.
    pub flow: u8,
    /// Queue index of the event.
    pub queue: u8,
    /// Delay that the datapath measures for congestion control, as selected in the event that is answered.
    pub delay: DelaySelect,
    /// Settings that apply from now on.
    pub actions: FlowActions,
    /// The program's state, if the NIC stores it and events and responses carry it.
    pub carried: Carried,
}

/// An [`Event`] in 512 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(64))]
pub struct EventRecord([u64; 8]);

/// A [`Response`] in 512 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(64))]
pub struct ResponseRecord([u64; 8]);

const CWND_SHIFT: u32 = 6;
const CWND_BITS: u32 = 21;
const NCWND_BITS: u32 = 11;

/// Returns `report` limited to the values that a record can hold: for a caller that passes events without packing
/// them into records and must receive the same responses.
#[inline]
pub(crate) fn as_recorded(report: &FlowReport) -> FlowReport {
    let kind = match report.kind {
        ReportKind::Retransmitted { count, early } => ReportKind::Retransmitted { count: count.min(7), early },
        kind => kind,
    };
    let in_force = report.in_force;
    FlowReport {
        kind,
        flow: report.flow & 7,
        flows: (report.flows.wrapping_sub(1) & 7) + 1,
        acked: report.acked.min(1_023),
        marked: report.marked.min(1_023),
        sent: report.sent.min(1_023),
        in_flight: report.in_flight.min(1_023),
        hops: report.hops.min(15),
        rx_level: report.rx_level.min(31),
        ecn: report.ecn & 0x3fff,
        occupancy: report.occupancy.min(31),
        label: report.label & 0xf_ffff,
        in_force: CurrentSettings {
            fcwnd: recorded_cwnd(in_force.fcwnd),
            ncwnd: in_force.ncwnd & ((1 << NCWND_BITS) - 1),
            ..in_force
        },
        ..*report
    }
}

/// Returns the actions limited to the values that a record can hold.
#[inline]
pub(crate) fn actions_as_recorded(actions: &FlowActions) -> FlowActions {
    let (fcwnd, ncwnd) = (recorded_cwnd(actions.fcwnd), actions.ncwnd & ((1 << NCWND_BITS) - 1));
    FlowActions { fcwnd, ncwnd, ..*actions }
}

#[inline]
fn recorded_cwnd(cwnd: Cwnd) -> Cwnd {
    Cwnd::from_fixed((cwnd.fixed() >> CWND_SHIFT & ((1 << CWND_BITS) - 1)) << CWND_SHIFT)
}

impl EventRecord {
    /// Packs `event` into a record. `generation` flips at each wrap of a ring of records.
    pub fn pack(event: &Event, generation: bool) -> Self {
        let mut words = [0; 8];
        let report = &event.report;
        let (kind, count, early, code) = match report.kind {
            ReportKind::Acked => (0, 0, false, 0),
            ReportKind::Nacked { code } => (1, 0, false, code),
            ReportKind::Retransmitted { count, early } => (2, count.min(7), early, 0),
        };
        put::<0, 24>(&mut words, event.connection.into());
        put::<24, 2>(&mut words, kind);
        put::<26, 24>(&mut words, report.t1.get().into());
        put::<50, 24>(&mut words, report.t2.get().into());
        put::<74, 24>(&mut words, report.t3.get().into());
        put::<98, 24>(&mut words, report.t4.get().into());
        put::<122, 3>(&mut words, count.into());
        put::<125, 1>(&mut words, early.into());
        put::<126, 8>(&mut words, code.into());
        put::<134, 4>(&mut words, report.hops.min(15).into());
        put::<138, 5>(&mut words, report.rx_level.min(31).into());
        put::<143, 24>(&mut words, event.carried.metadata.into());
        put::<167, 21>(&mut words, report.in_force.fcwnd.fixed() >> CWND_SHIFT);
        put::<188, 20>(&mut words, report.in_force.gap.get().into());
        put::<208, 11>(&mut words, report.in_force.ncwnd.into());
        put::<219, 24>(&mut words, report.in_force.rto.get().into());
        put::<243, 10>(&mut words, report.acked.min(1_023).into());
        put::<253, 1>(&mut words, report.window_drop.into());
        put::<254, 1>(&mut words, report.extended.into());
        put::<263, 2>(&mut words, event.queue.into());
        put::<265, 2>(&mut words, report.delay as u64);
        put::<267, 24>(&mut words, event.carried.fabric_marker.get().into());
        put::<291, 24>(&mut words, event.carried.nic_marker.get().into());
        put::<315, 1>(&mut words, event.carried.nic_grew.into());
        put::<316, 24>(&mut words, event.carried.base_delay.get().into());
        put::<340, 24>(&mut words, event.carried.delay_state.into());
        put::<364, 24>(&mut words, event.carried.rtt_state.get().into());
        put::<388, 2>(&mut words, event.carried.opaque.into());
        put::<390, 14>(&mut words, report.ecn.into());
        put::<404, 3>(&mut words, report.flow.into());
        put::<407, 4>(&mut words, report.in_force.ack_rate.get().into());
        put::<411, 5>(&mut words, report.occupancy.min(31).into());
        put::<416, 16>(&mut words, Csig::bits(report.csig).into());
        put::<432, 1>(&mut words, report.csig.is_some().into());
        put::<433, 1>(&mut words, event.first.into());
        put::<434, 3>(&mut words, report.flows.wrapping_sub(1).into());
        put::<437, 10>(&mut words, report.in_flight.min(1_023).into());
        put::<447, 1>(&mut words, report.lost.into());
        put::<448, 20>(&mut words, report.label.into());
        put::<468, 10>(&mut words, report.marked.min(1_023).into());
        put::<478, 10>(&mut words, report.sent.min(1_023).into());
        put::<488, 20>(&mut words, report.in_force.rate.get().into());
        put::<511, 1>(&mut words, generation.into());
        Self(words)
    }

    /// Returns the event in the record.
    pub fn unpack(&self) -> Event {
        Event {
            connection: self.connection(),
            first: self.is_first(),
            queue: self.queue(),
            report: self.report(),
            carried: self.carried(),
        }
    }

    /// Returns the number of the connection that the event belongs to.
    #[inline(always)]
    pub fn connection(&self) -> u32 {
        get::<0, 24>(&self.0) as u32
    }

    /// See [`Event::first`].
    #[inline(always)]
    pub fn is_first(&self) -> bool {
        get::<433, 1>(&self.0) != 0
    }

    /// See [`Event::queue`].
    #[inline(always)]
    pub fn queue(&self) -> u8 {
        get::<263, 2>(&self.0) as u8
    }

    /// Returns the time of the report ([`FlowReport::t4`]) alone.
    #[inline(always)]
    pub(crate) fn now(&self) -> Ticks {
        Ticks::new(get_short::<98, 24>(&self.0))
    }

    /// Returns `true` if the event is an acknowledgement and not the first event of its connection.
    #[inline(always)]
    pub(crate) fn is_plain_ack(&self) -> bool {
        let kind = get_short::<24, 2>(&self.0);
        (kind != 1) & (kind != 2) & !self.is_first()
    }

    /// Returns the generation bit, which flips at each wrap of a ring of records.
    #[inline(always)]
    pub fn generation(&self) -> bool {
        get::<511, 1>(&self.0) != 0
    }

    /// Returns only the report. An unknown event type is treated as an acknowledgement.
    #[inline(always)]
    pub fn report(&self) -> FlowReport {
        let words = &self.0;
        let ticks = |value: u64| Ticks::new(value as u32);
        FlowReport {
            kind: match get::<24, 2>(words) {
                1 => ReportKind::Nacked { code: get::<126, 8>(words) as u8 },
                2 => ReportKind::Retransmitted { count: get::<122, 3>(words) as u8, early: get::<125, 1>(words) != 0 },
                _ => ReportKind::Acked,
            },
            flow: get::<404, 3>(words) as u8,
            flows: get::<434, 3>(words) as u8 + 1,
            acked: get::<243, 10>(words) as u16,
            marked: get::<468, 10>(words) as u16,
            sent: get::<478, 10>(words) as u16,
            in_flight: get::<437, 10>(words) as u16,
            lost: get::<447, 1>(words) != 0,
            t1: ticks(get::<26, 24>(words)),
            t2: ticks(get::<50, 24>(words)),
            t3: ticks(get::<74, 24>(words)),
            t4: ticks(get::<98, 24>(words)),
            hops: get::<134, 4>(words) as u8,
            rx_level: get::<138, 5>(words) as u8,
            ecn: get::<390, 14>(words) as u16,
            csig: Csig::from_bits(get::<416, 16>(words) as u16).filter(|_| get::<432, 1>(words) != 0),
            occupancy: get::<411, 5>(words) as u8,
            label: get::<448, 20>(words) as u32,
            extended: get::<254, 1>(words) != 0,
            window_drop: get::<253, 1>(words) != 0,
            delay: delay_select(get::<265, 2>(words)),
            in_force: CurrentSettings {
                fcwnd: Cwnd::from_fixed(get::<167, 21>(words) << CWND_SHIFT),
                ncwnd: get::<208, 11>(words) as u16,
                gap: Gap::slots(get::<188, 20>(words)),
                rate: RateLimit::steps(get::<488, 20>(words) as u32),
                rto: ticks(get::<219, 24>(words)),
                ack_rate: AckRate::code(get::<407, 4>(words) as u32),
            },
        }
    }

    /// Returns only the carried state.
    #[inline(always)]
    pub fn carried(&self) -> Carried {
        let words = &self.0;
        Carried {
            metadata: get::<143, 24>(words) as u32,
            fabric_marker: Ticks::new(get::<267, 24>(words) as u32),
            nic_marker: Ticks::new(get::<291, 24>(words) as u32),
            nic_grew: get::<315, 1>(words) != 0,
            base_delay: Ticks::new(get::<316, 24>(words) as u32),
            delay_state: get::<340, 24>(words) as u32,
            rtt_state: Ticks::new(get::<364, 24>(words) as u32),
            opaque: get::<388, 2>(words) as u8,
        }
    }

    /// Returns the bytes in memory order.
    pub fn to_bytes(&self) -> [u8; 64] {
        bits::to_bytes(&self.0)
    }

    /// Returns the record whose bytes in memory order are `bytes`.
    pub fn from_bytes(bytes: &[u8; 64]) -> Self {
        Self(bits::from_bytes(bytes))
    }
}

/// Returns the reports of a batch of `events`, with only those fields that processing in batches uses.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt"))]
pub(crate) fn acks(events: &[EventRecord; LANES]) -> Acks {
    let mut acks = Acks::default();
    let (mut t1, mut t2, mut t3) = ([Ticks::ZERO; LANES], [Ticks::ZERO; LANES], [Ticks::ZERO; LANES]);
    let mut select = [0; LANES];
    for (lane, EventRecord(words)) in events.iter().enumerate() {
        t1[lane] = Ticks::new(get_short::<26, 24>(words));
        t2[lane] = Ticks::new(get_short::<50, 24>(words));
        t3[lane] = Ticks::new(get_short::<74, 24>(words));
        acks.now[lane] = Ticks::new(get_short::<98, 24>(words));
        acks.hops[lane] = get_short::<134, 4>(words);
        acks.rx_level[lane] = get_short::<138, 5>(words);
        acks.acked[lane] = get_short::<243, 10>(words);
        acks.flow[lane] = get_short::<404, 3>(words);
        acks.flows[lane] = get_short::<434, 3>(words) + 1;
        select[lane] = get_short::<265, 2>(words);
    }
    for lane in 0..LANES {
        let times = Times { t1: t1[lane], t2: t2[lane], t3: t3[lane], t4: acks.now[lane] };
        acks.rtt[lane] = times.rtt();
        acks.delay[lane] = times.delay(delay_select(select[lane].into()));
    }
    acks
}

/// Encodes `answers`, the responses to `events`, as response records, without the state of the program. The record of
/// an event that was not processed has unspecified contents.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt"))]
pub(crate) fn responses(
    events: &[EventRecord; LANES],
    acks: &Acks,
    answers: &ResponseLanes,
    records: &mut [ResponseRecord; LANES],
) {
    let (mut connections, mut queues_and_delays) = ([0; LANES], [0; LANES]);
    for (lane, EventRecord(words)) in events.iter().enumerate() {
        connections[lane] = get_short::<0, 24>(words);
        queues_and_delays[lane] = get_short::<263, 4>(words);
    }
    let ticks = |lanes: &[Ticks; LANES]| lanes.map(Ticks::get);
    let mut words: LaneWords<10> = Default::default();
    put_lanes::<0, 24, _>(&mut words, &connections);
    put_lanes::<24, 1, _>(&mut words, &answers.repath);
    put_lanes::<49, 21, _>(&mut words, &answers.fcwnd);
    put_lanes::<70, 20, _>(&mut words, &answers.gap);
    put_lanes::<90, 11, _>(&mut words, &answers.ncwnd);
    put_lanes::<101, 24, _>(&mut words, &ticks(&answers.rto));
    put_lanes::<125, 4, _>(&mut words, &queues_and_delays);
    put_lanes::<256, 24, _>(&mut words, &ticks(&answers.rack));
    put_lanes::<280, 24, _>(&mut words, &ticks(&answers.tlp));
    put_lanes::<304, 4, _>(&mut words, &answers.alpha_requests);
    put_lanes::<308, 4, _>(&mut words, &answers.alpha_responses);
    put_lanes::<312, 4, _>(&mut words, &answers.ack_rate);
    put_lanes::<316, 3, _>(&mut words, &acks.flow);
    for (lane, record) in records.iter_mut().enumerate() {
        let word = |index: usize| u64::from(words[2 * index][lane]) | u64::from(words[2 * index + 1][lane]) << 32;
        *record = ResponseRecord([word(0), word(1), word(2), 0, word(4), 0, 0, 0]);
    }
}

impl ResponseRecord {
    /// Packs `response` into a record.
    #[inline(always)]
    pub fn pack(response: &Response) -> Self {
        let mut words = [0; 8];
        let (actions, carried) = (&response.actions, &response.carried);
        put::<0, 24>(&mut words, response.connection.into());
        put::<24, 1>(&mut words, actions.repath.into());
        put::<25, 24>(&mut words, carried.metadata.into());
        put::<49, 21>(&mut words, actions.fcwnd.fixed() >> CWND_SHIFT);
        put::<70, 20>(&mut words, actions.gap.get().into());
        put::<90, 11>(&mut words, actions.ncwnd.into());
        put::<101, 24>(&mut words, actions.rto.get().into());
        put::<125, 2>(&mut words, response.queue.into());
        put::<127, 2>(&mut words, response.delay as u64);
        put::<129, 24>(&mut words, carried.fabric_marker.get().into());
        put::<153, 24>(&mut words, carried.nic_marker.get().into());
        put::<177, 1>(&mut words, carried.nic_grew.into());
        put::<178, 24>(&mut words, carried.base_delay.get().into());
        put::<202, 24>(&mut words, carried.delay_state.into());
        put::<226, 24>(&mut words, carried.rtt_state.get().into());
        put::<250, 2>(&mut words, carried.opaque.into());
        put::<256, 24>(&mut words, actions.rack.get().into());
        put::<280, 24>(&mut words, actions.tlp.get().into());
        put::<304, 4>(&mut words, actions.alpha_requests.get().into());
        put::<308, 4>(&mut words, actions.alpha_responses.get().into());
        put::<312, 4>(&mut words, actions.ack_rate.get().into());
        put::<316, 3>(&mut words, response.flow.into());
        put::<320, 20>(&mut words, actions.rate.get().into());
        Self(words)
    }

    /// Returns the response in the record.
    pub fn unpack(&self) -> Response {
        let words = &self.0;
        let ticks = |value: u64| Ticks::new(value as u32);
        Response {
            connection: get::<0, 24>(words) as u32,
            flow: get::<316, 3>(words) as u8,
            queue: get::<125, 2>(words) as u8,
            delay: delay_select(get::<127, 2>(words)),
            actions: FlowActions {
                fcwnd: Cwnd::from_fixed(get::<49, 21>(words) << CWND_SHIFT),
                ncwnd: get::<90, 11>(words) as u16,
                gap: Gap::slots(get::<70, 20>(words)),
                rate: RateLimit::steps(get::<320, 20>(words) as u32),
                rto: ticks(get::<101, 24>(words)),
                rack: ticks(get::<256, 24>(words)),
                tlp: ticks(get::<280, 24>(words)),
                repath: get::<24, 1>(words) != 0,
                alpha_requests: Alpha::code(get::<304, 4>(words) as u32),
                alpha_responses: Alpha::code(get::<308, 4>(words) as u32),
                ack_rate: AckRate::code(get::<312, 4>(words) as u32),
            },
            carried: Carried {
                metadata: get::<25, 24>(words) as u32,
                fabric_marker: ticks(get::<129, 24>(words)),
                nic_marker: ticks(get::<153, 24>(words)),
                nic_grew: get::<177, 1>(words) != 0,
                base_delay: ticks(get::<178, 24>(words)),
                delay_state: get::<202, 24>(words) as u32,
                rtt_state: ticks(get::<226, 24>(words)),
                opaque: get::<250, 2>(words) as u8,
            },
        }
    }

    /// Returns the bytes in memory order.
    pub fn to_bytes(&self) -> [u8; 64] {
        bits::to_bytes(&self.0)
    }

    /// Returns the record whose bytes in memory order are `bytes`.
    pub fn from_bytes(bytes: &[u8; 64]) -> Self {
        Self(bits::from_bytes(bytes))
    }
}

#[inline(always)]
fn delay_select(code: u64) -> DelaySelect {
    match code {
        0 => DelaySelect::Full,
        1 => DelaySelect::Fabric,
        2 => DelaySelect::Forward,
        _ => DelaySelect::Reverse,
    }
}

#[cfg(test)]
#[path = "record/tests.rs"]
mod tests;
