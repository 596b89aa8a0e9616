//! Processing of one queue pair at a time: received packets, packets to send, and timeouts.
//!
//! A failure of the queue pair does not end the connection immediately: that happens after the input has been processed
//! ([`FalconEnd::rest`], [`FalconEnd::stop`]).

use rnic_base::Time;
use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::{Arrival, Leaving, Reception};
use rnic_falcon::seam::Context;
use rnic_falcon::transaction::AnswerError;
use rnic_wire::NakCode;
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, ResyncCode, Rsn};

use super::serve::Serving;
use super::upper::handle;
use super::{BlockedOn, Endpoint, FalconEnd, FalconNic, SLOT, Schedule, header};
use crate::core::Core;
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::packet::{FalconArrival, FalconTransmit, TransmitKind};
use crate::state::QpState;
use crate::timer::Deadline;
use crate::verbs::Verbs;

/// Returns whether the queue pair responds to its peer: it receives, or has failed and still owes a refusal.
fn responds_to_peer(verbs: &Verbs) -> bool {
    verbs.head.state.receives() || responds_after_failure(verbs)
}

/// Returns whether it continues to respond although it has failed, because it has refused a request.
fn responds_after_failure(verbs: &Verbs) -> bool {
    verbs.head.state == QpState::Error && verbs.recv.refused.is_some()
}

impl FalconEnd {
    /// Schedules the queue pair, because new work is queued.
    pub(crate) fn on_work(&mut self, verbs: &Verbs, core: &mut Core) {
        self.schedule.enlist(verbs.head.slot, core);
    }

    /// Processes a received packet that names this queue pair.
    pub(crate) fn receive<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        arrival: &FalconArrival<'_>,
        dma: &mut D,
    ) -> RxOutcome {
        let is_heard = responds_to_peer(verbs);
        if !is_heard || verbs.head.peer() != arrival.peer {
            let reason = if is_heard { DropReason::WrongPeer } else { DropReason::State };
            return RxOutcome::Dropped(core.drop_packet(reason));
        }
        let Some((schedule, link)) = self.link(verbs, core, nic, Some(arrival.packet)) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::State));
        };
        let outcome = link.receive(verbs, core, nic, arrival, dma);
        link.serve(schedule, verbs, core, nic);
        link.report_to_fae(core, nic);
        link.enlist_if_needed(schedule, verbs, core);
        self.rest(verbs, core, nic, true);
        outcome
    }

    /// Builds the next packet, in the NIC's `out`, if one may be sent now; returns whether it did. The queue pair has
    /// been removed from the ring; `waited` is the resource that it was blocked on, if any.
    pub(crate) fn transmit(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        waited: Option<BlockedOn>,
    ) -> bool {
        match waited {
            Some(lack) => self.schedule.waits.remove(lack),
            None => self.schedule.queued = false,
        }
        let Some((schedule, link)) = responds_to_peer(verbs).then(|| self.link(verbs, core, nic, None)).flatten()
        else {
            if let Some(lack) = waited {
                nic.wake(&mut core.ready, lack);
            }
            return false;
        };
        // When the line is busy, a queue pair may stay in the ring indefinitely, so its timeouts must be processed
        // here.
        if link.connection.expiry().is_some_and(|due| due <= core.now) {
            link.expire(verbs, core, nic);
            link.report_to_fae(core, nic);
        }
        let has_answered = link.serve(schedule, verbs, core, nic);
        let handed = link.mapping.submit_pending(&mut link.connection, verbs, core, nic);
        if let Some(lack) = handed.lack {
            schedule.wait_for(nic, verbs.head.slot, lack);
        }
        if let Some(lack) = waited {
            let has_answered = has_answered || handed.answers;
            let has_taken = match lack {
                BlockedOn::Answer => has_answered,
                BlockedOn::Request | BlockedOn::Reserve => handed.requests,
                BlockedOn::Share => has_answered || handed.requests,
            };
            // More resources may be free than it took, or it took none.
            if has_taken || !schedule.waits.has(lack) {
                nic.wake(&mut core.ready, lack);
            }
        }
        let made = link.transmit(schedule, verbs, core, nic);
        self.rest(verbs, core, nic, made);
        made
    }

    /// Handles unreadable payload of the packet in the NIC's `out`, the last one that this queue pair has built:
    /// replaces it by a Resync.
    #[cold]
    pub(crate) fn fault_payload(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) {
        let Some(link) = self.link.as_deref_mut() else { return };
        if let Some(context) = nic.out_context.take() {
            link.withdraw(verbs, core, context, &mut nic.out);
            link.enlist_if_needed(&mut self.schedule, verbs, core);
        }
        self.rest(verbs, core, nic, true);
    }

    /// Processes the timeouts that are due.
    pub(crate) fn on_timeout(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) {
        let Self { schedule, link, .. } = self;
        let Some(link) = link.as_deref_mut() else { return };
        // Most alarms are for an acknowledgement, which is sent in this queue pair's scheduling turn.
        if link.owes_only_answers(core.now) && verbs.head.state.receives() {
            return schedule.enlist(verbs.head.slot, core);
        }
        link.expire(verbs, core, nic);
        link.report_to_fae(core, nic);
        schedule.enlist(verbs.head.slot, core);
        self.rest(verbs, core, nic, true);
    }

    /// Applies a response of the adaptive engine, if there is one, and schedules the queue pair; also called when its
    /// pacing time has come.
    pub(crate) fn on_decision(&mut self, verbs: &Verbs, core: &mut Core, response: Option<&rnic_fae::Response>) {
        if let (Some(response), Some(link)) = (response, self.link.as_mut()) {
            link.connection.apply_response(response);
        }
        self.schedule.enlist(verbs.head.slot, core);
    }

    /// Ends the connection if it has failed, and ensures that it is woken in time. Timeouts that are already due are
    /// processed at its turn in the ring, if it `has_turn`; otherwise an immediate alarm is armed.
    #[inline]
    fn rest(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic, has_turn: bool) {
        let Some(link) = self.link.as_deref_mut() else { return };
        if core.peers.is_any() {
            link.count_credit(verbs, core);
        }
        let timeout = link.connection.timeout().map_or(Deadline::NEVER, Deadline::at);
        let timeout = timeout.min(link.mapping.deadline());
        self.schedule.set_far(verbs.head.slot, core, link.mapping.far_deadline());
        let is_dead = link.connection.is_dead();
        if (is_dead || !verbs.head.state.receives()) && self.is_over(verbs, core, nic, is_dead) {
            return;
        }
        let schedule = &mut self.schedule;
        if timeout >= schedule.alarms[0] {
            return;
        }
        if timeout.is_due(core.now) && (has_turn || schedule.queued) {
            return schedule.enlist(verbs.head.slot, core);
        }
        schedule.arm(verbs.head.slot, core, timeout);
    }

    /// Ends the connection if it has failed; returns whether it has ended.
    #[cold]
    fn is_over(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic, is_dead: bool) -> bool {
        if is_dead && verbs.head.state.receives() {
            let known = self.known_failure(verbs);
            verbs.give_up_on_peer(core, known);
        }
        // A failed queue pair continues to respond as long as its peer is alive.
        let is_over = !verbs.head.state.receives() && (is_dead || !responds_after_failure(verbs));
        if is_over {
            self.end(verbs, core, nic);
        }
        is_over
    }
}

impl Endpoint {
    fn receive<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        arrival: &FalconArrival<'_>,
        dma: &mut D,
    ) -> RxOutcome {
        let packet = arrival.packet;
        let (rsn, slot) = (packet.body.rsn(), verbs.head.slot);
        let Self { connection, mapping, .. } = self;
        connection.note_absence(core.absence);
        let is_push = packet.body.packet_type() == PacketType::PushData;
        let early_before = core.stats.packets_early;
        let was_kept = !is_push && rsn.is_some_and(|rsn| connection.transactions().keeps(rsn));
        let FalconArrival { label, congested, hops, csig, .. } = *arrival;
        let arrival = Arrival { packet, label, marked: congested, hops, csig };
        let reception = mapping.receive(connection, verbs, core, &mut nic.resources, &arrival, dma);
        if let Some(rsn) = rsn {
            let keeps = connection.transactions().keeps(rsn);
            if is_push && keeps && reception == Reception::Kept {
                dma.keep(handle(slot, rsn));
                core.stats.packets_early += 1;
            }
            // A Resync has replaced it.
            if was_kept && !keeps {
                dma.release(handle(slot, rsn));
            }
        }
        if let Some(code) = verbs.recv.refused {
            refuse_the_rest(nic, connection, code, |rsn| dma.release(handle(slot, rsn)));
        }
        match reception {
            Reception::Kept if core.stats.packets_early > early_before => RxOutcome::Early,
            Reception::Kept | Reception::Answer => {
                count_nack(verbs, core, packet);
                RxOutcome::Accepted
            }
            Reception::Duplicate => {
                core.stats.packets_duplicate += 1;
                RxOutcome::Duplicate
            }
            Reception::Stale => RxOutcome::Duplicate,
            Reception::OutOfWindow => RxOutcome::Dropped(core.drop_packet(DropReason::OutOfWindow)),
            Reception::NoResources => RxOutcome::Dropped(core.drop_packet(DropReason::ReceiverNotReady)),
            Reception::Dropped => RxOutcome::Dropped(core.drop_packet(DropReason::Refused)),
        }
    }

    /// Passes responses of the upper layer to the transaction layer: with weak order, the results of Pushes; and
    /// responses, as long as there are resources. Returns whether resources were used.
    #[inline]
    fn serve(&mut self, schedule: &mut Schedule, verbs: &Verbs, core: &Core, nic: &mut FalconNic) -> bool {
        let Self { connection, mapping, .. } = self;
        mapping.pending_replies().is_some_and(|serving| tell(serving, connection, schedule, verbs, core, nic))
    }

    /// Builds the next packet that the connection has to send.
    #[inline(always)]
    fn transmit(&mut self, schedule: &mut Schedule, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) -> bool {
        let Self { connection, mapping, .. } = self;
        connection.set_credit(core.peers.room(verbs.head.peer()));
        let FalconNic { resources, out, .. } = nic;
        let leaving = mapping.transmit(connection, verbs, core, resources, &mut out.packet);
        if core.peers.is_any() {
            self.use_credit(verbs, core, leaving.as_ref());
        }
        let made = leaving.is_some();
        if let Some(leaving) = leaving {
            self.put_out(verbs, core, nic, leaving);
            self.enlist_if_needed(schedule, verbs, core);
            self.return_credit(schedule, verbs, core);
        } else if let Some(at) = self.connection.departure() {
            nic.pace(&mut core.timers, core.now, verbs.head.slot, at);
        }
        made
    }

    /// Stores the attributes of the packet and its payload where the driver reads them.
    #[inline(always)]
    fn put_out(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic, leaving: Leaving) {
        let Leaving { label, context, again } = leaving;
        let out = &mut nic.out;
        let packet = &out.packet;
        out.label = label;
        out.from = verbs.head.number;
        out.peer = verbs.head.peer();
        out.kind = TransmitKind::of_falcon(packet.body.packet_type(), again);
        nic.out_context = context;
        core.segments.clear();
        let Some(context) = context else {
            core.stats.acks_sent += 1;
            return;
        };
        let tag = self.connection.transactions().tag(context);
        let found = self.mapping.gather(verbs, core, packet, tag);
        if !found {
            self.withdraw(verbs, core, context, &mut nic.out);
        }
        let (mine, all) = (&mut verbs.stats, &mut core.stats);
        if again {
            (mine.packets_retransmitted, all.packets_retransmitted) =
                (mine.packets_retransmitted + 1, all.packets_retransmitted + 1);
        } else {
            (mine.packets_sent, all.packets_sent) = (mine.packets_sent + 1, all.packets_sent + 1);
        }
    }

    /// Replaces packet `out` of the transaction named `context` by a Resync, which has no payload, because the memory
    /// is no longer readable or valid.
    #[cold]
    fn withdraw(&mut self, verbs: &mut Verbs, core: &mut Core, context: Context, out: &mut FalconTransmit) {
        core.segments.clear();
        let packet = &mut out.packet;
        let (Some(psn), Some(rsn)) = (packet.body.psn(), packet.body.rsn()) else { return };
        self.connection.withdraw(context);
        let fails = out.kind == TransmitKind::Response && self.mapping.fails_without_memory();
        if fails && verbs.head.state.receives() {
            verbs.fail_as_responder(core, NakCode::RemoteAccessError);
        }
        let of = packet.body.packet_type();
        packet.body = Body::Resync { psn, rsn, code: ResyncCode::LocalXlr, of, vendor: 0 };
        packet.payload_len = 0;
    }

    /// Processes the timeouts that are due.
    #[inline(never)]
    fn expire(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) {
        let Self { connection, mapping, .. } = self;
        connection.note_absence(core.absence);
        let before = connection.delivery().timeouts();
        mapping.expire(connection, verbs, core, &mut nic.resources);
        let timeouts = connection.delivery().timeouts() - before;
        verbs.stats.timeouts += timeouts as u32;
        core.stats.timeouts += timeouts;
        mapping.watch(connection, verbs, core);
    }

    /// Adds the queue pair to the ring of queue pairs that can send, when it has something to send: most received
    /// packets cause no packet to be sent, and a scheduling turn without effect costs as much as half a packet.
    #[inline]
    fn enlist_if_needed(&mut self, schedule: &mut Schedule, verbs: &Verbs, core: &mut Core) {
        if self.mapping.has_to_hand_in(verbs, &self.connection) || self.connection.has_to_send(core.now) {
            schedule.enlist(verbs.head.slot, core);
        }
    }

    /// Passes new events to the connection's adaptive engine; when the engine responds later, a timer of the NIC is
    /// armed for the response.
    #[inline]
    fn report_to_fae(&mut self, core: &mut Core, nic: &mut FalconNic) {
        if self.connection.has_news() {
            self.tell_news(core, nic);
        }
    }

    #[inline(never)]
    fn tell_news(&mut self, core: &mut Core, nic: &mut FalconNic) {
        let engine = &mut nic.adaptives[self.adaptive].1;
        self.connection.report_to_fae(core.now, &nic.resources, engine);
        if let Some(next) = engine.next_at() {
            core.timers.arm(SLOT, Deadline::at(next), &mut nic.armed);
        }
    }

    /// Returns whether an acknowledgement or a NACK is due, and nothing else.
    #[inline]
    fn owes_only_answers(&self, now: Time) -> bool {
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        is_due(self.connection.delivery().answer_due())
            && !is_due(self.connection.expiry())
            && !self.mapping.deadline().is_due(now)
            && !self.mapping.far_deadline().is_due(now)
    }
}

/// Passes responses of the upper layer to the transaction layer, see [`Endpoint::serve`].
#[inline(never)]
fn tell(
    serving: &mut Serving,
    connection: &mut Connection,
    schedule: &mut Schedule,
    verbs: &Verbs,
    core: &Core,
    nic: &mut FalconNic,
) -> bool {
    while let Some((rsn, refused)) = serving.settled.pop_front() {
        // Fails for a request that a Resync has skipped meanwhile: the connection no longer has it.
        let _ = match refused {
            None => connection.acknowledge(core.now, rsn),
            Some(code) => connection.refuse(core.now, rsn, code),
        };
    }
    let mut any = false;
    while let Some((rsn, answer)) = serving.pending.front() {
        match connection.answer(&mut nic.resources, *rsn, answer) {
            Err(AnswerError::Paused) => {
                let is_over = connection.transactions().answers_exceed_share(&nic.resources);
                schedule.wait_for(nic, verbs.head.slot, if is_over { BlockedOn::Share } else { BlockedOn::Answer });
                break;
            }
            Ok(()) => any = true,
            Err(AnswerError::Unknown | AnswerError::TooLong { .. }) => {}
        }
        serving.pending.pop_front();
    }
    any
}

/// Refuses all kept requests, because a request was refused with `code` and the queue pair has failed: requests that
/// arrived out of order can only be refused too.
#[cold]
fn refuse_the_rest(nic: &mut FalconNic, connection: &mut Connection, code: NakCode, release: impl FnMut(Rsn)) {
    connection.refuse_all(&mut nic.resources, NackCode::NonRecoverable { ulp: header::code_of(code) });
    connection.take_kept().for_each(release);
}

/// Counts `packet`, which was accepted, if it is a NACK. NACKs of a receiver that was not ready have a separate
/// counter.
fn count_nack(verbs: &mut Verbs, core: &mut Core, packet: &Packet) {
    if let Body::Nack(nack) = &packet.body
        && !matches!(nack.code, NackCode::NotReady { .. })
    {
        verbs.stats.nacks += 1;
        core.stats.nacks += 1;
    }
}

/// Calls `with` for each queue pair whose time to send has come, and for each response of an adaptive engine.
pub(crate) fn tick_nic(
    core: &mut Core,
    nic: &mut FalconNic,
    mut with: impl FnMut(u32, &mut Core, Option<&rnic_fae::Response>),
) {
    let now: Time = core.now;
    nic.armed = Deadline::NEVER;
    while let Some(slot) = nic.due(now) {
        with(slot, core, None);
    }
    for index in 0..nic.adaptives.len() {
        while let Some((slot, response)) = nic.adaptives[index].1.poll(now) {
            with(slot, core, Some(&response));
        }
    }
    nic.arm(&mut core.timers);
}
