//! Marking by queue depth (RED with instantaneous depth).
//!
//! Source: DCQCN (SIGCOMM'15) section 3.1: below `kmin` never, above `kmax` always, in between with a probability that
//! rises from zero to `pmax`. The depth is that of the output's queue with the packet in it. Acknowledgements are not
//! marked: they are not ECN-capable here.

use rnic_base::RandomStream;

/// The marking rule of a switch, with its own random numbers.
#[derive(Debug)]
pub(super) struct Marker {
    kmin: u64,
    kmax: u64,
    /// `pmax` times 2^32.
    pmax: u64,
    stream: RandomStream,
    pub(super) marked: u64,
}

/// When switches mark packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EcnPlan {
    /// Bytes up to which nothing is marked.
    pub kmin: u64,
    /// Bytes above which everything is marked.
    pub kmax: u64,
    /// The probability just below `kmax`.
    pub pmax: rnic_base::Probability,
}

impl Marker {
    pub(super) fn new(plan: &EcnPlan, stream: RandomStream) -> Self {
        let pmax = (plan.pmax.as_f64() * (1u64 << 32) as f64) as u64;
        Self { kmin: plan.kmin, kmax: plan.kmax, pmax, stream, marked: 0 }
    }

    /// Whether a packet that makes the queue `depth` bytes deep is marked.
    #[inline]
    pub(super) fn marks(&mut self, depth: u64) -> bool {
        if depth <= self.kmin {
            return false;
        }
        let marks = depth > self.kmax || {
            // Below 2^32 * (depth - kmin) / (kmax - kmin) * pmax of 2^32 values.
            let share = u128::from(self.pmax) * u128::from(depth - self.kmin) / u128::from(self.kmax - self.kmin);
            u128::from(self.stream.bits() >> 32) < share
        };
        self.marked += u64::from(marks);
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::{Probability, RandomStreams};

    #[test]
    fn the_probability_rises_from_kmin_to_kmax() {
        let plan = EcnPlan { kmin: 10_000, kmax: 110_000, pmax: Probability::ratio(1, 5) };
        let mut marker = Marker::new(&plan, RandomStreams::new(1).stream("ecn"));
        let mut rate = |depth: u64| (0..20_000).filter(|_| marker.marks(depth)).count();
        assert_eq!((rate(10_000), rate(110_001)), (0, 20_000));
        assert!((1_850..2_150).contains(&rate(60_000)), "a tenth half way");
        assert!((3_800..4_200).contains(&rate(110_000)), "a fifth at the end");
        assert!(rate(11_000) < 100);
    }
}
