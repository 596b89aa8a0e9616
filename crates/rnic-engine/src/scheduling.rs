//! Scheduling of one queue pair: the policy that decides, and what it has decided.
//!
//! A policy ([`rnic_policy::Schedule`]) sets the length of a queue pair's turn and its dequeue rate. Policies that
//! process events receive them from here, with the totals of the [`Ledger`](crate::ledger::Ledger). Requests and
//! responses to the peer's Reads are scheduled alike, as the limit applies to whichever side sends the payload (SCR
//! mechanism S-22). One scheduling state serves all protocols of a queue pair.

use rnic_base::{BitRate, Time};
use rnic_policy::{PolicyState, SHARE_ONE, ScheduleActions, ScheduleEvent, ScheduleView, Served, TURN_PACKETS_MAX};
use rnic_scr::{Dispatch, Kind, Signal};

use crate::core::Core;
use crate::ledger::Share;
use crate::limiter::{Limiter, OVERHEAD_BYTES, RATE_LIMIT_MIN};
use crate::processors::Processed;
use crate::processors::record::event_of;
use crate::ready::Half;
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::verbs::head::Head;

/// The scheduling state of a queue pair, and its dequeue rate.
#[derive(Default, Debug)]
pub(crate) struct Scheduling {
    /// State of the policy; `None` when the policy has not been started, or has no effect.
    state: Option<PolicyState>,
    /// Dequeue rate, set by the policy and by users.
    pub(crate) limiter: Limiter,
    limits: TurnLimits,
    /// Current scheduling turn of each half (requester and responder).
    turns: [Turn; 2],
    tick: Deadline,
    /// True when the queue pair has had to wait for the policy's rate since the last event.
    was_held: bool,
    /// True when the packet that is being sent is a retransmission.
    is_retransmission: bool,
    share: Share,
    /// Rate that congestion control permits.
    control_rate: Option<BitRate>,
    /// Number of the queue pair's flow, if the policy runs on processors.
    flow: Option<u32>,
    /// Rates that are not installed yet.
    decided: Decided,
}

/// Rates that a policy on processors has decided, in order of their installation.
#[derive(Clone, Copy, Default, Debug)]
struct Decided {
    rates: [(Deadline, Option<BitRate>); DECIDED_MAX],
    len: usize,
}

/// Maximum number of decided rates that wait to be applied. Beyond it the last one is replaced, as it would be in force
/// for the shortest time.
const DECIDED_MAX: usize = 4;

impl Decided {
    fn push(&mut self, at: Deadline, rate: Option<BitRate>) {
        let index = self.len.min(DECIDED_MAX - 1);
        self.rates[index] = (at, rate);
        self.len = index + 1;
    }

    fn pop_due(&mut self, now: Time) -> Option<Option<BitRate>> {
        let (at, rate) = self.rates[0];
        if self.len == 0 || !at.is_due(now) {
            return None;
        }
        self.rates.rotate_left(1);
        self.len -= 1;
        Some(rate)
    }

    fn next(&self) -> Deadline {
        if self.len == 0 { Deadline::NEVER } else { self.rates[0].0 }
    }
}

/// Limits of what a queue pair may send in one scheduling turn.
#[derive(Clone, Copy, Debug)]
struct TurnLimits {
    packets: u16,
    bytes: Option<u32>,
    messages: Option<u32>,
}

/// Amount that a queue pair has sent in its current scheduling turn.
#[derive(Clone, Copy, Default, Debug)]
struct Turn {
    packets: u16,
    bytes: u32,
    messages: u32,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self { packets: 1, bytes: None, messages: None }
    }
}

impl TurnLimits {
    /// Counts a packet that is sent in scheduling turn `turn`; returns whether the turn is over.
    fn count(&self, turn: &mut Turn, payload_len: u32, ends_message: bool) -> bool {
        turn.packets = turn.packets.saturating_add(1);
        turn.bytes = turn.bytes.saturating_add(payload_len);
        turn.messages += u32::from(ends_message);
        turn.packets >= self.packets
            || self.bytes.is_some_and(|max| turn.bytes >= max)
            || self.messages.is_some_and(|max| turn.messages >= max)
    }
}

/// First decisions of a policy for a queue pair.
pub(crate) struct Started {
    state: PolicyState,
    actions: ScheduleActions,
}

impl Started {
    /// Starts the policy of the queue pair's transport.
    pub(crate) fn new(head: &Head, core: &Core) -> Self {
        let schedule = &head.transport.profile.schedule;
        let view = core.ledger.view(core.now, &Share::default(), head.weight);
        let (state, actions) = (schedule.policy.start)(&schedule.params, &view);
        Self { state, actions }
    }

    /// Returns the number of packets that may be sent in a scheduling turn.
    pub(crate) fn turn_packets(&self) -> u16 {
        stored_turn(self.actions.turn_packets).unwrap_or(1)
    }
}

impl Scheduling {
    /// Applies the initial decisions of the policy.
    pub(crate) fn start(&mut self, head: &Head, core: &mut Core, started: &Started) {
        self.state = Some(started.state);
        self.apply(head, core, &started.actions, None);
    }

    /// Returns whether the policy has been started.
    pub(crate) fn is_started(&self) -> bool {
        self.state.is_some()
    }

    /// Returns the number of packets that may be sent in a scheduling turn.
    pub(crate) fn turn_packets(&self) -> u16 {
        self.limits.packets
    }

    /// Records whether the packet that is being sent is a retransmission.
    pub(crate) fn note_retransmission(&mut self, is_retransmission: bool) {
        self.is_retransmission = is_retransmission;
    }

    /// Records the rate permitted by congestion control.
    pub(crate) fn set_control_rate(&mut self, rate: Option<BitRate>) {
        self.control_rate = rate;
    }

    /// Changes the weight of the queue pair.
    pub(crate) fn set_weight(&mut self, core: &mut Core, weight: u16) {
        core.ledger.set_weight(&mut self.share, weight);
    }

    /// Returns the earliest time at which [`Self::on_timeout`] must be called.
    pub(crate) fn next_timeout(&self) -> Deadline {
        self.tick.min(self.share.check_at()).min(self.decided.next())
    }

    /// Returns the time until which the dequeue rate blocks the next packet of `half` (requester or responder), if it
    /// does. Waiting ends the turn of that half: the queue pair is moved to the end of the ring.
    #[inline]
    pub(crate) fn blocked_until(&mut self, core: &Core, half: Half) -> Option<Time> {
        let until = self.limiter.blocked_until(core.now, half)?;
        self.was_held |= self.limiter.is_scheduler_in_force();
        self.turns[half as usize] = Turn::default();
        Some(until)
    }

    /// Returns whether the dequeue rate blocks the next transaction of `half`, and counts the wait.
    pub(crate) fn holds(&mut self, core: &mut Core, half: Half) -> bool {
        let is_blocked = self.blocked_until(core, half).is_some();
        if is_blocked {
            core.count_wait(WaitReason::Dequeue);
        }
        is_blocked
    }

    /// Counts a submitted transaction of `half` against the rate limits, and notifies the policy of the `payload_len`
    /// bytes that this side sends. The limits of users and of the peer count `charged` bytes, in either direction; the
    /// rate of the scheduler, which divides this side's link, counts only the bytes sent.
    pub(crate) fn on_submitted(
        &mut self,
        head: &Head,
        core: &mut Core,
        (charged, payload_len): (u32, u32),
        half: Half,
        has_work: bool,
    ) {
        let charged = if self.limiter.is_scheduler_in_force() { payload_len } else { charged };
        self.limiter.charge(core.now, charged);
        self.on_served(head, core, half, payload_len, true, has_work);
    }

    /// Handles a packet of `half` that has been sent, and counted against the rate limits: counts it in the half's
    /// turn, and notifies the policy. `ends_message` is true for the last packet of a message, `has_work` when the half
    /// has more to send. Returns whether the turn is over.
    pub(crate) fn on_served(
        &mut self,
        head: &Head,
        core: &mut Core,
        half: Half,
        payload_len: u32,
        ends_message: bool,
        has_work: bool,
    ) -> bool {
        self.limiter.note_work(half, has_work);
        let turn = &mut self.turns[half as usize];
        let is_over = self.limits.count(turn, payload_len, ends_message) || !has_work;
        if is_over {
            *turn = Turn::default();
        }
        if head.transport.scheduler_uses_events && self.is_started() {
            self.report_served(head, core, payload_len);
        }
        is_over
    }

    fn report_served(&mut self, head: &Head, core: &mut Core, payload_len: u32) {
        // Packets without payload, such as requests of Reads, do not make a queue pair a member: the data come from
        // the peer, whose scheduler divides the link that they use. Neither do retransmissions: a peer that is silent
        // would get a share for them.
        let is_data = payload_len > 0 && !std::mem::take(&mut self.is_retransmission);
        if is_data && core.ledger.join(&mut self.share, core.now, head.weight) {
            self.on_event(head, core, &ScheduleEvent::Joined);
        }
        if !self.share.is_member() {
            return;
        }
        let bytes = u64::from(payload_len);
        let wire_bytes = bytes + OVERHEAD_BYTES;
        if core.processors.is_some() && self.queue_sent(head, core, wire_bytes) {
            return;
        }
        self.on_event(head, core, &ScheduleEvent::Served(Served { bytes, wire_bytes, packets: 1, last_at: core.now }));
        self.was_held = false;
    }

    /// Queues the record of a packet for the policy, which runs on processors; returns false if it has to run
    /// immediately.
    fn queue_sent(&mut self, head: &Head, core: &mut Core, wire_bytes: u64) -> bool {
        let (Some(state), Some(processors)) = (self.state, &mut core.processors) else { return false };
        let (schedule, is_saturated) = (&head.transport.profile.schedule, self.share.is_saturated());
        self.flow = self.flow.or_else(|| processors.join(head.slot, schedule, state, is_saturated));
        let Some(flow) = self.flow else { return false };
        let is_queued = self.push(head, core, &Signal::new(Kind::Tx, flow, core.now).with_bytes(wire_bytes));
        if !is_queued {
            self.leave_processors(core);
        }
        is_queued
    }

    /// Passes the event `record` to the processors that run schedulers; returns false if they do not accept it.
    fn push(&mut self, head: &Head, core: &mut Core, record: &Signal) -> bool {
        let runs_there = core.processors.as_ref().is_some_and(|processors| processors.run_schedulers());
        let view = runs_there.then(|| self.view(head, core));
        if runs_there {
            self.was_held = false;
        }
        let Some(processors) = &mut core.processors else { return false };
        processors.push(core.now, record, view.as_ref(), &mut core.timers)
    }

    /// Processes the output of a thread that handles scheduling events: runs the scheduler on an event record, or
    /// applies the decision of a scheduler that has run on that thread. Returns the rate that the scheduler has set, in
    /// 2^-20 of the line rate.
    pub(crate) fn on_processed(&mut self, head: &Head, core: &mut Core, processed: &Processed) -> u32 {
        match processed {
            Processed::Record(Dispatch { record, installs_at, .. }) => {
                self.on_event_of(head, core, &event_of(record), Some(*installs_at));
                self.was_held = false;
            }
            // The rate is installed with the next timeout, which is due now, so that a queue pair that waits is woken.
            Processed::Decision(actions) => self.apply(head, core, actions, Some(core.now)),
        }
        let rate = u128::from(self.share.allocated().as_bps());
        (rate * u128::from(SHARE_ONE) / u128::from(core.config.line_rate.as_bps())) as u32
    }

    /// Handles the timeouts that are due: a tick that the scheduler has requested, and the end of the queue pair's
    /// share of the link after inactivity. `is_queued` is true if the queue pair only waits for its turn.
    pub(crate) fn on_timeout(&mut self, head: &Head, core: &mut Core, is_queued: bool) {
        let waits = is_queued || self.limiter.wake_after(core.now).is_set();
        if core.ledger.is_idle(&mut self.share, core.now, waits) {
            self.restart(head, core);
        }
        while let Some(rate) = self.decided.pop_due(core.now) {
            self.install(head, core, rate);
        }
        if self.tick.is_due(core.now) {
            self.tick = Deadline::NEVER;
            self.on_tick(head, core);
        }
    }

    fn on_tick(&mut self, head: &Head, core: &mut Core) {
        let install = core.processors.as_ref().map(|processors| processors.install());
        match (self.flow, install) {
            (Some(flow), Some(None)) => {
                self.push(head, core, &Signal::wake_up(Kind::Tx, flow, core.now));
            }
            (_, install) => {
                let installs_at = install.flatten().map(|install| core.now + install);
                self.on_event_of(head, core, &ScheduleEvent::Tick, installs_at);
            }
        }
    }

    /// Ends the membership of a queue pair that has been idle. With its next data it becomes a new member, with a new
    /// state of the policy; until then its rate is not limited, because its old rate may be far too low.
    fn restart(&mut self, head: &Head, core: &mut Core) {
        self.leave(core);
        self.install(head, core, None);
        let started = Started::new(head, core);
        self.start(head, core, &started);
    }

    /// Removes the queue pair from the ledger, because it has failed, is reset or is restarted.
    pub(crate) fn leave(&mut self, core: &mut Core) {
        core.ledger.leave(&mut self.share);
        self.leave_processors(core);
        (self.tick, self.was_held) = (Deadline::NEVER, false);
    }

    fn leave_processors(&mut self, core: &mut Core) {
        self.decided = Decided::default();
        if let (Some(flow), Some(processors)) = (self.flow.take(), &mut core.processors) {
            processors.forget(flow);
        }
    }

    /// Passes `event` to the policy, whose rate applies at once.
    fn on_event(&mut self, head: &Head, core: &mut Core, event: &ScheduleEvent) {
        self.on_event_of(head, core, event, None);
    }

    /// Passes `event` to the policy, whose rate applies at `installs_at`, or at once.
    fn on_event_of(&mut self, head: &Head, core: &mut Core, event: &ScheduleEvent, installs_at: Option<Time>) {
        let view = self.view(head, core);
        let Some(state) = &mut self.state else { return };
        let schedule = &head.transport.profile.schedule;
        let actions = (schedule.policy.on_event)(state, event, &view, &schedule.params);
        self.apply(head, core, &actions, installs_at);
    }

    /// Returns the view that is passed to the policy.
    fn view(&self, head: &Head, core: &Core) -> ScheduleView {
        let waits = self.limiter.wake_after(core.now).is_set() && self.limiter.is_scheduler_in_force();
        let sums = core.ledger.view(core.now, &self.share, head.weight);
        ScheduleView { is_held: self.was_held || waits, control_rate: self.control_rate, ..sums }
    }

    fn apply(&mut self, head: &Head, core: &mut Core, actions: &ScheduleActions, installs_at: Option<Time>) {
        self.limits = TurnLimits {
            packets: stored_turn(actions.turn_packets).unwrap_or(self.limits.packets),
            bytes: actions.turn_bytes.or(self.limits.bytes),
            messages: actions.turn_messages.or(self.limits.messages),
        };
        if let Some(rate) = actions.dequeue_rate {
            let line_rate = core.config.line_rate;
            let rate = rate.map(|rate| rate.max(RATE_LIMIT_MIN).min(line_rate));
            core.ledger.allot(&mut self.share, Some(rate.unwrap_or(BitRate::ZERO)), None);
            match installs_at {
                Some(at) => self.decided.push(Deadline::at(at), rate),
                None => self.install(head, core, rate),
            }
        }
        core.ledger.allot(&mut self.share, None, actions.is_saturated);
        if actions.restart_all {
            core.ledger.restart_all();
            if let Some(processors) = &mut core.processors {
                processors.restart();
            }
        }
        if let Some(after) = actions.tick_after {
            self.tick = Deadline::after(core.now, after);
        }
    }

    /// Applies a rate set by the policy.
    fn install(&mut self, head: &Head, core: &Core, rate: Option<BitRate>) {
        if self.limiter.set_scheduler(rate) {
            self.limiter.update(core.now, head.mtu(), core.config.burst);
        }
    }
}

/// Converts the number of packets of a scheduling turn to the stored form.
fn stored_turn(packets: Option<u32>) -> Option<u16> {
    packets.map(|packets| packets.clamp(1, TURN_PACKETS_MAX) as u16)
}
