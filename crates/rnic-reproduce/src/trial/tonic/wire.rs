//! Packets that carry the segments of a Tonic NIC, and the answers of their receivers.

use rnic_base::Psn;
use rnic_fabric::endpoint::{Datagram, TcpSegment};
use rnic_tonic::{Packet as Answer, SegmentId};
use rnic_wire::{Format, Headers, NakCode, Packet, PacketFlags, Position, Qpn, Reth, Syndrome};

/// Protocol of the receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// TCP: segment `n` has the bytes from `n` times its length on.
    Tcp,
    /// The RoCE family: messages of `segments` segments are written to the receiver's memory.
    Roce {
        /// Format of packets.
        format: Format,
        /// Number of segments of a message, at least 1.
        segments: u32,
        /// Interval in segments at which an acknowledgement is requested, also requested for the last segment of a
        /// message; at least 1.
        acknowledged: u32,
    },
}

/// A flow on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WireFlow {
    /// Receiving host.
    pub to: u32,
    /// TCP: the connection.
    pub connection: u32,
    /// RoCE: queue pair to which answers are sent.
    pub own_qpn: Qpn,
    /// RoCE: queue pair of the receiver.
    pub peer_qpn: Qpn,
    /// RoCE: sequence number of the first segment.
    pub first_psn: Psn,
    /// RoCE: key of the receiver's memory, which begins at address zero.
    pub rkey: u32,
}

impl WireFlow {
    /// Returns a flow of TCP.
    pub fn tcp(to: u32, connection: u32) -> Self {
        let none = Qpn::new(0);
        Self { to, connection, own_qpn: none, peer_qpn: none, first_psn: Psn::new(0), rkey: 0 }
    }
}

impl Wire {
    /// Returns the packet of a segment of `flow`, counted from its start.
    pub(super) fn packet(&self, flow: &WireFlow, segment: u64, bytes: u16) -> Datagram {
        let Self::Roce { format, segments, acknowledged } = *self else {
            let sequence = (segment * u64::from(bytes)) as u32;
            let connection = flow.connection;
            return Datagram::Tcp(TcpSegment { connection, sequence, acknowledgement: 0, window: 0, len: bytes });
        };
        let index = (segment % u64::from(segments)) as u32;
        let position = Position::of(index, segments);
        let is_placed_alone = format.allows_independent_placement();
        let va = if is_placed_alone { u64::from(index) * u64::from(bytes) } else { 0 };
        let reth = Reth { va, rkey: flow.rkey, dma_len: segments * u32::from(bytes) };
        let reth = (is_placed_alone || position.starts()).then_some(reth);
        let ack_request = position.ends() || segment.is_multiple_of(u64::from(acknowledged));
        let packet = Packet {
            dest_qpn: flow.peer_qpn,
            psn: flow.first_psn.plus(segment as u32),
            flags: PacketFlags { ack_request, ..PacketFlags::default() },
            payload_len: u32::from(bytes),
            headers: Headers::Write { position, reth, immediate: None, recv_sn: None },
        };
        Datagram::Roce(format, packet)
    }

    /// Returns the information for `flow` in an arriving packet; `start` is the first unacknowledged segment. `None` if
    /// the packet is not an answer of a receiver.
    pub(super) fn read(&self, flow: &WireFlow, start: u64, datagram: &Datagram, bytes: u16) -> Option<Answer> {
        match (self, datagram) {
            (Self::Tcp, Datagram::Tcp(segment)) => {
                let base = start * u64::from(bytes);
                let ahead = segment.acknowledgement.wrapping_sub(base as u32) as i32;
                let acknowledged = base.checked_add_signed(ahead.into())? / u64::from(bytes);
                Some(Answer { ack: true, cum: SegmentId::new(acknowledged as u32), ..Answer::default() })
            }
            (Self::Roce { .. }, Datagram::Roce(_, packet)) => {
                let id = |psn: Psn| SegmentId::new(psn.value().wrapping_sub(flow.first_psn.value()));
                match packet.headers {
                    Headers::Cnp => Some(Answer { cnp: true, ..Answer::default() }),
                    Headers::Pull { granted } => {
                        Some(Answer { grant: Some(SegmentId::new(granted.value())), ..Answer::default() })
                    }
                    Headers::TrimNack { trimmed, .. } => {
                        Some(Answer { trimmed: true, cum: id(packet.psn), sack: id(trimmed), ..Answer::default() })
                    }
                    Headers::Ack { aeth, sack } => {
                        let selective = sack.map(id);
                        let next = id(packet.psn);
                        let answer = Answer {
                            sacked: selective.is_some(),
                            sack: selective.unwrap_or_default(),
                            ..Answer::default()
                        };
                        match aeth.syndrome {
                            Syndrome::Ack { .. } => Some(Answer { ack: true, cum: next.plus(1), ..answer }),
                            Syndrome::Nak(NakCode::PsnSequenceError) => {
                                Some(Answer { nack: true, cum: next, ..answer })
                            }
                            Syndrome::RnrNak { .. } | Syndrome::Nak(_) => None,
                        }
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
