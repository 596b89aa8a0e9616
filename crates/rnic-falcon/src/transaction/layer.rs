//! Interface of the transaction layer to the delivery layer: one connection, the NIC's resources, and its upper layer.

use rnic_base::Time;
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, Ulp, UlpProtocol};

use super::initiator::{Initiator, Surroundings};
use super::target::Target;
use super::{Kind, Transactions, UpperLayer};
use crate::resources::Resources;
use crate::seam::{Context, Exhausted, Gates, Outgoing, Upper, Verdict};

/// A connection's transactions together with the resources and the upper layer that they use, combined for the duration
/// of a call.
#[derive(Debug)]
pub struct Layer<'a, U> {
    /// Transactions of the connection.
    pub transactions: &'a mut Transactions,
    /// Resources of the NIC.
    pub resources: &'a mut Resources,
    /// Upper layer of the connection.
    pub ulp: &'a mut U,
}

/// Bit set in the context of Pull Data; clear in those of requests.
const OF_DATA: u32 = 1 << 31;

/// Returns whether `context` is that of Pull Data.
#[inline]
pub(super) const fn is_data(context: Context) -> bool {
    context.0 & OF_DATA != 0
}

/// Returns the slot of Pull Data among the peer's requests.
#[inline]
pub(super) const fn slot_of_data(context: Context) -> u32 {
    context.0 & !OF_DATA
}

impl<U: UpperLayer> Layer<'_, U> {
    /// Performs the actions due at `now`: gives up transactions that take too long, and offers again requests for which
    /// the upper layer was not ready.
    pub fn tick(&mut self, now: Time) {
        let (initiator, target, mut with) = self.halves(now);
        initiator.expire(&mut with);
        target.retry(&mut with);
    }

    /// Resumes delivery of requests to the upper layer, which was busy and accepts requests again.
    pub fn resume(&mut self, now: Time) {
        let (_, target, mut with) = self.halves(now);
        target.resume(&mut with);
    }

    /// Handles a permanent failure of the connection: every local transaction completes in error, and all held
    /// resources are released.
    pub fn die(&mut self, now: Time) {
        self.transactions.dead = true;
        let (initiator, target, mut with) = self.halves(now);
        target.die(with.resources, with.usage);
        initiator.die(&mut with);
    }

    /// Returns both halves, and the surrounding state that either uses.
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

    /// Returns the body of the packet of `context`, and its payload length in bytes.
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
    /// which is notified in its own protocol.
    #[inline]
    fn protocol_of(&self, body: &Body) -> UlpProtocol {
        match body.ulp() {
            None | Some(Ulp::None) => self.transactions.config.protocol,
            Some(ulp) => ulp.protocol(),
        }
    }

    /// Selects the next packet to send; F-41: one queue per type, each in order, served round robin.
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
        // A packet of another upper layer is refused by the local upper layer and not dropped here, because otherwise
        // its sender would retransmit for a long time.
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
