//! Room at the peer: packets of Falcon's count against its host's receive buffer as those of all other queue pairs do.
//!
//! Source: none for Falcon, whose NICs have a pool for what comes from the network and refuse what finds no place
//! there (specification, section 8.3). A host on sockets receives into a socket's buffer, which drops in silence
//! ([`crate::peer`]). What counts are packets that have left and are not known to have arrived. Those that the
//! receiver was not ready for do not count while they wait, so others use the room: one of them may bring what the
//! receiver waits for. What is sent again takes no new room, and waits for none.

use rnic_falcon::delivery::Leaving;

use super::{FalconEnd, Link, Schedule};
use crate::core::Core;
use crate::ready::Half;
use crate::stats::WaitReason;
use crate::verbs::Verbs;

/// What a connection has of the room at its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CreditUse {
    /// Packets that count there.
    counted: u64,
    /// It waits for room, or has been woken and has not heard of it.
    waits: bool,
    /// It was woken for room, and has not used it.
    is_lent: bool,
}

impl Link {
    /// What is under way has changed: so does what counts.
    pub(super) fn count_credit(&mut self, verbs: &Verbs, core: &mut Core) {
        let under_way = self.connection.delivery().under_way();
        let counted = std::mem::replace(&mut self.credit.counted, under_way);
        if under_way > counted {
            core.peers.sent(verbs.head.peer(), under_way - counted);
        } else if under_way < counted {
            core.settle(verbs.head.peer(), counted - under_way);
        }
    }

    /// It was asked for a packet, and this is what it gave: if it lacks room, it waits.
    pub(super) fn use_credit(&mut self, verbs: &Verbs, core: &mut Core, leaving: Option<&Leaving>) {
        let credit = &mut self.credit;
        let Some(leaving) = leaving else {
            let was_lent = std::mem::take(&mut credit.is_lent);
            if self.connection.delivery().lacks_room() {
                core.count_wait(WaitReason::PeerWindow);
                if !std::mem::replace(&mut credit.waits, true) {
                    core.peers.wait(verbs.head.peer(), Half::Falcon, verbs.head.slot);
                }
            } else if was_lent {
                core.pass_on_room(verbs.head.peer());
            }
            return;
        };
        if leaving.context.is_some() && !leaving.again {
            credit.is_lent = false;
        }
    }

    /// It was lent room, sent something that takes none, and has nothing more to send: others may use it.
    pub(super) fn return_credit(&mut self, schedule: &Schedule, verbs: &Verbs, core: &mut Core) {
        if !schedule.queued && std::mem::take(&mut self.credit.is_lent) {
            core.pass_on_room(verbs.head.peer());
        }
    }

    /// The connection ends: its packets are nobody's any more, and others have its turn.
    pub(super) fn leave_credit(&self, verbs: &Verbs, core: &mut Core) {
        let peer = verbs.head.peer();
        if self.credit.waits {
            core.peers.stop_waiting(peer, Half::Falcon, verbs.head.slot);
        }
        core.settle(peer, self.credit.counted);
    }
}

impl FalconEnd {
    /// There is credit at the peer again.
    pub(crate) fn on_credit(&mut self, verbs: &Verbs, core: &mut Core) {
        let Some(link) = self.link.as_mut() else { return core.pass_on_room(verbs.head.peer()) };
        (link.credit.waits, link.credit.is_lent) = (false, true);
        self.schedule.enlist(verbs.head.slot, core);
    }
}
