//! Congestion control, scheduling and pacing of a connection, if its transport uses any of them.
//!
//! A transport that sends at line rate in turns of one packet has no [`Flow`] at all: the packet path checks one
//! pointer. The actions that policies return also set the connection's timer and the length of its scheduling turn,
//! so they are applied in the state that both halves of a connection share, where those are stored.

use rnic_base::{BitRate, Duration, Seq, Serial, Time};
use rnic_policy::{ControlActions, ControlEvent, ControlView, Cwnd, PolicyState};
use rnic_wire::scr::ProbePath;

use super::ConnShared;
use super::tokens::Tokens;
use crate::core::{Control, ControlPacket, Core};
use crate::limiter::{Limiter, OVERHEAD_BYTES};
use crate::messages::exchange::CONTROL_PATH;
use crate::processors::Processed;
use crate::ready::Half;
use crate::scheduling::{Scheduling, Started};
use crate::state::Service;
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::verbs::head::Head;
use crate::window::SendWindow;

/// The current decisions of the policies of a connection, and the states of these policies.
#[derive(Default, Debug)]
pub(crate) struct Flow {
    /// State of congestion control; `None` when the flow exists for another reason.
    control: Option<PolicyState>,
    window: Option<Cwnd>,
    /// Rate set by congestion control.
    rate: Option<BitRate>,
    /// Earliest time at which congestion control's rate permits the next packet.
    next_send: Time,
    tick: Deadline,
    /// Scheduler, and the dequeue rate that it and users set.
    scheduling: Scheduling,
    /// Time at which the last CNP was sent.
    last_cnp: Option<Time>,
    /// True when the next acknowledgement (other than one built immediately) must carry the congestion echo.
    echo_pending: bool,
    /// Number of responses in flight in a separate space, which count towards the packets in flight.
    served: u64,
    /// Grants of the receiver and to the peer, where receivers pull.
    tokens: Option<Box<Tokens>>,
}

impl Flow {
    /// Applies the rate that a transport program has set, if one is used.
    fn set_program_rate(&mut self, head: &Head, rate: Option<BitRate>) {
        if head.transport.profile.recovery.policy.program.is_some() && self.rate != rate {
            self.rate = rate;
            self.scheduling.set_control_rate(rate);
        }
    }
}

impl ConnShared {
    /// Returns the input of a congestion controller: `in_flight` requests, and the responses in flight in a separate
    /// space.
    fn control_view(&self, head: &Head, core: &Core, in_flight: u64) -> ControlView {
        let in_flight = in_flight + self.flow.as_ref().map_or(0, |flow| flow.served);
        ControlView { now: core.now, line_rate: core.config.line_rate, mtu: head.mtu(), in_flight }
    }

    /// Starts the policies, and stores their states if the policies have any effect.
    pub(crate) fn start(&mut self, head: &Head, core: &mut Core, in_flight: u64) {
        self.leave_ledger(core);
        let started = Started::new(head, core);
        self.turn_packets = started.turn_packets();
        self.turn_left = self.turn_packets;
        let before = self.flow.take().map(|flow| (flow.scheduling.limiter.without_scheduler(), flow.tokens));
        let (limiter, tokens) = before.unwrap_or_default();
        self.set_limiter(head, core, limiter);
        if tokens.is_some() {
            self.flow.get_or_insert_default().tokens = tokens;
        }
        let needs_state = head.transport.scheduler_needs_state;
        // Without acknowledgements there are no events for congestion control.
        if head.transport.service == Service::ReliableConnection {
            let control = head.transport.profile.control;
            let view = self.control_view(head, core, in_flight);
            let (state, actions) = (control.policy.start)(&control.params, &view);
            if control.policy.state_bytes > 0 || actions != ControlActions::default() || needs_state {
                self.flow.get_or_insert_default().control = Some(state);
                self.apply_control(head, core, &actions);
            }
        }
        if needs_state || head.transport.program.paces {
            self.flow.get_or_insert_default().set_program_rate(head, head.transport.program.rate);
        }
        if needs_state || self.flow.as_ref().is_some_and(|flow| flow.control.is_some()) {
            self.with_scheduling(head, core, |scheduling, core| scheduling.start(head, core, &started));
        }
    }

    /// Passes `event` to congestion control.
    #[inline(never)]
    pub(crate) fn on_event(&mut self, head: &Head, core: &mut Core, in_flight: u64, event: &ControlEvent) {
        let view = self.control_view(head, core, in_flight);
        let Some(state) = self.flow.as_mut().and_then(|flow| flow.control.as_mut()) else { return };
        let control = &head.transport.profile.control;
        let actions = (control.policy.on_event)(state, event, &view, &control.params);
        self.apply_control(head, core, &actions);
    }

    /// Notifies congestion control that the current packet has acknowledged `packets` of one space.
    #[inline(never)]
    pub(crate) fn on_acked(
        &mut self,
        head: &Head,
        core: &mut Core,
        in_flight: u64,
        packets: u64,
        rtt: Option<Duration>,
    ) {
        if head.transport.control_interest.acked {
            let marked = if core.ack_echoes_mark { packets } else { 0 };
            self.on_event(head, core, in_flight, &ControlEvent::Acked { packets, rtt, marked });
        }
    }

    /// Passes the round-trip time of a selectively acknowledged packet, if it was measured, and the acknowledgement to
    /// congestion control.
    pub(crate) fn on_out_of_order(&mut self, head: &Head, core: &mut Core, in_flight: u64, rtt: Option<Duration>) {
        if rtt.is_some() {
            self.on_acked(head, core, in_flight, 0, rtt);
        }
    }

    fn apply_control(&mut self, head: &Head, core: &mut Core, actions: &ControlActions) {
        let Some(flow) = &mut self.flow else { return };
        flow.window = actions.window.or(flow.window);
        if let Some(rate) = actions.rate {
            flow.rate = Some(rate);
            flow.scheduling.set_control_rate(flow.rate);
        }
        if let Some(after) = actions.tick_after {
            flow.tick = Deadline::after(core.now, after);
            core.timers.arm(head.slot, flow.tick, &mut self.armed_deadline);
        }
        if let Some((timeout, exchange)) = actions.probe.zip(core.exchange.as_mut()) {
            exchange.ask(head.number, ProbePath { index: CONTROL_PATH, label: head.label.0 }, timeout, core.now);
        }
    }

    /// Applies the rate of `window`'s transport program, if one is used, and counts it if it has been replaced.
    pub(crate) fn follow_program(&mut self, head: &Head, core: &mut Core, window: &mut SendWindow) {
        core.stats.programs_replaced += window.take_replaced();
        if let Some(flow) = &mut self.flow {
            flow.set_program_rate(head, window.program_rate());
        }
    }

    /// Returns the rate of congestion control.
    pub(crate) fn control_rate(&self) -> Option<BitRate> {
        self.flow.as_ref()?.rate
    }

    /// Calls `work` with the scheduler, and applies the turn length and the timeout that the scheduler requests.
    fn with_scheduling<T: Default>(
        &mut self,
        head: &Head,
        core: &mut Core,
        work: impl FnOnce(&mut Scheduling, &mut Core) -> T,
    ) -> T {
        let Some(flow) = &mut self.flow else { return T::default() };
        let result = work(&mut flow.scheduling, core);
        if flow.scheduling.is_started() {
            self.turn_packets = flow.scheduling.turn_packets();
            core.timers.arm(head.slot, flow.scheduling.next_timeout(), &mut self.armed_deadline);
        }
        result
    }

    /// Counts a request packet that has been sent, ends the scheduling turn when a limit of bytes or messages is
    /// reached, and notifies the scheduler. `ends_message` is true if it was the last packet of a message.
    #[inline(never)]
    pub(crate) fn on_request_served(&mut self, head: &Head, core: &mut Core, ends_message: bool, has_work: bool) {
        if self.on_served(head, core, Half::Requester, ends_message, has_work) {
            self.turn_left = 1;
        }
    }

    /// Counts a packet of `half` (requester or responder) that has been sent, and notifies the scheduler. Returns
    /// whether the scheduling turn is over.
    #[inline(never)]
    pub(crate) fn on_served(
        &mut self,
        head: &Head,
        core: &mut Core,
        half: Half,
        ends_message: bool,
        has_work: bool,
    ) -> bool {
        let payload_len = core.out.packet.payload_len;
        self.with_scheduling(head, core, |scheduling, core| {
            scheduling.on_served(head, core, half, payload_len, ends_message, has_work)
        })
    }

    /// See [`crate::qp::Qp::on_processed`].
    pub(crate) fn on_processed(&mut self, head: &Head, core: &mut Core, processed: &Processed) -> u32 {
        self.with_scheduling(head, core, |scheduling, core| scheduling.on_processed(head, core, processed))
    }

    /// Removes the queue pair from the totals over the queue pairs that share the link.
    pub(crate) fn leave_ledger(&mut self, core: &mut Core) {
        if let Some(flow) = &mut self.flow {
            flow.scheduling.leave(core);
        }
    }

    /// Applies a change of the weight of the queue pair.
    pub(crate) fn set_weight(&mut self, head: &Head, core: &mut Core) {
        self.with_scheduling(head, core, |scheduling, core| scheduling.set_weight(core, head.weight));
    }

    /// Calls each policy whose requested tick is due.
    pub(crate) fn tick(&mut self, head: &Head, core: &mut Core, in_flight: u64) {
        let Some(flow) = &mut self.flow else { return };
        if let Some(tokens) = flow.tokens.as_mut().filter(|tokens| tokens.deadline.is_due(core.now)) {
            tokens.deadline = Deadline::NEVER;
            tokens.ensure(1);
            core.stats.probes += 1;
        }
        if flow.tick.is_due(core.now) {
            flow.tick = Deadline::NEVER;
            self.on_event(head, core, in_flight, &ControlEvent::Tick);
        }
        let is_queued = self.can_send_in_turn(head, core);
        self.with_scheduling(head, core, |scheduling, core| scheduling.on_timeout(head, core, is_queued));
    }

    /// Returns whether the queue pair only waits for its turn, and not for credit at its peer.
    fn can_send_in_turn(&self, head: &Head, core: &Core) -> bool {
        let has_credit = || {
            // A datagram has a destination of its own.
            head.transport.service == Service::UnreliableDatagram || core.peers.available(head.peer()) > 0
        };
        (self.requests_queued || self.responses_queued) && has_credit()
    }

    /// Returns the congestion window that the controller has set; `None` if it sets none.
    #[inline]
    pub(crate) fn window(&self) -> Option<Cwnd> {
        self.flow.as_ref().and_then(|flow| flow.window)
    }

    /// Returns the earliest time at which a policy has requested a tick.
    pub(crate) fn next_tick(&self) -> Deadline {
        self.flow.as_ref().map_or(Deadline::NEVER, |flow| {
            let next = flow.tick.min(flow.scheduling.next_timeout());
            flow.tokens.as_ref().map_or(next, |tokens| next.min(tokens.deadline))
        })
    }

    /// Records that `served` responses are in flight in a separate space.
    #[inline]
    pub(crate) fn note_served(&mut self, served: u64) {
        if let Some(flow) = &mut self.flow {
            flow.served = served;
        }
    }

    /// Returns whether the dequeue rate blocks the next packet of `half`. In that case the wait is counted, and the
    /// queue pair is woken at its end.
    #[inline]
    pub(crate) fn waits_for_dequeue_rate(&mut self, head: &Head, core: &mut Core, half: Half) -> bool {
        let Some(flow) = &mut self.flow else { return false };
        let blocked_until = flow.scheduling.blocked_until(core, half);
        if blocked_until.is_some() {
            self.turn_left = self.turn_packets;
        }
        self.wait_until(head, core, blocked_until, WaitReason::Dequeue)
    }

    /// Does the same as [`Self::waits_for_dequeue_rate`] for the grants of the receiver and for the rate of congestion
    /// control; `in_flight` requests are in flight.
    #[inline]
    pub(crate) fn waits_for_pacing(&mut self, head: &Head, core: &mut Core, in_flight: u64) -> bool {
        let Some(flow) = &self.flow else { return false };
        if flow.tokens.is_some() && self.waits_for_tokens(head, core, in_flight) {
            return true;
        }
        let next_send = self.flow.as_ref().map(|flow| flow.next_send).filter(|at| *at > core.now);
        self.wait_until(head, core, next_send, WaitReason::Rate)
    }

    /// Returns whether the receiver has granted no further packet. If nothing is in flight, so that no timeout is
    /// running, one packet is allowed after the time of a timeout.
    #[cold]
    fn waits_for_tokens(&mut self, head: &Head, core: &mut Core, in_flight: u64) -> bool {
        let Some(flow) = &mut self.flow else { return false };
        let is_idle = in_flight + flow.served == 0;
        let Some(tokens) = &mut flow.tokens else { return false };
        if tokens.available() > 0 {
            return false;
        }
        core.count_wait(WaitReason::Tokens);
        if is_idle {
            let deadline = tokens.wait(core.now, head.transport.pull_timeout);
            core.timers.arm(head.slot, deadline, &mut self.armed_deadline);
        }
        true
    }

    fn tokens(&mut self) -> Option<&mut Tokens> {
        self.flow.as_mut()?.tokens.as_deref_mut()
    }

    /// Starts counting grants, if receivers pull.
    pub(crate) fn start_tokens(&mut self, head: &Head) {
        if head.transport.pulls > 0 {
            self.flow.get_or_insert_default().tokens = Some(Box::new(Tokens::new(head.transport.pulls)));
        }
    }

    /// Counts a received packet of the peer, for which a grant has to be sent.
    pub(crate) fn earn_pull(&mut self, head: &Head, core: &mut Core) {
        let most = head.transport.in_flight_max;
        if self.tokens().is_some_and(|tokens| tokens.earn(most)) {
            core.pulls.push(head.slot, core.now);
        }
    }

    /// Returns the number of grants to send to the peer; `None` if there are none, or the queue pair no longer
    /// receives.
    pub(crate) fn owed_pulls(&mut self, head: &Head) -> Option<u32> {
        let tokens = self.tokens()?;
        tokens.leave_queue();
        Some(tokens.owed()).filter(|owed| *owed > 0 && head.state.receives())
    }

    /// Sends `count` grants; returns the count to be written into the pull.
    pub(crate) fn grant_pulls(&mut self, head: &Head, core: &mut Core, count: u32) -> Serial<24> {
        let Some(tokens) = self.tokens() else { return Serial::new(0) };
        let (granted, owes_more) = tokens.grant(count);
        if owes_more {
            core.pulls.push(head.slot, core.now);
        }
        granted
    }

    /// Processes a pull; returns whether it grants anything. `in_flight` requests are in flight.
    pub(crate) fn on_pull(&mut self, in_flight: u64, granted: Serial<24>) -> bool {
        let is_idle = in_flight + self.flow.as_ref().map_or(0, |flow| flow.served) == 0;
        let Some(tokens) = self.tokens() else { return false };
        let is_new = tokens.on_pull(granted);
        if is_idle {
            tokens.on_idle();
        }
        is_new
    }

    /// Allows the `marked` packets that a timeout has marked to be sent without grants.
    #[inline]
    pub(crate) fn grant_for_timeout(&mut self, head: &Head, marked: u64) {
        if let Some(tokens) = self.tokens() {
            tokens.on_timeout(marked, head.transport.in_flight_max);
        }
    }

    /// Allows the packets of a probe to be sent without grants.
    #[inline]
    pub(crate) fn grant_for_probe(&mut self) {
        if let Some(tokens) = self.tokens() {
            tokens.ensure(PROBE_PACKETS);
        }
    }

    #[inline]
    fn wait_until(&mut self, head: &Head, core: &mut Core, until: Option<Time>, reason: WaitReason) -> bool {
        let Some(until) = until else { return false };
        core.count_wait(reason);
        core.timers.arm(head.slot, Deadline::at(until), &mut self.armed_deadline);
        true
    }

    /// Returns the time until which the dequeue rate is known to block the next packet.
    pub(crate) fn rate_blocks_until(&self, now: Time) -> Deadline {
        self.flow.as_ref().map_or(Deadline::NEVER, |flow| flow.scheduling.limiter.wake_after(now))
    }

    /// Returns whether the dequeue rate blocks the queue pair after the next packet, if it is a full one: the peer
    /// should then acknowledge it, because a timeout must not depend on this wait.
    #[inline]
    pub(crate) fn pauses_after_next(&self, head: &Head, core: &Core) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.scheduling.limiter.blocks_after(core.now, head.mtu()))
    }

    /// Replaces the limits of the dequeue rate.
    pub(crate) fn set_limiter(&mut self, head: &Head, core: &Core, mut limiter: Limiter) {
        limiter.update(core.now, head.mtu(), core.config.burst);
        if limiter.rate().is_some() || self.flow.is_some() {
            self.flow.get_or_insert_default().scheduling.limiter = limiter;
        }
    }

    /// Returns the limits of the dequeue rate, if it has ever been limited.
    pub(crate) fn limiter(&self) -> Option<&Limiter> {
        self.flow.as_ref().map(|flow| &flow.scheduling.limiter)
    }

    /// Handles a packet that is sent: sets the time of the next one from the current rate, and notifies the controller
    /// if it counts sent packets.
    #[inline(never)]
    pub(crate) fn on_sent(&mut self, head: &Head, core: &mut Core, in_flight: u64, is_retransmission: bool) {
        let payload_len = core.out.packet.payload_len;
        if head.transport.control_interest.sent {
            self.on_event(head, core, in_flight, &ControlEvent::Sent { bytes: u64::from(payload_len) });
        }
        let Some(flow) = &mut self.flow else { return };
        if let Some(tokens) = &mut flow.tokens {
            tokens.charge();
        }
        flow.scheduling.limiter.charge(core.now, payload_len);
        flow.scheduling.note_retransmission(is_retransmission);
        if let Some(rate) = flow.rate {
            let gap = rate.serialize(u64::from(payload_len) + OVERHEAD_BYTES);
            flow.next_send = core.now.max(flow.next_send) + gap;
        }
    }

    /// Returns whether congestion marks must be processed although there is no [`Flow`] yet.
    pub(crate) fn needs_flow_for_marks(&self, head: &Head) -> bool {
        let interest = head.transport.control_interest;
        let is_program = head.transport.profile.recovery.policy.program.is_some();
        self.flow.as_ref().is_none_or(|flow| flow.control.is_none() && !is_program)
            && (interest.cnp_interval.is_some() || interest.echo)
    }

    /// Returns whether the scheduler must be started before the next response is sent.
    pub(crate) fn needs_flow_for_turns(&self, head: &Head) -> bool {
        head.transport.scheduler_needs_state && self.flow.as_ref().is_none_or(|flow| !flow.scheduling.is_started())
    }

    /// Handles a packet of the peer that met congestion: notifies the peer, if the transport does so, by a separate
    /// CNP, whose rate is limited, or in the acknowledgement of the packet. Returns whether the echo belongs in an
    /// acknowledgement that is built now.
    pub(crate) fn on_mark(&mut self, head: &Head, core: &mut Core) -> bool {
        core.stats.marks_received += 1;
        let interest = head.transport.control_interest;
        if interest.cnp_interval.is_none() && !interest.echo {
            return false;
        }
        let Some(flow) = &mut self.flow else { return false };
        if let Some(interval) = interest.cnp_interval
            && flow.last_cnp.is_none_or(|last| core.now.since(last) >= interval)
        {
            flow.last_cnp = Some(core.now);
            let (slot, from) = (head.slot, head.number);
            let control = ControlPacket { slot, from, expected: Seq::UNSET, msn: 0, content: Control::Cnp };
            core.stats.cnps_sent += u64::from(core.push_control(control));
        }
        if interest.echo && !head.transport.acks_every_packet {
            self.set_echo_pending(true);
        }
        interest.echo && head.transport.acks_every_packet
    }

    /// Records, if `echo` is set, that an acknowledgement sent later must carry the congestion echo.
    pub(crate) fn set_echo_pending(&mut self, echo: bool) {
        if let Some(flow) = self.flow.as_mut().filter(|_| echo) {
            flow.echo_pending = true;
        }
    }

    /// Returns whether the acknowledgement that is sent now carries the congestion echo, and clears that state.
    pub(crate) fn take_pending_echo(&mut self) -> bool {
        self.flow.as_mut().is_some_and(|flow| std::mem::take(&mut flow.echo_pending))
    }

    /// Returns whether the congestion window blocks packet `seq` of `window`, which is to be retransmitted. The oldest
    /// packet is always permitted, because the window can open only when that packet is acknowledged (RFC 6675, section
    /// 5, step 4.3).
    pub(crate) fn blocks_retransmission(&self, window: &SendWindow, seq: Seq) -> bool {
        let limit = self.window();
        let is_window_full = |limit: Cwnd| window.pipe() >= limit.whole_packets();
        seq != window.una && (limit.is_some_and(is_window_full) || window.blocks_retransmission(seq))
    }

    /// Handles the peer's report that packets of this sender met congestion.
    pub(crate) fn on_cnp(&mut self, head: &Head, core: &mut Core, in_flight: u64) {
        core.stats.cnps_received += 1;
        self.on_event(head, core, in_flight, &ControlEvent::Cnp);
    }
}

/// Number of packets of a probe: the oldest one in flight and the last one.
const PROBE_PACKETS: u64 = 2;
