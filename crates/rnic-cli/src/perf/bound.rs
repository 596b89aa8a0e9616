//! Determines the limiting factor of a simulated measurement: without it, readers would attribute every limit to the
//! transport.

use rnic_fabric::{Plan, Report};
use rnic_page::number;

use super::size_bytes;
use crate::args::PerfArgs;
use crate::args::values::Op;

/// Returns the limiting factor of the run of `plan` as text for users: the first one that applies.
pub fn limited_by(args: &PerfArgs, plan: &Plan, report: &Report) -> String {
    let link = plan.host_links;
    let round_trip = link.delay * 2 + link.rate.serialize(u64::from(plan.mtu));
    let fills_bytes = link.rate.bytes_in(round_trip);
    let fills_packets = fills_bytes.div_ceil(u64::from(plan.mtu));
    let depth = if matches!(args.op, Op::Read | Op::Atomic) { args.depth.min(plan.reads) } else { args.depth };
    let in_flight = u64::from(size_bytes(args)) * u64::from(depth) * u64::from(args.qps);
    if used(plan, report, args) >= UTILIZATION_FULL {
        return "the link rate: the link was full, and headers use the rest of its rate".to_owned();
    }
    if in_flight < fills_bytes {
        return format!(
            "the bytes in flight: {}, but {} are needed to fill the link for a round trip of {round_trip}; increase \
             --depth or --qps",
            number::size(in_flight),
            number::size(fills_bytes)
        );
    }
    let cap = plan.transport.cap_packets.map(|cap| u64::from(cap) * u64::from(args.qps));
    if let Some(cap) = cap.filter(|cap| *cap < fills_packets) {
        return format!(
            "cap_packets: at most {cap} packets are in flight, but {fills_packets} are needed to fill the link"
        );
    }
    let option = |name: &str| plan.transport.options().find(|(spec, _)| spec.name == name).map(|(_, value)| value);
    if let Some(first) = option("initial_window").filter(|_| plan.transport.protocol.falcon().is_some()) {
        let rounds = (report.elapsed_us / round_trip.as_us_f64()).round();
        let losses = if report.packets_retransmitted > 0 { ", and decreases on losses" } else { "" };
        return format!(
            "the congestion window: it starts at {first} packets per queue pair and grows by about one per round \
             trip{losses}, but {fills_packets} fill the link; the run lasted {rounds} round trips of {round_trip}; \
             increase --duration or --set initial_window"
        );
    }
    if report.packets_retransmitted > 0 {
        let [again, timeouts] = [report.packets_retransmitted, report.timeouts].map(number::grouped);
        return format!("recovery: {again} packets retransmitted, {timeouts} timeouts");
    }
    let control = plan.transport.control.policy.name;
    format!("the transport: its congestion control ({control}), or the time until acknowledgements arrive")
}

/// Returns the fraction of the link's time that was used, in the direction that carried payload.
fn used(plan: &Plan, report: &Report, args: &PerfArgs) -> f64 {
    let bytes = report.messages * u64::from(size_bytes(args)) + report.packets_sent * HEADER_BYTES;
    let link_bytes = plan.host_links.rate.as_bps() as f64 / 8.0 * report.elapsed_us / 1e6;
    if link_bytes > 0.0 { bytes as f64 / link_bytes } else { 0.0 }
}

/// Approximate number of bytes of a packet on the wire besides its payload.
const HEADER_BYTES: u64 = 82;
/// Utilisation of the link above which the link is considered the limit.
const UTILIZATION_FULL: f64 = 0.9;
