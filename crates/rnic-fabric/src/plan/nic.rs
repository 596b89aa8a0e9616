//! The NIC memory model: conversion from the parsed to the checked plan.

use rnic_base::limits::OUTSTANDING_PACKETS_MAX;
use rnic_base::{BitRate, Duration};
use rnic_policy::Per;
use rnic_policy::Profile;
use rnic_policy::footprint::CONTEXT_BYTES;
use rnic_policy::profile::Store;

use super::packet_buffer::{self, PacketBufferPlan};
use super::quantity::Unit;
use super::raw;
use super::tables::{self, TablesPlan};
use super::{Plan, PlanError, derived};

/// The bus of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusPlan {
    /// Time from the request to the first byte.
    pub latency: Duration,
    /// Maximum number of reads in flight.
    pub reads: u32,
    /// Rate of each direction, headers of the bus included.
    pub rate: BitRate,
}

/// Policy for fetching work requests from the host's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkFetch {
    /// Fetched in batches when a queue pair needs one.
    OnDemand {
        /// Maximum number of work requests in a batch.
        batch: u32,
    },
    /// Entries are fetched before they are needed.
    Ahead,
}

/// The NIC memory model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicPlan {
    /// Number of contexts that the cache holds; `None`: all.
    pub contexts: Option<u32>,
    /// Number of contexts that a second level on the NIC holds, and the time to read one from it.
    pub second: Option<(u32, Duration)>,
    /// Bytes of a context, rounded up: the amount that a miss transfers.
    pub context_bytes: u64,
    /// Bus over which the NIC accesses memory.
    pub bus: BusPlan,
    /// Policy for fetching work requests.
    pub work: WorkFetch,
    /// Time of a query of a bitmap in the host's memory; `None` when bitmaps are on the NIC.
    pub bitmap: Option<Duration>,
    /// Time between two packets in the pipeline; with Falcon, between two sent packets.
    pub cycle: Duration,
    /// With Falcon: minimum time between two packets sent by a queue pair.
    pub qp_cycle: Duration,
    /// Maximum number of bytes that wait for the pipeline; packets beyond are dropped.
    pub receive_buffer: u64,
    /// Number of waiting bytes above which the neighbour is paused, and number below which it is resumed.
    pub pause: Option<(u64, u64)>,
    /// Buffers for packets that arrive out of order; only for Falcon.
    pub packet_buffer: Option<PacketBufferPlan>,
    /// Caches of translations and of contexts of completion queues, when one of them is bounded; not for Falcon.
    pub tables: Option<TablesPlan>,
}

/// Returns the model that `raw` describes, for the transport and the switches of `plan`.
pub(super) fn resolve(raw: &raw::Nic, plan: &Plan) -> Result<Option<NicPlan>, PlanError> {
    if !raw.enabled() {
        return Ok(None);
    }
    let context_bytes = context_bits(&plan.transport).div_ceil(8);
    let bus = BusPlan { latency: raw.bus_latency().0, reads: raw.bus_reads(), rate: raw.bus_rate().0 };
    let is_falcon = plan.transport.protocol.falcon().is_some();
    reject_unused_keys(raw, &plan.transport)?;
    let work = match (raw.wqe_fetch(), raw.wqe_batch) {
        (raw::WqeFetch::OnDemand, _) => WorkFetch::OnDemand { batch: raw.wqe_batch() },
        (raw::WqeFetch::Ahead, None) => WorkFetch::Ahead,
        (raw::WqeFetch::Ahead, Some(_)) => {
            return Err(PlanError::value("nic.wqe_batch", "applies only to wqe_fetch = \"on-demand\"; remove it"));
        }
    };
    let behind_bus = plan.transport.store == Store::Host;
    // The cycle time of Falcon's pipeline is not published: zero, unless a plan gives a value.
    let cycle = if is_falcon { Duration::ZERO } else { DEFAULT_CYCLE };
    let receive_buffer = raw.receive_buffer().0.get();
    let pause_reaction_bytes = plan.host_pause_reaction_bytes();
    let frame = derived::largest_frame(plan);
    let pause = plan.switch.and_then(|switch| switch.pfc).map(|_| {
        let stop = receive_buffer.saturating_sub(pause_reaction_bytes);
        (stop, stop.saturating_sub(2 * frame))
    });
    Ok(Some(NicPlan {
        contexts: contexts(raw, context_bytes)?,
        second: second(raw)?,
        context_bytes,
        bus,
        work,
        bitmap: behind_bus.then(|| raw.bitmap_latency.map_or(bus.latency, |Unit(latency)| latency)),
        cycle: raw.cycle.map_or(cycle, |Unit(cycle)| cycle),
        qp_cycle: raw.qp_cycle().0,
        receive_buffer,
        pause,
        packet_buffer: packet_buffer::resolve(raw, plan)?,
        tables: tables::resolve(raw, plan)?,
    }))
}

/// Rejects keys that the NIC of this transport does not use, because they would have no effect.
fn reject_unused_keys(raw: &raw::Nic, transport: &Profile) -> Result<(), PlanError> {
    let name = transport.name;
    if transport.store != Store::Host && raw.bitmap_latency.is_some() {
        let what = format!("does not apply to transport `{name}`, whose bitmaps are on the NIC; remove it");
        return Err(PlanError::value("nic.bitmap_latency", what));
    }
    if transport.protocol.falcon().is_none() {
        let what = format!("applies only to Falcon; use `nic.cycle` with transport `{name}`");
        return raw.qp_cycle.map_or(Ok(()), |_| Err(PlanError::value("nic.qp_cycle", what)));
    }
    let unused = [
        ("nic.wqe_fetch", raw.wqe_fetch.is_some()),
        ("nic.wqe_batch", raw.wqe_batch.is_some()),
        ("nic.receive_buffer", raw.receive_buffer.is_some()),
    ];
    let Some((key, _)) = unused.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let what = format!(
        "does not apply to the NIC model of transport `{name}`; remove it, or select a transport other than \
             Falcon"
    );
    Err(PlanError::value(key, what))
}

/// Returns the number of contexts that the cache holds.
fn contexts(raw: &raw::Nic, context_bytes: u64) -> Result<Option<u32>, PlanError> {
    match (raw.qpc_cache, raw.qpc_entries) {
        (None, None) => Ok(None),
        (None, Some(entries)) => Ok(Some(entries)),
        (Some(Unit(cache)), None) => Ok(Some(u32::try_from(cache.get() / context_bytes).unwrap_or(u32::MAX))),
        (Some(_), Some(_)) => Err(PlanError::value(
            "nic.qpc_entries",
            "conflicts with qpc_cache; give either qpc_entries or qpc_cache, in bytes",
        )),
    }
}

/// Returns the second level, if there is one.
fn second(raw: &raw::Nic) -> Result<Option<(u32, Duration)>, PlanError> {
    match (raw.second_entries, raw.second_latency) {
        (None, None) => Ok(None),
        (Some(0), _) => Err(PlanError::value("nic.second_entries", "must be above zero")),
        (Some(_), _) if raw.qpc_cache.is_none() && raw.qpc_entries.is_none() => Err(PlanError::value(
            "nic.second_entries",
            "requires qpc_cache or qpc_entries; without these, all contexts are on the chip",
        )),
        (Some(entries), Some(Unit(latency))) => Ok(Some((entries, latency))),
        (Some(_), None) => Err(PlanError::value("nic.second_latency", "is missing")),
        (None, Some(_)) => Err(PlanError::value("nic.second_entries", "is missing")),
    }
}

/// Checks the constraints of the model.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let Some(nic) = &plan.nic else { return Ok(()) };
    let wrong = |key, what: String| Err(PlanError::value(key, what));
    if nic.contexts == Some(0) {
        return wrong("nic.qpc_cache", format!("is too small for a single context of {} bytes", nic.context_bytes));
    }
    if nic.bus.reads == 0 || nic.bus.reads > BUS_READS_MAX {
        return wrong("nic.bus_reads", format!("must be 1 to {BUS_READS_MAX}"));
    }
    if nic.bus.rate.as_bps() < 1_000_000 {
        return wrong("nic.bus_rate", "must be at least 1Mbps".to_owned());
    }
    if let Some((entries, latency)) = nic.second {
        if nic.contexts.is_some_and(|chip| entries <= chip) {
            return wrong(
                "nic.second_entries",
                "must be more than the number of contexts on the chip (qpc_cache or qpc_entries)".to_owned(),
            );
        }
        if latency > nic.bus.latency {
            return wrong(
                "nic.second_latency",
                "must be at most bus_latency, because a slower second level would never be used".to_owned(),
            );
        }
    }
    for (key, time) in [
        ("nic.bus_latency", nic.bus.latency),
        ("nic.bitmap_latency", nic.bitmap.unwrap_or_default()),
        ("nic.cycle", nic.cycle),
        ("nic.qp_cycle", nic.qp_cycle),
    ] {
        if time > TIME_MAX {
            return wrong(key, format!("must be at most {TIME_MAX}"));
        }
    }
    if matches!(nic.work, WorkFetch::OnDemand { batch } if batch == 0 || u64::from(batch) > OUTSTANDING_PACKETS_MAX) {
        return wrong("nic.wqe_batch", "must be above zero".to_owned());
    }
    packet_buffer::check(plan)?;
    tables::check(plan)?;
    let least = 2 * derived::largest_frame(plan);
    if nic.receive_buffer < least || nic.pause.is_some_and(|(stop, _)| stop < least) {
        return wrong(
            "nic.receive_buffer",
            format!(
                "is too small: it must hold two packets ({least} bytes), plus the bytes that still arrive after a pause"
            ),
        );
    }
    Ok(())
}

/// Returns the bits of a queue pair's context on the NIC: the part that every adapter has, and the part that the
/// transport's loss recovery adds.
fn context_bits(profile: &Profile) -> u64 {
    CONTEXT_BYTES * 8 + profile.footprint_bits(Per::Connection)
}

/// Default pipeline cycle: FaSR section V-D2: a packet takes one or two cycles of 5 ns, 181 million per second in one
/// pipeline.
const DEFAULT_CYCLE: Duration = Duration::from_ps(5_525);
/// Maximum number of reads in flight: the tags of a bus (ten bits, PCI Express 4.0).
const BUS_READS_MAX: u32 = 1_024;
const TIME_MAX: Duration = Duration::from_ms(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// R-23, R-R6: FaSR section V-A's bytes of a queue pair, and how many of them its 1.4 MB hold.
    #[test]
    fn r23_contexts_have_the_bytes_of_the_paper() {
        for (name, bytes, fit) in [("irn-plus", 588.5, 2_379), ("srnic", 268.0, 5_224), ("fasr", 257.0, 5_447)] {
            let profile = rnic_transports::profile(name).expect("the transport exists");
            let found = context_bits(&profile) as f64 / 8.0;
            assert_eq!(found, bytes, "{name}");
            assert_eq!((1.4e6 / found).round() as u64, fit, "{name}");
        }
        let gbn = rnic_transports::profile("roce-cx6cache").expect("the transport exists");
        assert_eq!(context_bits(&gbn), 256 * 8);
    }
}
