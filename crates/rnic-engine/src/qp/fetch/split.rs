//! Responses in a sequence space of their own: IRN's rPSN.
//!
//! Requests wait in the *Read WQE buffer*, in the slot that their `read_WQE_SN` names, until everything before them has
//! arrived (I-16). Then their responses get numbers, and from there on they are data like any other: windowed, capped,
//! acknowledged packet by packet, recovered by this side's timer (I-11). A slot is free again when its responses are
//! acknowledged.

use rnic_base::{Duration, Psn, Seq, Time};
use rnic_policy::{ControlEvent, RecoveryEvent};
use rnic_wire::{Aeth, NakCode, Syndrome};

use super::FetchServer;
use super::buffer::ReadBuffer;
use crate::core::Core;
use crate::error::{DropReason, RxOutcome};
use crate::qp::Qp;
use crate::ready::Half;
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::transport::Transport;
use crate::window::{Bits, SendWindow};

/// The Read WQE buffer and the sending end of the response space.
#[derive(Debug)]
pub(crate) struct SplitServer {
    pub(super) buffer: ReadBuffer,
    pub(crate) window: SendWindow,
    /// First response number of the next fetch.
    next: Seq,
    /// Timeouts in a row.
    pub(crate) retries: u32,
    /// Packets in flight whose room at the peer others may use: nobody has acknowledged them for long.
    pub(crate) lent: u64,
}

impl SplitServer {
    pub(super) fn new(limit: u32, start: Seq, transport: &Transport) -> Self {
        Self {
            buffer: ReadBuffer::new(limit),
            window: SendWindow::new(start, transport),
            next: start,
            retries: 0,
            lent: 0,
        }
    }

    pub(super) fn has_work(&self) -> bool {
        self.window.next < self.next || self.window.first_to_repeat().is_some()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.window.una < self.next
    }

    pub(super) fn begin(&mut self, sn: u32) {
        let fetch = self.buffer.begin(sn);
        fetch.first = self.next;
        self.next = fetch.end();
    }
}

impl Qp {
    fn split_server(&mut self) -> Option<&mut SplitServer> {
        match self.responder.fetches.as_deref_mut() {
            Some(FetchServer::Split(server)) => Some(server),
            _ => None,
        }
    }

    /// Responses under way, where they have numbers of their own.
    pub(in crate::qp) fn responses_in_flight(&self) -> u64 {
        match self.responder.fetches.as_deref() {
            Some(FetchServer::Split(server)) => server.window.in_flight(),
            _ => 0,
        }
    }

    /// An acknowledgement of responses.
    pub(crate) fn receive_response_ack(
        &mut self,
        core: &mut Core,
        now: Time,
        psn: Psn,
        aeth: Aeth,
        sack: Option<Psn>,
    ) -> RxOutcome {
        let Some(server) = self.split_server() else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        let una = server.window.una;
        let is_ack = matches!(aeth.syndrome, Syndrome::Ack { .. });
        let seq = psn.extend(una);
        let cumulative = if is_ack { seq + 1 } else { seq };
        if cumulative > server.window.next {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        }
        let stale = cumulative < una || (is_ack && cumulative == una);
        server.window.note_heard();
        if !stale {
            self.acknowledge_served(core, now, cumulative);
        }
        if let Syndrome::Nak(code) = aeth.syndrome
            && code != NakCode::PsnSequenceError
            && !stale
        {
            // It needs what was refused, and has failed.
            self.fail_as_responder(core, code);
            return RxOutcome::Accepted;
        }
        if !is_ack {
            self.heed_response_nack(core, now, sack, stale);
        }
        self.wake_serving(core);
        if stale { RxOutcome::Duplicate } else { RxOutcome::Accepted }
    }

    fn heed_response_nack(&mut self, core: &mut Core, now: Time, sack: Option<Psn>, stale: bool) {
        let Self { responder, transport, .. } = self;
        let Some(FetchServer::Split(server)) = responder.fetches.as_deref_mut() else { return };
        let sack = sack.map(|psn| psn.extend(server.window.una));
        if let Some(seq) = sack {
            server.window.acknowledge_early(seq, transport);
            if self.regulator.is_some() || transport.measured {
                let rtt = server.window.take_early_rtt(seq, now);
                if let Some(rtt) = rtt {
                    server.window.learn(now, rtt, core.absence);
                }
                self.regulate_early(core, now, rtt);
            }
        }
        if !stale {
            self.recover_responses(core, now, sack);
        }
    }

    /// The receiver reports a gap at `una`.
    fn recover_responses(&mut self, core: &mut Core, now: Time, sack: Option<Seq>) {
        let Self { responder, transport, stats, slot, armed, .. } = self;
        let Some(FetchServer::Split(server)) = responder.fetches.as_deref_mut() else { return };
        if server.window.is_empty() {
            return;
        }
        stats.nacks += 1;
        core.stats.nacks += 1;
        let bits = Bits::in_rings(&mut responder.sr);
        let event = RecoveryEvent::Nacked { sack, losses: None };
        let actions = server.window.recover(&event, now, transport, &bits);
        core.timers.arm(*slot, server.window.deadline, armed);
        self.regulate(core, now, &ControlEvent::Nacked { lost: actions.retransmit.is_some() });
    }

    /// Responses up to `una` have arrived, says an acknowledgement.
    fn acknowledge_served(&mut self, core: &mut Core, now: Time, una: Seq) {
        let Self { responder, transport, slot, armed, .. } = self;
        let Some(FetchServer::Split(server)) = responder.fetches.as_deref_mut() else { return };
        let (packets, rtt) = server.window.acknowledge(una, now);
        if packets == 0 {
            return;
        }
        if let Some(rtt) = rtt {
            server.window.learn(now, rtt, core.absence);
        }
        server.retries = 0;
        if server.lent > 0 {
            core.peers.sent(self.peer, std::mem::take(&mut server.lent));
        }
        server.buffer.free_acknowledged(server.window.una);
        if server.window.wants_acknowledgements(transport) {
            let bits = Bits::in_rings(&mut responder.sr);
            server.window.recover(&RecoveryEvent::Acked { packets, rtt }, now, transport, &bits);
        }
        core.timers.arm(*slot, server.window.deadline, armed);
        core.settle_acknowledged(self.peer, packets);
        if self.regulator.is_some() {
            self.regulate_acked(core, now, packets, rtt);
        }
    }

    /// Responses up to `una` have arrived, says the peer's next request.
    pub(super) fn advance_responses(&mut self, core: &mut Core, una: Seq) {
        let peer = self.peer;
        let Some(server) = self.split_server() else { return };
        if una > server.window.una {
            let packets = server.window.acknowledge_untimed(una);
            core.peers.sent(peer, std::mem::take(&mut server.lent));
            core.settle(peer, packets);
        }
        server.buffer.free_acknowledged(server.window.una);
    }

    /// Keeps the responder in the ring while it has something to send or to say. What is sent again takes no new room
    /// at the peer, and so does not wait for any.
    pub(crate) fn wake_serving(&mut self, core: &mut Core) {
        let repeats = self.split_server().is_some_and(|server| server.window.first_to_repeat().is_some());
        let queued = self.responder.queued && repeats;
        if queued && core.peers.stop_waiting(self.peer, Half::Responder, self.slot) {
            core.ready.requeue(Half::Responder, self.slot);
        }
        if self.responder.has_work() {
            self.wake_responder(core);
        }
    }

    pub(super) fn next_split_response(&mut self, core: &mut Core, now: Time) -> bool {
        if let Some(at) = self.pacing_allows_at(now) {
            self.arm_pacing(core, at);
            return false;
        }
        let room = core.peers.room(self.peer);
        let window = self.regulator.as_ref().and_then(|regulator| regulator.window);
        let Some(FetchServer::Split(server)) = self.responder.fetches.as_deref_mut() else { return false };
        let mut repeat = server.window.first_to_repeat();
        if repeat.is_some()
            && self.transport.retransmit_fetch != Duration::ZERO
            && let Some(at) = repeat.and_then(|seq| server.window.fetched_at(seq, now))
        {
            core.timers.arm(self.slot, Deadline::at(at), &mut self.armed);
            repeat = None;
        }
        let Some(FetchServer::Split(server)) = self.responder.fetches.as_deref() else { return false };
        if repeat.is_some_and(|seq| self.window_holds_repeat(&server.window, seq)) {
            core.count_wait(WaitReason::Window);
            return false;
        }
        let transport = &self.transport;
        let seq = repeat.unwrap_or(server.window.next);
        if repeat.is_none() {
            if server.window.next == server.next {
                return false;
            }
            let in_flight = server.window.in_flight();
            let blocked = if in_flight >= transport.in_flight_max {
                Some(WaitReason::Cap)
            } else if window.is_some_and(|window| server.window.pipe() >= window.whole_packets())
                || server.window.room_on_path() == Some(0)
            {
                Some(WaitReason::Window)
            } else {
                (room == 0).then_some(WaitReason::PeerWindow)
            };
            if let Some(reason) = blocked {
                core.count_wait(reason);
                if reason == WaitReason::PeerWindow {
                    self.responder.queued = true;
                    core.peers.wait(self.peer, Half::Responder, self.slot);
                }
                return false;
            }
        }
        let fetch = server.buffer.find(seq).expect("an unacknowledged response belongs to a fetch");
        let index = seq.since(fetch.first) as u32;
        if let Err(code) = self.build_response(core, now, &fetch, index, repeat.is_some()) {
            self.build_refusal(core, now, &fetch, index, repeat.is_some(), code);
        }
        self.note_response_sent(core, now, seq, repeat.is_some());
        true
    }

    fn note_response_sent(&mut self, core: &mut Core, now: Time, seq: Seq, again: bool) {
        let Self { responder, transport, slot, armed, peer, .. } = self;
        let Some(FetchServer::Split(server)) = responder.fetches.as_deref_mut() else { return };
        if again {
            server.window.repeated(seq, seq + 1, true, now, transport);
        } else {
            server.window.sent(1, true, now, transport);
            core.peers.sent(*peer, 1);
            core.timers.arm(*slot, server.window.deadline, armed);
        }
    }
}
