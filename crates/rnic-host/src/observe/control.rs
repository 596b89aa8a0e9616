//! Requests of an operator while a program runs, and their answers, one line of JSON each: limits, transport programs,
//! and the signals of the NIC.

use std::borrow::Cow;

use rnic_base::{BitRate, Time};
use rnic_engine::{LimitSource, RateLimit, Signal, SignalKind};
use rnic_transports::LoadedProgram;
use rnic_wire::Qpn;
use serde::{Deserialize, Serialize};

use crate::nic::Nic;
use crate::offers::Offers;

/// Request to limit queue pairs of a device. Both fields must be present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRequest {
    /// Number of the queue pair; `None` for all queue pairs, including those created later.
    #[serde(deserialize_with = "Option::deserialize")]
    pub queue_pair: Option<u32>,
    /// Limit in bits per second; none removes the limit.
    #[serde(deserialize_with = "Option::deserialize")]
    pub rate_bps: Option<u64>,
}

/// Request for the signals of a device (SCR mechanism S-4). The first request starts collecting them; collecting stops
/// when there is no request for two seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalsRequest {
    /// Maximum number of records to return; later requests return the remaining records.
    pub signals_max: u32,
}

/// Request to load a transport program or a law, for the queue pairs that are created from then on (Tonic section 3.5).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramRequest {
    /// Contents of the program file; `None` to unload the loaded programs.
    #[serde(deserialize_with = "Option::deserialize")]
    pub program_file: Option<Vec<u8>>,
}

/// A request to a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlRequest {
    /// Limits queue pairs.
    Limit(LimitRequest),
    /// Returns signals.
    Signals(SignalsRequest),
    /// Loads a program.
    Program(ProgramRequest),
}

/// Records of signals; those of the same kind and subject within a millisecond are merged into one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignalBatch {
    /// The records, in the order in which they were completed.
    pub records: Vec<SignalRecord>,
    /// Number of signals since the first request that were lost because too many records were waiting.
    pub lost: u64,
}

/// A record: see [`rnic_engine::Signal`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SignalRecord {
    /// Name of the kind.
    pub kind: Cow<'static, str>,
    /// Number of the queue pair or the peer.
    pub subject: u32,
    /// Number of signals.
    pub count: u32,
    /// Number of bytes to which the signal refers.
    pub bytes: u64,
    /// First value, by kind.
    pub value: u64,
    /// Second value, by kind.
    pub level: u32,
    /// Time of the first signal in nanoseconds, from the start of the device.
    pub first_ns: u64,
    /// Time of the last signal in nanoseconds, from the start of the device.
    pub last_ns: u64,
}

impl Default for SignalRecord {
    fn default() -> Self {
        Self::from(&Signal::new(SignalKind::Tx, 0, Time::ZERO))
    }
}

impl From<&Signal> for SignalRecord {
    fn from(signal: &Signal) -> Self {
        let Signal { kind, subject, count, level, bytes, value, first, last } = *signal;
        let kind = Cow::Borrowed(kind.name());
        let ns = |time: Time| time.since(Time::ZERO).as_ns();
        Self { kind, subject, count, level, bytes, value, first_ns: ns(first), last_ns: ns(last) }
    }
}

impl SignalRecord {
    /// Returns the signal; `None` if its kind is unknown, for example because another version has sent it.
    pub fn signal(&self) -> Option<Signal> {
        let kind = SignalKind::ALL.into_iter().find(|kind| kind.name() == self.kind)?;
        let at = |ns: u64| Time::from_ps(ns.saturating_mul(1_000));
        let Self { subject, count, level, bytes, value, .. } = *self;
        Some(Signal { kind, subject, count, level, bytes, value, first: at(self.first_ns), last: at(self.last_ns) })
    }
}

/// Answer to a [`ControlRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// Number of existing queue pairs that have the new limit.
    QueuePairs(u32),
    /// The signals collected since the last request.
    Signals(SignalBatch),
    /// The offered transports that use the program from now on, for queue pairs created later.
    Loaded {
        /// Name of the program; `None` for the programs with which the device was opened.
        program: Option<String>,
        /// Names of the transports.
        transports: Vec<String>,
    },
    /// The request was rejected, and nothing was changed; with the reason.
    Refused(String),
}

impl ControlRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// When the line is no valid request: a field is missing, or unknown (for example, sent by another version).
    pub(super) fn parse(line: &[u8]) -> serde_json::Result<Self> {
        // Fields tell the requests apart.
        if let Ok(request) = serde_json::from_slice(line) {
            return Ok(Self::Signals(request));
        }
        match serde_json::from_slice(line) {
            Ok(request) => Ok(Self::Program(request)),
            Err(_) => serde_json::from_slice(line).map(Self::Limit),
        }
    }

    /// Applies the request at `nic`, which has no list of offered transports: the program that opened it chooses the
    /// transport of each queue pair, so that no program can be loaded.
    pub fn apply(&self, nic: &mut Nic) -> ControlReply {
        match self {
            Self::Limit(request) => request.apply(nic),
            Self::Signals(request) => request.apply(nic),
            Self::Program(_) => ControlReply::Refused(
                "it chooses the transport of each queue pair itself, so no program is loaded into it".to_owned(),
            ),
        }
    }
}

impl ProgramRequest {
    /// Checks the program, and returns it; none when the request takes programs out. This takes some
    /// milliseconds, and needs no NIC.
    ///
    /// # Errors
    /// When the file is not a program, or the program violates the contract: the answer to the request.
    pub fn program(&self) -> Result<Option<LoadedProgram>, ControlReply> {
        let loaded = self.program_file.as_deref().map(LoadedProgram::load).transpose();
        loaded.map_err(|error| ControlReply::Refused(error.to_string()))
    }
}

/// Puts `program` into `offers`, or takes the loaded ones out, and returns the answer to the request.
pub fn apply_program(program: Option<LoadedProgram>, offers: &mut Offers) -> ControlReply {
    let Some(program) = program else {
        return ControlReply::Loaded { program: None, transports: offers.unload() };
    };
    match offers.load(program) {
        Ok(transports) => ControlReply::Loaded { program: Some(program.name().to_owned()), transports },
        Err(error) => ControlReply::Refused(error.to_string()),
    }
}

impl SignalsRequest {
    /// Returns the signals of `nic` since the last request.
    pub fn apply(&self, nic: &mut Nic) -> ControlReply {
        let max = self.signals_max.min(SIGNALS_MAX) as usize;
        let (records, lost) = nic.verbs().take_signals(max);
        ControlReply::Signals(SignalBatch { records: records.iter().map(SignalRecord::from).collect(), lost })
    }
}

impl LimitRequest {
    /// Sets or removes the operator's limit of one or all queue pairs of `nic`. A rejected request changes nothing.
    pub fn apply(&self, nic: &mut Nic) -> ControlReply {
        let rate = self.rate_bps.map(BitRate::bps);
        let [min, max] = nic.verbs().rate_limit_range();
        if let Some(rate) = rate.filter(|rate| !(min..=max).contains(rate)) {
            return ControlReply::Refused(format!("the rate {rate} is not between {min} and {max}"));
        }
        let all = nic.queue_pairs().map(|(view, _)| view.info.number);
        let concerned: Vec<Qpn> =
            all.filter(|number| self.queue_pair.is_none_or(|wanted| number.get() == wanted)).collect();
        match self.queue_pair {
            Some(wanted) if concerned.is_empty() => {
                return ControlReply::Refused(format!("the device has no queue pair with the number {wanted:#x}"));
            }
            Some(_) => {}
            None => nic.verbs().set_rate_limit_of_new(rate),
        }
        let limit = rate.map(|rate| RateLimit { rate, burst_bytes: None });
        for qpn in &concerned {
            // The queue pairs exist, and the rate is in range.
            if let Err(error) = nic.verbs().set_rate_limit(*qpn, LimitSource::Operator, limit) {
                return ControlReply::Refused(error.to_string());
            }
        }
        ControlReply::QueuePairs(u32::try_from(concerned.len()).unwrap_or(u32::MAX))
    }
}

/// Maximum number of records in an answer.
const SIGNALS_MAX: u32 = 1 << 14;
