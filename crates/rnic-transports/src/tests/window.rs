//! A window for tests of recovery policies: the view that the engine would give them, without an engine.

use rnic_base::{AnyRing, Psn, Seq, SeqRange, Time};
use rnic_policy::{Params, PolicyState, Recovery, RecoveryActions, RecoveryEvent, RecoveryPolicy, WindowView};

/// A window whose packets are numbered from 0, and its recovery policy.
pub(super) struct Window {
    pub(super) policy: RecoveryPolicy,
    pub(super) params: Params,
    state: PolicyState,
    pub(super) una: u64,
    pub(super) next: u64,
    pub(super) sacked: Vec<u64>,
}

pub(super) fn seq(index: u64) -> Seq {
    Seq::start(Psn::new(100)) + index
}

pub(super) fn range(start: u64, end: u64) -> Option<SeqRange> {
    Some(SeqRange::new(seq(start), seq(end)))
}

impl Window {
    /// Creates a window with `next` packets in flight.
    pub(super) fn of<R: Recovery>(next: u64, options: &[(&str, &str)]) -> Self {
        let policy = RecoveryPolicy::of::<R>();
        let mut params = Params::defaults(policy.params);
        for (name, value) in options {
            assert_eq!(params.set(policy.params, name, value), Ok(true));
        }
        Self { policy, params, state: (policy.start)(&params), una: 0, next, sacked: Vec::new() }
    }

    pub(super) fn event(&mut self, event: RecoveryEvent) -> RecoveryActions {
        let mut ring = AnyRing::with_bits(1_024);
        for index in self.sacked.iter().filter(|index| **index > self.una) {
            ring.set((index - self.una) as u32);
        }
        let highest_sacked = ring.last_one().map(|offset| seq(self.una + u64::from(offset)));
        let (una, next) = (seq(self.una), seq(self.next));
        let view =
            WindowView { now: Time::ZERO, una, next, highest_sacked, sacked: Some(&ring), marked: None, sent: 0 };
        (self.policy.on_event)(&mut self.state, &event, &view, &self.params)
    }

    /// Processes a NACK that reports the arrival of packet `sack`.
    pub(super) fn nack(&mut self, sack: u64) -> RecoveryActions {
        self.sacked.push(sack);
        self.event(RecoveryEvent::Nacked { sack: Some(seq(sack)), losses: None, is_new: true, advanced: false })
    }

    pub(super) fn ack_up_to(&mut self, una: u64) -> RecoveryActions {
        let packets = una - self.una;
        self.una = una;
        self.event(RecoveryEvent::Acked { packets, rtt: None })
    }
}
