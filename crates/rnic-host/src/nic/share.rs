//! The part of a NIC in sharing a link with the other NICs of the user.

use rnic_base::Time;
use rnic_engine::WaitReason;

use super::Nic;
use super::device::Device;
use crate::notice::Notice;
use crate::share::{Activity, ShareStatus};

impl Device {
    /// Updates the line of this NIC in the shared page, and its share.
    pub(super) fn update_share(&mut self, now: Time) {
        let Self { engine, link, .. } = self;
        let Some(share) = &mut link.share else { return };
        let stats = &link.stats;
        let packets = stats.datagrams_sent + stats.bypass_sent;
        let bytes = stats.bytes_sent + stats.bypass_bytes_sent;
        let activity = Activity {
            wire_bytes: bytes + packets * FRAMING_BYTES,
            payload_bytes: bytes.saturating_sub(packets * HEADER_BYTES),
            dequeue_waits: engine.stats().waits[WaitReason::Dequeue as usize],
            divides_capacity: engine.shares().members > 0,
        };
        if let Some(error) = share.update(now, activity) {
            link.notices.push(Notice::NotShared(error.to_string()));
        }
        engine.sharing().set_capacity(share.share());
    }

    /// Changes the weight of this NIC among those that share the link, if it takes part.
    pub(super) fn set_share_weight(&mut self, now: Time, weight: u16) {
        let Self { engine, link, .. } = self;
        let Some(share) = &mut link.share else { return };
        share.set_weight(now, weight);
        engine.sharing().set_capacity(share.share());
    }
}

impl Nic {
    /// Returns the state of the sharing with the other NICs of the user, if this NIC takes part.
    pub(crate) fn share_status(&self) -> Option<ShareStatus> {
        self.device.link.share.as_ref().map(|share| share.status())
    }
}

/// Bytes of a packet on the link besides its UDP payload, of which the counters of NICs without a shared link have only
/// the sum: Ethernet with its gap, IPv4 and UDP.
const FRAMING_BYTES: u64 = 66;

/// Bytes of a packet's headers inside its UDP payload, approximately: base transport header and ICRC.
const HEADER_BYTES: u64 = 16;
