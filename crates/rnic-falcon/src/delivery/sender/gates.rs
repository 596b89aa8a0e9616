//! May a packet leave: `fcwnd`, `ncwnd`, pacing, and room for its context.
//!
//! Source: specification Rev 0.9, section 9.1.2; Falcon (SIGCOMM'25) sections 4.2 and 4.4 (F-16, F-19, F-20).
//!
//! | packet | first time | again |
//! |---|---|---|
//! | Pull Request, Push Data | number < base + `fcwnd`, ORC < `ncwnd` | number < base + `fcwnd`, ORRC < `ncwnd` |
//! | Pull Data | number < base + `fcwnd` | the same |
//!
//! ORC counts requests of the window that are outstanding, ORRC those of them that were sent again.
//!
//! Beside these, whoever drives the connection may bound what is under way to the peer's host, over all connections
//! ([`Delivery::set_room`](crate::delivery::Delivery::set_room)): the sources have adapters at both ends, whose receive
//! buffers are the resources of the transaction layer; a socket's buffer is none of them. What is sent again takes no
//! room.
//!
//! A pause after an out of window notification stops requests alone, as `ncwnd` does: a response that it held back
//! could be what the peer waits for before it acknowledges the packet that ends the pause.
//!
//! Both windows count per sequence space (so do the specification's formulas; up to twice `fcwnd` may be under way),
//! and `fcwnd` is the sum of the flows' (F-25). A window below one packet lets one out, and pacing does the rest: a
//! packet leaves no sooner than the packet gap after an acknowledgement opened its window, and after the packet
//! before it. The specification says now + gap because its hardware does not remember either; for a connection that
//! always has something to send the two are the same.

use rnic_base::{Duration, Seq, Time};
use rnic_policy::Cwnd;
use rnic_policy::control::report::RateLimit;

use crate::delivery::pace::SLOT;
use crate::delivery::windows::Windows;
use crate::seam::Gates;

use super::tx_window::{Kind, TxWindow};

/// What the adaptive engine has set, for all flows together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) ncwnd: u32,
    /// The rate of packets that carry data, on average.
    pub(crate) rate: RateLimit,
    pub(crate) packet_gap: Duration,
    /// When the last packet left, or, where there is a rate, has left by that.
    departed: Time,
    /// Packets that the peer's host has room for, beyond those under way.
    pub(crate) room: u64,
}

impl Limits {
    pub(crate) fn new(ncwnd: u32) -> Self {
        let (packet_gap, departed) = (Duration::ZERO, Time::ZERO);
        Self { ncwnd, rate: RateLimit::NONE, packet_gap, departed, room: u64::MAX }
    }

    /// When the next packet of `window` may leave.
    #[inline]
    pub(crate) fn departure(&self, window: &TxWindow) -> Time {
        if self.packet_gap == Duration::ZERO {
            return if self.rate.is_set() { self.departed } else { Time::ZERO };
        }
        window.opened.max(self.departed) + self.packet_gap
    }

    /// Returns whether packets wait for times.
    #[inline]
    pub(crate) fn are_paced(&self) -> bool {
        self.packet_gap > Duration::ZERO || self.rate.is_set()
    }

    /// A packet with `payload` bytes leaves.
    #[inline]
    pub(crate) fn leave(&mut self, now: Time, payload: u32) {
        if self.rate.is_set() {
            // What the wheel's slots hold a packet back is made up for.
            let begun = self.departed.max(Time::from_ps(now.as_ps().saturating_sub(SLOT.as_ps())));
            self.departed = begun + self.rate.time_of(u64::from(payload));
        } else {
            self.departed = now;
        }
    }

    /// Gates for packets that leave for the first time, pacing aside.
    #[inline]
    pub(crate) fn first(&self, windows: &Windows<TxWindow>, fcwnd: Cwnd) -> Gates {
        let Windows { request, data } = windows;
        let fabric = |window: &TxWindow| window.span() < fcwnd.whole_packets() && !window.is_full();
        let nic = |window: &TxWindow| window.outstanding < self.ncwnd && window.base >= window.paused_below;
        let open = fabric(data);
        Gates { pull_request: fabric(request) && nic(request), push_data: open && nic(data), pull_data: open }
    }

    /// Whether packet `seq` may be sent again, pacing aside.
    #[inline]
    pub(crate) fn again(&self, window: &TxWindow, seq: Seq, fcwnd: Cwnd) -> bool {
        let within = seq.since(window.base) < fcwnd.whole_packets();
        within && (window.sent(seq).kind == Kind::PullData || window.outstanding_again < self.ncwnd)
    }
}
