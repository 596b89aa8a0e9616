//! Handling of packets whose payload the driver cannot read.

use super::{Engine, flows};
use crate::packet::Departure;
use crate::qp::{ProtocolState, Qp};

impl Engine {
    /// Reports that the payload of the packet last returned by [`Engine::transmit`] cannot be read, because the owner
    /// of the memory has unmapped, shortened or protected it. The packet must not be sent, and this must be the next
    /// call to the engine after [`Engine::transmit`]. Returns the packet that replaces it, if any, which has no
    /// payload.
    ///
    /// If the packet was a request, the request completes with a local protection error once those before it have
    /// completed. If it was a response, the requester receives a remote access error for its Read instead. In both
    /// cases this queue pair fails, and no other. A Falcon packet is replaced by a Resync with the number of the
    /// packet (section 6.8).
    #[cold]
    pub fn fault_payload(&mut self) -> Option<Departure<'_>> {
        let is_falcon = self.falcon.as_ref().is_some_and(|nic| nic.is_out);
        let is_built = if is_falcon { fault_falcon(self) } else { fault_roce(self) };
        if !self.core.overrun_cqs.is_empty() {
            self.fail_overrun();
        }
        flows::serve(self);
        let Self { core, falcon, .. } = self;
        match falcon {
            Some(nic) if is_falcon => is_built.then_some(Departure::Falcon(&nic.out)),
            _ => is_built.then_some(Departure::Roce(&core.out)),
        }
    }
}

fn fault_roce(engine: &mut Engine) -> bool {
    let (from, to) = (engine.core.out.from, engine.core.out.packet.dest_qpn);
    let mut outcome = None;
    // A flow is distinguished from its queue pair by its destination.
    flows::for_each(engine, from, |core, qp, _| {
        if qp.verbs.head.dest_qpn == to {
            outcome = Some(qp.fault_payload(core));
        }
    });
    let Engine { core, qps, .. } = engine;
    outcome.unwrap_or_else(|| qps.find_mut(from).is_some_and(|qp| qp.fault_payload(core)))
}

fn fault_falcon(engine: &mut Engine) -> bool {
    let Engine { core, falcon: Some(nic), qps, .. } = engine else { return false };
    let slot = qps.slot_of(nic.out.from);
    if let Some(Qp { verbs, protocol: ProtocolState::Falcon(end) }) = qps.at_mut(slot) {
        end.fault_payload(verbs, core, nic);
    }
    nic.wake_waiting(&mut core.ready);
    true
}
