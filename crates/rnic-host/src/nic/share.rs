//! Sharing of a link with the other NICs of the user.

use rnic_base::{BitRate, Time};
use rnic_engine::{Transport, WaitReason};

use super::Nic;
use super::device::Device;
use crate::notice::Notice;
use crate::share::capacity::{CapacityMeter, Counts};
use crate::share::{Activity, ShareStatus};

impl Device {
    /// Updates this NIC's entry in the shared page, and its share.
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
        self.apply_capacity();
    }

    /// Changes the weight of this NIC among the NICs that share the link; does nothing if this NIC does not.
    pub(super) fn set_share_weight(&mut self, now: Time, weight: u16) {
        let Some(share) = &mut self.link.share else { return };
        share.set_weight(now, weight);
        self.apply_capacity();
    }

    /// Starts measuring the NIC's throughput, if the scheduler of `transport` divides a capacity and no link has a
    /// known rate.
    pub(super) fn start_measuring_capacity(&mut self, transport: &Transport) {
        let schedule = &transport.profile().schedule;
        if self.capacity.is_none() && !self.link.has_shared_link() && (schedule.policy.uses_events)(&schedule.params) {
            self.capacity = Some(Box::new(CapacityMeter::new(self.clock.now(), self.counts(), self.config.line_rate)));
        }
    }

    /// Begins an iteration of the NIC's loop, for the measurement of the capacity.
    pub(super) fn begin_turn(&mut self, now: Time) {
        let bytes = self.counts().bytes;
        if self.capacity.as_mut().is_some_and(|capacity| capacity.begin_turn(now, bytes)) {
            self.apply_capacity();
        }
    }

    /// Ends an iteration of the NIC's loop; `were_sent` is true if all of its packets have been sent.
    pub(super) fn end_turn(&mut self, were_sent: bool) {
        let (counts, is_backlogged) = (self.counts(), were_sent && self.engine.sharing().is_backlogged());
        if let Some(capacity) = &mut self.capacity {
            capacity.end_turn(counts, is_backlogged);
        }
    }

    /// Passes the NIC's share of the link, or else its measured throughput, to the engine's schedulers.
    fn apply_capacity(&mut self) {
        let share = self.link.share.as_ref().and_then(|share| share.share());
        let capacity = share.or_else(|| self.capacity.as_ref()?.capacity());
        self.engine.sharing().set_capacity(capacity);
    }

    /// Returns the bytes of all packets sent, counting their framing, and the waits for dequeue rates.
    fn counts(&self) -> Counts {
        let stats = &self.link.stats;
        let packets = stats.datagrams_sent + stats.bypass_sent;
        Counts {
            bytes: stats.bytes_sent + stats.bypass_bytes_sent + packets * FRAMING_BYTES,
            waits: self.engine.stats().waits[WaitReason::Dequeue as usize],
        }
    }
}

/// Returns the measured rate that schedulers may divide among the queue pairs of a NIC; `None` if it has not been
/// measured, because no scheduler divides a rate, a link has a known rate, or it is too early.
pub(crate) fn measured_capacity(nic: &Nic) -> Option<BitRate> {
    nic.device.capacity.as_ref()?.capacity()
}

impl Nic {
    /// Returns the state of the sharing with the other NICs of the user, if enabled.
    pub(crate) fn share_status(&self) -> Option<ShareStatus> {
        self.device.link.share.as_ref().map(|share| share.status())
    }
}

/// Number of bytes of a packet on the link besides its UDP payload: Ethernet with its gap, IPv4 and UDP. The counters
/// of NICs without a shared link include only UDP payload.
const FRAMING_BYTES: u64 = 66;

/// Approximate number of bytes of a packet's headers inside its UDP payload: base transport header and ICRC.
const HEADER_BYTES: u64 = 16;
