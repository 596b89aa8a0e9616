//! Congestion control, scheduling and pacing of a queue pair, when its transport has any.
//!
//! A transport that sends at line rate in turns of one packet has no regulator at all: the packet path asks one
//! pointer.

use rnic_base::{BitRate, Duration, Seq, Time};
use rnic_policy::{
    ControlActions, ControlEvent, ControlView, Cwnd, PolicyState, ScheduleActions, ScheduleEvent, ScheduleView,
};

use crate::core::{Control, ControlPacket, Core};
use crate::qp::Qp;
use crate::timer::Deadline;
use crate::transport::Service;
use crate::window::SendWindow;

/// The decisions in force, and the states of the policies that make them.
#[derive(Debug)]
pub(crate) struct Regulator {
    control: PolicyState,
    schedule: PolicyState,
    pub(crate) window: Option<Cwnd>,
    /// Congestion control's rate.
    rate: Option<BitRate>,
    /// The scheduler's rate.
    dequeue_rate: Option<BitRate>,
    /// No packet leaves before.
    next_send: Time,
    pub(crate) tick: Deadline,
    pub(crate) schedule_tick: Deadline,
    /// Counted among the queue pairs that have work.
    active: bool,
    /// When the last CNP was sent.
    last_cnp: Option<Time>,
    /// The next acknowledgement that is not made at once speaks of congestion.
    owes_echo: bool,
}

impl Qp {
    fn control_view(&self, core: &Core, now: Time) -> ControlView {
        let in_flight = self.requester.window.in_flight() + self.responses_in_flight();
        ControlView { now, line_rate: core.config.line_rate, mtu: self.mtu(), in_flight }
    }

    /// Starts the policies, and keeps their states if they have any say.
    pub(crate) fn start_regulator(&mut self, core: &mut Core, now: Time) {
        let control = self.transport.profile.control;
        let schedule = self.transport.profile.schedule;
        let (control_state, actions) = (control.policy.start)(&control.params, &self.control_view(core, now));
        let view = ScheduleView { now, line_rate: core.config.line_rate, active: core.active };
        let (schedule_state, schedule_actions) = (schedule.policy.start)(&schedule.params, &view);
        self.turn_packets = turn(schedule_actions.turn_packets).unwrap_or(1);
        self.turn_left = self.turn_packets;
        // Without acknowledgements there is nothing to regulate by.
        let unreliable = self.transport.service != Service::ReliableConnection;
        let inert = control.policy.state_bytes == 0
            && actions == ControlActions::default()
            && !self.transport.schedule_listens
            && schedule_actions.dequeue_rate.is_none();
        if inert || unreliable {
            self.regulator = None;
            return;
        }
        self.regulator = Some(Box::new(Regulator {
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
        }));
        self.apply_control(core, now, &actions);
        self.apply_schedule(core, now, &schedule_actions);
    }

    /// Tells congestion control what happened.
    #[inline(never)]
    pub(crate) fn regulate(&mut self, core: &mut Core, now: Time, event: &ControlEvent) {
        let view = self.control_view(core, now);
        let Some(regulator) = &mut self.regulator else { return };
        let control = &self.transport.profile.control;
        let actions = (control.policy.on_event)(&mut regulator.control, event, &view, &control.params);
        self.apply_control(core, now, &actions);
    }

    /// Tells congestion control that `packets` of one space were acknowledged, by the packet at hand.
    #[inline(never)]
    pub(crate) fn regulate_acked(&mut self, core: &mut Core, now: Time, packets: u64, rtt: Option<Duration>) {
        if self.transport.control_interest.acked {
            let marked = if core.echoed { packets } else { 0 };
            self.regulate(core, now, &ControlEvent::Acked { packets, rtt, marked });
        }
    }

    /// Tells congestion control how long a packet and its selective acknowledgement took, if that one was timed.
    pub(crate) fn regulate_early(&mut self, core: &mut Core, now: Time, rtt: Option<Duration>) {
        if rtt.is_some() {
            self.regulate_acked(core, now, 0, rtt);
        }
    }

    fn apply_control(&mut self, core: &mut Core, now: Time, actions: &ControlActions) {
        let Some(regulator) = &mut self.regulator else { return };
        regulator.window = actions.window.or(regulator.window);
        regulator.rate = actions.rate.or(regulator.rate);
        if let Some(after) = actions.tick_after {
            regulator.tick = Deadline::after(now, after);
            core.timers.arm(self.slot, regulator.tick, &mut self.armed);
        }
    }

    fn apply_schedule(&mut self, core: &mut Core, now: Time, actions: &ScheduleActions) {
        self.turn_packets = turn(actions.turn_packets).unwrap_or(self.turn_packets);
        let Some(regulator) = &mut self.regulator else { return };
        if let Some(rate) = actions.dequeue_rate {
            regulator.dequeue_rate = rate;
        }
        if let Some(after) = actions.tick_after {
            regulator.schedule_tick = Deadline::after(now, after);
            core.timers.arm(self.slot, regulator.schedule_tick, &mut self.armed);
        }
    }

    fn schedule_event(&mut self, core: &mut Core, now: Time, event: &ScheduleEvent) {
        let Some(regulator) = &mut self.regulator else { return };
        let schedule = &self.transport.profile.schedule;
        let view = ScheduleView { now, line_rate: core.config.line_rate, active: core.active };
        let actions = (schedule.policy.on_event)(&mut regulator.schedule, event, &view, &schedule.params);
        self.apply_schedule(core, now, &actions);
    }

    /// Tells the scheduler that a packet of the turn has left.
    #[inline(never)]
    pub(crate) fn count_served(&mut self, core: &mut Core, now: Time, bytes: u32) {
        if self.transport.schedule_listens {
            self.schedule_event(core, now, &ScheduleEvent::Served { bytes: u64::from(bytes) });
            if !self.requester.has_work() {
                self.deactivate(core);
                self.schedule_event(core, now, &ScheduleEvent::Drained);
            }
        }
    }

    /// The requester has work: counts it among the active ones and tells the scheduler, once.
    pub(crate) fn activate(&mut self, core: &mut Core) {
        if !self.transport.schedule_listens {
            return;
        }
        let Some(regulator) = &mut self.regulator else { return };
        if !regulator.active {
            regulator.active = true;
            core.active += 1;
            let now = core.now;
            self.schedule_event(core, now, &ScheduleEvent::Activated);
        }
    }

    /// The requester has no work, or never will again.
    pub(crate) fn deactivate(&mut self, core: &mut Core) {
        if let Some(regulator) = self.regulator.as_mut().filter(|regulator| regulator.active) {
            regulator.active = false;
            core.active -= 1;
        }
    }

    /// Lets the policies tick that are due.
    pub(crate) fn tick_regulator(&mut self, core: &mut Core, now: Time) {
        let Some(regulator) = &mut self.regulator else { return };
        let (tick, schedule_tick) = (regulator.tick.is_due(now), regulator.schedule_tick.is_due(now));
        if tick {
            regulator.tick = Deadline::NEVER;
        }
        if schedule_tick {
            regulator.schedule_tick = Deadline::NEVER;
        }
        if tick {
            self.regulate(core, now, &ControlEvent::Tick);
        }
        if schedule_tick {
            self.schedule_event(core, now, &ScheduleEvent::Tick);
        }
    }

    /// When pacing lets the next packet go, if not now.
    #[inline]
    pub(crate) fn pacing_allows_at(&self, now: Time) -> Option<Time> {
        let regulator = self.regulator.as_ref()?;
        (regulator.next_send > now).then_some(regulator.next_send)
    }

    pub(crate) fn arm_pacing(&mut self, core: &mut Core, at: Time) {
        core.count_wait(crate::stats::WaitReason::Rate);
        core.timers.arm(self.slot, Deadline::at(at), &mut self.armed);
    }

    /// A packet leaves: the next one follows at the rate in force, and the controller may want to count.
    #[inline(never)]
    pub(crate) fn regulate_sent(&mut self, core: &mut Core, now: Time, payload_len: u32) {
        if self.transport.control_interest.sent {
            self.regulate(core, now, &ControlEvent::Sent { bytes: u64::from(payload_len) });
        }
        let Some(regulator) = &mut self.regulator else { return };
        let rate = match (regulator.rate, regulator.dequeue_rate) {
            (Some(rate), Some(dequeue)) => rate.min(dequeue),
            (rate, dequeue) => match rate.or(dequeue) {
                Some(rate) => rate,
                None => return,
            },
        };
        // Headers count on the link too: 78 bytes with Ethernet framing, BTH and ICRC.
        let gap = rate.serialize(u64::from(payload_len) + HEADER_BYTES);
        regulator.next_send = now.max(regulator.next_send) + gap;
    }

    /// A packet of the peer met congestion: tell it, if its transport wants to know. By a packet of our own, but not
    /// too often; or by the acknowledgement of the packet. Answers whether the latter is to be made now.
    pub(crate) fn notify_congestion(&mut self, core: &mut Core, now: Time) -> bool {
        core.stats.marks_received += 1;
        let interest = self.transport.control_interest;
        if interest.cnp_interval.is_none() && !interest.echo {
            return false;
        }
        if self.regulator.is_none() {
            // It only receives as yet: the step to `ReadyToSend`, which begins to regulate, is a sender's.
            self.start_regulator(core, now);
        }
        let Some(regulator) = &mut self.regulator else { return false };
        if let Some(interval) = interest.cnp_interval
            && regulator.last_cnp.is_none_or(|last| now.since(last) >= interval)
        {
            regulator.last_cnp = Some(now);
            let (expected, says) = (self.responder.window.expected, Control::Cnp);
            let control = ControlPacket { slot: self.slot, from: self.number, expected, msn: 0, says };
            core.stats.cnps_sent += u64::from(core.push_control(control));
        }
        if interest.echo && !self.transport.acks_every_packet {
            self.owe_echo(true);
        }
        interest.echo && self.transport.acks_every_packet
    }

    /// An acknowledgement that leaves later shall speak of congestion, if `echo` says so.
    pub(crate) fn owe_echo(&mut self, echo: bool) {
        if let Some(regulator) = self.regulator.as_mut().filter(|_| echo) {
            regulator.owes_echo = true;
        }
    }

    /// Whether the acknowledgement that leaves now speaks of congestion.
    pub(crate) fn take_owed_echo(&mut self) -> bool {
        self.regulator.as_mut().is_some_and(|regulator| std::mem::take(&mut regulator.owes_echo))
    }

    /// Whether the congestion window keeps packet `seq` of `window`, which is to be sent again, from leaving. The
    /// oldest always may: what it waits for is its own acknowledgement (RFC 6675, section 5, step 4.3).
    pub(crate) fn window_holds_repeat(&self, window: &SendWindow, seq: Seq) -> bool {
        let limit = self.regulator.as_ref().and_then(|regulator| regulator.window);
        let is_held = |limit: Cwnd| window.pipe() >= limit.whole_packets();
        seq != window.una && (limit.is_some_and(is_held) || window.is_path_full())
    }

    /// The peer says that our packets met congestion.
    pub(crate) fn heed_congestion(&mut self, core: &mut Core, now: Time) {
        core.stats.cnps_received += 1;
        self.regulate(core, now, &ControlEvent::Cnp);
    }
}

/// A turn as it is kept: the contract allows up to 256 packets.
fn turn(packets: Option<u32>) -> Option<u16> {
    packets.map(|packets| packets.clamp(1, 256) as u16)
}

/// Ethernet preamble and gap 20, header and check 18, IPv4 20, UDP 8, BTH 12: what a paced packet takes beside its
/// payload.
const HEADER_BYTES: u64 = 78;
