//! Counts of the packets that Falcon hosts send, by type and by path, and the counters of their NICs.

use rnic_engine::{FalconStats, FalconTransmit};
use rnic_policy::paths::FLOWS_MAX;
use rnic_wire::falcon::{Body, NackCode};
use serde::Serialize;

/// Counts over all hosts; each retransmission is counted as a separate packet.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct FalconFigures {
    /// Number of Pull Request packets.
    pub pull_requests: u64,
    /// Number of Pull Data packets.
    pub pull_data: u64,
    /// Number of Push Data packets.
    pub push_data: u64,
    /// Number of Resync packets.
    pub resyncs: u64,
    /// Packets of any type that request an immediate acknowledgement.
    pub ack_requests: u64,
    /// Number of acknowledgements without bitmaps.
    pub acks: u64,
    /// Number of acknowledgements with bitmaps.
    pub extended_acks: u64,
    /// NACKs because of missing resources.
    pub resource_nacks: u64,
    /// NACKs of receivers that were not ready (RNR).
    pub rnr_nacks: u64,
    /// NACKs of other types.
    pub other_nacks: u64,
    /// Probes at the end of a burst (Falcon mechanism F-12).
    pub probes: u64,
    /// Packets retransmitted before their timeout, because loss recovery considered them lost.
    pub early_retransmissions: u64,
    /// Packets dropped because their sequence number was beyond the window.
    pub out_of_window: u64,
    /// Number of times that a flow changed its path (Falcon mechanism F-30).
    pub path_changes: u64,
    /// Number of times that a queue pair had to wait for resources of its NIC (Xoff, Falcon mechanism F-34); a host
    /// with NVMe has none.
    pub pauses: u64,
    /// Events that Falcon adaptive engines (FAE) processed.
    pub fae_events: u64,
    /// Events that were held back because the queue of an adaptive engine was too full (`fae_queue`, `fae_throttle`).
    pub fae_held_back: u64,
    /// Largest share of the contexts in any one partition of any NIC's resources that was in use (Falcon mechanism
    /// F-31).
    pub contexts_max_share: f64,
    /// Largest share of the buffers in use, in the same sense.
    pub buffers_max_share: f64,
    /// Maximum number of bytes that were in flight to the memory of one host, where some hosts are slow.
    pub host_backlog_max_bytes: u64,
    /// Share of the packets with data or requests that were sent on the most used flow index. Flow 0 of every
    /// connection counts as one index, flow 1 of every connection as the next, and so on.
    pub busiest_flow_share: f64,
    /// Share of these packets that were sent on the least used flow index.
    pub idlest_flow_share: f64,
    /// Counts per flow index (flow 0 of every connection, flow 1 of every connection, and so on), where connections
    /// have several flows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FalconFlow>,
}

/// Counts of the flows with one index, summed over all connections.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct FalconFlow {
    /// Packets with data or requests, including retransmissions.
    pub packets: u64,
    /// Of these, retransmissions.
    pub packets_retransmitted: u64,
    /// Share of all such packets that this flow index carried.
    pub share: f64,
    /// Number of times that such a flow changed its path.
    pub path_changes: u64,
}

/// Counts of the packets that one host sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct FalconCounts {
    figures: FalconFigures,
    by_flow: [FalconFlow; FLOWS_MAX],
}

impl FalconCounts {
    /// Counts a packet of a connection with `flows` flows.
    #[inline]
    pub(crate) fn count(&mut self, transmit: &FalconTransmit, flows: u8) {
        let figures = &mut self.figures;
        let packet = &transmit.packet;
        let counter = match &packet.body {
            Body::PullRequest { .. } => &mut figures.pull_requests,
            Body::PullData { .. } => &mut figures.pull_data,
            Body::PushData { .. } => &mut figures.push_data,
            Body::Resync { .. } => &mut figures.resyncs,
            Body::Ack(_) => &mut figures.acks,
            Body::ExtendedAck(..) => &mut figures.extended_acks,
            Body::Nack(nack) => match nack.code {
                NackCode::Resource => &mut figures.resource_nacks,
                NackCode::NotReady { .. } => &mut figures.rnr_nacks,
                _ => &mut figures.other_nacks,
            },
        };
        *counter += 1;
        if packet.body.psn().is_some() {
            figures.ack_requests += u64::from(packet.ack_request);
            let flow = &mut self.by_flow[usize::from(transmit.label.flow(index_bits(flows)))];
            flow.packets += 1;
            flow.packets_retransmitted += u64::from(transmit.kind.is_retransmission());
        }
    }

    /// Copies the counters of the NIC into the figures.
    pub(crate) fn note(&mut self, stats: &FalconStats) {
        let share = |thousandths: u32| f64::from(thousandths) / 1e3;
        let FalconStats { delivery, pauses, fullest, events, moves, .. } = *stats;
        let figures = &mut self.figures;
        figures.probes = delivery.probes;
        figures.early_retransmissions = delivery.retransmitted_early;
        figures.out_of_window = delivery.out_of_window;
        figures.path_changes = delivery.moves;
        figures.pauses = pauses;
        figures.fae_events = events.accepted;
        figures.fae_held_back = events.rejected;
        figures.contexts_max_share = share(fullest.packets);
        figures.buffers_max_share = share(fullest.buffers);
        self.by_flow.iter_mut().zip(moves).for_each(|(flow, moves)| flow.path_changes = moves);
    }

    /// Adds the counts of another host, whose largest memory backlog was `backlog_max` bytes.
    pub(crate) fn add(&mut self, other: &Self, backlog_max: u64) {
        let (sum, added) = (&mut self.figures, &other.figures);
        sum.pull_requests += added.pull_requests;
        sum.pull_data += added.pull_data;
        sum.push_data += added.push_data;
        sum.resyncs += added.resyncs;
        sum.ack_requests += added.ack_requests;
        sum.acks += added.acks;
        sum.extended_acks += added.extended_acks;
        sum.resource_nacks += added.resource_nacks;
        sum.rnr_nacks += added.rnr_nacks;
        sum.other_nacks += added.other_nacks;
        sum.probes += added.probes;
        sum.early_retransmissions += added.early_retransmissions;
        sum.out_of_window += added.out_of_window;
        sum.path_changes += added.path_changes;
        sum.pauses += added.pauses;
        sum.fae_events += added.fae_events;
        sum.fae_held_back += added.fae_held_back;
        sum.contexts_max_share = sum.contexts_max_share.max(added.contexts_max_share);
        sum.buffers_max_share = sum.buffers_max_share.max(added.buffers_max_share);
        sum.host_backlog_max_bytes = sum.host_backlog_max_bytes.max(backlog_max);
        for (sum, added) in self.by_flow.iter_mut().zip(&other.by_flow) {
            sum.packets += added.packets;
            sum.packets_retransmitted += added.packets_retransmitted;
            sum.path_changes += added.path_changes;
        }
    }

    /// Returns the figures, for connections with `flows` flows.
    pub(crate) fn figures(&self, flows: u8) -> FalconFigures {
        let mut by_flow = self.by_flow[..usize::from(flows)].to_vec();
        let packets_total = by_flow.iter().map(|flow| flow.packets).sum::<u64>().max(1) as f64;
        by_flow.iter_mut().for_each(|flow| flow.share = flow.packets as f64 / packets_total);
        let shares = || by_flow.iter().map(|flow| flow.share);
        let busiest_flow_share = shares().reduce(f64::max).unwrap_or(0.0);
        let idlest_flow_share = shares().reduce(f64::min).unwrap_or(0.0);
        let flows = if flows > 1 { by_flow } else { Vec::new() };
        FalconFigures { busiest_flow_share, idlest_flow_share, flows, ..self.figures.clone() }
    }
}

/// Returns the number of bits of a label that hold the flow index: the smallest number that distinguishes `flows`
/// flows.
const fn index_bits(flows: u8) -> u32 {
    flows.next_power_of_two().trailing_zeros()
}
