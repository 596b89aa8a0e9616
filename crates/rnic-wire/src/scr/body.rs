//! The content of a message, by its type: 76 bytes, of which those not named are zeros.
//!
//! ```text
//! type 1, probe           0 path index 8 | 1 path label 16
//! type 2, probe answer    0 path index 8 | 1 path label 16
//!                         3 time of the probe 64 | 11 received at 64 | 19 sent at 64
//! type 3, node report     0 bus latency, ns 32 | 4 use of the bus, Q16 | 6 use of the NIC, Q16
//!                         8 rate received, Q20 32 | 12 headroom, Q20 32 | 16 queue pairs 32 | 20 drops 32
//! type 4, grants          12 bytes each:
//!                         0 queue pair 24 | 3 kind 8 | 4 rate, kbit/s 32 | 8 valid, us 16 | 10 reason 16
//! type 5, back-pressure   12 bytes each:
//!                         0 queue pair 24 | 3 severity 8 | 4 bytes waiting 32 | 8 count 32
//! type 6, hint            0 tenant 32 | 4 weight, Q16 32 | 8 rate limit, kbit/s 32
//! ```
//!
//! Q16 is a fraction of 2^16, Q20 one of 2^20 (the line rate).

use super::MessageError;
use crate::bytes::{array, be16, be24, be32, be64, put, put24};
use crate::packet::Qpn;

/// Maximum number of records in a message.
pub const RECORDS_MAX: usize = 6;

/// Type of a message between NICs. The values are those in the packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Type {
    /// Measures the round trip of a path, and announces cookies.
    Probe = 1,
    /// Answers a probe.
    Answer = 2,
    /// Reports the load of the sender's bus and NIC.
    NodeReport = 3,
    /// Grants sending rates to queue pairs of the receiver of the message.
    Grants = 4,
    /// Notifies queue pairs of the receiver of the message that their packets are queued or dropped.
    BackPressure = 5,
    /// Passes on an application's hint.
    Hint = 6,
}

impl Type {
    /// Number of types.
    pub const COUNT: usize = 6;

    /// Returns the type that `byte` represents, if any.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Probe),
            2 => Some(Self::Answer),
            3 => Some(Self::NodeReport),
            4 => Some(Self::Grants),
            5 => Some(Self::BackPressure),
            6 => Some(Self::Hint),
            _ => None,
        }
    }

    /// Returns whether messages of this type change the behaviour of the receiver.
    #[must_use]
    pub const fn changes_behaviour(self) -> bool {
        !matches!(self, Self::Probe | Self::Answer)
    }
}

/// Content of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// A probe on a path.
    Probe(ProbePath),
    /// The answer to a probe.
    Answer(Answer),
    /// A node report.
    NodeReport(NodeReport),
    /// Grants of rates.
    Grants(Records<Grant>),
    /// Notices of back-pressure.
    BackPressure(Records<BackPressure>),
    /// A hint.
    Hint(Hint),
}

/// A path of a flow that is probed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ProbePath {
    /// Number of the path among the paths of the flow.
    pub index: u8,
    /// Path label: the UDP source port.
    pub label: u16,
}

/// Content of a probe answer. The round trip is (arrival - `echoed`) - (`sent` - `received`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Answer {
    /// Path of the probe.
    pub path: ProbePath,
    /// Transmit time of the probe, as carried in the probe.
    pub echoed: u64,
    /// Time at which the probe arrived, by the answering NIC's clock, in ps.
    pub received: u64,
    /// Time at which the answer is sent, by the same clock.
    pub sent: u64,
}

/// Load of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeReport {
    /// Latency of a read over the host bus, in ns.
    pub bus_latency_ns: u32,
    /// Utilisation of the host bus, Q16.
    pub bus_use: u16,
    /// Utilisation of the NIC, Q16.
    pub nic_use: u16,
    /// Rate received, as a fraction of the line rate, Q20.
    pub rx_rate: u32,
    /// Unused rate of the receiver, as a fraction of the line rate, Q20.
    pub headroom: u32,
    /// Number of queue pairs that take part in scheduling.
    pub members: u32,
    /// Packets dropped since the start, modulo 2^32.
    pub drops: u32,
}

/// Effect of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum GrantKind {
    /// The rate is a limit.
    #[default]
    Limit,
    /// There is no limit any more.
    Lift,
}

/// The rate that a receiver grants to a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Grant {
    /// Queue pair of the NIC that receives the message.
    pub qpn: Qpn,
    /// Effect of the grant.
    pub kind: GrantKind,
    /// Rate in kbit/s.
    pub rate_kbps: u32,
    /// Time in us for which the grant is valid if it is not repeated.
    pub valid_us: u16,
    /// Reason for the rate, for diagnosis only.
    pub reason: u16,
}

/// A notice that packets of a queue pair wait at the receiver or are dropped there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BackPressure {
    /// Queue pair of the NIC that receives the message.
    pub qpn: Qpn,
    /// Severity of the congestion, for diagnosis only.
    pub severity: u8,
    /// Number of queued bytes.
    pub waiting_bytes: u32,
    /// Number of packets dropped, modulo 2^32.
    pub count: u32,
}

/// A hint of an application on the sender's side.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hint {
    /// Number of the tenant.
    pub tenant: u32,
    /// Weight of the tenant, Q16.
    pub weight: u32,
    /// Limit of the tenant's rate, in kbit/s.
    pub limit_kbps: u32,
}

/// At most [`RECORDS_MAX`] records.
#[derive(Clone, Copy, Debug)]
pub struct Records<T> {
    len: u8,
    entries: [T; RECORDS_MAX],
}

impl<T: Copy + Default> Records<T> {
    /// Returns the records of `entries`; `None` when there are more than [`RECORDS_MAX`] entries.
    #[must_use]
    pub fn new(entries: &[T]) -> Option<Self> {
        let mut records = Self::default();
        records.entries.get_mut(..entries.len())?.copy_from_slice(entries);
        records.len = entries.len() as u8;
        Some(records)
    }

    /// Returns the records of the message.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.entries[..usize::from(self.len)]
    }
}

impl<T: Copy + Default> Default for Records<T> {
    fn default() -> Self {
        Self { len: 0, entries: [T::default(); RECORDS_MAX] }
    }
}

impl<T: Copy + Default + PartialEq> PartialEq for Records<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Copy + Default + Eq> Eq for Records<T> {}

impl Body {
    /// Returns the type of the message.
    #[must_use]
    pub const fn kind(&self) -> Type {
        match self {
            Self::Probe(_) => Type::Probe,
            Self::Answer(_) => Type::Answer,
            Self::NodeReport(_) => Type::NodeReport,
            Self::Grants(_) => Type::Grants,
            Self::BackPressure(_) => Type::BackPressure,
            Self::Hint(_) => Type::Hint,
        }
    }

    /// Returns the number of records; zero for a type without records.
    pub(super) const fn record_count(&self) -> u8 {
        match self {
            Self::Grants(records) => records.len,
            Self::BackPressure(records) => records.len,
            _ => 0,
        }
    }

    /// Parses a body with `records` records.
    pub(super) fn parse(kind: Type, records: u8, bytes: &[u8]) -> Result<Self, MessageError> {
        let has_records = matches!(kind, Type::Grants | Type::BackPressure);
        if usize::from(records) > if has_records { RECORDS_MAX } else { 0 } {
            return Err(MessageError::RecordCount);
        }
        let (body, len) = match kind {
            Type::Probe => (Self::Probe(ProbePath::parse(bytes)), PATH_LEN),
            Type::Answer => (Self::Answer(Answer::parse(bytes)), ANSWER_LEN),
            Type::NodeReport => (Self::NodeReport(NodeReport::parse(bytes)), REPORT_LEN),
            Type::Grants => {
                (Self::Grants(parse_records(bytes, records, Grant::parse)?), usize::from(records) * RECORD_LEN)
            }
            Type::BackPressure => {
                let parsed = parse_records(bytes, records, |record| Ok(BackPressure::parse(record)))?;
                (Self::BackPressure(parsed), usize::from(records) * RECORD_LEN)
            }
            Type::Hint => (Self::Hint(Hint::parse(bytes)), HINT_LEN),
        };
        if bytes[len..].iter().any(|byte| *byte != 0) { Err(MessageError::Reserved) } else { Ok(body) }
    }

    /// Writes the body to zeroed bytes.
    pub(super) fn emit(&self, out: &mut [u8]) {
        match self {
            Self::Probe(path) => path.emit(out),
            Self::Answer(answer) => answer.emit(out),
            Self::NodeReport(report) => report.emit(out),
            Self::Grants(records) => emit_records(records, out, Grant::emit),
            Self::BackPressure(records) => emit_records(records, out, BackPressure::emit),
            Self::Hint(hint) => hint.emit(out),
        }
    }
}

fn parse_records<T: Copy + Default>(
    bytes: &[u8],
    count: u8,
    parse: fn(&[u8]) -> Result<T, MessageError>,
) -> Result<Records<T>, MessageError> {
    let mut records = Records { len: count, ..Records::default() };
    for (entry, record) in records.entries.iter_mut().zip(bytes.chunks_exact(RECORD_LEN)).take(usize::from(count)) {
        *entry = parse(record)?;
    }
    Ok(records)
}

fn emit_records<T: Copy + Default>(records: &Records<T>, out: &mut [u8], emit: fn(&T, &mut [u8])) {
    for (entry, record) in records.as_slice().iter().zip(out.chunks_exact_mut(RECORD_LEN)) {
        emit(entry, record);
    }
}

impl ProbePath {
    fn parse(bytes: &[u8]) -> Self {
        Self { index: bytes[0], label: be16(bytes, 1) }
    }

    fn emit(&self, out: &mut [u8]) {
        out[0] = self.index;
        put(out, 1, self.label.to_be_bytes());
    }
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        Self { path: ProbePath::parse(bytes), echoed: be64(bytes, 3), received: be64(bytes, 11), sent: be64(bytes, 19) }
    }

    fn emit(&self, out: &mut [u8]) {
        self.path.emit(out);
        put(out, 3, self.echoed.to_be_bytes());
        put(out, 11, self.received.to_be_bytes());
        put(out, 19, self.sent.to_be_bytes());
    }
}

impl NodeReport {
    fn parse(bytes: &[u8]) -> Self {
        Self {
            bus_latency_ns: be32(bytes, 0),
            bus_use: be16(bytes, 4),
            nic_use: be16(bytes, 6),
            rx_rate: be32(bytes, 8),
            headroom: be32(bytes, 12),
            members: be32(bytes, 16),
            drops: be32(bytes, 20),
        }
    }

    fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.bus_latency_ns.to_be_bytes());
        put(out, 4, self.bus_use.to_be_bytes());
        put(out, 6, self.nic_use.to_be_bytes());
        put(out, 8, self.rx_rate.to_be_bytes());
        put(out, 12, self.headroom.to_be_bytes());
        put(out, 16, self.members.to_be_bytes());
        put(out, 20, self.drops.to_be_bytes());
    }
}

impl Grant {
    fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let [kind] = array(bytes, 3);
        let kind = match kind {
            0 => GrantKind::Limit,
            1 => GrantKind::Lift,
            _ => return Err(MessageError::GrantKind),
        };
        let (rate_kbps, valid_us, reason) = (be32(bytes, 4), be16(bytes, 8), be16(bytes, 10));
        Ok(Self { qpn: Qpn::new(be24(bytes, 0)), kind, rate_kbps, valid_us, reason })
    }

    fn emit(&self, out: &mut [u8]) {
        put24(out, 0, self.qpn.get());
        out[3] = match self.kind {
            GrantKind::Limit => 0,
            GrantKind::Lift => 1,
        };
        put(out, 4, self.rate_kbps.to_be_bytes());
        put(out, 8, self.valid_us.to_be_bytes());
        put(out, 10, self.reason.to_be_bytes());
    }
}

impl BackPressure {
    fn parse(bytes: &[u8]) -> Self {
        let [severity] = array(bytes, 3);
        Self { qpn: Qpn::new(be24(bytes, 0)), severity, waiting_bytes: be32(bytes, 4), count: be32(bytes, 8) }
    }

    fn emit(&self, out: &mut [u8]) {
        put24(out, 0, self.qpn.get());
        out[3] = self.severity;
        put(out, 4, self.waiting_bytes.to_be_bytes());
        put(out, 8, self.count.to_be_bytes());
    }
}

impl Hint {
    fn parse(bytes: &[u8]) -> Self {
        Self { tenant: be32(bytes, 0), weight: be32(bytes, 4), limit_kbps: be32(bytes, 8) }
    }

    fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.tenant.to_be_bytes());
        put(out, 4, self.weight.to_be_bytes());
        put(out, 8, self.limit_kbps.to_be_bytes());
    }
}

const PATH_LEN: usize = 3;
const ANSWER_LEN: usize = 27;
const REPORT_LEN: usize = 24;
const RECORD_LEN: usize = 12;
const HINT_LEN: usize = 12;
