//! The transaction layer as the delivery layer sees it: one connection, the NIC's resources, its upper layer.

use rnic_base::Time;
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, Ulp, UlpProtocol};

use super::initiator::{Initiator, Surroundings};
use super::target::Target;
use super::{Kind, Transactions, UpperLayer};
use crate::resources::Resources;
use crate::seam::{Context, Exhausted, Gates, Outgoing, Upper, Verdict};

/// A connection's transactions together with what they share: put together for the time of a call.
#[derive(Debug)]
pub struct Layer<'a, U> {
    /// The connection.
    pub transactions: &'a mut Transactions,
    /// The NIC's.
    pub resources: &'a mut Resources,
    /// Its upper layer.
    pub ulp: &'a mut U,
}

/// Set in the context of Pull Data; clear in those of requests.
const OF_DATA: u32 = 1 << 31;

/// Whether `context` is that of Pull Data.
#[inline]
pub(super) const fn is_data(context: Context) -> bool {
    context.0 & OF_DATA != 0
}

/// The place of Pull Data among the peer's requests.
#[inline]
pub(super) const fn slot_of_data(context: Context) -> u32 {
    context.0 & !OF_DATA
}

impl<U: UpperLayer> Layer<'_, U> {
    /// Lets time pass: gives up what takes too long, offers again what was not ready.
    pub fn tick(&mut self, now: Time) {
        let (initiator, target, mut with) = self.halves(now);
        initiator.expire(&mut with);
        target.retry(&mut with);
    }

    /// The upper layer, which was busy, takes requests again.
    pub fn resume(&mut self, now: Time) {
        let (_, target, mut with) = self.halves(now);
        target.resume(&mut with);
    }

    /// The connection has failed for good: every transaction of ours ends in error, and all that is held goes back.
    pub fn die(&mut self, now: Time) {
        self.transactions.dead = true;
        let (initiator, target, mut with) = self.halves(now);
        target.die(with.resources, with.usage);
        initiator.die(&mut with);
    }

    /// Both halves, and what either works with.
    fn halves(&mut self, now: Time) -> (&mut Initiator, &mut Target, Surroundings<'_, U>) {
        let connection = &mut *self.transactions;
        let with = Surroundings {
            now,
            resources: self.resources,
            usage: &mut connection.usage,
            stats: &mut connection.stats,
            ulp: self.ulp,
        };
        (&mut connection.initiator, &mut connection.target, with)
    }

    /// What the packet of `context` says, and its payload bytes.
    #[inline]
    fn body(&self, context: Context) -> (Body, u32) {
        let connection = &*self.transactions;
        if is_data(context) {
            connection.target.packet(connection.target.seq_at(slot_of_data(context)))
        } else {
            connection.initiator.packet(connection.initiator.seq_at(context.0), &*self.ulp)
        }
    }

    fn outgoing(&self, context: Context) -> Outgoing {
        let (body, payload_len) = self.body(context);
        Outgoing { context, protocol: self.protocol_of(&body), payload_len, body }
    }

    /// Returns the protocol of a packet with that `body`: the connection's, or that of a peer with another upper layer,
    /// which is told so in its own terms.
    #[inline]
    fn protocol_of(&self, body: &Body) -> UlpProtocol {
        match body.ulp() {
            None | Some(Ulp::None) => self.transactions.config.protocol,
            Some(ulp) => ulp.protocol(),
        }
    }

    /// Lets the next packet leave; F-41: queues by type, each in order, that take turns.
    #[inline]
    fn choose(&mut self, now: Time, open: Gates) -> Option<Context> {
        let connection = &mut *self.transactions;
        let data = if open.pull_data { connection.target.sendable() } else { None };
        let request = connection.initiator.sendable(open, connection.turn & 2 == 0);
        let data_first = connection.turn & 1 == 0;
        match (data, request) {
            (Some(data), other) if data_first || other.is_none() => {
                connection.turn ^= 1;
                connection.target.send(data);
                Some(Context(connection.target.slot(data) | OF_DATA))
            }
            (_, Some(kind)) => {
                connection.turn = if kind == Kind::Pull { 2 } else { 0 };
                let seq = connection.initiator.send(now + connection.config.timeout, kind);
                Some(Context(connection.initiator.slot(seq)))
            }
            (_, None) => None,
        }
    }
}

impl<U: UpperLayer> Upper for Layer<'_, U> {
    fn next(&mut self, now: Time, open: Gates) -> Option<Outgoing> {
        self.choose(now, open).map(|context| self.outgoing(context))
    }

    #[inline]
    fn has_next(&self) -> bool {
        self.transactions.initiator.has_unsent() || self.transactions.target.has_answers()
    }

    #[inline]
    fn put_next(&mut self, now: Time, open: Gates, packet: &mut Packet) -> Option<Context> {
        let context = self.choose(now, open)?;
        if is_data(context) {
            (packet.body, packet.payload_len) = self.body(context);
            packet.protocol = self.protocol_of(&packet.body);
        } else {
            packet.protocol = self.transactions.config.protocol;
            self.transactions.initiator.put(self.transactions.initiator.seq_at(context.0), packet, &*self.ulp);
        }
        Some(context)
    }

    fn again(&mut self, _: Time, context: Context) -> Outgoing {
        self.outgoing(context)
    }

    fn acked(&mut self, now: Time, context: Context) {
        let (initiator, target, mut with) = self.halves(now);
        if context.0 & OF_DATA == 0 {
            initiator.acked(initiator.seq_at(context.0), &mut with);
        } else {
            target.acked(target.seq_at(context.0 & !OF_DATA), with.resources, with.usage);
        }
    }

    fn nacked(&mut self, _: Time, context: Context, code: NackCode) {
        let connection = &mut *self.transactions;
        if context.0 & OF_DATA == 0 {
            connection.initiator.nacked(connection.initiator.seq_at(context.0), code);
        } else {
            connection.target.nacked(connection.target.seq_at(context.0 & !OF_DATA));
        }
    }

    fn not_ready(&mut self, now: Time, context: Context) {
        if let Some(tag) = self.transactions.tag(context) {
            self.ulp.not_ready(now, tag);
        }
    }

    fn exhausted(&mut self, _: Time, context: Context) -> Exhausted {
        let connection = &mut *self.transactions;
        if context.0 & OF_DATA == 0 {
            connection.initiator.exhausted(connection.initiator.seq_at(context.0))
        } else {
            connection.target.exhausted(connection.target.seq_at(context.0 & !OF_DATA))
        }
    }

    #[inline]
    fn offer(&mut self, now: Time, packet: &Packet) -> Verdict {
        // A peer with another upper layer is refused by this one: in silence it would retransmit for long.
        if self.transactions.dead {
            return Verdict::Dropped;
        }
        let refuses = self.transactions.refuses;
        let (initiator, target, mut with) = self.halves(now);
        match packet.body {
            Body::PullData { .. } | Body::Resync { of: PacketType::PullData, .. } => {
                initiator.answered(packet, &mut with)
            }
            Body::PullRequest { .. } | Body::PushData { .. } | Body::Resync { .. } => {
                target.offer(packet, refuses, &mut with)
            }
            Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_) => Verdict::Dropped,
        }
    }

    fn duplicate(&mut self, now: Time, packet: &Packet) -> Option<NackCode> {
        let (_, target, mut with) = self.halves(now);
        target.duplicate(packet, &mut with)
    }

    fn rx_level(&self) -> u8 {
        self.resources.rx_level()
    }
}
