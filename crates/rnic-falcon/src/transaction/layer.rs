//! Interface of the transaction layer to the delivery layer: one connection, the NIC's resources, and its upper layer.

use rnic_base::Time;
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, Ulp, UlpProtocol};

use super::initiator::{Initiator, LayerContext};
use super::target::Target;
use super::{Kind, Transactions, UpperLayer};
use crate::interface::{Context, Exhausted, Gates, Outgoing, Upper, Verdict};
use crate::resources::Resources;

/// A connection's transactions together with the resources and the upper layer that they use, combined for the duration
/// of a call.
#[derive(Debug)]
pub struct Layer<'a, U> {
    /// The connection's transactions.
    pub transactions: &'a mut Transactions,
    /// The NIC's resources.
    pub resources: &'a mut Resources,
    /// The connection's upper layer.
    pub ulp: &'a mut U,
}

/// Bit that is set in the contexts of Pull Data and clear in those of requests.
const DATA_CONTEXT_BIT: u32 = 1 << 31;

/// Returns `true` if `context` is that of Pull Data.
#[inline]
pub(super) const fn is_data(context: Context) -> bool {
    context.0 & DATA_CONTEXT_BIT != 0
}

/// Returns the slot of the Pull among the peer's requests to which Pull Data with `context` belongs.
#[inline]
pub(super) const fn slot_of_data(context: Context) -> u32 {
    context.0 & !DATA_CONTEXT_BIT
}

impl<U: UpperLayer> Layer<'_, U> {
    /// Performs the actions due at `now`: terminates transactions whose deadline has passed, and offers requests for
    /// which the upper layer was not ready again.
    pub fn tick(&mut self, now: Time) {
        let (initiator, target, mut layer) = self.halves(now);
        initiator.expire(&mut layer);
        target.retry(&mut layer);
    }

    /// Resumes delivery of requests to the upper layer, which was busy and now accepts requests again.
    pub fn resume(&mut self, now: Time) {
        let (_, target, mut layer) = self.halves(now);
        target.resume(&mut layer);
    }

    /// Handles a permanent failure of the connection: every local transaction completes in error, and all held
    /// resources are released.
    pub fn terminate(&mut self, now: Time) {
        self.transactions.terminated = true;
        let (initiator, target, mut layer) = self.halves(now);
        target.terminate(layer.resources, layer.usage);
        initiator.terminate(&mut layer);
    }

    /// Returns both halves, each with the surrounding state that it uses.
    fn halves(&mut self, now: Time) -> (&mut Initiator, &mut Target, LayerContext<'_, U>) {
        let connection = &mut *self.transactions;
        let layer = LayerContext {
            now,
            resources: self.resources,
            usage: &mut connection.usage,
            stats: &mut connection.stats,
            ulp: self.ulp,
        };
        (&mut connection.initiator, &mut connection.target, layer)
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

    /// Returns the upper-layer protocol of a packet with this `body`: the connection's, or, if the peer has a
    /// different upper layer, the peer's protocol, because the peer is notified in that protocol.
    #[inline]
    fn protocol_of(&self, body: &Body) -> UlpProtocol {
        match body.ulp() {
            None | Some(Ulp::None) => self.transactions.config.protocol,
            Some(ulp) => ulp.protocol(),
        }
    }

    /// Selects the next packet to send. There is one queue per type, each in order, and the queues are served round
    /// robin (Falcon mechanism F-41).
    #[inline]
    fn choose(&mut self, now: Time, open: Gates) -> Option<Context> {
        let connection = &mut *self.transactions;
        let data = if open.pull_data { connection.target.sendable() } else { None };
        let request = connection.initiator.sendable(open, connection.round_robin & 2 == 0);
        let data_first = connection.round_robin & 1 == 0;
        match (data, request) {
            (Some(data), other) if data_first || other.is_none() => {
                connection.round_robin ^= 1;
                connection.target.send(data);
                Some(Context(connection.target.slot(data) | DATA_CONTEXT_BIT))
            }
            (_, Some(kind)) => {
                connection.round_robin = if kind == Kind::Pull { 2 } else { 0 };
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
        self.transactions.initiator.has_unsent() || self.transactions.target.has_responses()
    }

    #[inline]
    fn write_next(&mut self, now: Time, open: Gates, packet: &mut Packet) -> Option<Context> {
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

    fn retransmission(&mut self, _: Time, context: Context) -> Outgoing {
        self.outgoing(context)
    }

    fn acked(&mut self, now: Time, context: Context) {
        let (initiator, target, mut layer) = self.halves(now);
        if context.0 & DATA_CONTEXT_BIT == 0 {
            initiator.acked(initiator.seq_at(context.0), &mut layer);
        } else {
            target.acked(target.seq_at(context.0 & !DATA_CONTEXT_BIT), layer.resources, layer.usage);
        }
    }

    fn nacked(&mut self, _: Time, context: Context, code: NackCode) {
        let connection = &mut *self.transactions;
        if context.0 & DATA_CONTEXT_BIT == 0 {
            connection.initiator.nacked(connection.initiator.seq_at(context.0), code);
        } else {
            connection.target.nacked(connection.target.seq_at(context.0 & !DATA_CONTEXT_BIT));
        }
    }

    fn not_ready(&mut self, now: Time, context: Context) {
        if let Some(tag) = self.transactions.tag(context) {
            self.ulp.not_ready(now, tag);
        }
    }

    fn exhausted(&mut self, _: Time, context: Context) -> Exhausted {
        let connection = &mut *self.transactions;
        if context.0 & DATA_CONTEXT_BIT == 0 {
            connection.initiator.exhausted(connection.initiator.seq_at(context.0))
        } else {
            connection.target.exhausted(connection.target.seq_at(context.0 & !DATA_CONTEXT_BIT))
        }
    }

    #[inline]
    fn offer(&mut self, now: Time, packet: &Packet) -> Verdict {
        // A packet of a different upper-layer protocol is not dropped here but refused by the local upper layer,
        // because otherwise its sender would retransmit it for a long time.
        if self.transactions.terminated {
            return Verdict::Dropped;
        }
        let refuse_code = self.transactions.refuse_code;
        let (initiator, target, mut layer) = self.halves(now);
        match packet.body {
            Body::PullData { .. } | Body::Resync { of: PacketType::PullData, .. } => {
                initiator.on_response(packet, &mut layer)
            }
            Body::PullRequest { .. } | Body::PushData { .. } | Body::Resync { .. } => {
                target.offer(packet, refuse_code, &mut layer)
            }
            Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_) => Verdict::Dropped,
        }
    }

    fn duplicate(&mut self, now: Time, packet: &Packet) -> Option<NackCode> {
        let (_, target, mut layer) = self.halves(now);
        target.duplicate(packet, &mut layer)
    }

    fn rx_level(&self) -> u8 {
        self.resources.rx_level()
    }
}
