//! Builds a snapshot from a NIC's counters.

use std::net::SocketAddr;

use rnic_base::{BitRate, Duration};
use rnic_engine::{FlowView, LatencyHistogram, QpSnapshot, QpState, Service};

use super::snapshot::{DeviceCounters, FlowSnapshot, LatencySnapshot, QueuePairSnapshot, ShareSnapshot, Snapshot};
use crate::nic::{Nic, host_delay_of, latency_histogram, measured_capacity, messages_of};
use crate::settings::Settings;
use crate::share::ShareStatus;

/// Contents of a snapshot that are not available from the NIC itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Name of the device, as shown to programs.
    pub device: String,
    /// Name of the program.
    pub program: String,
    /// Transport of reliable connections.
    pub transport: String,
    /// Description of the layer that carries the packets.
    pub wire: String,
    /// The configured impairment of the network, as text.
    pub impairment: Vec<String>,
}

impl Identity {
    /// Returns the identity of this process, for the device `device` over the layer `wire` with `settings`.
    pub fn of_process(device: &str, wire: &str, settings: &Settings) -> Self {
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Self {
            device: device.to_owned(),
            program: name.trim().to_owned(),
            transport: settings.transport.clone(),
            wire: wire.to_owned(),
            impairment: settings.impairment_parts(),
        }
    }
}

impl Nic {
    /// Returns a snapshot of the current state, with at most [`QUEUE_PAIRS_MAX`] queue pairs.
    pub fn snapshot(&self, identity: &Identity) -> Snapshot {
        let mut queue_pairs = Vec::new();
        let mut omitted = 0;
        for (view, peer) in self.queue_pairs() {
            if queue_pairs.len() < QUEUE_PAIRS_MAX {
                let probed = messages_of(self).and_then(|messages| messages.round_trip(view.info.number));
                let mut pair = queue_pair(&view, peer, probed);
                pair.peer_host_delay_us = messages_of(self)
                    .and_then(|messages| messages.host_delay_of_peer(view.info.number, self.now()))
                    .map(Duration::as_us_f64);
                queue_pairs.push(pair);
            } else {
                omitted += 1;
            }
        }
        queue_pairs.sort_by_key(|pair| pair.number);
        Snapshot {
            device: identity.device.clone(),
            pid: std::process::id(),
            // The client sets these fields from the socket's name.
            user: 0,
            context: 0,
            program: identity.program.clone(),
            uptime_us: self.now().since(rnic_base::Time::ZERO).as_ps() / 1_000_000,
            transport: identity.transport.clone(),
            wire: identity.wire.clone(),
            impairment: identity.impairment.clone(),
            share: self.share_status().map(|status| share(&status)),
            capacity_gbps: measured_capacity(self).map(BitRate::as_gbps_f64),
            host_delay_us: host_delay_of(self).map(Duration::as_us_f64),
            counters: self.device_counters(),
            latencies: latency_histogram(self).map(latencies),
            queue_pairs,
            queue_pairs_omitted: omitted,
        }
    }

    fn device_counters(&self) -> DeviceCounters {
        let (engine, nic) = (self.engine_stats(), self.stats());
        let impairment = nic.impairment;
        let messages = messages_of(self).map(|messages| *messages.stats()).unwrap_or_default();
        DeviceCounters {
            packets_sent: engine.packets_sent,
            packets_retransmitted: engine.packets_retransmitted,
            acks_sent: engine.acks_sent,
            packets_received: engine.packets_received,
            packets_out_of_order: engine.packets_out_of_order,
            packets_duplicate: engine.packets_duplicate,
            packets_dropped: engine.drops.iter().sum::<u64>() + nic.drops.iter().sum::<u64>(),
            bytes_sent: nic.bytes_sent + nic.bypass_bytes_sent,
            bytes_received: nic.bytes_received + nic.bypass_bytes_received,
            bytes_sent_by_memory: nic.bypass_bytes_sent,
            send_calls: nic.send_calls,
            receive_calls: nic.receive_calls,
            timeouts: engine.timeouts,
            timeouts_spurious: engine.timeouts_spurious,
            nacks: engine.nacks,
            rnr_naks_sent: engine.rnr_naks_sent,
            marks_received: engine.marks_received,
            cnps_sent: engine.cnps_sent,
            cnps_received: engine.cnps_received,
            programs_replaced: engine.programs_replaced,
            datagrams_refused: nic.datagrams_refused,
            hints_applied: nic.hints_applied,
            hints_rejected: nic.hints_rejected,
            streams_opened: nic.streams_opened,
            streams_in_software: nic.streams_in_software,
            nic_messages_sent: nic.nic_messages_sent,
            nic_messages_received: messages.all_accepted(),
            nic_messages_dropped: messages.all_dropped(),
            impairment_lost: impairment.lost + impairment.queue_full,
            impairment_reordered: impairment.reordered,
            impairment_duplicated: impairment.duplicated,
            impairment_corrupted: impairment.corrupted,
            impairment_trimmed: impairment.trimmed,
            impairment_marked: impairment.marked,
        }
    }
}

fn latencies(histogram: &LatencyHistogram) -> LatencySnapshot {
    LatencySnapshot { counts: histogram.counts.to_vec(), sum_ns: histogram.sum_ns }
}

fn share(status: &ShareStatus) -> ShareSnapshot {
    ShareSnapshot {
        weight: status.weight.into(),
        page: status.page,
        link_gbps: status.link_rate.map(BitRate::as_gbps_f64),
        share_gbps: status.share.map(BitRate::as_gbps_f64),
        holds_share: status.holds_share,
        payload_gbps: status.payload_rate.as_gbps_f64(),
        wire_bytes_sent: status.wire_bytes,
        payload_bytes_sent: status.payload_bytes,
        link_waits: status.link_waits,
        neighbours: status.neighbours,
    }
}

fn queue_pair(view: &QpSnapshot, peer: Option<SocketAddr>, probed: Option<Duration>) -> QueuePairSnapshot {
    let QpSnapshot { info, transport, program, in_flight, window, traffic, round_trip, latency, flows, .. } = view;
    let is_connected = !matches!(info.state, QpState::Reset | QpState::Init);
    QueuePairSnapshot {
        number: info.number.get(),
        service: service(info.service).to_owned(),
        state: state(info.state).to_owned(),
        transport: (*transport).to_owned(),
        program: program.as_deref().map(str::to_owned),
        peer: peer.filter(|_| is_connected).map(|peer| peer.to_string()).unwrap_or_default(),
        peer_number: if is_connected { info.dest_qpn.get() } else { 0 },
        packets_sent: info.stats.packets_sent,
        packets_retransmitted: info.stats.packets_retransmitted,
        packets_received: traffic.packets_received,
        packets_out_of_order: traffic.packets_out_of_order,
        packets_duplicate: traffic.packets_duplicate,
        packets_dropped: traffic.packets_dropped,
        rnr_naks: info.stats.rnr_naks.into(),
        rnr_naks_sent: info.stats.rnr_naks_sent.into(),
        round_trip_us: round_trip.map(Duration::as_us_f64),
        nacks: info.stats.nacks.into(),
        timeouts: info.stats.timeouts.into(),
        timeouts_spurious: info.timeouts_spurious.into(),
        packets_in_flight: *in_flight,
        window_packets: Some(*window),
        dequeue_gbps: info.dequeue_rate.map(BitRate::as_gbps_f64),
        peer_limit_gbps: info.peer_limit.map(BitRate::as_gbps_f64),
        probed_round_trip_us: probed.map(Duration::as_us_f64),
        peer_host_delay_us: None,
        dequeue_waits: info.dequeue_waits,
        operations: latency.operations,
        admission_ns: latency.admission_ns,
        window_ns: latency.window_ns,
        network_ns: latency.network_ns,
        flows: flows.iter().map(flow).collect(),
    }
}

fn flow(view: &FlowView) -> FlowSnapshot {
    let FlowView { label, fcwnd, outstanding, round_trip, counters } = view;
    FlowSnapshot {
        label: label.get(),
        packets_sent: counters.sent,
        packets_retransmitted: counters.retransmitted_packets,
        path_changes: counters.moves,
        packets_in_flight: u64::from(*outstanding),
        window_packets: fcwnd.as_packets_f64(),
        round_trip_us: round_trip.map(Duration::as_us_f64),
    }
}

/// Returns the usual abbreviation of a service.
fn service(service: Service) -> &'static str {
    match service {
        Service::ReliableConnection => "RC",
        Service::UnreliableConnection => "UC",
        Service::UnreliableDatagram => "UD",
    }
}

/// Returns the name of a state in verbs.
fn state(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::ReadyToReceive => "RTR",
        QpState::ReadyToSend => "RTS",
        QpState::SendQueueDrained => "SQD",
        QpState::SendQueueError => "SQE",
        QpState::Error => "ERR",
    }
}

/// Maximum number of queue pairs in a snapshot: as many as a user can inspect. It also limits the time for which an
/// observer delays the NIC.
pub const QUEUE_PAIRS_MAX: usize = 4_096;
