//! State that the requester and the responder of a connection share: flow control, paths, the timer, the scheduling
//! turn, and the addressing of packets.

mod credits;
pub(crate) mod extra;
mod flow;

use rnic_base::Time;
use rnic_policy::{ControlEvent, PathEvent, PathLabel, PathView};

use crate::core::Core;
use crate::packet::TransmitKind;
use crate::ready::Half;
use crate::stats::QpStats;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::verbs::recv::RecvHalf;
use crate::window::{Circumstances, SrPointer};

use extra::Extra;
use flow::Flow;

/// State shared by both halves of a connection (see the module).
#[derive(Debug)]
pub(crate) struct ConnShared {
    /// Congestion control and scheduling, where the transport has any.
    pub(crate) flow: Option<Box<Flow>>,
    pub(crate) extra: Extra,
    /// Deadline of this connection's entry in the timer heap.
    pub(crate) alarm: Deadline,
    /// Unit of the shared pool that the complete queue pair uses for loss recovery (FaSR).
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
            extra: Extra::default(),
            alarm: Deadline::NEVER,
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
    pub(crate) fn take_expired(&mut self, deadline: Deadline) -> bool {
        let is_ours = self.alarm == deadline;
        if is_ours {
            self.alarm = Deadline::NEVER;
        }
        is_ours
    }

    /// Schedules a wake-up of the connection at `deadline`, at the latest.
    #[inline(always)]
    pub(crate) fn arm(&mut self, head: &Head, core: &mut Core, deadline: Deadline) {
        core.timers.arm(head.slot, deadline, &mut self.alarm);
    }

    /// Uses one packet of the scheduling turn; returns whether the turn continues, which requires that the sender
    /// `has_more` packets. Otherwise the next turn is a complete one.
    #[inline(always)]
    pub(crate) fn goes_on(&mut self, has_more: bool) -> bool {
        let goes_on = self.turn_left > 1 && has_more && !self.requests_queued;
        self.turn_left = if goes_on { self.turn_left - 1 } else { self.turn_packets };
        goes_on
    }

    /// Puts the requester into the ring of senders that are ready.
    #[inline(always)]
    pub(crate) fn enlist_requester(&mut self, head: &Head, core: &mut Core) {
        core.ready.push(Half::Requester, head.slot, &mut self.requests_queued);
        if self.has_flow() {
            self.activate(head, core);
        }
    }

    /// Puts the responder into the ring of senders that are ready.
    #[inline]
    pub(crate) fn wake_responder(&mut self, head: &Head, core: &mut Core) {
        if !self.responses_queued {
            core.ready.push(Half::Responder, head.slot, &mut self.responses_queued);
        }
    }

    /// Counts a timeout on which recovery has acted, and notifies the policies; `in_flight` requests are in flight.
    pub(crate) fn count_timeout(&mut self, verbs: &mut Verbs, core: &mut Core, in_flight: u64) {
        verbs.stats.timeouts += 1;
        core.stats.timeouts += 1;
        self.on_event(&verbs.head, core, in_flight, &ControlEvent::TimedOut);
        self.ask_path(&mut verbs.head, core.now, &PathEvent::TimedOut);
    }

    /// Starts the path policy.
    pub(crate) fn start_paths(&mut self, head: &mut Head, now: Time) {
        let paths = &head.transport.profile.paths;
        let view = PathView { now, flow_hash: head.flow_hash() };
        let (state, label) = (paths.policy.start)(&paths.params, &view);
        let keeps_state = head.transport.path_per_packet || paths.policy.state_bytes > 0;
        head.label = label;
        if keeps_state {
            self.extra = Extra::new_path(state);
        }
    }

    /// Returns the label for the next packet.
    #[inline]
    fn choose_path(&mut self, head: &mut Head, now: Time, retransmission: bool) -> PathLabel {
        if !self.extra.is_none() {
            self.ask_path(head, now, &PathEvent::Sending { retransmission });
        }
        head.label
    }

    /// Passes `event` to the path policy, which may change the label.
    #[cold]
    pub(crate) fn ask_path(&mut self, head: &mut Head, now: Time, event: &PathEvent) {
        let view = PathView { now, flow_hash: head.flow_hash() };
        if let Some(state) = self.extra.path_mut() {
            let paths = &head.transport.profile.paths;
            let actions = (paths.policy.on_event)(state, event, &view, &paths.params);
            head.label = actions.label.unwrap_or(head.label);
        }
    }

    /// Addresses the request or response in `core.out`, whose type is set, and counts it. `in_flight` is the number of
    /// requests in flight, which congestion control may use.
    #[inline]
    pub(crate) fn send_data(&mut self, verbs: &mut Verbs, core: &mut Core, in_flight: u64, again: bool) {
        let Verbs { head, stats, .. } = verbs;
        let label = self.choose_path(head, core.now, again);
        let out = &mut core.out;
        out.format = head.transport.format;
        out.peer = head.peer();
        out.label = label;
        out.from = head.number;
        count_sent(stats, core, again);
        if self.flow.is_some() {
            self.on_sent(head, core, in_flight, core.out.packet.payload_len);
        }
    }
}

/// Returns the conditions that decide what an expired timer of this queue pair does.
pub(in crate::roce) fn circumstances(verbs: &Verbs, core: &Core, may_probe: bool) -> Circumstances {
    let Verbs { head, send, .. } = verbs;
    let credit = core.peers.room(head.peer());
    Circumstances {
        absence: core.absence,
        patience: head.transport.patience(send.retry_count()),
        may_probe: may_probe && credit > 0,
        is_crowded: credit == 0,
        answers: core.peers.answers(head.peer()),
    }
}

/// Counts a packet with a sequence number.
#[inline(always)]
fn count_sent(stats: &mut QpStats, core: &mut Core, again: bool) {
    if again {
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
