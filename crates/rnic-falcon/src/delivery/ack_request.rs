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
    /// Of 256 packets, so many ask otherwise.
    pub share: u16,
}

impl AckRequestRule {
    /// The reference simulator's: two packets, and one in ten.
    pub const DEFAULT: Self = Self { threshold: Cwnd::packets(2), share: 26 };
    /// Every packet asks.
    pub const ALWAYS: Self = Self { threshold: Cwnd::ONE, share: 256 };

    /// What an adaptive engine asks for: two packets of so many. It has looked at the windows itself.
    pub fn of_rate(rate: AckRate) -> Self {
        Self { threshold: Cwnd::from_fixed(0), share: (512 / rate.packets_per_two()) as u16 }
    }
}

/// Spreads the share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckRequester {
    owed: u16,
}

impl AckRequester {
    /// Whether the next packet asks.
    #[inline]
    pub(crate) fn ask(&mut self, rule: &AckRequestRule, fcwnd: Cwnd) -> bool {
        if fcwnd <= rule.threshold {
            return true;
        }
        self.owed += rule.share.min(256);
        let ask = self.owed >= 256;
        if ask {
            self.owed -= 256;
        }
        ask
    }
}
