//! What leaves hosts that speak Falcon, by kind and by path, and what their NICs count.

use rnic_engine::{FalconStats, FalconTransmit};
use rnic_policy::paths::FLOWS_MAX;
use rnic_wire::falcon::{Body, NackCode};
use serde::Serialize;

/// Packets of all hosts together, what is sent again counted again.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct FalconFigures {
    /// Pull Requests.
    pub pull_requests: u64,
    /// Pull Data.
    pub pull_data: u64,
    /// Push Data.
    pub push_data: u64,
    /// Resyncs.
    pub resyncs: u64,
    /// Of all these, those that ask for an acknowledgement at once.
    pub ack_requests: u64,
    /// Acknowledgements without bitmaps.
    pub acks: u64,
    /// Acknowledgements with bitmaps.
    pub extended_acks: u64,
    /// NACKs for want of resources.
    pub resource_nacks: u64,
    /// NACKs of receivers that were not ready.
    pub rnr_nacks: u64,
    /// NACKs of other kinds.
    pub other_nacks: u64,
    /// Probes for the end of a burst (F-12).
    pub probes: u64,
    /// Packets sent again because recovery took them for lost, before their timeout.
    pub early_retransmissions: u64,
    /// Packets dropped beyond their window.
    pub out_of_window: u64,
    /// Times that a flow took another path (F-30).
    pub path_changes: u64,
    /// Times that a queue pair had to wait for resources of its NIC (Xoff, F-34); a host with NVMe has none.
    pub pauses: u64,
    /// Events that adaptive engines answered.
    pub fae_events: u64,
    /// Events that found the queue of an adaptive engine too full for them (`fae_queue`, `fae_throttle`).
    pub fae_held_back: u64,
    /// Share of the contexts of one part of one NIC's resources that were in use at most (F-31).
    pub contexts_max_share: f64,
    /// The same of buffers.
    pub buffers_max_share: f64,
    /// The most bytes that were on their way into the memory of one host, where some are slow.
    pub host_backlog_max_bytes: u64,
    /// Share of packets with data or requests on the flow, of those of a connection, that has the most of them:
    /// flow 0 of every connection, flow 1 of every one, and so on.
    pub busiest_flow_share: f64,
    /// The same of the flow that has the fewest.
    pub idlest_flow_share: f64,
    /// Flow 0 of every connection, flow 1 of every one, and so on, where connections have several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FalconFlow>,
}

/// What the flows of one index did, of all connections together.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct FalconFlow {
    /// Packets with data or requests, first time and again.
    pub packets: u64,
    /// Of these, sent again.
    pub packets_retransmitted: u64,
    /// Of all such packets, the share that took this flow.
    pub share: f64,
    /// Times that such a flow took another path.
    pub path_changes: u64,
}

/// Counts what one host sends.
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
        let place = match &packet.body {
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
        *place += 1;
        if packet.body.psn().is_some() {
            figures.ack_requests += u64::from(packet.ack_request);
            let flow = &mut self.by_flow[usize::from(transmit.label.flow(index_bits(flows)))];
            flow.packets += 1;
            flow.packets_retransmitted += u64::from(transmit.kind.is_retransmission());
        }
    }

    /// Takes over what the NIC has counted.
    pub(crate) fn note(&mut self, stats: &FalconStats) {
        let share = |thousandths: u32| f64::from(thousandths) / 1e3;
        let FalconStats { delivery, pauses, fullest, events, moves, .. } = *stats;
        let figures = &mut self.figures;
        figures.probes = delivery.probes;
        figures.early_retransmissions = delivery.sent_again_early;
        figures.out_of_window = delivery.out_of_window;
        figures.path_changes = delivery.moves;
        figures.pauses = pauses;
        figures.fae_events = events.entered;
        figures.fae_held_back = events.held_back;
        figures.contexts_max_share = share(fullest.packets);
        figures.buffers_max_share = share(fullest.buffers);
        self.by_flow.iter_mut().zip(moves).for_each(|(flow, moves)| flow.path_changes = moves);
    }

    /// Adds those of another host.
    pub(crate) fn add(&mut self, other: &Self, backlog_max: u64) {
        let (sum, more) = (&mut self.figures, &other.figures);
        sum.pull_requests += more.pull_requests;
        sum.pull_data += more.pull_data;
        sum.push_data += more.push_data;
        sum.resyncs += more.resyncs;
        sum.ack_requests += more.ack_requests;
        sum.acks += more.acks;
        sum.extended_acks += more.extended_acks;
        sum.resource_nacks += more.resource_nacks;
        sum.rnr_nacks += more.rnr_nacks;
        sum.other_nacks += more.other_nacks;
        sum.probes += more.probes;
        sum.early_retransmissions += more.early_retransmissions;
        sum.out_of_window += more.out_of_window;
        sum.path_changes += more.path_changes;
        sum.pauses += more.pauses;
        sum.fae_events += more.fae_events;
        sum.fae_held_back += more.fae_held_back;
        sum.contexts_max_share = sum.contexts_max_share.max(more.contexts_max_share);
        sum.buffers_max_share = sum.buffers_max_share.max(more.buffers_max_share);
        sum.host_backlog_max_bytes = sum.host_backlog_max_bytes.max(backlog_max);
        for (sum, more) in self.by_flow.iter_mut().zip(&other.by_flow) {
            sum.packets += more.packets;
            sum.packets_retransmitted += more.packets_retransmitted;
            sum.path_changes += more.path_changes;
        }
    }

    /// With connections of `flows` flows.
    pub(crate) fn figures(&self, flows: u8) -> FalconFigures {
        let mut by_flow = self.by_flow[..usize::from(flows)].to_vec();
        let all = by_flow.iter().map(|flow| flow.packets).sum::<u64>().max(1) as f64;
        by_flow.iter_mut().for_each(|flow| flow.share = flow.packets as f64 / all);
        let shares = || by_flow.iter().map(|flow| flow.share);
        let busiest_flow_share = shares().reduce(f64::max).unwrap_or(0.0);
        let idlest_flow_share = shares().reduce(f64::min).unwrap_or(0.0);
        let flows = if flows > 1 { by_flow } else { Vec::new() };
        FalconFigures { busiest_flow_share, idlest_flow_share, flows, ..self.figures.clone() }
    }
}

/// Bits of a label that name the flow: as few as tell them apart.
const fn index_bits(flows: u8) -> u32 {
    flows.next_power_of_two().trailing_zeros()
}
