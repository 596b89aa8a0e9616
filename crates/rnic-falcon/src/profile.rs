//! Conversion of a profile into the configurations of the two Falcon layers and of the adaptive engine.
//!
//! The drivers of connections (verbs in `rnic-engine`, NVMe in `rnic-fabric`) start with these configurations and set
//! their own values for sequence numbers, ordering and labels.

use rnic_base::{BitRate, Duration};
use rnic_fae::{ErasedPolicy, FaeError, Filter, Latency, ProcessorConfig, Spawn, StateLocation};
use rnic_policy::{AdaptiveForm, AdaptivePlace, FalconIsolation, FalconShape, Profile};

use crate::adaptive::{AdaptiveEngine, Location, Placement};
use crate::delivery::{DeliveryConfig, OutOfWindowRule};
use crate::resources::threshold::Isolation;
use crate::resources::zone::Zones;
use crate::resources::{Amount, ResourceConfig, ResourcePart};

impl DeliveryConfig {
    /// Returns the delivery layer configuration of `profile`, whose Falcon parameters are `shape`. Ordering,
    /// connection ID, first PSNs, labels and number of attempts have their defaults.
    pub fn of(profile: &Profile, shape: &FalconShape) -> Self {
        Self {
            request_window: shape.request_window,
            data_window: shape.data_window,
            tx_window: shape.tx_window,
            out_of_window: if shape.drops_beyond_window { OutOfWindowRule::Drop } else { OutOfWindowRule::Keep },
            pause_after_out_of_window: shape.pauses_beyond_window,
            coalesce_count: shape.coalesce_count,
            coalesce_timeout: shape.coalesce_timeout,
            flows: shape.flows,
            accept_stale: shape.flows > 1,
            measured: profile.silence_unit().filter(|_| profile.measured_timeouts),
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
                let limit = |unit: u32| Amount { packets, buffers: packets.saturating_mul(mtu.div_ceil(unit)) };
                Self::Static { tx: limit(resources.units.tx), rx: limit(resources.units.rx) }
            }
        }
    }
}

impl ResourceConfig {
    /// Returns the resources of a NIC whose first connection has the Falcon parameters `shape`: the public
    /// simulator's resources, scaled.
    pub fn of(shape: &FalconShape) -> Self {
        let reference = Self::GBPS_200;
        let percentage_of = |count: u32| (u64::from(count) * u64::from(shape.resources_percent) / 100).max(1) as u32;
        let scaled = |amount: Amount, minimum: Amount| Amount {
            packets: percentage_of(amount.packets).max(minimum.packets),
            buffers: percentage_of(amount.buffers).max(minimum.buffers),
        };
        // Each part must suffice for a transaction of any length; the part for requests from the network must suffice
        // for two, so that one at the head of its line is admitted while another holds resources.
        let largest = |unit: u32| Amount { packets: 2, buffers: 2 * TRANSACTION_LENGTH_MAX.div_ceil(unit) };
        let [request_tx, data_tx, response_rx, request_rx] = reference.capacity;
        let (tx, rx) = (largest(reference.units.tx), largest(reference.units.rx));
        let capacity = [scaled(request_tx, tx), scaled(data_tx, tx), scaled(response_rx, rx), scaled(request_rx, rx)];
        // Half of the amount added to reach the minimum is reserved for requests at the head of their line.
        let green = Amount {
            packets: percentage_of(reference.zones.green.packets).min(capacity[3].packets - 1).max(1),
            buffers: percentage_of(reference.zones.green.buffers).min(capacity[3].buffers - rx.buffers / 2).max(1),
        };
        Self { capacity, zones: Zones { green, ..reference.zones }, ..reference }
    }

    /// Returns the same resources with `bytes` of buffers for requests from the network, but at least
    /// [`Self::RECEIVE_BYTES_MIN`]. As before, the last twentieth is reserved for requests at the head of their line
    /// (Falcon mechanism F-37).
    pub fn with_receive_bytes(mut self, bytes: u64) -> Self {
        let buffers = bytes.max(Self::RECEIVE_BYTES_MIN) / u64::from(self.units.rx);
        let buffers = u32::try_from(buffers).unwrap_or(u32::MAX);
        let reserved = (buffers / 20).max(TRANSACTION_LENGTH_MAX.div_ceil(self.units.rx));
        self.capacity[ResourcePart::RequestRx as usize].buffers = buffers;
        self.zones.green.buffers = buffers - reserved;
        self
    }

    /// Least number of bytes of buffers for requests from the network: two transactions of any length.
    pub const RECEIVE_BYTES_MIN: u64 = 2 * (TRANSACTION_LENGTH_MAX as u64).next_multiple_of(256);
}

/// Maximum length of a transaction in bytes: the largest MTU and its headers.
const TRANSACTION_LENGTH_MAX: u32 = rnic_base::limits::MTU_MAX + 64;

impl AdaptiveEngine {
    /// Creates the engine of a NIC for the connections of `profile`, whose Falcon parameters are `shape`. If it is to
    /// run on a thread, `spawn` starts the thread.
    ///
    /// # Errors
    /// Returns an error if the profile's control policy cannot run in the engine, or no thread is available for it.
    pub fn of(
        profile: &Profile,
        shape: &FalconShape,
        line_rate: BitRate,
        mtu: u32,
        spawn: Option<Spawn>,
    ) -> Result<Self, FaeError> {
        let (interface, processing) = (shape.fae_interface, shape.fae_work);
        let is_instant = interface == Duration::ZERO && processing == Duration::ZERO;
        let location = match shape.fae_place {
            AdaptivePlace::Datapath if is_instant => Location::Inline,
            AdaptivePlace::Datapath => Location::Behind(Latency { interface, processing }),
            AdaptivePlace::Thread => Location::Thread(spawn.ok_or(FaeError::NoThread)?),
        };
        let form = match shape.fae_form {
            AdaptiveForm::Table => StateLocation::Table,
            AdaptiveForm::Stateless => StateLocation::Stateless,
            AdaptiveForm::Prefetching => StateLocation::PREFETCHING,
        };
        let queue = shape.fae_queue as usize;
        let first = queue * shape.fae_throttle as usize / 100;
        // The occupancy above the first threshold is divided into three ranges of equal size. In a short queue,
        // rounding favours the range with the mildest rule, because otherwise no event would be admitted.
        let rest = queue - first;
        let thresholds = [first, first + rest.div_ceil(3), first + (2 * rest).div_ceil(3)];
        let filter = Filter { thresholds, ..Filter::open(queue) };
        let config = ProcessorConfig { form, connections: 0, line_rate, mtu };
        Self::new(ErasedPolicy(profile.control), &config, &Placement { location, queue, filter })
    }
}
