//! Conversion of a profile into the configurations of the two Falcon layers and of the adaptive engine.
//!
//! Drivers of connections, verbs in `rnic-engine` or NVMe in `rnic-fabric`, start with these configurations and add
//! their own values: numbers, ordering, labels.

use rnic_base::{BitRate, Duration};
use rnic_fae::{Erased, FaeError, Filter, Form, Latency, ProcessorConfig, Spawn};
use rnic_policy::{AdaptiveForm, AdaptivePlace, FalconIsolation, FalconShape, Profile};

use crate::adaptive::{AdaptiveEngine, Location, Placement};
use crate::delivery::{DeliveryConfig, OutOfWindowRule};
use crate::resources::threshold::Isolation;
use crate::resources::zone::Zones;
use crate::resources::{Amount, ResourceConfig};

impl DeliveryConfig {
    /// Returns the delivery layer configuration of `profile`, whose Falcon has this `shape`. Ordering, connection ID,
    /// first PSNs, labels and attempts are the defaults.
    pub fn of(profile: &Profile, shape: &FalconShape) -> Self {
        Self {
            request_window: shape.request_window,
            data_window: shape.data_window,
            tx_window: shape.tx_window,
            out_of_window: if shape.drops_beyond { OutOfWindowRule::Drop } else { OutOfWindowRule::Keep },
            pause_after_out_of_window: shape.pauses_beyond,
            coalesce_count: shape.coalesce_count,
            coalesce_timeout: shape.coalesce_timeout,
            flows: shape.flows,
            accept_stale: shape.flows > 1,
            measured: profile.patience_timeout().filter(|_| profile.measured_timeouts),
            ..Self::new(profile.recovery, profile.paths)
        }
    }
}

impl Isolation {
    /// Returns the isolation of `shape`, for transactions of at most `mtu` bytes on a NIC with `resources`.
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

impl ResourceConfig {
    /// Returns the resources of a NIC whose first connection has this `shape`: those of the public simulator, scaled.
    pub fn of(shape: &FalconShape) -> Self {
        let whole = Self::GBPS_200;
        let part = |count: u32| (u64::from(count) * u64::from(shape.resources_percent) / 100).max(1) as u32;
        let scaled = |amount: Amount, least: Amount| Amount {
            packets: part(amount.packets).max(least.packets),
            buffers: part(amount.buffers).max(least.buffers),
        };
        // Each part must suffice for a transaction of any length; the part for requests from the network for two, one
        // at the head of its line while another is held.
        let largest = |unit: u32| Amount { packets: 2, buffers: 2 * LENGTH_MAX.div_ceil(unit) };
        let [request_tx, data_tx, response_rx, request_rx] = whole.capacity;
        let (tx, rx) = (largest(whole.units.tx), largest(whole.units.rx));
        let capacity = [scaled(request_tx, tx), scaled(data_tx, tx), scaled(response_rx, rx), scaled(request_rx, rx)];
        // Half of the amount added to reach the minimum is reserved for requests at the head of their line.
        let green = Amount {
            packets: part(whole.zones.green.packets).min(capacity[3].packets - 1).max(1),
            buffers: part(whole.zones.green.buffers).min(capacity[3].buffers - rx.buffers / 2).max(1),
        };
        Self { capacity, zones: Zones { green, ..whole.zones }, ..whole }
    }
}

/// Maximum length of a transaction in bytes: the largest MTU and its headers.
const LENGTH_MAX: u32 = rnic_base::limits::MTU_MAX + 64;

impl AdaptiveEngine {
    /// Creates the engine of a NIC for the connections of `profile`, whose Falcon has this `shape`. If it is to run on
    /// a thread, `spawn` starts the thread.
    ///
    /// # Errors
    /// When the profile's control policy cannot run here, or there is no thread for it.
    pub fn of(
        profile: &Profile,
        shape: &FalconShape,
        line_rate: BitRate,
        mtu: u32,
        spawn: Option<Spawn>,
    ) -> Result<Self, FaeError> {
        let (interface, work) = (shape.fae_interface, shape.fae_work);
        let is_instant = interface == Duration::ZERO && work == Duration::ZERO;
        let location = match shape.fae_place {
            AdaptivePlace::Datapath if is_instant => Location::Inline,
            AdaptivePlace::Datapath => Location::Behind(Latency { interface, work }),
            AdaptivePlace::Thread => Location::Thread(spawn.ok_or(FaeError::NoThread)?),
        };
        let form = match shape.fae_form {
            AdaptiveForm::Table => Form::Table,
            AdaptiveForm::Stateless => Form::Stateless,
            AdaptiveForm::Prefetching => Form::PREFETCHING,
        };
        let queue = shape.fae_queue as usize;
        let first = queue * shape.fae_throttle as usize / 100;
        // The range above each threshold is a third of the rest; in a short queue the mildest threshold gets most of
        // it, because otherwise no event would be admitted.
        let rest = queue - first;
        let thresholds = [first, first + rest.div_ceil(3), first + (2 * rest).div_ceil(3)];
        let filter = Filter { thresholds, ..Filter::open(queue) };
        let config = ProcessorConfig { form, connections: 0, line_rate, mtu };
        Self::new(Erased(profile.control), &config, &Placement { location, queue, filter })
    }
}
