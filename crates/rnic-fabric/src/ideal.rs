//! What a message takes in an empty network: packets, bytes, time.

use rnic_base::{Duration, Psn, Serial};
use rnic_policy::{Profile, Protocol};
use rnic_wire::falcon;
use rnic_wire::net::IpVersion;
use rnic_wire::{Aeth, AtomicOp, Format, Headers, PackedPsn, Packet, PacketFlags, Position, Qpn, Reth, SendPlacement};
use rnic_wire::{SendTail, Sink, Syndrome, WqeSn};

use crate::entry::LINK_OVERHEAD;
use crate::plan::Plan;
use crate::topology::LinkClass;
use crate::workload::Operation;

/// Bytes of the Ethernet frames that carry the data of one message of `bytes` over reliable connections of `profile`,
/// in packets of `mtu`: header to frame check sequence, without acknowledgements and, for Reads, without the requests.
///
/// # Errors
/// When the parts of the profile do not fit together.
pub fn message_frames(profile: &Profile, op: Operation, bytes: u64, mtu: u32) -> Result<u64, String> {
    let transport = rnic_engine::Transport::new(profile.clone()).map_err(|error| error.to_string())?;
    let family = Family::of(&transport);
    let count = bytes.div_ceil(u64::from(mtu)).max(1);
    let frame = |position, len| u64::from(family.frame_len(op, position, len) + profile.extra_header);
    let last = (bytes - (count - 1) * u64::from(mtu)) as u32;
    if count == 1 {
        return Ok(frame(Position::Only, last));
    }
    Ok(frame(Position::First, mtu) + (count - 2) * frame(Position::Middle, mtu) + frame(Position::Last, last))
}

/// Whose headers packets have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// RoCE's, or an extension of them.
    Roce(Format),
    /// Falcon's.
    Falcon,
}

impl Family {
    /// That of the reliable connections of `transport`.
    pub(crate) fn of(transport: &rnic_engine::Transport) -> Self {
        match transport.profile().protocol {
            Protocol::Falcon(_) => Self::Falcon,
            _ => Self::Roce(transport.format()),
        }
    }

    /// Bytes of the frame that carries a part of a message.
    pub(crate) fn frame_len(self, op: Operation, position: Position, payload_len: u32) -> u32 {
        match self {
            Self::Roce(format) => data_packet(op, position, payload_len, format).frame_len(format, IpVersion::V4),
            Self::Falcon => falcon_packet(op, position, payload_len).frame_len(falcon::Encapsulation::IPV6),
        }
    }
}

/// How long a message of `bytes`, written with immediate, takes over links of `classes` in an empty network: store and
/// forward, pipelined, back to back.
///
/// Packets of a message come in at most three sizes: the first, those in the middle, the last. With each link at its
/// own rate, the last bit arrives at the end of the longest chain of "this packet on this link, then on the next link,
/// or the next packet on this link". Such a chain leaves the first packet at some link `a` and reaches the last one at
/// some link `b`.
pub(crate) fn ideal_time(plan: &Plan, family: Family, bytes: u64, classes: &[LinkClass]) -> Duration {
    let mtu = u64::from(plan.mtu);
    let count = bytes.div_ceil(mtu).max(1);
    let last_len = (bytes - (count - 1) * mtu) as u32;
    let packet = |index: u64, len: u32| {
        let position = match (index == 0, index + 1 == count) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        u64::from(family.frame_len(Operation::WriteImmediate, position, len)) + LINK_OVERHEAD
    };
    let link = |class: &LinkClass| match class {
        LinkClass::Host => plan.host_links,
        LinkClass::Fabric => plan.fabric_links,
    };
    let times =
        |len: u64| -> Vec<u64> { classes.iter().map(|class| link(class).rate.serialize(len).as_ps()).collect() };
    let propagation: u64 = classes.iter().map(|class| link(class).delay.as_ps()).sum();
    let last = times(packet(count - 1, last_len));
    if count == 1 {
        return Duration::from_ps(propagation + last.iter().sum::<u64>());
    }
    let first = times(packet(0, plan.mtu));
    let middle = times(packet(1, plan.mtu));
    let mut longest = 0;
    for a in 0..classes.len() {
        for b in a..classes.len() {
            let between = match count - 2 {
                0 => 0,
                // Crossing from a to b costs each link once; the other packets pass at the slowest of them.
                middles => {
                    let slowest = middle[a..=b].iter().max().copied().unwrap_or_default();
                    middle[a..=b].iter().sum::<u64>() + (middles - 1) * slowest
                }
            };
            // With no packet in the middle, the chain goes from the first to the last at one link.
            if count > 2 || a == b {
                longest = longest.max(first[..=a].iter().sum::<u64>() + between + last[b..].iter().sum::<u64>());
            }
        }
    }
    Duration::from_ps(propagation + longest)
}

/// A Falcon packet with data of `op`, for its length.
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

/// A packet with data of `op`, for its length.
fn data_packet(op: Operation, position: Position, payload_len: u32, format: Format) -> Packet {
    let alone = format.places_alone();
    let sn = WqeSn::new(0);
    let headers = match op {
        Operation::Write | Operation::WriteImmediate => {
            let immediate = (position.ends() && op == Operation::WriteImmediate).then_some(0);
            let reth = (alone || position.starts()).then_some(Reth::default());
            Headers::Write { position, reth, immediate, recv_sn: immediate.filter(|_| alone).map(|_| sn) }
        }
        Operation::Send => {
            let placement = alone.then_some(SendPlacement { recv_sn: sn, offset: Serial::new(0) });
            Headers::Send { position, tail: SendTail::Plain, placement }
        }
        Operation::Read => {
            let aeth = Aeth { syndrome: Syndrome::ACK, msn: Serial::new(0) };
            let sink = (format == Format::Fasr).then_some(Sink { read_sn: sn, offset: 0 });
            Headers::ReadResponse { position, aeth: (position != Position::Middle).then_some(aeth), sink }
        }
        Operation::FetchAdd | Operation::CompareSwap => {
            let op = AtomicOp::FetchAdd { add: 0 };
            Headers::AtomicRequest { va: 0, rkey: 0, op, read_sn: alone.then_some(sn), expects: PackedPsn::default() }
        }
    };
    Packet { dest_qpn: Qpn::new(2), psn: Psn::new(0), flags: PacketFlags::default(), payload_len, headers }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the headers of `transport` take beside RoCE's in a message of `bytes`, in packets of 1024 bytes.
    fn added(transport: &str, op: Operation, bytes: u64) -> u64 {
        let frames = |name: &str| {
            let profile = rnic_transports::profile(name).expect("a transport");
            message_frames(&profile, op, bytes, 1024).expect("sound")
        };
        frames(transport) - frames("roce-gbn")
    }

    /// IRN section 6.3; FaSR section IV-D, as `header/fasr.rs` of the wire has it: the key comes with the address.
    #[test]
    fn r20_headers_cost_what_their_formats_say() {
        assert_eq!(added("irn", Operation::Write, 3 * 1024), 2 * 16);
        assert_eq!(added("irn", Operation::Send, 3 * 1024), 3 * 6);
        assert_eq!(added("fasr", Operation::Write, 3 * 1024), 2 * 12);
        assert_eq!(added("fasr", Operation::Send, 3 * 1024), 3 * 6);
        assert_eq!(added("fasr", Operation::Read, 3 * 1024), 3 * 12);
        assert_eq!(added("fasr", Operation::WriteImmediate, 100), 4, "the number of a receive");
    }

    /// The packets whose length is asked for are packets that there are.
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
