//! State used by both directions of a connection and by its functions for inspection.

use rnic_wire::falcon::Cid;

use crate::delivery::config::DeliveryConfig;
use crate::delivery::counters::DeliveryCounters;
use crate::delivery::flows::Flows;
use crate::delivery::signal::Signals;

/// The paths of a connection, its reports and counters, and its address at the peer. [`Delivery`](super::Delivery) owns
/// it and passes it to its sender and its receiver.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// See [`DeliveryConfig::cid`].
    pub(crate) cid: Cid,
    /// See [`DeliveryConfig::function`].
    pub(crate) function: u32,
    pub(crate) flows: Flows,
    pub(crate) signals: Signals,
    pub(crate) counters: DeliveryCounters,
}

impl Shared {
    pub(crate) fn new(config: &DeliveryConfig) -> Self {
        Self {
            cid: config.cid,
            function: config.function,
            flows: Flows::new(config),
            signals: Signals::new(config.flows),
            counters: DeliveryCounters::default(),
        }
    }
}
