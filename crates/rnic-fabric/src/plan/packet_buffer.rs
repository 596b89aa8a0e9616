//! The packet buffers of a Falcon NIC: conversion from the parsed to the checked plan.

use rnic_base::{BitRate, Duration};
use rnic_engine::EngineConfig;

use super::quantity::{OrAuto, Unit};
use super::raw;
use super::{Plan, PlanError};

/// Buffers for packets that arrive out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketBufferPlan {
    /// Bytes on the chip.
    pub chip_bytes: u64,
    /// DRAM for packets that do not fit on the chip.
    pub dram: Option<DramPlan>,
}

/// DRAM of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DramPlan {
    /// Size of the DRAM.
    pub bytes: u64,
    /// Rate of writes and reads together.
    pub rate: BitRate,
    /// Time of a read.
    pub latency: Duration,
}

impl PacketBufferPlan {
    /// Returns the bytes of chip and DRAM together.
    pub fn bytes(&self) -> u64 {
        self.chip_bytes + self.dram.map_or(0, |dram| dram.bytes)
    }
}

/// Returns the packet buffers that `raw` describes.
pub(super) fn resolve(raw: &raw::Nic, plan: &Plan) -> Result<Option<PacketBufferPlan>, PlanError> {
    let wrong = |key: &'static str, what: String| Err(PlanError::value(key, what));
    let name = plan.transport.name;
    let of_dram = [
        ("nic.dram_buffer", raw.dram_buffer.is_some()),
        ("nic.dram_rate", raw.dram_rate.is_some()),
        ("nic.dram_latency", raw.dram_latency.is_some()),
    ];
    let mut given = [("nic.packet_buffer", raw.packet_buffer.is_some())].into_iter().chain(of_dram);
    if plan.transport.protocol.falcon().is_none() {
        let Some((key, _)) = given.find(|(_, is_given)| *is_given) else { return Ok(None) };
        let what = format!(
            "applies only to Falcon: the NIC of transport `{name}` places packets that arrive out of order in the \
             host's memory or drops them; remove it"
        );
        return wrong(key, what);
    }
    let key_of_dram = of_dram.into_iter().find(|(_, is_given)| *is_given);
    let Some(size) = raw.packet_buffer else {
        let Some((key, _)) = key_of_dram else { return Ok(None) };
        return wrong(key, "requires packet_buffer, the memory on the chip in front of the DRAM".to_owned());
    };
    let dram = match (raw.dram_buffer, raw.dram_rate) {
        (None, None) if raw.dram_latency.is_none() => None,
        (Some(Unit(bytes)), Some(Unit(rate))) => {
            Some(DramPlan { bytes: bytes.get(), rate, latency: raw.dram_latency().0 })
        }
        (None, _) => return wrong("nic.dram_buffer", "is missing".to_owned()),
        (_, None) => return wrong("nic.dram_rate", "is missing".to_owned()),
    };
    let chip_bytes = match size {
        OrAuto::Given(bytes) => bytes.get(),
        OrAuto::Auto => host_rate_max(plan).bytes_in(plan.round_trip().0),
    };
    Ok(Some(PacketBufferPlan { chip_bytes, dram }))
}

/// Checks the constraints of the packet buffers.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let Some(buffer) = plan.nic.and_then(|nic| nic.packet_buffer) else { return Ok(()) };
    let wrong = |key: &'static str, what: String| Err(PlanError::value(key, what));
    let least = EngineConfig::FALCON_RECEIVE_BYTES_MIN;
    if buffer.chip_bytes < least {
        return wrong("nic.packet_buffer", format!("must be at least {least} bytes, two packets of any length"));
    }
    if buffer.chip_bytes > BYTES_MAX {
        return wrong("nic.packet_buffer", format!("must be at most {BYTES_MAX} bytes"));
    }
    let Some(dram) = buffer.dram else { return Ok(()) };
    if !(least..=BYTES_MAX).contains(&dram.bytes) {
        return wrong("nic.dram_buffer", format!("must be between {least} and {BYTES_MAX} bytes"));
    }
    let arrival_rate = host_rate_max(plan);
    if dram.rate < arrival_rate {
        let what = format!("must be at least {arrival_rate}, the rate of a host's link, at which packets arrive");
        return wrong("nic.dram_rate", what);
    }
    if dram.latency > LATENCY_MAX {
        return wrong("nic.dram_latency", format!("must be at most {LATENCY_MAX}"));
    }
    Ok(())
}

/// Returns the highest rate of a host's link.
fn host_rate_max(plan: &Plan) -> BitRate {
    let hosts = if plan.topology.own_links().is_empty() { 1 } else { plan.topology.hosts() };
    (0..hosts).map(|host| plan.host_rate(host)).max().unwrap_or(plan.host_links.rate)
}

/// Largest size: as many buffers as 32 bits count, and more than any NIC has.
const BYTES_MAX: u64 = 64 << 30;
/// Largest latency, as for the other parts of a NIC.
const LATENCY_MAX: Duration = Duration::from_ms(1);

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    /// Only Falcon keeps packets in a buffer; its DRAM takes what overflows, as fast as it arrives.
    #[test]
    fn f37_packet_buffers_are_sized_by_rate_and_round_trip() {
        let of_falcon = |nic: &str| read(&[("transport", r#"{ name = "falcon" }"#), ("nic", nic)]);
        let buffer = |nic: &str| of_falcon(nic).expect(nic).nic.and_then(|nic| nic.packet_buffer).expect(nic);
        let auto = buffer(r#"{ packet_buffer = "auto" }"#);
        let plan = of_falcon("{}").expect("an empty table is valid");
        assert_eq!((auto.chip_bytes, auto.dram), (plan.host_links.rate.bytes_in(plan.round_trip().0), None));
        let both = buffer(r#"{ packet_buffer = "1.2MB", dram_buffer = "8MB", dram_rate = "400Gbps" }"#);
        assert_eq!((both.bytes(), both.dram.map(|dram| dram.latency)), (9_200_000, Some(Duration::from_ns(100))));
        for (nic, what) in [
            (r#"{ dram_buffer = "8MB", dram_rate = "400Gbps" }"#, "nic.dram_buffer: requires packet_buffer"),
            (r#"{ packet_buffer = "1MB", dram_rate = "400Gbps" }"#, "nic.dram_buffer: is missing"),
            (r#"{ packet_buffer = "1MB", dram_latency = "1us" }"#, "nic.dram_buffer: is missing"),
            (r#"{ packet_buffer = "1MB", dram_buffer = "8MB" }"#, "nic.dram_rate: is missing"),
            (r#"{ packet_buffer = "1KB" }"#, "nic.packet_buffer: must be at least 16896 bytes"),
            (r#"{ packet_buffer = "1000GB" }"#, "nic.packet_buffer: must be at most"),
            (r#"{ packet_buffer = "lots" }"#, "nic.packet_buffer: `lots`"),
            (
                r#"{ packet_buffer = "1MB", dram_buffer = "1B", dram_rate = "400Gbps" }"#,
                "nic.dram_buffer: must be between 16896 and",
            ),
            (
                r#"{ packet_buffer = "1MB", dram_buffer = "8MB", dram_rate = "1Gbps" }"#,
                "nic.dram_rate: must be at least 40 Gbit/s, the rate of a host's link",
            ),
            (
                r#"{ packet_buffer = "1MB", dram_buffer = "8MB", dram_rate = "400Gbps", dram_latency = "2ms" }"#,
                "nic.dram_latency: must be at most",
            ),
        ] {
            let error = of_falcon(nic).expect_err(nic).to_string();
            assert!(error.starts_with(&format!("plan: {what}")) && error.lines().count() == 1, "{nic}: {error}");
        }
        for key in [r#"packet_buffer = "1MB""#, r#"dram_rate = "400Gbps""#] {
            let error = read(&[("nic", &format!("{{ {key} }}"))]).expect_err(key).to_string();
            let name = key.split(' ').next().unwrap_or(key);
            let what = format!("plan: nic.{name}: applies only to Falcon: the NIC of transport `irn` places packets");
            assert!(error.starts_with(&what) && error.lines().count() == 1, "{error}");
        }
    }
}
