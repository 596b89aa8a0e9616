//! Protective reroute: a flow whose packets time out repeatedly is moved to another path.
//!
//! Source: PRR (SIGCOMM'23); Falcon's paper, section 4.3, states that the adaptive engine runs it per flow, by
//! changing the flow label, but not when: no trigger, state or limit is public.
//!
//! The rule here is therefore our own: a timeout (not an early retransmission) of a packet that has now timed out
//! `prr_timeouts` times or more changes the path, at most once per smoothed round trip, since all packets of a failed
//! path time out together. A single timeout may be due to a single lost packet; Swift halves the window for it. PRR
//! as published changes the path at every timeout; the first timeouts of a transport are as likely to be caused by
//! single losses. The receiver's part of PRR (it moves the acknowledgements after the second duplicate) is not an
//! event of the adaptive engine and is not implemented.

/// Returns `true` if the `count`th retransmission of a packet indicates that its path has failed.
#[inline(always)]
pub(super) fn is_outage(count: u8, early: bool, is_open: bool, timeouts: u64) -> bool {
    timeouts != 0 && !early && is_open && u64::from(count) >= timeouts
}
