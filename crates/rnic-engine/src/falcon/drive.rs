//! Processing of one queue pair at a time: received packets, packets to send, and timeouts.
//!
//! A failure of the queue pair does not end the connection immediately: the connection ends after the input has been
//! processed ([`FalconEnd::finish_call`], [`FalconEnd::stop`]).

use rnic_base::Time;
use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::{Arrival, DepartureInfo, Reception};
use rnic_falcon::interface::Context;
use rnic_falcon::transaction::RespondError;
use rnic_wire::NakCode;
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, ResyncCode, Rsn};

use super::serve::Serving;
use super::upper::handle;
use super::{BlockedOn, Endpoint, FalconEnd, FalconNic, NIC_TIMER_SLOT, Schedule, header};
use crate::core::Core;
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::packet::{FalconArrival, FalconTransmit, TransmitKind};
use crate::ready::Half;
use crate::state::QpState;
use crate::timer::Deadline;
use crate::verbs::Verbs;

/// Returns `true` if the queue pair responds to its peer: it is in a receiving state, or it has failed and must still
/// send the refusal of a request.
fn responds_to_peer(verbs: &Verbs) -> bool {
    verbs.head.state.receives() || responds_after_failure(verbs)
}

/// Returns `true` if the queue pair has failed but continues to respond, because it has refused a request.
fn responds_after_failure(verbs: &Verbs) -> bool {
    verbs.head.state == QpState::Error && verbs.recv.refused.is_some()
}

impl FalconEnd {
    /// Schedules the queue pair, because new work has been queued.
    pub(crate) fn on_work(&mut self, verbs: &Verbs, core: &mut Core) {
        self.schedule.enlist(verbs.head.slot, core);
    }

    /// Processes a received packet that is addressed to this queue pair.
    pub(crate) fn receive<D: Dma>(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        arrival: &FalconArrival<'_>,
        dma: &mut D,
    ) -> RxOutcome {
        let has_received = responds_to_peer(verbs);
        if !has_received || verbs.head.peer() != arrival.peer {
            let reason = if has_received { DropReason::WrongPeer } else { DropReason::State };
            return RxOutcome::Dropped(core.drop_packet(reason));
        }
        let Some((schedule, link)) = self.link(verbs, core, nic, Some(arrival.packet)) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::State));
        };
        let outcome = link.receive(verbs, core, nic, arrival, dma);
        // With a limited rate, responses and requests take turns: both are submitted when the queue pair is served.
        if schedule.scheduling.is_none() {
            link.serve(schedule, verbs, core, nic);
        }
        link.report_to_fae(core, nic);
        link.enlist_if_needed(schedule, verbs, core);
        self.finish_call(verbs, core, nic, true);
        outcome
    }

    /// Builds the next packet, in the NIC's `out`, if one may be sent now; returns `true` if it did. The queue pair
    /// has been removed from the ring; `was_blocked_on` is the resource that the queue pair was blocked on, if any.
    pub(crate) fn transmit(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        was_blocked_on: Option<BlockedOn>,
    ) -> bool {
        match was_blocked_on {
            Some(blocked_on) => self.schedule.waits_for.remove(blocked_on),
            None => self.schedule.queued = false,
        }
        let Some((schedule, link)) = responds_to_peer(verbs).then(|| self.link(verbs, core, nic, None)).flatten()
        else {
            if let Some(blocked_on) = was_blocked_on {
                nic.wake(&mut core.ready, blocked_on);
            }
            return false;
        };
        // When the link is busy, a queue pair may stay in the ring indefinitely, so its timeouts must be processed
        // here.
        if link.connection.expiry().is_some_and(|due| due <= core.now) {
            link.expire(verbs, core, nic);
            link.report_to_fae(core, nic);
        }
        if let Some(scheduling) = schedule.scheduling.as_mut().filter(|state| state.next_timeout().is_due(core.now)) {
            let has_work = link.mapping.has_to_submit(verbs, &link.connection);
            scheduling.on_timeout(&verbs.head, core, has_work);
        }
        let mut has_answered = link.serve(schedule, verbs, core, nic);
        let scheduling = schedule.scheduling.as_deref_mut();
        let mut submitted = link.mapping.submit_pending(&mut link.connection, verbs, core, nic, scheduling);
        if schedule.scheduling.is_some() {
            // Responses and requests take turns. Those whose turn it was not are submitted now if the others had none.
            has_answered |= link.serve(schedule, verbs, core, nic);
            let scheduling = schedule.scheduling.as_deref_mut();
            let later = link.mapping.submit_pending(&mut link.connection, verbs, core, nic, scheduling);
            submitted = submitted.followed_by(later);
        }
        if let Some(blocked_on) = submitted.blocked_on {
            schedule.wait_for(nic, verbs.head.slot, blocked_on);
        }
        if let Some(blocked_on) = was_blocked_on {
            let has_answered = has_answered || submitted.responses;
            let has_taken = match blocked_on {
                BlockedOn::Response => has_answered,
                BlockedOn::Request | BlockedOn::Reserve => submitted.requests,
                BlockedOn::Share => has_answered || submitted.requests,
            };
            // More resources may be free than this queue pair used, or it used none.
            if has_taken || !schedule.waits_for.has(blocked_on) {
                nic.wake(&mut core.ready, blocked_on);
            }
        }
        let is_built = link.transmit(schedule, verbs, core, nic);
        self.finish_call(verbs, core, nic, is_built);
        is_built
    }

    /// Replaces the packet in the NIC's `out`, the last one that this queue pair has built, by a Resync, because its
    /// payload cannot be read.
    #[cold]
    pub(crate) fn fault_payload(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) {
        let Some(link) = self.link.as_deref_mut() else { return };
        if let Some(context) = nic.out_context.take() {
            link.withdraw(verbs, core, context, &mut nic.out);
            link.enlist_if_needed(&mut self.schedule, verbs, core);
        }
        self.finish_call(verbs, core, nic, true);
    }

    /// Processes the timeouts that are due.
    pub(crate) fn on_timeout(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) {
        let Self { schedule, link, .. } = self;
        if let Some(scheduling) = &mut schedule.scheduling {
            let has_work = link.as_deref().is_some_and(|link| link.mapping.has_to_submit(verbs, &link.connection));
            scheduling.on_timeout(&verbs.head, core, schedule.queued && has_work);
        }
        let Some(link) = link.as_deref_mut() else { return };
        // Most timeouts are for an acknowledgement, which is sent when the scheduler serves this queue pair.
        if link.only_acks_due(core.now) && verbs.head.state.receives() {
            return schedule.enlist(verbs.head.slot, core);
        }
        link.expire(verbs, core, nic);
        link.report_to_fae(core, nic);
        schedule.enlist(verbs.head.slot, core);
        self.finish_call(verbs, core, nic, true);
    }

    /// Applies a response of the adaptive engine, if there is one, and schedules the queue pair; also called when the
    /// pacing time of the queue pair is reached.
    pub(crate) fn on_decision(&mut self, verbs: &Verbs, core: &mut Core, response: Option<&rnic_fae::Response>) {
        if let (Some(response), Some(link)) = (response, self.link.as_mut()) {
            link.connection.apply_response(response);
        }
        self.schedule.enlist(verbs.head.slot, core);
    }

    /// Ends the connection if it has failed, and otherwise ensures that the queue pair is woken in time. With
    /// `has_turn`, timeouts that are already due are processed when the scheduler next serves the queue pair;
    /// otherwise an immediate timeout is armed.
    #[inline]
    fn finish_call(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic, has_turn: bool) {
        let Some(link) = self.link.as_deref_mut() else { return };
        if core.peers.has_limits() {
            link.count_credit(verbs, core);
        }
        let timeout = link.connection.timeout().map_or(Deadline::NEVER, Deadline::at);
        let timeout = timeout.min(link.mapping.deadline());
        let timeout = match &self.schedule.scheduling {
            Some(scheduling) => timeout.min(scheduling.limiter.wake_after(core.now)).min(scheduling.next_timeout()),
            None => timeout,
        };
        self.schedule.set_distant_deadline(verbs.head.slot, core, link.mapping.distant_deadline());
        let is_terminated = link.connection.is_terminated();
        if (is_terminated || !verbs.head.state.receives()) && self.has_ended(verbs, core, nic, is_terminated) {
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

    /// Ends the connection if it has failed; returns `true` if it has ended.
    #[cold]
    fn has_ended(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic, is_terminated: bool) -> bool {
        if is_terminated && verbs.head.state.receives() {
            let known_status = self.known_failure(verbs);
            verbs.on_peer_gone(core, known_status);
        }
        // A failed queue pair continues to respond as long as its peer is alive.
        let has_ended = !verbs.head.state.receives() && (is_terminated || !responds_after_failure(verbs));
        if has_ended {
            self.end(verbs, core, nic);
        }
        has_ended
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
        let out_of_order_before = core.stats.packets_out_of_order;
        let spurious_before = connection.delivery().timeouts_spurious();
        let was_kept = !is_push && rsn.is_some_and(|rsn| connection.transactions().holds_push(rsn));
        let FalconArrival { label, congested, hops, csig, .. } = *arrival;
        let arrival = Arrival { packet, label, marked: congested, hops, csig };
        let reception = mapping.receive(connection, verbs, core, &mut nic.resources, &arrival, dma);
        core.stats.timeouts_spurious += u64::from(connection.delivery().timeouts_spurious() - spurious_before);
        if let Some(rsn) = rsn {
            let holds_push = connection.transactions().holds_push(rsn);
            if is_push && holds_push && reception == Reception::Kept {
                dma.keep(handle(slot, rsn));
                core.stats.packets_out_of_order += 1;
            }
            // A Resync has replaced the request.
            if was_kept && !holds_push {
                dma.release(handle(slot, rsn));
            }
        }
        if let Some(code) = verbs.recv.refused {
            refuse_kept(nic, connection, code, |rsn| dma.release(handle(slot, rsn)));
        }
        match reception {
            Reception::Kept if core.stats.packets_out_of_order > out_of_order_before => RxOutcome::OutOfOrder,
            Reception::Kept | Reception::Processed => {
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

    /// Passes the results of Pushes (with weak order) and, as long as there are resources, responses from the upper
    /// layer to the transaction layer. Returns `true` if resources were used.
    #[inline]
    fn serve(&mut self, schedule: &mut Schedule, verbs: &Verbs, core: &mut Core, nic: &mut FalconNic) -> bool {
        let Self { connection, mapping, .. } = self;
        mapping
            .pending_replies()
            .is_some_and(|serving| deliver_replies(serving, connection, schedule, verbs, core, nic))
    }

    /// Builds the next packet that the connection has to send.
    #[inline(always)]
    fn transmit(&mut self, schedule: &mut Schedule, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic) -> bool {
        let Self { connection, mapping, .. } = self;
        connection.set_credit(core.peers.available(verbs.head.peer()));
        let FalconNic { resources, out, .. } = nic;
        let departure = mapping.transmit(connection, verbs, core, resources, &mut out.packet);
        if core.peers.has_limits() {
            self.use_credit(verbs, core, departure.as_ref());
        }
        let is_built = departure.is_some();
        if let Some(departure) = departure {
            if let Some(scheduling) = schedule.scheduling.as_mut().filter(|_| departure.is_retransmission) {
                scheduling.limiter.charge(core.now, nic.out.packet.payload_len);
            }
            self.store_output(verbs, core, nic, departure);
            self.enlist_if_needed(schedule, verbs, core);
            self.return_credit(schedule, verbs, core);
        } else if let Some(at) = self.connection.departure() {
            nic.pace(&mut core.timers, core.now, verbs.head.slot, at);
        }
        is_built
    }

    /// Stores the attributes of the packet and its payload in the NIC's `out`, where the driver reads them.
    #[inline(always)]
    fn store_output(&mut self, verbs: &mut Verbs, core: &mut Core, nic: &mut FalconNic, departure: DepartureInfo) {
        let DepartureInfo { label, context, is_retransmission } = departure;
        let out = &mut nic.out;
        let packet = &out.packet;
        out.label = label;
        out.from = verbs.head.number;
        out.peer = verbs.head.peer();
        out.kind = TransmitKind::of_falcon(packet.body.packet_type(), is_retransmission);
        nic.out_context = context;
        core.segments.clear();
        let Some(context) = context else {
            core.stats.acks_sent += 1;
            return;
        };
        let tag = self.connection.transactions().tag(context);
        if let Some(times) = core.times.as_mut().filter(|_| !is_retransmission)
            && let Some(counter) = self.mapping.entry_of(tag)
        {
            times.sent(verbs.head.slot, counter, core.now);
        }
        let is_readable = self.mapping.gather(verbs, core, packet, tag);
        if !is_readable {
            self.withdraw(verbs, core, context, &mut nic.out);
        }
        let (qp_stats, engine_stats) = (&mut verbs.stats, &mut core.stats);
        if is_retransmission {
            (qp_stats.packets_retransmitted, engine_stats.packets_retransmitted) =
                (qp_stats.packets_retransmitted + 1, engine_stats.packets_retransmitted + 1);
        } else {
            (qp_stats.packets_sent, engine_stats.packets_sent) =
                (qp_stats.packets_sent + 1, engine_stats.packets_sent + 1);
        }
    }

    /// Replaces the packet in `out`, which belongs to the transaction `context`, by a Resync, which has no payload,
    /// because the memory is no longer readable or valid.
    #[cold]
    fn withdraw(&mut self, verbs: &mut Verbs, core: &mut Core, context: Context, out: &mut FalconTransmit) {
        core.segments.clear();
        let packet = &mut out.packet;
        let (Some(psn), Some(rsn)) = (packet.body.psn(), packet.body.rsn()) else { return };
        self.connection.withdraw(context);
        let fails_qp = out.kind == TransmitKind::Response && self.mapping.fails_without_memory();
        if fails_qp && verbs.head.state.receives() {
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
        let timeouts_before = connection.delivery().timeouts();
        mapping.expire(connection, verbs, core, &mut nic.resources);
        let timeouts = connection.delivery().timeouts() - timeouts_before;
        verbs.stats.timeouts += timeouts as u32;
        core.stats.timeouts += timeouts;
        mapping.watch(connection, verbs, core);
    }

    /// Adds the queue pair to the ring of queue pairs that can send, if it has a packet to send: most received
    /// packets do not cause one, and serving a queue pair without effect costs half as much as processing a packet.
    #[inline]
    fn enlist_if_needed(&mut self, schedule: &mut Schedule, verbs: &Verbs, core: &mut Core) {
        if self.mapping.has_to_submit(verbs, &self.connection) || self.connection.has_to_send(core.now) {
            schedule.enlist(verbs.head.slot, core);
        }
    }

    /// Passes new events to the connection's adaptive engine; if the engine responds later, a timer of the NIC is
    /// armed for the response.
    #[inline]
    fn report_to_fae(&mut self, core: &mut Core, nic: &mut FalconNic) {
        if self.connection.has_reports() {
            self.notify_adaptive(core, nic);
        }
    }

    #[inline(never)]
    fn notify_adaptive(&mut self, core: &mut Core, nic: &mut FalconNic) {
        let engine = &mut nic.adaptives[self.adaptive].1;
        self.connection.report_to_fae(core.now, &nic.resources, engine);
        if let Some(next) = engine.next_at() {
            core.timers.arm(NIC_TIMER_SLOT, Deadline::at(next), &mut nic.armed);
        }
    }

    /// Returns `true` if an acknowledgement or a NACK is due, and no other timeout.
    #[inline]
    fn only_acks_due(&self, now: Time) -> bool {
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        is_due(self.connection.delivery().acknowledgement_due())
            && !is_due(self.connection.expiry())
            && !self.mapping.deadline().is_due(now)
            && !self.mapping.distant_deadline().is_due(now)
    }
}

/// Passes results and responses of the upper layer to the transaction layer: see [`Endpoint::serve`].
#[inline(never)]
fn deliver_replies(
    serving: &mut Serving,
    connection: &mut Connection,
    schedule: &mut Schedule,
    verbs: &Verbs,
    core: &mut Core,
    nic: &mut FalconNic,
) -> bool {
    while let Some((rsn, refused)) = serving.settled.pop_front() {
        // This fails for a request that a Resync has skipped in the meantime, because the connection no longer has
        // it.
        let _ = match refused {
            None => connection.acknowledge(core.now, rsn),
            Some(code) => connection.refuse(core.now, rsn, code),
        };
    }
    let mut has_responded = false;
    while let Some((rsn, answer)) = serving.pending.front() {
        let scheduling = schedule.scheduling.as_mut();
        if scheduling.is_some_and(|scheduling| scheduling.holds(core, Half::Responder)) {
            break;
        }
        let payload_len = answer.payload_len;
        match connection.respond(&mut nic.resources, *rsn, answer) {
            Err(RespondError::Paused) => {
                let is_over = connection.transactions().responses_exceed_share(&nic.resources);
                schedule.wait_for(nic, verbs.head.slot, if is_over { BlockedOn::Share } else { BlockedOn::Response });
                break;
            }
            Ok(()) => {
                has_responded = true;
                if let Some(scheduling) = &mut schedule.scheduling {
                    let has_work = serving.pending.len() > 1;
                    let bytes = (payload_len, payload_len);
                    scheduling.on_submitted(&verbs.head, core, bytes, Half::Responder, has_work);
                }
            }
            Err(RespondError::Unknown | RespondError::TooLong { .. }) => {}
        }
        serving.pending.pop_front();
    }
    if let Some(scheduling) = &mut schedule.scheduling {
        scheduling.limiter.note_work(Half::Responder, serving.pending.front().is_some());
    }
    has_responded
}

/// Refuses all buffered requests, because a request was refused with `code` and the queue pair has failed: requests
/// that arrived out of order can then only be refused too.
#[cold]
fn refuse_kept(nic: &mut FalconNic, connection: &mut Connection, code: NakCode, release: impl FnMut(Rsn)) {
    connection.refuse_all(&mut nic.resources, NackCode::NonRecoverable { ulp: header::code_of(code) });
    connection.take_kept_requests().for_each(release);
}

/// Counts `packet`, which was accepted, if it is a NACK. RNR NACKs have a separate counter.
fn count_nack(verbs: &mut Verbs, core: &mut Core, packet: &Packet) {
    if let Body::Nack(nack) = &packet.body
        && !matches!(nack.code, NackCode::NotReady { .. })
    {
        verbs.stats.nacks += 1;
        core.stats.nacks += 1;
    }
}

/// Calls `serve` for each queue pair whose pacing time is reached, and for each response of an adaptive engine.
pub(crate) fn tick_nic(
    core: &mut Core,
    nic: &mut FalconNic,
    mut serve: impl FnMut(u32, &mut Core, Option<&rnic_fae::Response>),
) {
    let now: Time = core.now;
    nic.armed = Deadline::NEVER;
    while let Some(slot) = nic.next_due_slot(now) {
        serve(slot, core, None);
    }
    for index in 0..nic.adaptives.len() {
        while let Some((slot, response)) = nic.adaptives[index].1.poll(now) {
            serve(slot, core, Some(&response));
        }
    }
    nic.arm(&mut core.timers);
}
