//! What a profile says of Falcon, in the words of the two layers and of the adaptive engine.
//!
//! Whoever drives connections, verbs in `rnic-engine` or NVMe in `rnic-fabric`, begins with these and adds what it
//! alone knows: numbers, order, labels.

use rnic_base::{BitRate, Duration};
use rnic_fae::{Erased, FaeError, Filter, Latency, ProcessorConfig};
use rnic_policy::{FalconIsolation, FalconShape, Profile};

use crate::adaptive::{AdaptiveEngine, Placement};
use crate::delivery::{DeliveryConfig, OutOfWindowRule};
use crate::resources::threshold::Isolation;
use crate::resources::{Amount, ResourceConfig};

impl DeliveryConfig {
    /// The delivery layer of `profile`, whose Falcon has this `shape`. Its order, number, first PSNs, labels and
    /// attempts are the defaults.
    pub fn of(profile: &Profile, shape: &FalconShape) -> Self {
        Self {
            request_window: shape.request_window,
            data_window: shape.data_window,
            tx_window: shape.tx_window,
            out_of_window: if shape.drops_beyond { OutOfWindowRule::Drop } else { OutOfWindowRule::Keep },
            coalesce_count: shape.coalesce_count,
            coalesce_timeout: shape.coalesce_timeout,
            flows: shape.flows,
            accept_stale: shape.flows > 1,
            ..Self::new(profile.recovery, profile.paths)
        }
    }
}

impl Isolation {
    /// That of `shape`, where a transaction has at most `mtu` bytes and the NIC is that of `resources`.
    pub fn of(shape: &FalconShape, mtu: u32, resources: &ResourceConfig) -> Self {
        match shape.isolation {
            FalconIsolation::None => Self::None,
            FalconIsolation::Dynamic => Self::Dynamic,
            FalconIsolation::Static => {
                let packets = shape.isolation_packets;
                let full = |unit: u32| Amount { packets, buffers: packets.saturating_mul(mtu.div_ceil(unit)) };
                Self::Static { tx: full(resources.units.tx), rx: full(resources.units.rx) }
            }
        }
    }
}

impl AdaptiveEngine {
    /// The engine of a NIC for the connections of `profile`, whose Falcon has this `shape`.
    ///
    /// # Errors
    /// When the profile's control policy cannot run here.
    pub fn of(profile: &Profile, shape: &FalconShape, line_rate: BitRate, mtu: u32) -> Result<Self, FaeError> {
        let (interface, work) = (shape.fae_interface, shape.fae_work);
        let is_instant = interface == Duration::ZERO && work == Duration::ZERO;
        let placement = Placement {
            latency: (!is_instant).then_some(Latency { interface, work }),
            queue: EVENTS_MAX,
            filter: Filter::open(EVENTS_MAX),
        };
        let config = ProcessorConfig { form: Self::FORM, connections: 0, line_rate, mtu };
        Self::new(Erased(profile.control), &config, &placement)
    }
}

/// Events that can wait for an adaptive engine behind a latency: at 15 million a second, a quarter of a millisecond's.
const EVENTS_MAX: usize = 4_096;
