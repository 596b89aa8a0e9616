//! One queue pair at a time: a packet comes in, a packet goes out, a moment has come.
//!
//! A connection is taken out of its queue pair for the time of a call. Whatever fails the queue pair on the way ends no
//! connection: that is done when it is back in its place ([`Qp::rest`]), and by the engine for queue pairs that fail
//! otherwise ([`Qp::stop_falcon`]).

use rnic_base::Time;
use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::{Arrival, Leaving, Reception};
use rnic_falcon::seam::Context;
use rnic_falcon::transaction::AnswerError;
use rnic_policy::FalconErrors;
use rnic_wire::NakCode;
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, ResyncCode, Rsn};

use super::request::{Handed, untag};
use super::upper::{Untouched, Verbs, handle};
use super::{ALARMS_MAX, Lack, Link, Mapping, Nic, SLOT, header};
use crate::core::Core;
use crate::dma::Dma;
use crate::engine::{FalconArrival, FalconTransmit, TransmitKind};
use crate::error::{DropReason, RxOutcome};
use crate::qp::Qp;
use crate::timer::Deadline;
use crate::{PeerId, QpState};

impl Qp {
    /// Takes in a packet that names this queue pair.
    pub(crate) fn receive_falcon<D: Dma>(
        &mut self,
        core: &mut Core,
        nic: &mut Nic,
        arrival: &FalconArrival<'_>,
        dma: &mut D,
    ) -> RxOutcome {
        let Some(falcon) = self.extra.falcon() else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::WrongFormat));
        };
        let is_heard = self.state.receives() || self.lingers();
        if !is_heard || falcon.peer != arrival.peer {
            let reason = if is_heard { DropReason::WrongPeer } else { DropReason::State };
            return RxOutcome::Dropped(core.drop_packet(reason));
        }
        let Some(mut link) = self.take_link(core, nic, Some(arrival.packet)) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::State));
        };
        let outcome = self.receive_on(core, nic, &mut link, arrival, dma);
        self.serve(core, nic, &mut link);
        consult(core, nic, &mut link);
        self.enlist_if_needed(core, &mut link);
        self.rest(core, nic, link, true);
        outcome
    }

    fn receive_on<D: Dma>(
        &mut self,
        core: &mut Core,
        nic: &mut Nic,
        link: &mut Link,
        arrival: &FalconArrival<'_>,
        dma: &mut D,
    ) -> RxOutcome {
        let packet = arrival.packet;
        let (now, rsn) = (core.now, packet.body.rsn());
        let Link { connection, mapping, .. } = link;
        connection.note_absence(core.absence);
        mapping.requests.hear(now);
        let is_push = packet.body.packet_type() == PacketType::PushData;
        let early_before = core.stats.packets_early;
        let was_kept = !is_push && rsn.is_some_and(|rsn| connection.transactions().keeps(rsn));
        let at_hand = rsn.filter(|_| is_push);
        let slot = self.slot;
        let mut verbs = Verbs { qp: self, core, mapping, dma, at_hand };
        let FalconArrival { label, congested, hops, .. } = *arrival;
        let arrival = Arrival { packet, label, marked: congested, hops };
        let reception = connection.receive(now, &arrival, &mut nic.resources, &mut verbs);
        if let Some(rsn) = rsn {
            let keeps = connection.transactions().keeps(rsn);
            if is_push && keeps && reception == Reception::Kept {
                dma.keep(handle(slot, rsn));
                core.stats.packets_early += 1;
            }
            // A Resync has taken its place.
            if was_kept && !keeps {
                dma.release(handle(slot, rsn));
            }
        }
        if let Some(code) = self.responder.refused {
            refuse_the_rest(nic, connection, code, |rsn| dma.release(handle(slot, rsn)));
        }
        match reception {
            Reception::Kept if core.stats.packets_early > early_before => RxOutcome::Early,
            Reception::Kept | Reception::Answer => {
                self.count_nack(core, packet);
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

    /// Counts `packet`, which was taken in, if it is a NACK. Those of a receiver that was not ready have a counter of
    /// their own.
    fn count_nack(&mut self, core: &mut Core, packet: &Packet) {
        if let Body::Nack(nack) = &packet.body
            && !matches!(nack.code, NackCode::NotReady { .. })
        {
            self.stats.nacks += 1;
            core.stats.nacks += 1;
        }
    }

    /// Hands down what the peer is to be told: with weak order, what has become of Pushes; answers, while there is
    /// room. Whether room was taken.
    #[inline]
    fn serve(&mut self, core: &mut Core, nic: &mut Nic, link: &mut Link) -> bool {
        link.mapping.serving.has_to_tell() && self.tell(core, nic, link)
    }

    #[inline(never)]
    fn tell(&mut self, core: &mut Core, nic: &mut Nic, link: &mut Link) -> bool {
        let Link { connection, mapping, .. } = link;
        while let Some((rsn, refused)) = mapping.serving.settled.pop_front() {
            // What a Resync has skipped meanwhile is unknown by now.
            let _ = match refused {
                None => connection.acknowledge(core.now, rsn),
                Some(code) => connection.refuse(core.now, rsn, code),
            };
        }
        let mut any = false;
        while let Some((rsn, answer)) = mapping.serving.pending.front() {
            match connection.answer(&mut nic.resources, *rsn, answer) {
                Err(AnswerError::Paused) => {
                    let is_over = connection.transactions().answers_exceed_share(&nic.resources);
                    self.wait_for_resources(nic, if is_over { Lack::Share } else { Lack::Answer });
                    break;
                }
                Ok(()) => any = true,
                Err(AnswerError::Unknown | AnswerError::TooLong { .. }) => {}
            }
            mapping.serving.pending.pop_front();
        }
        any
    }

    /// Makes the next packet, in the NIC's `out`, if one may leave now. The ring has let go of this queue pair.
    pub(crate) fn transmit_falcon(&mut self, core: &mut Core, nic: &mut Nic, waited: Option<Lack>) -> bool {
        let Some(falcon) = self.extra.falcon_mut() else { return false };
        match waited {
            Some(lack) => falcon.waits.remove(lack),
            None => falcon.queued = false,
        }
        let is_heard = self.state.receives() || self.lingers();
        let Some(mut link) = is_heard.then(|| self.take_link(core, nic, None)).flatten() else {
            if let Some(lack) = waited {
                nic.wake(&mut core.ready, lack);
            }
            return false;
        };
        // Where the line is busy, a queue pair may be in the ring for ever, and no other moment comes.
        if link.connection.expiry().is_some_and(|due| due <= core.now) {
            self.expire(core, nic, &mut link);
            consult(core, nic, &mut link);
        }
        let has_answered = self.serve(core, nic, &mut link);
        let Link { connection, mapping, .. } = &mut *link;
        let handed = self.hand_in(core, nic, connection, mapping);
        if let Handed::NoRoom { lack, .. } = handed {
            self.wait_for_resources(nic, lack);
        }
        if let Some(lack) = waited {
            let has_handed = matches!(handed, Handed::Some | Handed::NoRoom { any: true, .. });
            let has_taken = match lack {
                Lack::Answer => has_answered,
                Lack::Request | Lack::Reserve => has_handed,
                Lack::Share => has_answered || has_handed,
            };
            // There may be more than it took, or it took none.
            if has_taken || !self.waits_for(lack) {
                nic.wake(&mut core.ready, lack);
            }
        }
        let Link { connection, mapping, .. } = &mut *link;
        connection.set_room(core.peers.room(self.far_end()));
        let mut verbs = Verbs { qp: self, core, mapping, dma: &mut Untouched, at_hand: None };
        let leaving = connection.transmit_into(verbs.core.now, &mut nic.out.packet, &mut nic.resources, &mut verbs);
        let made = leaving.is_some();
        if core.peers.is_any() {
            self.use_room(core, &mut link, leaving.as_ref());
        }
        if let Some(leaving) = leaving {
            self.put_out(core, nic, &mut link, leaving);
            self.enlist_if_needed(core, &mut link);
            self.return_room(core, &mut link);
        } else if let Some(at) = link.connection.departure() {
            nic.pace(&mut core.timers, core.now, self.slot, at);
        }
        self.rest(core, nic, link, made);
        made
    }

    /// Puts what belongs to the packet where the body finds it, and its payload.
    #[inline(always)]
    fn put_out(&mut self, core: &mut Core, nic: &mut Nic, link: &mut Link, leaving: Leaving) {
        let Leaving { label, context, again } = leaving;
        let out = &mut nic.out;
        let packet = &out.packet;
        out.label = label;
        out.from = self.number;
        out.peer = self.extra.falcon().map_or(PeerId::NOBODY, |falcon| falcon.peer);
        out.kind = TransmitKind::of_falcon(packet.body.packet_type(), again);
        nic.out_context = context;
        core.segments.clear();
        let Some(context) = context else {
            core.stats.acks_sent += 1;
            return;
        };
        let Link { connection, mapping, .. } = link;
        let is_mine = connection.transactions().tag(context);
        let found = match (&packet.body, is_mine) {
            // The program may have its memory back.
            (Body::PushData { .. } | Body::PullRequest { .. }, _) if !self.state.sends() => false,
            _ if packet.payload_len == 0 => true,
            (_, Some(tag)) => {
                let (counter, index) = untag(tag);
                self.gather_payload(core, counter, index * self.mtu(), packet.payload_len)
            }
            (Body::PullData { rsn, .. }, None) => self.gather_answer(core, mapping, *rsn, packet.payload_len),
            _ => true,
        };
        if !found {
            self.withdraw_falcon(core, mapping, connection, context, &mut nic.out);
        }
        let (mine, all) = (&mut self.stats, &mut core.stats);
        if again {
            (mine.packets_retransmitted, all.packets_retransmitted) =
                (mine.packets_retransmitted + 1, all.packets_retransmitted + 1);
        } else {
            (mine.packets_sent, all.packets_sent) = (mine.packets_sent + 1, all.packets_sent + 1);
        }
    }

    /// The memory of packet `out` of the transaction named `context` is not what it was: a Resync, which has no
    /// payload, takes its place.
    #[cold]
    fn withdraw_falcon(
        &mut self,
        core: &mut Core,
        mapping: &Mapping,
        connection: &mut Connection,
        context: Context,
        out: &mut FalconTransmit,
    ) {
        core.segments.clear();
        let packet = &mut out.packet;
        let (Some(psn), Some(rsn)) = (packet.body.psn(), packet.body.rsn()) else { return };
        connection.withdraw(context);
        if out.kind == TransmitKind::Response && mapping.errors == FalconErrors::Verbs && self.state.receives() {
            self.fail_as_responder(core, NakCode::RemoteAccessError);
        }
        let of = packet.body.packet_type();
        packet.body = Body::Resync { psn, rsn, code: ResyncCode::LocalXlr, of, vendor: 0 };
        packet.payload_len = 0;
    }

    /// The payload of the packet in the NIC's `out`, the last one that this queue pair has made, cannot be read: a
    /// Resync takes its place.
    #[cold]
    pub(crate) fn fault_falcon_payload(&mut self, core: &mut Core, nic: &mut Nic) {
        let Some(mut link) = self.extra.falcon_mut().and_then(|falcon| falcon.link.take()) else { return };
        if let Some(context) = nic.out_context.take() {
            let Link { connection, mapping, .. } = &mut *link;
            self.withdraw_falcon(core, mapping, connection, context, &mut nic.out);
            self.enlist_if_needed(core, &mut link);
        }
        self.rest(core, nic, link, true);
    }

    /// Something may be due.
    pub(crate) fn tick_falcon(&mut self, core: &mut Core, nic: &mut Nic) {
        let Some(falcon) = self.extra.falcon_mut() else { return };
        // Most alarms are for an acknowledgement, which leaves in this queue pair's turn.
        let only_answers = falcon.link.as_ref().is_some_and(|link| link.owes_only_answers(core.now));
        if only_answers && self.state.receives() {
            return self.enlist(core);
        }
        let Some(mut link) = self.extra.falcon_mut().and_then(|falcon| falcon.link.take()) else { return };
        self.expire(core, nic, &mut link);
        consult(core, nic, &mut link);
        self.enlist(core);
        self.rest(core, nic, link, true);
    }

    /// Does what is due.
    #[inline(never)]
    fn expire(&mut self, core: &mut Core, nic: &mut Nic, link: &mut Link) {
        let Link { connection, mapping, .. } = link;
        let now = core.now;
        connection.note_absence(core.absence);
        let before = connection.delivery().timeouts();
        let mut verbs = Verbs { qp: self, core, mapping, dma: &mut Untouched, at_hand: None };
        connection.expire(now, &mut nic.resources, &mut verbs);
        let timeouts = connection.delivery().timeouts() - before;
        self.stats.timeouts += timeouts as u32;
        core.stats.timeouts += timeouts;
        self.watch_target(core, mapping, connection);
    }

    /// An answer of the adaptive engine has come, or the time to send.
    pub(crate) fn awake_falcon(&mut self, core: &mut Core, response: Option<&rnic_fae::Response>) {
        if let (Some(falcon), Some(response)) = (self.extra.falcon_mut(), response)
            && let Some(link) = falcon.link.as_mut()
        {
            link.connection.obey(response);
        }
        self.enlist(core);
    }

    /// Puts this queue pair into the ring of those who can send.
    #[inline]
    pub(super) fn enlist(&mut self, core: &mut Core) {
        if let Some(falcon) = self.extra.falcon_mut().filter(|falcon| !falcon.queued) {
            falcon.queued = true;
            core.ready.push_falcon(self.slot, 0);
        }
    }

    /// The same, when it has something to send: packets that only come in draw few that go out, and a turn in vain
    /// costs as much as half a packet.
    #[inline]
    fn enlist_if_needed(&mut self, core: &mut Core, link: &mut Link) {
        let Link { connection, mapping, .. } = link;
        let has_requests = self.requester.queue.has_unsent() && !connection.transactions().is_full();
        if has_requests || mapping.serving.has_to_tell() || connection.has_to_send(core.now) {
            self.enlist(core);
        }
    }

    fn waits_for(&self, lack: Lack) -> bool {
        self.extra.falcon().is_some_and(|falcon| falcon.waits.has(lack))
    }

    fn wait_for_resources(&mut self, nic: &mut Nic, lack: Lack) {
        if let Some(falcon) = self.extra.falcon_mut().filter(|falcon| !falcon.waits.has(lack)) {
            falcon.waits.add(lack);
            nic.push_waiting(self.slot, lack);
        }
    }

    /// Whether it answers on, although it has failed: it has refused a request.
    fn lingers(&self) -> bool {
        self.state == QpState::Error && self.responder.refused.is_some()
    }

    /// Puts the connection back, ends what has ended, and sees that it wakes in time. What is due already is looked at
    /// when its turn in the ring comes, if it `has_turn`; when that was in vain, at once.
    #[inline]
    fn rest(&mut self, core: &mut Core, nic: &mut Nic, mut link: Box<Link>, has_turn: bool) {
        if core.peers.is_any() {
            self.count_room(core, &mut link);
        }
        let timeout = link.connection.timeout().map_or(Deadline::NEVER, Deadline::at);
        let timeout = timeout.min(link.mapping.requests.watch);
        let is_dead = link.connection.is_dead();
        let is_over = is_dead || !self.state.receives();
        let Some(falcon) = self.extra.falcon_mut() else { return };
        falcon.link = Some(link);
        if is_over && self.is_over(core, nic, is_dead) {
            return;
        }
        let Some(falcon) = self.extra.falcon_mut() else { return };
        if timeout >= falcon.alarms[0] {
            return;
        }
        if timeout.is_due(core.now) && (has_turn || falcon.queued) {
            return self.enlist(core);
        }
        self.arm_falcon(core, timeout);
    }

    /// Ends what has ended; whether it has.
    #[cold]
    fn is_over(&mut self, core: &mut Core, nic: &mut Nic, is_dead: bool) -> bool {
        if is_dead && self.state.receives() {
            self.give_up_on_peer(core);
        }
        // Who has failed answers on while there is somebody to answer.
        let is_over = !self.state.receives() && (is_dead || !self.lingers());
        if is_over {
            self.end_falcon(core, nic);
        }
        is_over
    }

    /// Sees that this queue pair wakes at `timeout`, before all its other entries in the timer heap.
    #[inline(never)]
    fn arm_falcon(&mut self, core: &mut Core, timeout: Deadline) {
        let Some(falcon) = self.extra.falcon_mut() else { return };
        // Where there is no room, the earliest gives way: its entry is the first to leave the heap.
        if !falcon.alarms[ALARMS_MAX - 1].is_set() {
            falcon.alarms.rotate_right(1);
        }
        falcon.alarms[0] = timeout;
        let mut none = Deadline::NEVER;
        core.timers.arm(self.slot, timeout, &mut none);
    }

    /// An entry of the timer heap has come up; whether it is one of ours.
    pub(crate) fn disarm_falcon(&mut self, deadline: Deadline) -> bool {
        let Some(falcon) = self.extra.falcon_mut() else { return false };
        let found = falcon.alarms.iter().position(|alarm| *alarm == deadline);
        if let Some(index) = found {
            falcon.alarms[index..].rotate_left(1);
            falcon.alarms[falcon.alarms.len() - 1] = Deadline::NEVER;
        }
        found.is_some()
    }
}

impl Link {
    /// Whether an acknowledgement or a NACK is due, and nothing else.
    #[inline]
    fn owes_only_answers(&self, now: Time) -> bool {
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        is_due(self.connection.delivery().answer_due())
            && !is_due(self.connection.expiry())
            && !self.mapping.requests.watch.is_due(now)
    }
}

/// A request was refused with `code`, and the queue pair has failed: what came before its turn can only be refused too.
#[cold]
fn refuse_the_rest(nic: &mut Nic, connection: &mut Connection, code: NakCode, release: impl FnMut(Rsn)) {
    connection.refuse_all(&mut nic.resources, NackCode::NonRecoverable { ulp: header::code_of(code) });
    connection.take_kept().for_each(release);
}

/// Takes what is new to the connection's adaptive engine; where that takes its time, the NIC wakes for the answer.
#[inline]
fn consult(core: &mut Core, nic: &mut Nic, link: &mut Link) {
    if link.connection.has_news() {
        tell_news(core, nic, link);
    }
}

#[inline(never)]
fn tell_news(core: &mut Core, nic: &mut Nic, link: &mut Link) {
    let engine = &mut nic.adaptives[link.adaptive].1;
    link.connection.consult(core.now, &nic.resources, engine);
    if let Some(next) = engine.next_at() {
        core.timers.arm(SLOT, Deadline::at(next), &mut nic.armed);
    }
}

/// Wakes those who wait for resources, and whoever's time to send has come.
pub(crate) fn tick_nic(
    core: &mut Core,
    nic: &mut Nic,
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
