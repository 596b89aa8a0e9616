//! Messages between the two ends of a session: one JSON object in each Send of the control connection.

use rnic_base::{BitRate, Duration, Probability};
use serde::{Deserialize, Serialize};

use super::Op;
use crate::impair::{Impairment, PathSet};

/// Message of the client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Requests that the other end prepares for a task.
    Prepare {
        /// Version of these messages.
        version: u32,
        /// The task to prepare for.
        task: Task,
        /// Transport with which to accept data connections.
        transport: TransportOrder,
        /// Impairment to apply to packets.
        impairment: ImpairmentOrder,
        /// Round-trip time that this end measured while it set up the control connection: the accepting end cannot
        /// measure it.
        #[serde(default)]
        round_trip_ps: u64,
    },
    /// Reports that all operations are done, and requests the outcome.
    Finish,
}

/// Message of the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The end is ready for data connections.
    Ready {
        /// Registered memory for Writes, Reads and atomics.
        memory: MemoryAt,
    },
    /// The task is refused.
    Refused {
        /// Reason of the refusal.
        reason: String,
    },
    /// Results of the session at the server.
    Outcome(Outcome),
}

/// Task of a session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Task {
    /// A measurement.
    Perf {
        /// The operation that is repeated.
        op: Op,
        /// Bytes of each operation.
        size_bytes: u32,
        /// Number of queue pairs.
        qps: u32,
        /// Operations in flight on each queue pair.
        depth: u32,
        /// True to compare the data that arrive.
        verify: bool,
        /// True to respond to each Send with a Send.
        ping_pong: bool,
    },
    /// Transfer of a file.
    Transfer(TransferTask),
}

/// Transfer of a file to the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct TransferTask {
    /// Length of the file.
    pub(crate) bytes: u64,
}

/// Transport of data connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct TransportOrder {
    pub(crate) name: String,
    pub(crate) options: Vec<(String, String)>,
}

/// Registered memory at the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MemoryAt {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) len: u64,
}

/// Results that the server has observed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Operations whose data were compared and correct.
    pub(crate) verified: u64,
    /// Operations whose data were compared and wrong.
    pub(crate) wrong: u64,
    /// Data packets sent, including retransmissions.
    pub(crate) packets_sent: u64,
    /// Of these, retransmissions.
    pub(crate) packets_retransmitted: u64,
    /// SHA-256 of the received file, in hexadecimal digits.
    pub(crate) sha256: Option<String>,
}

/// [`Impairment`] as transmitted: probabilities in parts of 10^12, times in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ImpairmentOrder {
    seed: u64,
    loss: u64,
    corrupt: u64,
    duplicate: u64,
    reorder: u64,
    reorder_packets: u32,
    reorder_hold_ps: u64,
    delay_ps: u64,
    jitter_ps: u64,
    rate_bps: Option<u64>,
    rate_queue_bytes: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    trim: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    mark: u64,
}

/// Returns whether the field is omitted: servers without it then accept the order.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(parts: &u64) -> bool {
    *parts == 0
}

const PARTS_PER_ONE: u64 = 1_000_000_000_000;

/// Longest permitted queueing time, delay, delay variation or hold time of a reordered packet: no real path comes
/// near it.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Number of bytes by which the last packet in a queue may exceed the queue's limit: more than the size of any
/// packet.
const PACKET_BYTES: u64 = 64 << 10;

impl From<&Impairment> for ImpairmentOrder {
    fn from(impairment: &Impairment) -> Self {
        let parts = |probability: Probability| (probability.as_f64() * PARTS_PER_ONE as f64).round() as u64;
        Self {
            seed: impairment.seed,
            loss: parts(impairment.loss),
            corrupt: parts(impairment.corrupt),
            duplicate: parts(impairment.duplicate),
            reorder: parts(impairment.reorder),
            reorder_packets: impairment.reorder_packets,
            reorder_hold_ps: impairment.reorder_hold.as_ps(),
            delay_ps: impairment.delay.as_ps(),
            jitter_ps: impairment.jitter.as_ps(),
            rate_bps: impairment.rate.map(BitRate::as_bps),
            rate_queue_bytes: impairment.rate_queue_bytes,
            trim: parts(impairment.trim),
            mark: parts(impairment.mark),
        }
    }
}

impl ImpairmentOrder {
    /// Checks that no packet is kept longer than `DELAY_MAX`. Kept packets use memory of the end that applies the
    /// impairment.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Impairment { delay, jitter, reorder_hold, rate, rate_queue_bytes, .. } = (*self).into();
        let drains = |rate: BitRate| rate.bytes_in(DELAY_MAX) >= rate_queue_bytes.saturating_add(PACKET_BYTES);
        if delay.max(jitter).max(reorder_hold) > DELAY_MAX || !rate.is_none_or(drains) {
            return Err(format!(
                "the requested impairment delays packets for too long; at most {DELAY_MAX} is allowed"
            ));
        }
        Ok(())
    }
}

impl From<ImpairmentOrder> for Impairment {
    fn from(order: ImpairmentOrder) -> Self {
        let probability = |parts| Probability::ratio(parts, PARTS_PER_ONE);
        Self {
            seed: order.seed,
            loss: probability(order.loss),
            corrupt: probability(order.corrupt),
            duplicate: probability(order.duplicate),
            reorder: probability(order.reorder),
            reorder_packets: order.reorder_packets,
            reorder_hold: Duration::from_ps(order.reorder_hold_ps),
            delay: Duration::from_ps(order.delay_ps),
            jitter: Duration::from_ps(order.jitter_ps),
            // A rate of zero would never send a packet.
            rate: order.rate_bps.filter(|bps| *bps > 0).map(BitRate::bps),
            rate_queue_bytes: order.rate_queue_bytes,
            paths: PathSet::ALL,
            trim: probability(order.trim),
            mark: probability(order.mark),
        }
    }
}

/// Positions of the operations' data, at both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Distance between the starts of two slots, in bytes.
    stride: u64,
    /// Number of slots of a queue pair: at the client in `local_slots`, at the server in `remote_slots`.
    local_slots: u64,
    remote_slots: u64,
}

impl Layout {
    /// Returns the layout for operations that complete in any order (`any_order`) or in posting order.
    pub(crate) fn new(op: Op, size_bytes: u32, depth: u32, verify: bool, any_order: bool) -> Self {
        let depth = u64::from(depth);
        let (local_slots, remote_slots) = match op {
            // Each word is incremented by its queue pair only; every result has its own slot.
            Op::Atomic | Op::CompareSwap => (depth, 1),
            // One slot more at the remote end, so that a local slot never receives the same data twice in a row.
            Op::Read | Op::NvmeRead if verify => (depth, depth + 1),
            // The server compares written data after acknowledging them. It has a receive for each operation in
            // flight, and posts one again only after comparing. With twice the depth, an operation that reuses a slot
            // can only start after one that itself needed that reposted receive; without order, three times the depth
            // is needed.
            Op::Write if verify => (depth, if any_order { 3 } else { 2 } * depth),
            _ if verify => (depth, depth),
            _ => (1, 1),
        };
        let size = if op.is_atomic() { 8 } else { u64::from(size_bytes.max(1)) };
        // Sizes of NVMe commands are multiples of the block size, and so are their offsets in a namespace.
        Self { stride: size.next_multiple_of(SLOT_ALIGNMENT), local_slots, remote_slots }
    }

    /// Returns the number of bytes that `qps` queue pairs need at the client.
    pub(crate) fn local_bytes(&self, qps: u32) -> u64 {
        u64::from(qps) * self.local_slots * self.stride
    }

    /// Returns the number of bytes that `qps` queue pairs need at the server.
    pub(crate) fn remote_bytes(&self, qps: u32) -> u64 {
        u64::from(qps) * self.remote_slots * self.stride
    }

    /// Returns the offset of the data of operation `index` of queue pair `qp` at the client.
    pub(crate) fn local_offset(&self, qp: u32, index: u64) -> usize {
        ((u64::from(qp) * self.local_slots + index % self.local_slots) * self.stride) as usize
    }

    /// Returns the offset of the data of operation `index` of queue pair `qp` at the server.
    pub(crate) fn remote_offset(&self, qp: u32, index: u64) -> usize {
        ((u64::from(qp) * self.remote_slots + self.remote_slot(index)) * self.stride) as usize
    }

    /// Returns the index of the slot at the server that operation `index` of a queue pair uses.
    pub(crate) fn remote_slot(&self, index: u64) -> u64 {
        index % self.remote_slots
    }

    pub(crate) fn remote_slots(&self) -> u64 {
        self.remote_slots
    }
}

/// Slots are aligned to cache lines; atomics need an alignment of eight.
const SLOT_ALIGNMENT: u64 = 64;

/// Version of these messages: both ends must have the same.
pub(crate) const VERSION: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// The server has a slot for each message that may be in flight and for each one that has arrived and waits
    /// for comparison; without ordering, it has half as many again.
    #[test]
    fn verified_writes_have_separate_slots_until_they_are_compared() {
        for (any_order, spare) in [(false, 8), (true, 12)] {
            let layout = Layout::new(Op::Write, 100, 4, true, any_order);
            for first in 0..40 {
                let slots: std::collections::BTreeSet<_> =
                    (first..first + spare).map(|index| layout.remote_offset(1, index)).collect();
                assert_eq!(slots.len() as u64, spare);
                assert!(slots.iter().all(|slot| (*slot + 100) as u64 <= layout.remote_bytes(2)));
            }
        }
    }

    #[test]
    fn orders_round_trip_through_json() {
        let impairment = Impairment {
            loss: Probability::ratio(1, 100),
            reorder: Probability::ratio(1, 3),
            rate: Some(BitRate::gbps(10)),
            delay: Duration::from_us(7),
            ..Impairment::default()
        };
        let order = Order::Prepare {
            version: VERSION,
            task: Task::Transfer(TransferTask { bytes: 5 }),
            transport: TransportOrder { name: "irn".to_owned(), options: vec![("rto_low".into(), "1ms".into())] },
            impairment: (&impairment).into(),
            round_trip_ps: 5,
        };
        let text = serde_json::to_string(&order).expect("plain data");
        let back: Order = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back, order);
        let Order::Prepare { impairment: travelled, .. } = back else { panic!("{back:?}") };
        let travelled = Impairment::from(travelled);
        assert_eq!(
            (travelled.loss, travelled.rate, travelled.delay),
            (impairment.loss, impairment.rate, impairment.delay)
        );
        assert!((travelled.reorder.as_f64() - 1.0 / 3.0).abs() < 1e-11);
    }
}
