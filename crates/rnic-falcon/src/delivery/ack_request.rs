//! Decides when a sender requests an acknowledgement: the AR bit.
//!
//! Source: Falcon (SIGCOMM'25) table 3 and section 4.3 (Falcon mechanism F-21); specification Rev 0.9, section 9.1.3.1:
//! every packet has the AR bit when `fcwnd` is at most a threshold, otherwise only a share of the packets. The share is
//! spread evenly, without randomness.
//!
//! Addition: retransmissions always request an acknowledgement, because an earlier acknowledgement speeds up
//! recovery; the reference simulator also sets the bit on the last packet of an operation, which this layer does not
//! do because it has no information on operations.

use rnic_policy::Cwnd;
use rnic_policy::control::report::AckRate;

/// Rule that selects the packets that request an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckRequestRule {
    /// Every packet requests an acknowledgement while the connection's `fcwnd` is at most this.
    pub threshold: Cwnd,
    /// Above the threshold, number of packets that request an acknowledgement in each group of `of` packets.
    pub share: u32,
    /// Size of the group that `share` refers to, in packets.
    pub of: u32,
}

impl AckRequestRule {
    /// The reference simulator's rule: a threshold of two packets, and one packet in ten above the threshold.
    pub const DEFAULT: Self = Self { threshold: Cwnd::packets(2), share: 26, of: 256 };
    /// Every packet requests an acknowledgement.
    pub const ALWAYS: Self = Self { threshold: Cwnd::ONE, share: 256, of: 256 };

    /// Returns the rule for an ACK-request rate set by the adaptive engine: two packets out of the number given by
    /// the rate. The threshold is zero, because the engine has already considered the windows.
    ///
    /// High rates are rounded to the nearest 256th, as in the default. For lower rates that is too coarse: the error
    /// is 3 % for code 5, and from code 10 on no packet would request an acknowledgement.
    pub fn of_rate(rate: AckRate) -> Self {
        let (threshold, packets) = (Cwnd::from_fixed(0), rate.packets_per_two());
        if rate.get() <= FREQUENT_CODE_MAX {
            Self { threshold, share: (2 * 256 + packets / 2) / packets, of: 256 }
        } else {
            Self { threshold, share: 2, of: packets }
        }
    }
}

/// Highest rate code that is rounded to 256ths, see [`AckRequestRule::of_rate`].
const FREQUENT_CODE_MAX: u8 = 4;

/// Distributes the acknowledgement requests evenly over the packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckRequester {
    /// Accumulated share of a request, in units of 1/[`AckRequestRule::of`].
    accumulated: u32,
}

impl AckRequester {
    /// Returns `true` if the next packet requests an acknowledgement.
    #[inline]
    pub(crate) fn must_request(&mut self, rule: &AckRequestRule, fcwnd: Cwnd) -> bool {
        if fcwnd <= rule.threshold {
            return true;
        }
        // The previous rule may have used a smaller unit, so the accumulated value is limited first.
        self.accumulated = self.accumulated.min(rule.of - 1) + rule.share.min(rule.of);
        let requests_ack = self.accumulated >= rule.of;
        if requests_ack {
            self.accumulated -= rule.of;
        }
        requests_ack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of the first `packets` packets request an acknowledgement, if the adaptive engine's rate has
    /// this `code`.
    fn requesting_packets(code: u32, packets: u32) -> Vec<u32> {
        let (rule, mut requester) = (AckRequestRule::of_rate(AckRate::code(code)), AckRequester::default());
        (0..packets).filter(|_| requester.must_request(&rule, Cwnd::packets(256))).collect()
    }

    #[test]
    fn f21_f23_packets_request_acknowledgements_at_the_rate_of_the_adaptive_engine() {
        for code in 0..16 {
            let packets = AckRate::code(code).packets_per_two();
            let requests = requesting_packets(code, 1_000 * packets).len();
            assert!(requests.abs_diff(2_000) <= 10, "code {code}: {requests} requests in 1000 groups of {packets}");
        }
        assert_eq!(requesting_packets(0, 5), [0, 1, 2, 3, 4]);
        assert_eq!(requesting_packets(4, 60), [8, 17, 25, 34, 42, 51, 59], "2 of 17 are rounded to 30 of 256");
        assert_eq!(requesting_packets(15, 65_538), [16_384, 32_768, 49_153, 65_537], "the requests are evenly spaced");
    }

    /// The share accumulated under a rule with rare requests causes at most one additional request under a rule with
    /// frequent ones.
    #[test]
    fn a_new_rule_causes_at_most_one_extra_request() {
        let mut requester = AckRequester::default();
        let [rare, frequent] = [15, 4].map(|code| AckRequestRule::of_rate(AckRate::code(code)));
        let mut count_requests = |rule: &AckRequestRule, packets: u32| {
            (0..packets).filter(|_| requester.must_request(rule, Cwnd::packets(256))).count()
        };
        assert_eq!(count_requests(&rare, 16_384), 0);
        assert_eq!(count_requests(&frequent, 17), 2);
    }
}
