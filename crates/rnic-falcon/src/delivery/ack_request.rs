//! Decides when a sender requests an acknowledgement: the AR bit.
//!
//! Source: Falcon (SIGCOMM'25) table 3 and section 4.3 (F-21); specification Rev 0.9, section 9.1.3.1: on every packet
//! when `fcwnd` is at most a threshold, else on a share of them. The share is spread evenly, without randomness.
//!
//! Addition: retransmissions always request one, because an earlier acknowledgement speeds up recovery; the reference
//! simulator's bit at the end of an operation is left out (the layer does not know operations).

use rnic_policy::Cwnd;
use rnic_policy::control::report::AckRate;

/// Rule that selects the packets that request an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckRequestRule {
    /// Every packet requests one while the connection's `fcwnd` is at most this.
    pub threshold: Cwnd,
    /// Above the threshold, number of requesting packets in each group of `of` packets.
    pub share: u32,
    /// Size of the group that `share` refers to, in packets.
    pub of: u32,
}

impl AckRequestRule {
    /// The reference simulator's rule: a threshold of two packets, and one packet in ten above it.
    pub const DEFAULT: Self = Self { threshold: Cwnd::packets(2), share: 26, of: 256 };
    /// Every packet requests one.
    pub const ALWAYS: Self = Self { threshold: Cwnd::ONE, share: 256, of: 256 };

    /// Returns the rule for an adaptive engine's rate: two packets out of the number given by the rate. The threshold
    /// is zero, because the engine has considered the windows itself.
    ///
    /// Frequent rates are rounded to the nearest 256th, as the defaults are. For rarer rates that is too coarse: 3 %
    /// off for code 5, and no packet at all from code 10 on.
    pub fn of_rate(rate: AckRate) -> Self {
        let (threshold, packets) = (Cwnd::from_fixed(0), rate.packets_per_two());
        if rate.get() <= FREQUENT_CODE_MAX {
            Self { threshold, share: (2 * 256 + packets / 2) / packets, of: 256 }
        } else {
            Self { threshold, share: 2, of: packets }
        }
    }
}

/// See [`AckRequestRule::of_rate`].
const FREQUENT_CODE_MAX: u8 = 4;

/// Spreads the requests evenly over the packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckRequester {
    /// Accumulated fraction of a requesting packet, in units of 1/[`AckRequestRule::of`].
    owed: u32,
}

impl AckRequester {
    /// Returns whether the next packet requests an acknowledgement.
    #[inline]
    pub(crate) fn ask(&mut self, rule: &AckRequestRule, fcwnd: Cwnd) -> bool {
        if fcwnd <= rule.threshold {
            return true;
        }
        // The previous rule may have used a smaller unit, so the accumulated value is limited first.
        self.owed = self.owed.min(rule.of - 1) + rule.share.min(rule.of);
        let ask = self.owed >= rule.of;
        if ask {
            self.owed -= rule.of;
        }
        ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the first `packets` packets ask, when an adaptive engine says `code`.
    fn asking(code: u32, packets: u32) -> Vec<u32> {
        let (rule, mut requester) = (AckRequestRule::of_rate(AckRate::code(code)), AckRequester::default());
        (0..packets).filter(|_| requester.ask(&rule, Cwnd::packets(256))).collect()
    }

    #[test]
    fn f21_f23_packets_ask_at_the_rate_that_the_adaptive_engine_says() {
        for code in 0..16 {
            let packets = AckRate::code(code).packets_per_two();
            let asked = asking(code, 1_000 * packets).len();
            assert!(asked.abs_diff(2_000) <= 10, "code {code}: {asked} of a thousand times {packets}");
        }
        assert_eq!(asking(0, 5), [0, 1, 2, 3, 4]);
        assert_eq!(asking(4, 60), [8, 17, 25, 34, 42, 51, 59], "30 of 256, where 2 of 17 are meant");
        assert_eq!(asking(15, 65_538), [16_384, 32_768, 49_153, 65_537], "evenly");
    }

    /// What is owed under a rule that asks seldom is at most a packet under one that asks often.
    #[test]
    fn a_rule_that_follows_another_begins_with_at_most_one() {
        let mut requester = AckRequester::default();
        let [seldom, often] = [15, 4].map(|code| AckRequestRule::of_rate(AckRate::code(code)));
        let mut asks = |rule: &AckRequestRule, packets: u32| {
            (0..packets).filter(|_| requester.ask(rule, Cwnd::packets(256))).count()
        };
        assert_eq!(asks(&seldom, 16_384), 0);
        assert_eq!(asks(&often, 17), 2);
    }
}
