//! Conditions for sending a packet: `fcwnd`, `ncwnd`, pacing, and available space for its context.
//!
//! Source: specification Rev 0.9, section 9.1.2; Falcon (SIGCOMM'25) sections 4.2 and 4.4 (Falcon mechanisms F-16,
//! F-19, F-20).
//!
//! | packet | first transmission | retransmission |
//! |---|---|---|
//! | Pull Request, Push Data | number < base + `fcwnd`, ORC < `ncwnd` | number < base + `fcwnd`, ORRC < `ncwnd` |
//! | Pull Data | number < base + `fcwnd` | the same |
//!
//! ORC is the number of outstanding requests of the window, ORRC the number of those requests that were
//! retransmitted.
//!
//! In addition, the driver may limit the packets in flight to the peer's host over all connections
//! ([`Delivery::set_credit`](crate::delivery::Delivery::set_credit)): the sources assume adapters at both ends, whose
//! receive buffers are part of the transaction layer's resources, unlike the buffer of a socket. Retransmissions do
//! not consume this credit.
//!
//! A pause after an out of window notification stops only requests, as `ncwnd` does: the peer may need a response to
//! acknowledge the packet that ends the pause.
//!
//! Both windows count per sequence space (as do the specification's formulas; up to twice `fcwnd` may be in flight),
//! and `fcwnd` is the sum over the flows (Falcon mechanism F-25). A window below one packet admits one packet, and
//! pacing limits the rate: a packet is sent at least the packet gap after its window was last opened by an
//! acknowledgement, and at least the packet gap after the previous packet. The specification uses the current time plus
//! the gap (now + gap) because its hardware records neither time; for a connection that always has packets to send the
//! two are the same.

use rnic_base::{Duration, Seq, Time};
use rnic_policy::Cwnd;
use rnic_policy::control::report::RateLimit;

use crate::delivery::pace::SLOT_LEN;
use crate::delivery::windows::Windows;
use crate::interface::Gates;

use super::tx_window::{Kind, TxWindow};

/// Limits set by the adaptive engine, for all flows together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) ncwnd: u32,
    /// Average rate of packets that carry data.
    pub(crate) rate: RateLimit,
    pub(crate) packet_gap: Duration,
    /// Send time of the last packet; if there is a rate limit, the time at which the transmission of that packet
    /// would end at the limited rate.
    departed: Time,
    /// Number of packets for which the peer's host has space, beyond those in flight.
    pub(crate) peer_space: u64,
}

impl Limits {
    pub(crate) fn new(ncwnd: u32) -> Self {
        let (packet_gap, departed) = (Duration::ZERO, Time::ZERO);
        Self { ncwnd, rate: RateLimit::NONE, packet_gap, departed, peer_space: u64::MAX }
    }

    /// Returns the earliest send time of the next packet in `window`.
    #[inline]
    pub(crate) fn departure(&self, window: &TxWindow) -> Time {
        if self.packet_gap == Duration::ZERO {
            return if self.rate.is_set() { self.departed } else { Time::ZERO };
        }
        window.opened.max(self.departed) + self.packet_gap
    }

    /// Returns `true` if pacing is in use.
    #[inline]
    pub(crate) fn are_paced(&self) -> bool {
        self.packet_gap > Duration::ZERO || self.rate.is_set()
    }

    /// Accounts for a packet with `payload` bytes of payload that is sent now.
    #[inline]
    pub(crate) fn account_sent(&mut self, now: Time, payload: u32) {
        if self.rate.is_set() {
            // This compensates for the delay of up to one slot that the timing wheel adds to a packet.
            let start = self.departed.max(Time::from_ps(now.as_ps().saturating_sub(SLOT_LEN.as_ps())));
            self.departed = start + self.rate.time_of(u64::from(payload));
        } else {
            self.departed = now;
        }
    }

    /// Returns the gates for first transmissions, without considering pacing.
    #[inline]
    pub(crate) fn first(&self, windows: &Windows<TxWindow>, fcwnd: Cwnd) -> Gates {
        let Windows { request, data } = windows;
        let fabric = |window: &TxWindow| window.span() < fcwnd.whole_packets() && !window.is_full();
        let nic = |window: &TxWindow| window.outstanding < self.ncwnd && window.base >= window.paused_below;
        let fabric_open = fabric(data);
        let (pull_request, push_data) = (fabric(request) && nic(request), fabric_open && nic(data));
        Gates { pull_request, push_data, pull_data: fabric_open }
    }

    /// Returns `true` if packet `seq` may be retransmitted, without considering pacing.
    #[inline]
    pub(crate) fn may_retransmit(&self, window: &TxWindow, seq: Seq, fcwnd: Cwnd) -> bool {
        let is_within_fcwnd = seq.since(window.base) < fcwnd.whole_packets();
        is_within_fcwnd && (window.sent(seq).kind == Kind::PullData || window.outstanding_retransmissions < self.ncwnd)
    }
}
