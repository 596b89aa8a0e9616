//! Which packets are too old to be new.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 9.2.2.2: a packet is taken when its time is after the
//! greatest time of all packets so far, less a margin; else it is dropped, and nobody is told. Within the margin,
//! packets overtake each other, and what comes twice is found by its sequence number. The margin's width is our choice;
//! so are the 47 bits of time that [`crate::Vector`] makes of the specification's 32, so that nothing is compared
//! modulo anything.

use rnic_base::Duration;
use rnic_wire::falcon::Timestamp;

/// How much older than the newest packet one may be: more than packets overtake each other by on any path that a data
/// centre has, or on one that an impairment makes, and less than anybody needs to record packets and come back.
pub const REPLAY_MARGIN: Duration = Duration::from_ms(500);

/// What a receiver remembers of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The greatest time of an authentic packet, in units of [`Timestamp::UNIT`].
    newest: u64,
    margin: u64,
}

impl Replay {
    /// Nothing has come yet.
    pub const fn new(margin: Duration) -> Self {
        Self { newest: 0, margin: margin.as_ps() >> Timestamp::UNIT_SHIFT }
    }

    /// Whether a packet that left at `units` is young enough.
    #[inline]
    pub const fn accepts(&self, units: u64) -> bool {
        units + self.margin > self.newest
    }

    /// Notes an authentic packet.
    #[inline]
    pub fn note(&mut self, units: u64) {
        self.newest = self.newest.max(units);
    }

    /// The greatest time so far.
    #[inline]
    pub const fn newest(&self) -> u64 {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f42_what_is_older_than_the_margin_is_refused() {
        let margin = 100;
        let mut replay = Replay::new(Timestamp::UNIT * margin);
        assert!(replay.accepts(0), "the first packet, by a clock that has just begun");
        replay.note(1_000);
        assert!(!replay.accepts(1_000 - margin), "exactly the margin");
        assert!(replay.accepts(1_000 - margin + 1));
        assert!(replay.accepts(1_000), "twice the same: the sequence number tells");
        assert!(replay.accepts(u64::MAX >> 17), "however long it was silent");
        replay.note(950);
        assert_eq!(replay.newest(), 1_000, "what was overtaken does not turn time back");
    }
}
