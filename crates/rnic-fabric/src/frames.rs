//! Frames of data packets, used to compute their lengths.

use rnic_base::{Psn, Serial};
use rnic_policy::Protocol;
use rnic_wire::falcon;
use rnic_wire::net::IpVersion;
use rnic_wire::{Aeth, AtomicOp, Format, Headers, PackedPsn, Packet, PacketFlags, Position, Qpn, Reth, SendPlacement};
use rnic_wire::{SendTail, Sink, Syndrome, WqeSn};

use crate::workload::Operation;

/// The family of transports whose headers a packet has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// RoCE or an extension of it.
    Roce(Format),
    /// Falcon.
    Falcon,
}

impl Family {
    /// Returns the family of the reliable connections of `transport`.
    pub(crate) fn of(transport: &rnic_engine::Transport) -> Self {
        match transport.profile().protocol {
            Protocol::Falcon(_) => Self::Falcon,
            _ => Self::Roce(transport.format()),
        }
    }

    /// Returns the length in bytes of the frame that carries a part of a message.
    pub(crate) fn frame_len(self, op: Operation, position: Position, payload_len: u32) -> u32 {
        match self {
            Self::Roce(format) => data_packet(op, position, payload_len, format).frame_len(format, IpVersion::V4),
            Self::Falcon => falcon_packet(op, position, payload_len).frame_len(falcon::Encapsulation::IPV6),
        }
    }
}

/// Builds a Falcon data packet of operation `op`, from which the frame length is computed.
fn falcon_packet(op: Operation, position: Position, payload_len: u32) -> falcon::Packet {
    let (number, sink) = (Serial::new(0), falcon::rdma::SinkTag::default());
    let operation = match op {
        Operation::Write | Operation::WriteImmediate => {
            let ends = position.ends() && op == Operation::WriteImmediate;
            let tail = ends.then_some(falcon::rdma::WriteTail { rmsn: number, immediate: 0 });
            falcon::rdma::Operation::Write { position, reth: Reth::default(), tail }
        }
        Operation::Send => falcon::rdma::Operation::Send { position, tail: SendTail::Plain, rmsn: number, offset: 0 },
        Operation::Read => falcon::rdma::Operation::ReadResponse { position, sink },
        Operation::FetchAdd | Operation::CompareSwap => {
            let op = AtomicOp::FetchAdd { add: 0 };
            falcon::rdma::Operation::AtomicRequest { va: 0, rkey: 0, op, rmsn: number, sink }
        }
    };
    let (dest_qpn, psn) = (Qpn::new(2), Serial::new(0));
    let header = falcon::rdma::Header { dest_qpn, sn: number, solicited: false, complete_in_error: false, operation };
    let (ulp, length) = (falcon::Ulp::Rdma(header), 0);
    let body = match operation.packet_type() {
        falcon::PacketType::PullRequest => falcon::Body::PullRequest { psn, rsn: number, length, ulp },
        falcon::PacketType::PullData => falcon::Body::PullData { psn, rsn: number, ulp },
        _ => falcon::Body::PushData { psn, rsn: number, length, ulp },
    };
    falcon::Packet {
        cid: falcon::Cid::new(2),
        function: 0,
        protocol: falcon::UlpProtocol::Rdma,
        ack_request: false,
        bases: falcon::WindowBases::default(),
        timestamp: falcon::Timestamp::default(),
        payload_len,
        body,
    }
}

/// Builds a data packet of operation `op`, from which the frame length is computed.
fn data_packet(op: Operation, position: Position, payload_len: u32, format: Format) -> Packet {
    let independent_placement = format.allows_independent_placement();
    let sn = WqeSn::new(0);
    let headers = match op {
        Operation::Write | Operation::WriteImmediate => {
            let immediate = (position.ends() && op == Operation::WriteImmediate).then_some(0);
            let reth = (independent_placement || position.starts()).then_some(Reth::default());
            Headers::Write {
                position,
                reth,
                immediate,
                recv_sn: immediate.filter(|_| independent_placement).map(|_| sn),
            }
        }
        Operation::Send => {
            let placement = independent_placement.then_some(SendPlacement { recv_sn: sn, offset: Serial::new(0) });
            Headers::Send { position, tail: SendTail::Plain, placement }
        }
        Operation::Read => {
            let aeth = Aeth { syndrome: Syndrome::ACK, msn: Serial::new(0) };
            let sink = (format == Format::Fasr).then_some(Sink { read_sn: sn, offset: 0 });
            Headers::ReadResponse { position, aeth: (position != Position::Middle).then_some(aeth), sink }
        }
        Operation::FetchAdd | Operation::CompareSwap => {
            let op = AtomicOp::FetchAdd { add: 0 };
            Headers::AtomicRequest {
                va: 0,
                rkey: 0,
                op,
                read_sn: independent_placement.then_some(sn),
                expected_psn: PackedPsn::default(),
            }
        }
    };
    Packet { dest_qpn: Qpn::new(2), psn: Psn::new(0), flags: PacketFlags::default(), payload_len, headers }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every packet from which a length is computed is a valid packet that can be encoded.
    #[test]
    fn every_packet_can_be_encoded() {
        for (_, op) in Operation::ALL {
            for format in [Format::RoceV2, Format::Irn, Format::Fasr] {
                for position in [Position::Only, Position::First, Position::Middle, Position::Last] {
                    let len = match op {
                        Operation::FetchAdd | Operation::CompareSwap => 0,
                        _ => 1024,
                    };
                    let packet = data_packet(op, position, len, format);
                    let mut out = [0; rnic_wire::HEADERS_MAX];
                    let headers = rnic_wire::codec::encode_headers(format, &packet, &mut out);
                    assert!(headers.is_ok(), "{op:?} {format:?} {position:?}: {headers:?}");
                }
            }
        }
    }
}
