//! Credit at the peer: Falcon packets count against the receive buffer of the peer's host, as the packets of all
//! other queue pairs do.
//!
//! Falcon has no such mechanism, because its NICs have a buffer pool for received packets and refuse packets for
//! which the pool has no space (specification, section 8.3). A host that uses sockets receives into a socket buffer,
//! where packets are dropped silently ([`crate::peer`]). A packet counts from the time it is sent until it is known
//! to have arrived. Packets for which the receiver was not ready do not count while they wait, so that other packets
//! can use the credit: one of these may carry the data that the receiver waits for. Retransmissions neither use nor
//! wait for new credit.

use rnic_falcon::delivery::DepartureInfo;

use super::{Endpoint, FalconEnd, Schedule};
use crate::core::Core;
use crate::ready::Half;
use crate::stats::WaitReason;
use crate::verbs::Verbs;

/// Credit at the peer that a connection uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CreditUse {
    /// Number of packets that count against the credit.
    counted_packets: u64,
    /// `true` while the connection waits for credit, or has been woken but not yet notified.
    is_waiting: bool,
    /// `true` while the connection has been woken for credit but has not used it.
    is_granted: bool,
}

impl Endpoint {
    /// Updates the credit in use after the number of packets in flight has changed.
    pub(super) fn count_credit(&mut self, verbs: &Verbs, core: &mut Core) {
        let in_flight = self.connection.delivery().in_flight();
        let counted_packets = std::mem::replace(&mut self.credit.counted_packets, in_flight);
        if in_flight > counted_packets {
            core.peers.sent(verbs.head.peer(), in_flight - counted_packets);
        } else if in_flight < counted_packets {
            core.settle(verbs.head.peer(), counted_packets - in_flight);
        }
    }

    /// Updates the credit after the connection has tried to build its next packet (`departure`; `None` when it built
    /// none). If it is blocked on credit, it is added to the waiting queue pairs.
    pub(super) fn use_credit(&mut self, verbs: &Verbs, core: &mut Core, departure: Option<&DepartureInfo>) {
        let credit = &mut self.credit;
        let Some(departure) = departure else {
            let was_granted = std::mem::take(&mut credit.is_granted);
            if self.connection.delivery().blocked_on_credit() {
                core.count_wait(WaitReason::PeerWindow);
                if !std::mem::replace(&mut credit.is_waiting, true) {
                    core.peers.wait(verbs.head.peer(), Half::Falcon, verbs.head.slot);
                }
            } else if was_granted {
                core.wake_for_credit(verbs.head.peer());
            }
            return;
        };
        if departure.context.is_some() && !departure.is_retransmission {
            credit.is_granted = false;
        }
    }

    /// Returns granted credit, for use by other connections, if the connection has sent a packet that uses no credit
    /// and has no more packets to send.
    pub(super) fn return_credit(&mut self, schedule: &Schedule, verbs: &Verbs, core: &mut Core) {
        if !schedule.queued && std::mem::take(&mut self.credit.is_granted) {
            core.wake_for_credit(verbs.head.peer());
        }
    }

    /// Frees the credit of a connection that is being closed: its packets no longer count, and its entry in the
    /// waiting queue is removed.
    pub(super) fn release_credit(&self, verbs: &Verbs, core: &mut Core) {
        let peer = verbs.head.peer();
        if self.credit.is_waiting {
            core.peers.stop_waiting(peer, Half::Falcon, verbs.head.slot);
        }
        core.settle(peer, self.credit.counted_packets);
    }
}

impl FalconEnd {
    /// Handles the notification that credit at the peer has become free.
    pub(crate) fn on_credit(&mut self, verbs: &Verbs, core: &mut Core) {
        let Some(link) = self.link.as_mut() else { return core.wake_for_credit(verbs.head.peer()) };
        (link.credit.is_waiting, link.credit.is_granted) = (false, true);
        self.schedule.enlist(verbs.head.slot, core);
    }
}
