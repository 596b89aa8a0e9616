//! Congestion control, scheduling and pacing of a connection, when its transport has any.
//!
//! A transport that sends at line rate in turns of one packet has no [`Flow`] at all: the packet path checks one
//! pointer. The actions that policies return also set the connection's timer and the length of its scheduling turn, so
//! they are applied where those are stored, in the state that both halves of a connection share.

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

/// The current decisions of the policies, and the states of the policies that make them.
#[derive(Debug)]
pub(crate) struct Flow {
    control: PolicyState,
    schedule: PolicyState,
    window: Option<Cwnd>,
    /// Rate set by congestion control.
    rate: Option<BitRate>,
    /// Rate set by the scheduler.
    dequeue_rate: Option<BitRate>,
    /// Earliest time at which the next packet may be sent.
    next_send: Time,
    tick: Deadline,
    schedule_tick: Deadline,
    /// True while counted among the queue pairs that have work.
    active: bool,
    /// Time at which the last CNP was sent.
    last_cnp: Option<Time>,
    /// True when the next acknowledgement that is not built immediately must carry the congestion echo.
    owes_echo: bool,
    /// Number of responses in flight in a separate space, which count with the requests.
    served: u64,
}

impl ConnShared {
    /// Returns the input of a congestion controller: `in_flight` requests, and the responses in a separate space.
    fn control_view(&self, head: &Head, core: &Core, in_flight: u64) -> ControlView {
        let in_flight = in_flight + self.flow.as_ref().map_or(0, |flow| flow.served);
        ControlView { now: core.now, line_rate: core.config.line_rate, mtu: head.mtu(), in_flight }
    }

    /// Starts the policies, and keeps their states if they have any effect.
    pub(crate) fn start(&mut self, head: &Head, core: &mut Core, in_flight: u64) {
        let control = head.transport.profile.control;
        let schedule = head.transport.profile.schedule;
        let (control_state, actions) =
            (control.policy.start)(&control.params, &self.control_view(head, core, in_flight));
        let view = ScheduleView { now: core.now, line_rate: core.config.line_rate, active: core.active };
        let (schedule_state, schedule_actions) = (schedule.policy.start)(&schedule.params, &view);
        self.turn_packets = turn(schedule_actions.turn_packets).unwrap_or(1);
        self.turn_left = self.turn_packets;
        // Without acknowledgements there are no events for congestion control.
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

    /// Passes `event` to congestion control.
    #[inline(never)]
    pub(crate) fn on_event(&mut self, head: &Head, core: &mut Core, in_flight: u64, event: &ControlEvent) {
        let view = self.control_view(head, core, in_flight);
        let Some(flow) = &mut self.flow else { return };
        let control = &head.transport.profile.control;
        let actions = (control.policy.on_event)(&mut flow.control, event, &view, &control.params);
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
            let marked = if core.echoed { packets } else { 0 };
            self.on_event(head, core, in_flight, &ControlEvent::Acked { packets, rtt, marked });
        }
    }

    /// Passes to congestion control the round-trip time of a packet and its selective acknowledgement, if it was
    /// measured.
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

    /// Notifies the scheduler that a packet of the scheduling turn has been sent.
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

    /// Counts the requester, which has work, among the active ones and notifies the scheduler, once.
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

    /// Removes the requester, which has no work now or will have none any more, from the active ones.
    pub(crate) fn deactivate(&mut self, core: &mut Core) {
        if let Some(flow) = self.flow.as_mut().filter(|flow| flow.active) {
            flow.active = false;
            core.active -= 1;
        }
    }

    /// Calls the tick of each policy that is due.
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

    /// Returns the earliest time at which a policy has requested a tick.
    pub(crate) fn next_tick(&self) -> Deadline {
        self.flow.as_ref().map_or(Deadline::NEVER, |flow| flow.tick.min(flow.schedule_tick))
    }

    /// Records that `served` responses are in flight in a separate space.
    #[inline]
    pub(crate) fn note_served(&mut self, served: u64) {
        if let Some(flow) = &mut self.flow {
            flow.served = served;
        }
    }

    /// Returns the time at which pacing permits the next packet, if that is after `now`.
    #[inline]
    pub(crate) fn pacing_allows_at(&self, now: Time) -> Option<Time> {
        let flow = self.flow.as_ref()?;
        (flow.next_send > now).then_some(flow.next_send)
    }

    pub(crate) fn arm_pacing(&mut self, head: &Head, core: &mut Core, at: Time) {
        core.count_wait(crate::stats::WaitReason::Rate);
        core.timers.arm(head.slot, Deadline::at(at), &mut self.alarm);
    }

    /// Handles a packet that is sent: sets the time of the next one from the current rate, and notifies the controller
    /// if it counts sent packets.
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
        // Headers occupy the link too: 78 bytes with Ethernet framing, BTH and ICRC.
        let gap = rate.serialize(u64::from(payload_len) + HEADER_BYTES);
        flow.next_send = core.now.max(flow.next_send) + gap;
    }

    /// Returns whether congestion marks must be processed and there is no [`Flow`] yet.
    pub(crate) fn awaits_flow(&self, head: &Head) -> bool {
        let interest = head.transport.control_interest;
        self.flow.is_none() && (interest.cnp_interval.is_some() || interest.echo)
    }

    /// Handles a packet of the peer that met congestion: notifies the peer, if its transport uses that, by a separate
    /// CNP, limited in frequency, or by the acknowledgement of the packet. Returns whether the echo belongs in an
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
            let control = ControlPacket { slot, from, expected: Seq::UNSET, msn: 0, says: Control::Cnp };
            core.stats.cnps_sent += u64::from(core.push_control(control));
        }
        if interest.echo && !head.transport.acks_every_packet {
            self.owe_echo(true);
        }
        interest.echo && head.transport.acks_every_packet
    }

    /// Records, if `echo` is set, that an acknowledgement sent later must carry the congestion echo.
    pub(crate) fn owe_echo(&mut self, echo: bool) {
        if let Some(flow) = self.flow.as_mut().filter(|_| echo) {
            flow.owes_echo = true;
        }
    }

    /// Returns whether the acknowledgement that is sent now carries the congestion echo, and clears that state.
    pub(crate) fn take_owed_echo(&mut self) -> bool {
        self.flow.as_mut().is_some_and(|flow| std::mem::take(&mut flow.owes_echo))
    }

    /// Returns whether the congestion window blocks packet `seq` of `window`, which is to be retransmitted. The oldest
    /// packet is always permitted, because the window can open only when that packet is acknowledged (RFC 6675, section
    /// 5, step 4.3).
    pub(crate) fn holds_retransmission(&self, window: &SendWindow, seq: Seq) -> bool {
        let limit = self.window();
        let is_held = |limit: Cwnd| window.pipe() >= limit.whole_packets();
        seq != window.una && (limit.is_some_and(is_held) || window.is_path_full())
    }

    /// Handles the peer's report that packets of this sender met congestion.
    pub(crate) fn on_cnp(&mut self, head: &Head, core: &mut Core, in_flight: u64) {
        core.stats.cnps_received += 1;
        self.on_event(head, core, in_flight, &ControlEvent::Cnp);
    }
}

/// Converts a turn length to the stored form: the contract allows up to 256 packets.
fn turn(packets: Option<u32>) -> Option<u16> {
    packets.map(|packets| packets.clamp(1, 256) as u16)
}

/// Bytes that a paced packet occupies beside its payload: Ethernet preamble and gap 20, header and check 18, IPv4 20,
/// UDP 8, BTH 12.
const HEADER_BYTES: u64 = 78;
