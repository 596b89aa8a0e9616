//! Replay check: rejects packets that are too old to be new.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 9.2.2.2: a packet is accepted when its time is after the
//! greatest time of all packets so far, minus a margin; otherwise it is dropped silently. Within the margin, packets
//! may be reordered, and duplicates are detected by their sequence number. The width of the margin is OpenRNIC's
//! choice; so are the 47 bits of time that [`crate::Vector`] uses instead of the specification's 32, so that times are
//! compared without wrap-around.

use rnic_base::Duration;
use rnic_wire::falcon::Timestamp;

/// Largest age of an accepted packet relative to the newest one: more than the reordering on any path of a data centre,
/// or on a path with emulated impairments, and less than the time needed to record packets and replay them.
pub const REPLAY_MARGIN: Duration = Duration::from_ms(500);

/// Replay state of a receiver: the times of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// Greatest send time of an authentic packet, in units of [`Timestamp::UNIT`].
    newest: u64,
    margin: u64,
}

impl Replay {
    /// Creates the state before the first packet, with the given margin.
    pub const fn new(margin: Duration) -> Self {
        Self { newest: 0, margin: margin.as_ps() >> Timestamp::UNIT_SHIFT }
    }

    /// Returns `true` if a packet that was sent at `units` is recent enough.
    #[inline]
    pub const fn accepts(&self, units: u64) -> bool {
        units + self.margin > self.newest
    }

    /// Records the time of an authentic packet.
    #[inline]
    pub fn record(&mut self, units: u64) {
        self.newest = self.newest.max(units);
    }

    /// Returns the greatest time so far.
    #[inline]
    pub const fn newest(&self) -> u64 {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f42_packets_older_than_the_margin_are_refused() {
        let margin = 100;
        let mut replay = Replay::new(Timestamp::UNIT * margin);
        assert!(replay.accepts(0), "the first packet was refused at time 0");
        replay.record(1_000);
        assert!(!replay.accepts(1_000 - margin), "a packet exactly as old as the margin was accepted");
        assert!(replay.accepts(1_000 - margin + 1));
        assert!(replay.accepts(1_000), "a packet with the newest time was refused");
        assert!(replay.accepts(u64::MAX >> 17), "a packet after a long silence was refused");
        replay.record(950);
        assert_eq!(replay.newest(), 1_000, "a reordered packet moved the newest time back");
    }
}
