//! Room at the peer: packets of Falcon's count against its host's receive buffer as those of all other queue pairs do.
//!
//! Source: none for Falcon, whose NICs have a pool for what comes from the network and refuse what finds no place
//! there (specification, section 8.3). A host on sockets receives into a socket's buffer, which drops in silence
//! ([`crate::peer`]). What counts are packets that have left and are not known to have arrived. Those that the
//! receiver was not ready for do not count while they wait, so others use the room: one of them may bring what the
//! receiver waits for. What is sent again takes no new room, and waits for none.

use rnic_falcon::delivery::Leaving;

use super::Link;
use crate::PeerId;
use crate::core::Core;
use crate::qp::Qp;
use crate::ready::Half;
use crate::stats::WaitReason;

/// What a connection has of the room at its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// Packets that count there.
    counted: u64,
    /// It waits for room, or has been woken and has not heard of it.
    waits: bool,
    /// It was woken for room, and has not used it.
    is_lent: bool,
}

impl Qp {
    /// What is under way has changed: so does what counts.
    pub(super) fn count_room(&mut self, core: &mut Core, link: &mut Link) {
        let under_way = link.connection.delivery().under_way();
        let counted = std::mem::replace(&mut link.room.counted, under_way);
        if under_way > counted {
            core.peers.sent(self.far_end(), under_way - counted);
        } else if under_way < counted {
            core.settle(self.far_end(), counted - under_way);
        }
    }

    /// It was asked for a packet, and this is what it gave: if it lacks room, it waits.
    pub(super) fn use_room(&mut self, core: &mut Core, link: &mut Link, leaving: Option<&Leaving>) {
        let room = &mut link.room;
        let Some(leaving) = leaving else {
            let was_lent = std::mem::take(&mut room.is_lent);
            if link.connection.delivery().lacks_room() {
                core.count_wait(WaitReason::PeerWindow);
                if !std::mem::replace(&mut room.waits, true) {
                    core.peers.wait(self.far_end(), Half::Falcon, self.slot);
                }
            } else if was_lent {
                core.pass_on_room(self.far_end());
            }
            return;
        };
        if leaving.context.is_some() && !leaving.again {
            room.is_lent = false;
        }
    }

    /// It was lent room, sent something that takes none, and has nothing more to send: others may use it.
    pub(super) fn return_room(&mut self, core: &mut Core, link: &mut Link) {
        let is_queued = self.extra.falcon().is_some_and(|falcon| falcon.queued);
        if !is_queued && std::mem::take(&mut link.room.is_lent) {
            core.pass_on_room(self.far_end());
        }
    }

    /// There is room at the peer.
    pub(crate) fn lend_room_falcon(&mut self, core: &mut Core) {
        let Some(falcon) = self.extra.falcon_mut() else { return };
        let Some(link) = falcon.link.as_mut() else { return core.pass_on_room(falcon.peer) };
        (link.room.waits, link.room.is_lent) = (false, true);
        self.enlist(core);
    }

    /// The connection ends: its packets are nobody's any more, and others have its turn.
    pub(super) fn leave_room(&mut self, core: &mut Core, link: &Link) {
        let peer: PeerId = self.far_end();
        if link.room.waits {
            core.peers.stop_waiting(peer, Half::Falcon, self.slot);
        }
        core.settle(peer, link.room.counted);
    }
}
