//! Credit at the peer: Falcon packets count against the receive buffer of the peer's host like those of all other queue
//! pairs.
//!
//! Source: none for Falcon, whose NICs have a buffer pool for received packets and refuse packets that find no space
//! there (specification, section 8.3). A host on sockets receives into a socket's buffer, which drops packets silently
//! ([`crate::peer`]). Packets count while they have been sent and are not known to have arrived. Packets for which the
//! receiver was not ready do not count while they wait, so others use the credit: one of them may carry the data that
//! the receiver waits for. Retransmissions use no new credit, and do not wait for any.

use rnic_falcon::delivery::Leaving;

use super::{Endpoint, FalconEnd, Schedule};
use crate::core::Core;
use crate::ready::Half;
use crate::stats::WaitReason;
use crate::verbs::Verbs;

/// Credit at the peer that a connection uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CreditUse {
    /// Number of packets that count against the credit.
    counted: u64,
    /// Set while the connection waits for credit, or has been woken and not yet been notified.
    waits: bool,
    /// Set while the connection has been woken for credit and has not used it.
    is_lent: bool,
}

impl Endpoint {
    /// Updates the credit in use after the number of packets in flight has changed.
    pub(super) fn count_credit(&mut self, verbs: &Verbs, core: &mut Core) {
        let under_way = self.connection.delivery().under_way();
        let counted = std::mem::replace(&mut self.credit.counted, under_way);
        if under_way > counted {
            core.peers.sent(verbs.head.peer(), under_way - counted);
        } else if under_way < counted {
            core.settle(verbs.head.peer(), counted - under_way);
        }
    }

    /// Updates the credit after the connection has built its next packet or none (`leaving`): if it is blocked on
    /// credit, it is added to the waiting queue pairs.
    pub(super) fn use_credit(&mut self, verbs: &Verbs, core: &mut Core, leaving: Option<&Leaving>) {
        let credit = &mut self.credit;
        let Some(leaving) = leaving else {
            let was_lent = std::mem::take(&mut credit.is_lent);
            if self.connection.delivery().blocked_on_credit() {
                core.count_wait(WaitReason::PeerWindow);
                if !std::mem::replace(&mut credit.waits, true) {
                    core.peers.wait(verbs.head.peer(), Half::Falcon, verbs.head.slot);
                }
            } else if was_lent {
                core.wake_for_credit(verbs.head.peer());
            }
            return;
        };
        if leaving.context.is_some() && !leaving.again {
            credit.is_lent = false;
        }
    }

    /// Returns granted credit when the connection has sent a packet that uses none and has nothing more to send, so
    /// that others may use it.
    pub(super) fn return_credit(&mut self, schedule: &Schedule, verbs: &Verbs, core: &mut Core) {
        if !schedule.queued && std::mem::take(&mut self.credit.is_lent) {
            core.wake_for_credit(verbs.head.peer());
        }
    }

    /// Frees the credit of a connection that ends: its packets no longer count, and its entry in the waiting queue is
    /// removed.
    pub(super) fn leave_credit(&self, verbs: &Verbs, core: &mut Core) {
        let peer = verbs.head.peer();
        if self.credit.waits {
            core.peers.stop_waiting(peer, Half::Falcon, verbs.head.slot);
        }
        core.settle(peer, self.credit.counted);
    }
}

impl FalconEnd {
    /// Handles credit at the peer having become free.
    pub(crate) fn on_credit(&mut self, verbs: &Verbs, core: &mut Core) {
        let Some(link) = self.link.as_mut() else { return core.wake_for_credit(verbs.head.peer()) };
        (link.credit.waits, link.credit.is_lent) = (false, true);
        self.schedule.enlist(verbs.head.slot, core);
    }
}
