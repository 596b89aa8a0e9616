//! What a body says when it could not read the payload of a packet that leaves.

use super::Engine;
use crate::packet::{FalconTransmit, Transmit};
use crate::qp::{Carrier, Qp};

impl Engine {
    /// The payload of the packet that was last taken with [`Engine::transmit`] cannot be read: its owner has unmapped,
    /// shortened or protected the memory. The packet must not leave, and this must be the next call.
    ///
    /// A request completes with a local protection error when those before it have completed. In the place of a
    /// response what this answers leaves, if anything does, which has no payload; its requester's Read ends with a
    /// remote access error. Either ends the queue pair, and no other.
    #[cold]
    pub fn fault_payload(&mut self) -> Option<&Transmit> {
        let Self { core, qps, .. } = self;
        let made = qps.find_mut(core.out.from).is_some_and(|qp| qp.fault_payload(core));
        if !self.core.overrun.is_empty() {
            self.fail_overrun();
        }
        made.then_some(&self.core.out)
    }

    /// As [`Engine::fault_payload`], for the packet that was last taken with [`Engine::transmit_falcon`]. What leaves
    /// in its place, with its number, is a Resync, which has no payload (section 6.8).
    #[cold]
    pub fn fault_falcon_payload(&mut self) -> Option<&FalconTransmit> {
        let Self { core, falcon, qps, .. } = self;
        if let Some(nic) = falcon {
            let slot = qps.slot_of(nic.out.from);
            if let Some(Qp { verbs, carrier: Carrier::Falcon(end) }) = qps.at_mut(slot) {
                end.fault_payload(verbs, core, nic);
            }
            nic.wake_waiting(&mut core.ready);
        }
        if !self.core.overrun.is_empty() {
            self.fail_overrun();
        }
        self.falcon.as_ref().map(|nic| &nic.out)
    }
}
