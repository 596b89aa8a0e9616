//! Handling of packets whose payload the driver cannot read.

use super::Engine;
use crate::packet::Departure;
use crate::qp::{Carrier, Qp};

impl Engine {
    /// Reports that the payload of the packet last returned by [`Engine::transmit`] cannot be read, because its owner
    /// has unmapped, shortened or protected the memory. The packet must not be sent, and this must be the next call.
    /// Returns the packet that replaces it, if any, which has no payload.
    ///
    /// A request completes with a local protection error when those before it have completed. In place of a response,
    /// the requester receives a remote access error for its Read. Either fails this queue pair, and no other. In place
    /// of a Falcon packet, a Resync with its number is sent (section 6.8).
    #[cold]
    pub fn fault_payload(&mut self) -> Option<Departure<'_>> {
        let is_falcon = self.falcon.as_ref().is_some_and(|nic| nic.is_out);
        let made = if is_falcon { fault_falcon(self) } else { fault_roce(self) };
        if !self.core.overrun.is_empty() {
            self.fail_overrun();
        }
        let Self { core, falcon, .. } = self;
        match falcon {
            Some(nic) if is_falcon => made.then_some(Departure::Falcon(&nic.out)),
            _ => made.then_some(Departure::Roce(&core.out)),
        }
    }
}

fn fault_roce(engine: &mut Engine) -> bool {
    let Engine { core, qps, .. } = engine;
    qps.find_mut(core.out.from).is_some_and(|qp| qp.fault_payload(core))
}

fn fault_falcon(engine: &mut Engine) -> bool {
    let Engine { core, falcon: Some(nic), qps, .. } = engine else { return false };
    let slot = qps.slot_of(nic.out.from);
    if let Some(Qp { verbs, carrier: Carrier::Falcon(end) }) = qps.at_mut(slot) {
        end.fault_payload(verbs, core, nic);
    }
    nic.wake_waiting(&mut core.ready);
    true
}
