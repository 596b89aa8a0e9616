//! Classes of queue pairs: which class sends the next packet, and which must not.

use rnic_base::Time;
use rnic_wire::Qpn;

use super::{Engine, count_sent, count_sent_falcon, flows};
use crate::arbiter::{CLASSES_MAX, ClassShares};
use crate::core::classes::{ClassQueues, Next};
use crate::error::ModifyError;
use crate::falcon::BlockedOn;
use crate::packet::Departure;
use crate::qp::{ProtocolState, Qp};
use crate::roce::RoceConnection;

/// Access to the classes of an engine's queue pairs: [`Classes::of`].
///
/// A driver that uses classes calls [`Classes::transmit`] instead of [`Engine::transmit`]. Messages between NICs and
/// pulls have no class: such drivers do not enable the former, nor use transports that pull.
#[derive(Debug)]
pub struct Classes<'e> {
    engine: &'e mut Engine,
}

impl<'e> Classes<'e> {
    /// Returns the classes of `engine`.
    pub fn of(engine: &'e mut Engine) -> Self {
        Self { engine }
    }

    /// Makes the engine serve classes as `shares` says; the acknowledgements of class `n` have the class `acks[n]`.
    /// Acknowledgements that wait for a turn of their queue pair (those on request, and Falcon's) are always in its
    /// class. Called before the engine sends packets.
    pub fn enable(self, shares: ClassShares, acks: [u8; CLASSES_MAX]) {
        self.engine.core.classes = Some(Box::new(ClassQueues::new(shares, acks)));
    }

    /// Sets the class of a queue pair; initially 0. It is unchanged by a reset.
    ///
    /// # Errors
    /// When the queue pair does not exist, or there is no such class.
    pub fn set_class(self, qpn: Qpn, class: u8) -> Result<(), ModifyError> {
        if usize::from(class) >= CLASSES_MAX {
            let (requested, max) = (u64::from(class), CLASSES_MAX as u64 - 1);
            return Err(ModifyError::Attribute { what: "class", requested, min: 0, max, step: 1 });
        }
        let qp = self.engine.qps.find_mut(qpn).ok_or(ModifyError::UnknownQp)?;
        qp.verbs.head.class = class;
        flows::for_each(self.engine, qpn, |_, qp, _| qp.verbs.head.class = class);
        Ok(())
    }

    /// Counts a packet of `class` that has been sent, with its length on the link.
    pub fn charge(self, class: u8, bytes: u32) {
        if let Some(classes) = &mut self.engine.core.classes {
            classes.charge(class, bytes);
        }
    }

    /// Returns the next packet to send and its class, as [`Engine::transmit`]; only classes in `open`, a bit for each,
    /// may send.
    pub fn transmit(self, now: Time, open: u8) -> Option<(Departure<'e>, u8)> {
        let engine = self.engine;
        engine.core.now = now;
        let Some((class, is_falcon)) = build(engine, open) else {
            if engine.core.is_unsettled {
                engine.fail_overrun();
            }
            return None;
        };
        if is_falcon {
            return engine.falcon.as_deref().map(|nic| (Departure::Falcon(&nic.out), class));
        }
        Some((Departure::Roce(&engine.core.out), class))
    }
}

/// Builds the next packet; returns its class, and whether it is one of Falcon.
fn build(engine: &mut Engine, open: u8) -> Option<(u8, bool)> {
    if let Some(nic) = &mut engine.falcon {
        nic.is_out = false;
    }
    loop {
        let (class, next) = next(engine, open)?;
        match next {
            Next::Control(control) => {
                let Engine { core, qps, .. } = engine;
                if let Some(qp) = qps.at_mut(control.slot).filter(|qp| qp.verbs.head.number == control.from) {
                    control.write(&mut core.out.packet);
                    RoceConnection::send_ack(&qp.verbs, core);
                    return Some((class, false));
                }
            }
            Next::Falcon(slot, tag) => {
                if build_falcon(engine, slot, tag) {
                    return Some((class, true));
                }
            }
            Next::Other(half, slot) => {
                let Engine { core, qps, .. } = engine;
                let Some(qp) = qps.at_mut(slot) else { continue };
                core.ready.mark();
                let is_built = match qp {
                    Qp { verbs, protocol: ProtocolState::Roce(connection) } => connection.transmit(half, verbs, core),
                    _ => qp.transmit_other(core),
                };
                qp.settle_if_failed(core, None);
                sort(engine);
                let core = &mut engine.core;
                if is_built {
                    if core.counts_sent {
                        count_sent(core);
                    }
                    return Some((class, false));
                }
                if core.is_unsettled && !core.flows_due.is_empty() {
                    flows::serve(engine);
                }
            }
        }
    }
}

/// Sorts everything that waits, and returns what is served next.
fn next(engine: &mut Engine, open: u8) -> Option<(u8, Next)> {
    let Engine { core, qps, .. } = engine;
    while let Some(slot) = core.ready.pop_with_credit() {
        if let Some(Qp { verbs, protocol: ProtocolState::Falcon(end) }) = qps.at_mut(slot) {
            end.on_credit(verbs, core);
        }
    }
    sort(engine);
    let core = &mut engine.core;
    let mut classes = core.classes.take()?;
    let next = classes.next(open, core);
    core.classes = Some(classes);
    next
}

/// Sorts everything that waits into the queues of its class.
fn sort(engine: &mut Engine) {
    let Engine { core, qps, .. } = engine;
    if let Some(mut classes) = core.classes.take() {
        classes.sort(core, |slot| qps.at(slot).map_or(0, |qp| qp.verbs.head.class));
        core.classes = Some(classes);
    }
}

/// Builds the next packet of the Falcon queue pair in `slot`, if it has one that may be sent now.
fn build_falcon(engine: &mut Engine, slot: u32, tag: u32) -> bool {
    let Engine { core, falcon, qps, .. } = engine;
    let Some(nic) = falcon.as_deref_mut() else { return false };
    let Some(Qp { verbs, protocol: ProtocolState::Falcon(end) }) = qps.at_mut(slot) else { return false };
    let is_built = end.transmit(verbs, core, nic, BlockedOn::of_tag(tag));
    nic.is_out = is_built;
    if !core.overrun_cqs.is_empty() {
        engine.fail_overrun();
    }
    if is_built {
        count_sent_falcon(&mut engine.core, engine.falcon.as_deref());
    }
    is_built
}
