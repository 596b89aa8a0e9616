//! Contract checks for a recovery policy, on a model window.

use std::collections::BTreeSet;

use rnic_base::{AnyRing, Duration, Psn, RandomStream, RandomStreams, Seq, Time};

use super::{Violation, check_specs, draw_params};
use crate::params::Params;
use crate::program;
use crate::recovery::Placement;
use crate::recovery::{LossCause, LossReport, RecoveryActions, RecoveryEvent, TimerChange, WindowView};
use crate::recovery_policy::RecoveryPolicy;
use crate::state::PolicyState;

/// Width of the model window, in packets.
const WINDOW_PACKETS: u64 = 128;

/// Number of consecutive extensions after which a policy is considered to wait indefinitely. IRN extends once.
const EXTENSIONS_MAX: u32 = 8;

/// Drives `policy` through `steps` random events from `seed`.
///
/// Checks, after every event: equal events give equal actions; a loaded program is not replaced; a program changes
/// nothing when it has said that it ignores acknowledgements; packets it marks are
/// outstanding; timeouts are positive and at most ten seconds; `Extend` is returned only for a timeout, and not
/// indefinitely; a timeout on which the policy acts marks the oldest outstanding packet; when all packets are
/// acknowledged, the policy is no longer recovering. For policies that use transmit times: a loss rule covers only
/// outstanding packets, and no packet sent later than now or later than the latest packet known to have arrived; after
/// a quiet period the policy retransmits exactly one packet; other policies never return such actions.
///
/// # Errors
/// The first violation, with the values that reproduce it.
pub fn check_recovery(policy: &RecoveryPolicy, seed: u64, steps: u64) -> Result<(), Violation> {
    check_specs(policy.name, policy.params)?;
    let streams = RandomStreams::new(seed);
    for use_defaults in [true, false] {
        let mut random = streams.stream(if use_defaults { "kit/defaults" } else { "kit/drawn" });
        let params = policy.words(&draw_params(policy.params, &mut random, use_defaults));
        let mut model = Model::new(policy, params);
        for step in 0..steps {
            let violation = |what| Violation { policy: policy.name, seed, step, what };
            model.step(&mut random).map_err(violation)?;
        }
    }
    Ok(())
}

/// Generates a report of a receiver that counts its losses.
fn draw_losses(random: &mut RandomStream) -> LossReport {
    let causes = [LossCause::OutOfOrder, LossCause::Repaired, LossCause::Misplaced];
    let cause = causes[random.below(causes.len() as u64) as usize];
    LossReport { lost: random.below(8) as u8, overflow: random.below(8) == 0, cause }
}

/// A minimal model of a sender's window, with two copies of the policy's state.
struct Model<'p> {
    policy: &'p RecoveryPolicy,
    params: Params,
    state: PolicyState,
    copy: PolicyState,
    now: Time,
    una: Seq,
    next: Seq,
    sacked: BTreeSet<Seq>,
    rto: Option<Duration>,
    /// See [`RecoveryActions::recovering`].
    recovering: bool,
    extensions: u32,
    probe: Option<Duration>,
    delivered_latest: Time,
}

impl<'p> Model<'p> {
    fn new(policy: &'p RecoveryPolicy, params: Params) -> Self {
        let state = policy.new_state(&params);
        let start = Seq::start(Psn::new(0xff_fff0));
        Self {
            policy,
            params,
            state,
            copy: state,
            now: Time::ZERO,
            una: start,
            next: start,
            sacked: BTreeSet::new(),
            rto: policy.first_timeout(&params),
            recovering: policy.starts_recovering(&params),
            extensions: 0,
            probe: None,
            delivered_latest: Time::ZERO,
        }
    }

    fn step(&mut self, random: &mut RandomStream) -> Result<(), String> {
        self.now += Duration::from_ns(random.between(1, 50_000));
        let outstanding = self.next.since(self.una);
        let capacity = WINDOW_PACKETS - outstanding;
        if self.policy.times_packets && outstanding > 0 && random.below(3) == 0 {
            return if random.below(8) == 0 { self.stop_acknowledging() } else { self.deliver_one(random) };
        }
        if self.policy.program.is_some() && random.below(6) == 0 {
            return self.notify_program(random);
        }
        match random.below(10) {
            0..4 => {
                self.next += random.below(capacity.min(20) + 1);
                Ok(())
            }
            _ if outstanding == 0 => Ok(()),
            4..7 => self.acknowledge(random.between(1, outstanding), random),
            7..9 => self.nack(random),
            _ => self.time_out(random),
        }
    }

    /// Delivers an event that only programs receive.
    fn notify_program(&mut self, random: &mut RandomStream) -> Result<(), String> {
        let above = self.next.since(self.una).saturating_sub(1);
        let event = match random.below(3) {
            0 => RecoveryEvent::Congested,
            1 if self.policy.placement == Placement::PlaceOutOfOrder && above > 0 => {
                let seq = self.una + random.between(1, above);
                if !self.sacked.insert(seq) {
                    return Ok(());
                }
                RecoveryEvent::Arrived { seq }
            }
            _ => RecoveryEvent::Tick,
        };
        self.deliver(event).map(drop)
    }

    fn acknowledge(&mut self, count: u64, random: &mut RandomStream) -> Result<(), String> {
        // A receiver that kept out-of-order packets acknowledges past them as soon as the gap before them is filled.
        let mut una = self.una + count;
        while self.sacked.contains(&una) {
            una += 1;
        }
        let packets = una.since(self.una);
        self.una = una;
        self.sacked.retain(|seq| *seq > una);
        let rtt = (random.below(3) == 0).then(|| Duration::from_ns(random.between(1, 1_000_000)));
        self.extensions = 0;
        let actions = self.deliver(RecoveryEvent::Acked { packets, rtt })?;
        if self.una == self.next && actions.recovering && self.policy.program.is_none() {
            return Err("the policy is still in recovery although no packet is outstanding".to_owned());
        }
        Ok(())
    }

    fn nack(&mut self, random: &mut RandomStream) -> Result<(), String> {
        let packets_above = self.next.since(self.una) - 1;
        if self.policy.placement == Placement::PlaceOutOfOrder && random.below(4) == 0 {
            // The receiver has the packets that it has reported, so it reports none of them as trimmed.
            let seq = self.una + random.between(0, packets_above);
            let is_missing = !self.sacked.contains(&seq);
            return if is_missing { self.deliver(RecoveryEvent::Trimmed { seq }).map(|_| ()) } else { Ok(()) };
        }
        let keeps_out_of_order = match self.policy.placement {
            Placement::Drop => false,
            Placement::PlaceOutOfOrder => true,
            Placement::PlaceWrites => random.below(2) == 0,
        };
        let sack = (keeps_out_of_order && packets_above > 0).then(|| self.una + random.between(1, packets_above));
        let is_new = sack.is_some_and(|sack| self.sacked.insert(sack));
        let losses = (keeps_out_of_order && random.below(2) == 0).then(|| draw_losses(random));
        self.deliver(RecoveryEvent::Nacked { sack, losses, is_new, advanced: random.below(4) == 0 }).map(|_| ())
    }

    /// Delivers a packet that was sent recently; acknowledgements may be reordered.
    fn deliver_one(&mut self, random: &mut RandomStream) -> Result<(), String> {
        let rtt = Duration::from_ns(random.between(1, 100_000).min(self.now.as_ps() / 1_000));
        let sent = Time::from_ps(self.now.as_ps() - rtt.as_ps());
        self.delivered_latest = self.delivered_latest.max(sent);
        self.deliver(RecoveryEvent::Delivered { sent, rtt: (random.below(4) != 0).then_some(rtt) }).map(|_| ())
    }

    fn stop_acknowledging(&mut self) -> Result<(), String> {
        if self.probe.is_none() {
            return Ok(());
        }
        match self.deliver(RecoveryEvent::Quiet)?.retransmit {
            Some(range) if range.len() == 1 => Ok(()),
            other => Err(format!(
                "when the probe timer expires, the policy must retransmit one packet, but it returns {other:?}"
            )),
        }
    }

    fn time_out(&mut self, random: &mut RandomStream) -> Result<(), String> {
        while self.rto.is_some() {
            let una = self.una;
            let actions = self.deliver(RecoveryEvent::TimedOut { extended: self.extensions > 0 })?;
            let TimerChange::Extend(by) = actions.timer else {
                self.extensions = 0;
                return match actions.retransmit {
                    Some(range) if range.contains(una) => Ok(()),
                    other => Err(format!(
                        "after a timeout, the policy marks {other:?} for retransmission, which does not contain the \
                         oldest packet {una}"
                    )),
                };
            };
            self.extensions += 1;
            if by == Duration::ZERO || self.extensions > EXTENSIONS_MAX {
                return Err(format!(
                    "the policy extends its timer by {by}, {} times in succession; at most {EXTENSIONS_MAX} are \
                     allowed, by more than 0",
                    self.extensions
                ));
            }
            self.now += by;
            // In most cases no acknowledgement arrives in the meantime, as is usual when a timeout expires.
            if random.below(8) == 0 {
                break;
            }
        }
        Ok(())
    }

    fn deliver(&mut self, event: RecoveryEvent) -> Result<RecoveryActions, String> {
        let mut ring = AnyRing::with_bits(WINDOW_PACKETS as u32);
        for seq in &self.sacked {
            ring.set(seq.since(self.una) as u32);
        }
        let view = WindowView {
            now: self.now,
            una: self.una,
            next: self.next,
            highest_sacked: self.sacked.last().copied(),
            sacked: (self.policy.placement == Placement::PlaceOutOfOrder).then_some(&ring),
            marked: None,
            sent: self.next.get(),
        };
        let before = (self.state, self.rto);
        let actions = self.policy.answer(&mut self.state, &event, &view, &self.params);
        let again = self.policy.answer(&mut self.copy, &event, &view, &self.params);
        if actions != again || self.state != self.copy {
            return Err(format!("two identical calls for {event:?} had different results, {actions:?} and {again:?}"));
        }
        if actions.replaced {
            let breach = self.policy.program.and_then(|program| program.breach(before.0, &event, &view, &self.params));
            let breach =
                breach.map_or_else(|| "an answer outside the contract".to_owned(), |breach| breach.to_string());
            return Err(format!("{}: {breach}", program::inputs_of(&event)));
        }
        if let Some(range) = actions.retransmit
            && (range.is_empty() || range.start < self.una || range.end > self.next)
        {
            return Err(format!(
                "{event:?}: the policy marks {range:?} for retransmission, which is empty or outside the outstanding \
                 range {:?}",
                view.outstanding()
            ));
        }
        if let Some(rto) = actions.rto {
            self.rto = rto;
        }
        let is_ignored = matches!(event, RecoveryEvent::Acked { .. }) && !self.recovering;
        let changes = (self.state, self.rto) != before
            || (actions.retransmit, actions.rate, actions.tick_after) != (None, None, None)
            || actions.timer != TimerChange::Restart;
        if self.policy.program.is_some() && is_ignored && changes {
            return Err(format!("{event:?}: the program should ignore it, but answers {actions:?}"));
        }
        self.recovering = actions.recovering;
        self.check_time_actions(&event, &actions, &view)?;
        if self.rto.is_some_and(|rto| rto == Duration::ZERO || rto > Duration::from_secs(10)) {
            return Err(format!(
                "{event:?}: the policy sets a timeout of {:?}; allowed are times above 0, up to 10s",
                self.rto
            ));
        }
        if matches!(actions.timer, TimerChange::Extend(_)) && !matches!(event, RecoveryEvent::TimedOut { .. }) {
            return Err(format!(
                "{event:?}: the policy returns {:?}, but only a timeout event may extend the timer",
                actions.timer
            ));
        }
        Ok(actions)
    }

    /// Checks the actions that refer to packets by their transmit times.
    fn check_time_actions(
        &mut self,
        event: &RecoveryEvent,
        actions: &RecoveryActions,
        view: &WindowView<'_>,
    ) -> Result<(), String> {
        if !self.policy.times_packets && (actions.lost.is_some() || actions.probe.is_some()) {
            return Err(format!(
                "{event:?}: the policy returns a loss rule or a probe, but does not declare that it uses transmit \
                 times"
            ));
        }
        if let Some(rule) = actions.lost {
            let outside = !rule.range.is_empty() && (rule.range.start < view.una || rule.range.end > view.next);
            if outside || rule.sent_until > self.now || rule.sent_until > self.delivered_latest {
                return Err(format!(
                    "{event:?}: the loss rule {rule:?} covers packets that are not outstanding, or were sent after \
                     the latest delivered packet"
                ));
            }
            if rule.age > Duration::from_secs(20) {
                return Err(format!("{event:?}: the age of the loss rule {rule:?} exceeds the maximum of 20s"));
            }
        }
        if let Some(probe) = actions.probe {
            self.probe = probe;
        }
        if self.probe.is_some_and(|after| after == Duration::ZERO || after > Duration::from_secs(40)) {
            return Err(format!(
                "{event:?}: the policy requests a probe after {:?}; allowed are times above 0, up to 40s",
                self.probe
            ));
        }
        Ok(())
    }
}
