//! Division of the link among the queue pairs of an engine, under schedulers that set rates.

use rnic_base::{BitRate, Time};
use rnic_wire::Qpn;

use super::{Engine, flows};
use crate::core::Core;
use crate::error::ModifyError;
use crate::ledger::{Shares, WEIGHT_MAX};
use crate::limiter::BurstDefault;
use crate::timer::Deadline;

/// Access to the settings by which the queue pairs of an engine share its link ([`Engine::sharing`]).
#[derive(Debug)]
pub struct Sharing<'e> {
    engine: &'e mut Engine,
}

impl Engine {
    /// Returns the means to change how queue pairs share the link.
    pub fn sharing(&mut self) -> Sharing<'_> {
        Sharing { engine: self }
    }

    /// Returns how many queue pairs share the link under schedulers that set rates, the sums of their rates, and the
    /// work of the processors.
    pub fn shares(&self) -> Shares {
        let records = self.core.processors.as_ref().and_then(|processors| processors.sent_counters());
        Shares { records, ..self.core.ledger.shares() }
    }
}

/// Runs the schedulers for records that threads have processed. `deadline` has expired in the timer heap.
#[cold]
pub(super) fn run_processors(engine: &mut Engine, deadline: Deadline) {
    let Engine { core, qps, .. } = engine;
    let now = core.now;
    if !core.processors.as_mut().is_some_and(|processors| processors.remove_expired(deadline)) {
        return;
    }
    while let Some((slot, processed)) = core.processors.as_mut().and_then(|processors| processors.poll(now)) {
        let share = qps.at_mut(slot).map_or(0, |qp| qp.on_processed(core, &processed));
        if let Some(processors) = &mut core.processors {
            processors.on_decision(&processed, share);
        }
    }
    if let Some(processors) = &mut core.processors {
        processors.arm(now, &mut core.timers);
    }
}

impl Sharing<'_> {
    /// Returns whether packets wait for the driver while queue pairs share the link under schedulers that set rates:
    /// the schedulers then do not control the bottleneck. Queue pairs that wait for their rate do not count.
    pub fn is_backlogged(&self) -> bool {
        let Core { ledger, ready, .. } = &self.engine.core;
        ledger.has_members() && (!ready.is_empty() || ready.has_falcon())
    }

    /// Sets the burst of queue pairs whose dequeue rate is limited from now on, which the driver has chosen
    /// ([`crate::EngineConfig::burst`]).
    pub fn set_burst(self, burst: BurstDefault) {
        self.engine.core.config.burst = burst;
    }

    /// Returns the burst of queue pairs of `engine` whose dequeue rate is limited.
    pub fn burst_of(engine: &Engine) -> BurstDefault {
        engine.core.config.burst
    }

    /// Sets the weight with which a scheduler such as `water-filling` divides the link among queue pairs (SCR mechanism
    /// S-19); initially one. It is unchanged by a reset.
    ///
    /// # Errors
    /// When the queue pair does not exist, or the weight is not between 1 and [`WEIGHT_MAX`].
    pub fn set_weight(self, now: Time, qpn: Qpn, weight: u16) -> Result<(), ModifyError> {
        let Engine { qps, core, .. } = self.engine;
        let qp = qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        if !(1..=WEIGHT_MAX).contains(&weight) {
            let (requested, max) = (u64::from(weight), u64::from(WEIGHT_MAX));
            return Err(ModifyError::Attribute { what: "weight", requested, min: 1, max, step: 1 });
        }
        core.now = now;
        qp.set_weight(core, weight);
        flows::for_each(self.engine, qpn, |core, qp, _| qp.set_weight(core, weight));
        Ok(())
    }

    /// Sets the total rate that queue pairs whose schedulers set rates may use, in bits per second on the wire; `None`
    /// for the rate of the link. A driver that shares the link with other NICs sets its share.
    pub fn set_capacity(self, capacity: Option<BitRate>) {
        self.engine.core.ledger.set_capacity(capacity);
    }
}
