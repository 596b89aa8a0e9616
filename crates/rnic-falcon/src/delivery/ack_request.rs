//! When a sender asks for an acknowledgement: the AR bit.
//!
//! Source: Falcon (SIGCOMM'25) table 3 and section 4.3 (F-21); specification Rev 0.9, section 9.1.3.1: on every
//! packet when `fcwnd` is at most a threshold, else on a share of them. The share is spread evenly, without
//! randomness.
//!
//! Addition: what is sent again always asks, for the sooner the answer, the sooner recovery goes on; the reference
//! simulator's bit at the end of an operation is left out (the layer does not know operations).

use rnic_policy::Cwnd;
use rnic_policy::control::report::AckRate;

/// What to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckRequestRule {
    /// Every packet asks while the connection's `fcwnd` is at most this.
    pub threshold: Cwnd,
    /// Otherwise so many ask,
    pub share: u32,
    /// of so many packets.
    pub of: u32,
}

impl AckRequestRule {
    /// The reference simulator's: two packets, and one in ten.
    pub const DEFAULT: Self = Self { threshold: Cwnd::packets(2), share: 26, of: 256 };
    /// Every packet asks.
    pub const ALWAYS: Self = Self { threshold: Cwnd::ONE, share: 256, of: 256 };

    /// What an adaptive engine asks for: two packets of so many. It has looked at the windows itself.
    ///
    /// Frequent asking goes by the nearest 256th, as the defaults do. For rarer rates that is too coarse: 3 % off for
    /// code 5, and no packet at all from code 10 on.
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

/// Spreads the share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckRequester {
    /// Of an asking packet, in parts of which [`AckRequestRule::of`] make one.
    owed: u32,
}

impl AckRequester {
    /// Whether the next packet asks.
    #[inline]
    pub(crate) fn ask(&mut self, rule: &AckRequestRule, fcwnd: Cwnd) -> bool {
        if fcwnd <= rule.threshold {
            return true;
        }
        // Under the rule before, the parts may have been smaller.
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
