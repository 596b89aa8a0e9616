//! Counters of the messages of a NIC.

use rnic_base::{Duration, Time};
use rnic_wire::Qpn;
use rnic_wire::scr::Type;

use super::peer::DropCause;

/// Counters of the messages of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExchangeStats {
    /// Messages sent, by type.
    sent: [u64; Type::COUNT],
    /// Messages accepted, by type.
    accepted: [u64; Type::COUNT],
    /// Messages dropped, by cause.
    dropped: [u64; DropCause::COUNT],
    /// Number of grants sent; a message may contain several.
    pub grants_sent: u64,
    /// Number of notices of back-pressure sent; a message may contain several.
    pub notices_sent: u64,
    /// Number of received grants and notices for queue pairs that are not connected to their sender.
    pub records_ignored: u64,
    /// Probes of queue pairs that were not answered in time.
    pub probes_lost: u64,
    /// Number of received probe responses that did not belong to an outstanding probe.
    pub answers_ignored: u64,
    /// Number of messages that were not sent because the queue of outgoing messages was full.
    pub overflows: u64,
}

impl ExchangeStats {
    /// Returns the messages of a type that were sent.
    #[must_use]
    pub const fn sent(&self, kind: Type) -> u64 {
        self.sent[kind as usize - 1]
    }

    /// Returns the messages of a type that were accepted.
    #[must_use]
    pub const fn accepted(&self, kind: Type) -> u64 {
        self.accepted[kind as usize - 1]
    }

    /// Returns the messages that were dropped for a reason.
    #[must_use]
    pub const fn dropped(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Returns all messages that were sent.
    #[must_use]
    pub fn all_sent(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// Returns all messages that were accepted.
    #[must_use]
    pub fn all_accepted(&self) -> u64 {
        self.accepted.iter().sum()
    }

    /// Returns all messages that were dropped.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    pub(super) fn count_sent(&mut self, kind: Type) {
        self.sent[kind as usize - 1] += 1;
    }

    pub(super) fn count_accepted(&mut self, kind: Type) {
        self.accepted[kind as usize - 1] += 1;
    }

    pub(super) fn count_dropped(&mut self, cause: DropCause) {
        self.dropped[cause as usize] += 1;
    }
}

/// A round trip measured by a probe of a queue pair, requested by the driver or a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrip {
    /// Queue pair that sent the probe.
    pub qpn: Qpn,
    /// Time at which the probe response arrived.
    pub at: Time,
    /// Round-trip time of the probe, without the processing time of the responding NIC.
    pub round_trip: Duration,
}
