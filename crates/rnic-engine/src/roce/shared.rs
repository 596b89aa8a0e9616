//! State that the requester and the responder of a connection share: flow control, paths, the timer, the scheduling
//! turn, and the addressing of packets.

mod credits;
mod flow;
pub(crate) mod optional;
mod tokens;

use rnic_base::{Duration, Time};
use rnic_policy::{ControlEvent, PathEvent, PathLabel, PathProbe, PathView};
use rnic_wire::scr::ProbePath;

use crate::core::Core;
use crate::packet::TransmitKind;
use crate::ready::Half;
use crate::stats::QpStats;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::verbs::recv::RecvHalf;
use crate::window::{SrPointer, TimeoutConditions};

use flow::Flow;
use optional::OptionalState;

/// State shared by both halves of a connection (see the module documentation).
#[derive(Debug)]
pub(crate) struct ConnShared {
    /// Congestion control and scheduling, if the transport uses either.
    pub(crate) flow: Option<Box<Flow>>,
    pub(crate) optional: OptionalState,
    /// Deadline of this connection's entry in the timer heap.
    pub(crate) armed_deadline: Deadline,
    /// Unit of the shared pool that both directions of the queue pair use for loss recovery (FaSR).
    pub(crate) pool: SrPointer,
    /// True when the requester is in the ring of senders that are ready, or waits for credit at the peer.
    pub(crate) requests_queued: bool,
    /// True when the responder is in that ring, or waits for credit at the peer.
    pub(crate) responses_queued: bool,
    /// Packets in a scheduling turn (`turn_packets`), and the number left of the current one (`turn_left`).
    pub(crate) turn_packets: u16,
    pub(crate) turn_left: u16,
}

impl ConnShared {
    pub(crate) fn new() -> Self {
        Self {
            flow: None,
            optional: OptionalState::default(),
            armed_deadline: Deadline::NEVER,
            pool: SrPointer::NULL,
            requests_queued: false,
            responses_queued: false,
            turn_packets: 1,
            turn_left: 1,
        }
    }

    /// Returns whether congestion control or scheduling is active.
    #[inline]
    pub(crate) fn has_flow(&self) -> bool {
        self.flow.is_some()
    }

    /// Returns whether `deadline`, which has expired in the timer heap, is this connection's entry; the entry is then
    /// cleared.
    pub(crate) fn remove_expired(&mut self, deadline: Deadline) -> bool {
        let is_own = self.armed_deadline == deadline;
        if is_own {
            self.armed_deadline = Deadline::NEVER;
        }
        is_own
    }

    /// Schedules a wake-up of the connection at `deadline`, at the latest.
    #[inline(always)]
    pub(crate) fn arm(&mut self, head: &Head, core: &mut Core, deadline: Deadline) {
        core.timers.arm(head.slot, deadline, &mut self.armed_deadline);
    }

    /// Uses one packet of the scheduling turn; returns whether the turn continues, which requires that the sender
    /// `has_more` packets. Otherwise the next turn is a complete one.
    #[inline(always)]
    pub(crate) fn continues_turn(&mut self, has_more: bool) -> bool {
        let continues_turn = self.turn_left > 1 && has_more && !self.requests_queued;
        self.turn_left = if continues_turn { self.turn_left - 1 } else { self.turn_packets };
        continues_turn
    }

    /// Puts the requester into the ring of senders that are ready.
    #[inline(always)]
    pub(crate) fn enlist_requester(&mut self, head: &Head, core: &mut Core) {
        core.ready.push(Half::Requester, head.slot, &mut self.requests_queued);
    }

    /// Puts the responder into the ring of senders that are ready.
    #[inline]
    pub(crate) fn wake_responder(&mut self, head: &Head, core: &mut Core) {
        if !self.responses_queued {
            core.ready.push(Half::Responder, head.slot, &mut self.responses_queued);
        }
    }

    /// Counts a timeout that caused loss recovery to act, and notifies the policies; `in_flight` requests are in
    /// flight.
    pub(crate) fn count_timeout(&mut self, verbs: &mut Verbs, core: &mut Core, in_flight: u64) {
        verbs.stats.timeouts += 1;
        core.stats.timeouts += 1;
        self.on_event(&verbs.head, core, in_flight, &ControlEvent::TimedOut);
        self.ask_path(&mut verbs.head, core, &PathEvent::TimedOut);
    }

    /// Starts the path policy.
    pub(crate) fn start_paths(&mut self, head: &mut Head, now: Time) {
        let paths = &head.transport.profile.paths;
        let view = PathView { now, flow_hash: head.flow_hash() };
        let (state, label) = (paths.policy.start)(&paths.params, &view);
        let keeps_state = head.transport.path_per_packet || paths.policy.state_bytes > 0;
        head.label = label;
        if keeps_state {
            self.optional = OptionalState::new_path(state);
        }
    }

    /// Returns the label for the next packet.
    #[inline]
    fn choose_path(&mut self, head: &mut Head, core: &mut Core, retransmission: bool) -> PathLabel {
        if !self.optional.is_none() {
            self.ask_path(head, core, &PathEvent::Sending { retransmission });
        }
        head.label
    }

    /// Passes `event` to the path policy, which may change the label, ask for a probe, or hold new packets.
    #[cold]
    pub(crate) fn ask_path(&mut self, head: &mut Head, core: &mut Core, event: &PathEvent) {
        let view = PathView { now: core.now, flow_hash: head.flow_hash() };
        let Some(path) = self.optional.path_mut() else { return };
        let paths = &head.transport.profile.paths;
        let actions = (paths.policy.on_event)(&mut path.state, event, &view, &paths.params);
        path.is_draining |= actions.drain;
        head.label = actions.label.unwrap_or(head.label);
        let Some(exchange) = &mut core.exchange else { return };
        if let Some(PathProbe { path, label, timeout }) = actions.probe {
            exchange.ask(head.number, ProbePath { index: path, label: label.0 }, timeout, core.now);
        }
        if let Some(after) = actions.tick_after {
            exchange.set_path_tick(head.number, after.max(PATH_TICK_MIN), core.now);
        }
    }

    /// Returns whether the path policy holds new packets until those in flight are acknowledged.
    #[inline]
    pub(crate) fn is_draining(&mut self) -> bool {
        !self.optional.is_none() && self.optional.path_mut().is_some_and(|path| path.is_draining)
    }

    /// Notifies the path policy, if it holds new packets, that those in flight are acknowledged.
    #[cold]
    pub(crate) fn end_drain(&mut self, head: &mut Head, core: &mut Core) {
        if let Some(path) = self.optional.path_mut() {
            path.is_draining = false;
            self.ask_path(head, core, &PathEvent::Drained);
        }
    }

    /// Addresses the request or response in `core.out`, whose type is set, and counts it. `in_flight` is the number of
    /// requests in flight, which congestion control may use.
    #[inline]
    pub(crate) fn send_data(&mut self, verbs: &mut Verbs, core: &mut Core, in_flight: u64, is_retransmission: bool) {
        let Verbs { head, stats, .. } = verbs;
        let label = self.choose_path(head, core, is_retransmission);
        let out = &mut core.out;
        out.format = head.transport.format;
        out.peer = head.peer();
        out.label = label;
        out.from = head.number;
        count_sent(stats, core, is_retransmission);
        if self.flow.is_some() {
            self.on_sent(head, core, in_flight, is_retransmission);
        }
    }
}

/// Minimum delay until a tick of a path policy, so that no queue pair keeps a core busy.
const PATH_TICK_MIN: Duration = Duration::from_us(1);

/// Returns the conditions that determine how an expired timer of this queue pair is handled.
pub(in crate::roce) fn timeout_conditions(verbs: &Verbs, core: &Core, may_probe: bool) -> TimeoutConditions {
    let Verbs { head, send, .. } = verbs;
    let credit = core.peers.available(head.peer());
    TimeoutConditions {
        absence: core.absence,
        silence_max: head.transport.silence_max(send.retry_count()),
        may_probe: may_probe && credit > 0,
        is_peer_full: credit == 0,
        acks: core.peers.acks(head.peer()),
    }
}

/// Counts a packet with a sequence number.
#[inline(always)]
fn count_sent(stats: &mut QpStats, core: &mut Core, is_retransmission: bool) {
    if is_retransmission {
        stats.packets_retransmitted += 1;
        core.stats.packets_retransmitted += 1;
    } else {
        stats.packets_sent += 1;
        core.stats.packets_sent += 1;
    }
}

/// Addresses the packet in `core.out`, which carries no data.
#[inline]
pub(crate) fn send_ack(head: &Head, recv: &RecvHalf, core: &mut Core) {
    core.stats.acks_sent += 1;
    core.segments.clear();
    let out = &mut core.out;
    if head.transport.credits {
        recv.advertise(head, &mut out.packet);
    }
    out.packet.dest_qpn = head.dest_qpn;
    out.format = head.transport.format;
    out.peer = head.peer();
    out.label = head.label;
    out.from = head.number;
    out.kind = TransmitKind::Ack;
}
