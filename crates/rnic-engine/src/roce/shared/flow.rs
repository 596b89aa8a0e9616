//! Congestion control, scheduling and pacing of a connection, when its transport has any.
//!
//! A transport that sends at line rate in turns of one packet has no [`Flow`] at all: the packet path asks one pointer.
//! The policies' answers also set the connection's timer and the length of its turn, so they are carried out where
//! those lie, in what both halves of a connection share.

use rnic_base::{BitRate, Duration, Seq, Time};
use rnic_policy::{
    ControlActions, ControlEvent, ControlView, Cwnd, PolicyState, ScheduleActions, ScheduleEvent, ScheduleView,
};

use super::ConnShared;
use crate::core::{Control, ControlPacket, Core};
use crate::state::Service;
use crate::timer::Deadline;
use crate::verbs::head::Head;
use crate::window::SendWindow;

/// The decisions in force, and the states of the policies that make them.
#[derive(Debug)]
pub(crate) struct Flow {
    control: PolicyState,
    schedule: PolicyState,
    window: Option<Cwnd>,
    /// Congestion control's rate.
    rate: Option<BitRate>,
    /// The scheduler's rate.
    dequeue_rate: Option<BitRate>,
    /// No packet leaves before.
    next_send: Time,
    tick: Deadline,
    schedule_tick: Deadline,
    /// Counted among the queue pairs that have work.
    active: bool,
    /// When the last CNP was sent.
    last_cnp: Option<Time>,
    /// The next acknowledgement that is not made at once speaks of congestion.
    owes_echo: bool,
    /// Responses in flight in a space of their own, which count with the requests.
    served: u64,
}

impl ConnShared {
    /// Returns what a controller sees: `in_flight` requests, and responses that have numbers of their own.
    fn control_view(&self, head: &Head, core: &Core, in_flight: u64) -> ControlView {
        let in_flight = in_flight + self.flow.as_ref().map_or(0, |flow| flow.served);
        ControlView { now: core.now, line_rate: core.config.line_rate, mtu: head.mtu(), in_flight }
    }

    /// Starts the policies, and keeps their states if they have any say.
    pub(crate) fn start(&mut self, head: &Head, core: &mut Core, in_flight: u64) {
        let control = head.transport.profile.control;
        let schedule = head.transport.profile.schedule;
        let (control_state, actions) =
            (control.policy.start)(&control.params, &self.control_view(head, core, in_flight));
        let view = ScheduleView { now: core.now, line_rate: core.config.line_rate, active: core.active };
        let (schedule_state, schedule_actions) = (schedule.policy.start)(&schedule.params, &view);
        self.turn_packets = turn(schedule_actions.turn_packets).unwrap_or(1);
        self.turn_left = self.turn_packets;
        // Without acknowledgements there is nothing to on_event by.
        let unreliable = head.transport.service != Service::ReliableConnection;
        let inert = control.policy.state_bytes == 0
            && actions == ControlActions::default()
            && !head.transport.schedule_listens
            && schedule_actions.dequeue_rate.is_none();
        if inert || unreliable {
            self.flow = None;
            return;
        }
        self.flow = Some(Box::new(Flow {
            control: control_state,
            schedule: schedule_state,
            window: None,
            rate: None,
            dequeue_rate: None,
            next_send: Time::ZERO,
            tick: Deadline::NEVER,
            schedule_tick: Deadline::NEVER,
            active: false,
            last_cnp: None,
            owes_echo: false,
            served: 0,
        }));
        self.apply_control(head, core, &actions);
        self.apply_schedule(head, core, &schedule_actions);
    }

    /// Tells congestion control what happened.
    #[inline(never)]
    pub(crate) fn on_event(&mut self, head: &Head, core: &mut Core, in_flight: u64, event: &ControlEvent) {
        let view = self.control_view(head, core, in_flight);
        let Some(flow) = &mut self.flow else { return };
        let control = &head.transport.profile.control;
        let actions = (control.policy.on_event)(&mut flow.control, event, &view, &control.params);
        self.apply_control(head, core, &actions);
    }

    /// Tells congestion control that `packets` of one space were acknowledged, by the packet at hand.
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
            let marked = if core.echoed { packets } else { 0 };
            self.on_event(head, core, in_flight, &ControlEvent::Acked { packets, rtt, marked });
        }
    }

    /// Tells congestion control how long a packet and its selective acknowledgement took, if that one was timed.
    pub(crate) fn on_early(&mut self, head: &Head, core: &mut Core, in_flight: u64, rtt: Option<Duration>) {
        if rtt.is_some() {
            self.on_acked(head, core, in_flight, 0, rtt);
        }
    }

    fn apply_control(&mut self, head: &Head, core: &mut Core, actions: &ControlActions) {
        let Some(flow) = &mut self.flow else { return };
        flow.window = actions.window.or(flow.window);
        flow.rate = actions.rate.or(flow.rate);
        if let Some(after) = actions.tick_after {
            flow.tick = Deadline::after(core.now, after);
            core.timers.arm(head.slot, flow.tick, &mut self.alarm);
        }
    }

    fn apply_schedule(&mut self, head: &Head, core: &mut Core, actions: &ScheduleActions) {
        self.turn_packets = turn(actions.turn_packets).unwrap_or(self.turn_packets);
        let Some(flow) = &mut self.flow else { return };
        if let Some(rate) = actions.dequeue_rate {
            flow.dequeue_rate = rate;
        }
        if let Some(after) = actions.tick_after {
            flow.schedule_tick = Deadline::after(core.now, after);
            core.timers.arm(head.slot, flow.schedule_tick, &mut self.alarm);
        }
    }

    fn schedule_event(&mut self, head: &Head, core: &mut Core, event: &ScheduleEvent) {
        let Some(flow) = &mut self.flow else { return };
        let schedule = &head.transport.profile.schedule;
        let view = ScheduleView { now: core.now, line_rate: core.config.line_rate, active: core.active };
        let actions = (schedule.policy.on_event)(&mut flow.schedule, event, &view, &schedule.params);
        self.apply_schedule(head, core, &actions);
    }

    /// Tells the scheduler that a packet of the turn has left.
    #[inline(never)]
    pub(crate) fn on_served(&mut self, head: &Head, core: &mut Core, has_work: bool) {
        if head.transport.schedule_listens {
            self.schedule_event(head, core, &ScheduleEvent::Served { bytes: u64::from(core.out.packet.payload_len) });
            if !has_work {
                self.deactivate(core);
                self.schedule_event(head, core, &ScheduleEvent::Drained);
            }
        }
    }

    /// The requester has work: counts it among the active ones and tells the scheduler, once.
    pub(crate) fn activate(&mut self, head: &Head, core: &mut Core) {
        if !head.transport.schedule_listens {
            return;
        }
        let Some(flow) = &mut self.flow else { return };
        if !flow.active {
            flow.active = true;
            core.active += 1;
            self.schedule_event(head, core, &ScheduleEvent::Activated);
        }
    }

    /// The requester has no work, or never will again.
    pub(crate) fn deactivate(&mut self, core: &mut Core) {
        if let Some(flow) = self.flow.as_mut().filter(|flow| flow.active) {
            flow.active = false;
            core.active -= 1;
        }
    }

    /// Lets the policies tick that are due.
    pub(crate) fn tick(&mut self, head: &Head, core: &mut Core, in_flight: u64) {
        let Some(flow) = &mut self.flow else { return };
        let (tick, schedule_tick) = (flow.tick.is_due(core.now), flow.schedule_tick.is_due(core.now));
        if tick {
            flow.tick = Deadline::NEVER;
        }
        if schedule_tick {
            flow.schedule_tick = Deadline::NEVER;
        }
        if tick {
            self.on_event(head, core, in_flight, &ControlEvent::Tick);
        }
        if schedule_tick {
            self.schedule_event(head, core, &ScheduleEvent::Tick);
        }
    }

    /// Returns the congestion window.
    #[inline]
    pub(crate) fn window(&self) -> Option<Cwnd> {
        self.flow.as_ref().and_then(|flow| flow.window)
    }

    /// Returns the earliest moment at which a policy wants to tick.
    pub(crate) fn next_tick(&self) -> Deadline {
        self.flow.as_ref().map_or(Deadline::NEVER, |flow| flow.tick.min(flow.schedule_tick))
    }

    /// Notes that `served` responses are in flight in a space of their own.
    #[inline]
    pub(crate) fn note_served(&mut self, served: u64) {
        if let Some(flow) = &mut self.flow {
            flow.served = served;
        }
    }

    /// When pacing lets the next packet go, if not core.now.
    #[inline]
    pub(crate) fn pacing_allows_at(&self, now: Time) -> Option<Time> {
        let flow = self.flow.as_ref()?;
        (flow.next_send > now).then_some(flow.next_send)
    }

    pub(crate) fn arm_pacing(&mut self, head: &Head, core: &mut Core, at: Time) {
        core.count_wait(crate::stats::WaitReason::Rate);
        core.timers.arm(head.slot, Deadline::at(at), &mut self.alarm);
    }

    /// A packet leaves: the next one follows at the rate in force, and the controller may want to count.
    #[inline(never)]
    pub(crate) fn on_sent(&mut self, head: &Head, core: &mut Core, in_flight: u64, payload_len: u32) {
        if head.transport.control_interest.sent {
            self.on_event(head, core, in_flight, &ControlEvent::Sent { bytes: u64::from(payload_len) });
        }
        let Some(flow) = &mut self.flow else { return };
        let rate = match (flow.rate, flow.dequeue_rate) {
            (Some(rate), Some(dequeue)) => rate.min(dequeue),
            (rate, dequeue) => match rate.or(dequeue) {
                Some(rate) => rate,
                None => return,
            },
        };
        // Headers count on the link too: 78 bytes with Ethernet framing, BTH and ICRC.
        let gap = rate.serialize(u64::from(payload_len) + HEADER_BYTES);
        flow.next_send = core.now.max(flow.next_send) + gap;
    }

    /// Returns whether marks matter and there is no [`Flow`] yet.
    pub(crate) fn awaits_flow(&self, head: &Head) -> bool {
        let interest = head.transport.control_interest;
        self.flow.is_none() && (interest.cnp_interval.is_some() || interest.echo)
    }

    /// A packet of the peer met congestion: tell it, if its transport wants to know. By a packet of our own, but not
    /// too often; or by the acknowledgement of the packet. Answers whether the latter is to be made core.now.
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
            let control = ControlPacket { slot, from, expected: Seq::UNSET, msn: 0, says: Control::Cnp };
            core.stats.cnps_sent += u64::from(core.push_control(control));
        }
        if interest.echo && !head.transport.acks_every_packet {
            self.owe_echo(true);
        }
        interest.echo && head.transport.acks_every_packet
    }

    /// An acknowledgement that leaves later shall speak of congestion, if `echo` says so.
    pub(crate) fn owe_echo(&mut self, echo: bool) {
        if let Some(flow) = self.flow.as_mut().filter(|_| echo) {
            flow.owes_echo = true;
        }
    }

    /// Whether the acknowledgement that leaves now speaks of congestion.
    pub(crate) fn take_owed_echo(&mut self) -> bool {
        self.flow.as_mut().is_some_and(|flow| std::mem::take(&mut flow.owes_echo))
    }

    /// Whether the congestion window keeps packet `seq` of `window`, which is to be sent again, from leaving. The
    /// oldest always may: what it waits for is its own acknowledgement (RFC 6675, section 5, step 4.3).
    pub(crate) fn holds_retransmission(&self, window: &SendWindow, seq: Seq) -> bool {
        let limit = self.window();
        let is_held = |limit: Cwnd| window.pipe() >= limit.whole_packets();
        seq != window.una && (limit.is_some_and(is_held) || window.is_path_full())
    }

    /// The peer says that our packets met congestion.
    pub(crate) fn on_cnp(&mut self, head: &Head, core: &mut Core, in_flight: u64) {
        core.stats.cnps_received += 1;
        self.on_event(head, core, in_flight, &ControlEvent::Cnp);
    }
}

/// A turn as it is kept: the contract allows up to 256 packets.
fn turn(packets: Option<u32>) -> Option<u16> {
    packets.map(|packets| packets.clamp(1, 256) as u16)
}

/// Ethernet preamble and gap 20, header and check 18, IPv4 20, UDP 8, BTH 12: what a paced packet takes beside its
/// payload.
const HEADER_BYTES: u64 = 78;
