//! Network signals that a controller may need; each transport measures some of them.
//!
//! A controller that needs a signal that its datapath does not measure would run without controlling anything.
//! Therefore the two sets are compared when a profile is composed, and missing signals are reported by name.

use core::fmt;
use core::ops::BitOr;

/// A set of congestion signals that a network or transport provides, or a controller requires.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Signals(u16);

impl Signals {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Number of packets acknowledged.
    pub const ACKS: Self = Self(1);
    /// Round-trip time of a packet and its acknowledgement.
    pub const ROUND_TRIP: Self = Self(1 << 1);
    /// Number of packets that switches marked (ECN).
    pub const MARKS: Self = Self(1 << 2);
    /// Congestion notification packets (CNP), at most one per interval.
    pub const CNP: Self = Self(1 << 3);
    /// Losses that are detected before a timeout.
    pub const NACKS: Self = Self(1 << 4);
    /// Timeouts.
    pub const TIMEOUTS: Self = Self(1 << 5);
    /// A timer for the controller.
    pub const TICKS: Self = Self(1 << 6);
    /// Bytes sent.
    pub const SENT: Self = Self(1 << 7);
    /// Delay at the receiver, and occupancy of its buffers.
    pub const HOST_DELAY: Self = Self(1 << 8);
    /// Number of switches on the path.
    pub const HOPS: Self = Self(1 << 9);
    /// Congestion of the most congested hop, written into packets by switches (CSIG).
    pub const CSIG: Self = Self(1 << 10);
    /// Round-trip times of probes, and delays in the hosts: messages between NICs (SCR).
    pub const PROBES: Self = Self(1 << 11);

    /// All signals with their names, each as a set of one element.
    const ALL: [(Self, &'static str); 12] = [
        (Self::ACKS, "acks"),
        (Self::ROUND_TRIP, "round-trip"),
        (Self::MARKS, "marks"),
        (Self::CNP, "cnp"),
        (Self::NACKS, "nacks"),
        (Self::TIMEOUTS, "timeouts"),
        (Self::TICKS, "ticks"),
        (Self::SENT, "sent"),
        (Self::HOST_DELAY, "host-delay"),
        (Self::HOPS, "hops"),
        (Self::CSIG, "csig"),
        (Self::PROBES, "probes"),
    ];

    /// Returns the union of the two sets.
    #[inline]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the signals that are not in `others`.
    #[inline]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns whether the set contains all of `others`.
    #[inline]
    pub const fn has(self, others: Self) -> bool {
        others.without(self).is_empty()
    }

    /// Returns whether the set contains at least one of `others`.
    #[inline]
    pub const fn has_any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Signals {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        self.with(others)
    }
}

/// Writes the names, in the order of declaration.
impl fmt::Display for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::ALL.iter().filter(|(signal, _)| self.has(*signal)).map(|(_, name)| *name);
        f.write_str(names.next().unwrap_or("nothing"))?;
        names.try_for_each(|name| write!(f, ", {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_is_one_bit_of_its_own_and_has_a_name() {
        let all = Signals::ALL.iter().fold(Signals::NONE, |all, (signal, _)| {
            assert!(signal.0.is_power_of_two() && !all.has(*signal), "{signal}");
            all | *signal
        });
        assert_eq!(u32::from(all.0), (1 << Signals::ALL.len()) - 1);
        assert_eq!((Signals::HOPS | Signals::ACKS).to_string(), "acks, hops");
        assert_eq!(Signals::NONE.to_string(), "nothing");
    }

    #[test]
    fn missing_signals_are_the_set_difference() {
        let (needs, measures) = (Signals::ACKS | Signals::HOPS, Signals::ACKS | Signals::TICKS);
        assert_eq!(needs.without(measures), Signals::HOPS);
        assert!(!measures.has(needs) && (measures | Signals::HOPS).has(needs));
    }
}
