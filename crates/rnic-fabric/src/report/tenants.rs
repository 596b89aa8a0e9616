//! Results of tenants, and the fairness between them.

use serde::Serialize;

use super::Spread;

/// Results of one tenant between the end of the warm-up, or its start if that is later, and its stop, or the start of
/// the cooldown if that is earlier.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct TenantFigures {
    /// Number of its queue pairs that joined.
    pub queue_pairs: u64,
    /// Payload that arrived, in Gbit/s; duplicates are not counted.
    pub goodput_gbps: f64,
    /// Rate of the same packets with their headers, preambles and gaps, in Gbit/s.
    pub wire_gbps: f64,
    /// Messages that completed at their senders.
    pub completions: u64,
    /// Time from post to completion of the messages posted in this time, in microseconds; in an open loop from the
    /// arrival of the message at its sender.
    pub latency_us: Option<Spread>,
}

/// Jain's index of the payload goodput, each divided by the weight: 1 when all are equal, 1/n when one of n has
/// everything (Jain, Chiu and Hawe, 1984).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Fairness {
    /// Index over the queue pairs of all tenants, each measured from when it joined, if that is after the warm-up.
    pub jain_queue_pairs: f64,
    /// Jain's index over tenants.
    pub jain_tenants: f64,
}

/// Traffic on the buses of all NICs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct BusFigures {
    /// Reads of the host's memory (payload, contexts, work requests), with the headers of transactions, in Gbit/s.
    pub read_gbps: f64,
    /// Writes to it (payload, contexts), with the same headers, in Gbit/s.
    pub write_gbps: f64,
    /// Payload of packets that was read, without these headers, in Gbit/s.
    pub payload_read_gbps: f64,
    /// Reads of the payload of a packet, per second.
    pub payload_reads_per_s: f64,
}
