//! Logs of nodes: what happened at them since the trace was last written.

use rnic_base::{Seq, Time};
use rnic_wire::codec::decode;
use rnic_wire::falcon::codec::decode_datagram;
use rnic_wire::falcon::{self, PacketType};
use rnic_wire::{Headers, Packet, Syndrome};

use crate::entry::{Entry, Flags};
use crate::fault::FaultOutcome;
use crate::network::Network;
use crate::packets::{FalconHeaders, OtherPacket, StoredHeaders};

/// Fields of a packet that a trace shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketSummary {
    /// Type of the packet.
    pub(crate) kind: &'static str,
    /// True for a negative acknowledgement of any kind.
    pub(crate) is_nack: bool,
    /// Host that sent it.
    pub(crate) from: u32,
    /// Host to which it goes.
    pub(crate) to: u32,
    /// Queue pair to which it goes; with Falcon, the connection.
    pub(crate) qpn: Option<u32>,
    /// Sequence number; for an acknowledgement, that which it reports.
    pub(crate) psn: Option<u32>,
    /// Bytes of the frame.
    pub(crate) frame_len: u16,
    pub(crate) payload_len: u32,
}

impl PacketSummary {
    /// Returns the summary of the packet of `entry`, which must not be a pause frame.
    pub(crate) fn of(entry: &Entry, network: &Network) -> Self {
        let blank = Self {
            kind: "damaged",
            is_nack: false,
            from: 0,
            to: entry.dst(),
            qpn: None,
            psn: None,
            frame_len: entry.frame_len,
            payload_len: 0,
        };
        if entry.has(Flags::FALCON) {
            let packets = &network.falcon_packets;
            let blank = Self { from: packets.ends(entry.packet).src(), ..blank };
            // When packets are encoded, the stored headers are placeholders, and the bytes end with the check sequence.
            let (headers, bytes) = (packets.headers(entry.packet), packets.bytes(entry.packet));
            if bytes.is_empty() || headers != FalconHeaders::placeholder().packet() {
                return blank.with_falcon(headers);
            }
            let datagram = bytes.split_last_chunk::<4>().map_or(bytes, |(datagram, _)| datagram);
            return decode_datagram(datagram).map_or(blank, |(_, decoded)| blank.with_falcon(&decoded.packet));
        }
        if entry.has(Flags::MESSAGE) {
            let blank = Self { from: network.messages.ends(entry.packet).src, ..blank };
            return match network.messages.headers(entry.packet) {
                OtherPacket::Message(_) => Self { kind: "message", ..blank },
                OtherPacket::Tcp(segment) => Self {
                    kind: if segment.len > 0 { "TCP data" } else { "TCP acknowledgement" },
                    qpn: Some(segment.connection),
                    psn: Some(if segment.len > 0 { segment.sequence } else { segment.acknowledgement }),
                    payload_len: segment.len.into(),
                    ..blank
                },
            };
        }
        let packets = &network.packets;
        let blank = Self { from: packets.ends(entry.packet).src, ..blank };
        let (headers, bytes) = (packets.headers(entry.packet), packets.bytes(entry.packet));
        // As with Falcon; a notification is decoded to itself.
        let is_encoded = matches!(headers.headers, Headers::Cnp) && !bytes.is_empty();
        let mut summary = match is_encoded.then(|| decode(bytes)) {
            None => blank.with_roce(headers),
            Some(decoded) => decoded.map_or(blank, |decoded| blank.with_roce(&decoded.packet)),
        };
        if entry.has(Flags::TRIMMED) {
            summary.kind = "trimmed";
        }
        summary
    }

    fn with_roce(self, packet: &Packet) -> Self {
        let is_nak = |syndrome: &Syndrome| !matches!(syndrome, Syndrome::Ack { .. });
        let (kind, is_nack) = match &packet.headers {
            Headers::Send { .. } | Headers::SharedSend { .. } => ("send", false),
            Headers::Write { .. } | Headers::SharedWrite { .. } => ("write", false),
            Headers::ReadRequest { .. } => ("read request", false),
            Headers::ReadResponse { .. } => ("read response", false),
            Headers::AtomicRequest { .. } => ("atomic request", false),
            Headers::PlacementRequest { .. } => ("placement request", false),
            Headers::AtomicResponse { .. } => ("atomic response", false),
            Headers::Ack { aeth, .. } | Headers::ReadAck { aeth, .. } => match is_nak(&aeth.syndrome) {
                true => ("NACK", true),
                false => ("acknowledgement", false),
            },
            Headers::LossAck { aeth, .. } => match is_nak(&aeth.syndrome) {
                true => ("NACK", true),
                false => ("loss report", false),
            },
            Headers::TrimNack { .. } => ("NACK", true),
            Headers::Pull { .. } => ("pull", false),
            Headers::Cnp => ("CNP", false),
            Headers::Datagram { .. } => ("datagram", false),
        };
        let (qpn, psn) = (Some(packet.dest_qpn.get()), Some(packet.psn.value()));
        Self { kind, is_nack, qpn, psn, payload_len: packet.payload_len, ..self }
    }

    fn with_falcon(self, packet: &falcon::Packet) -> Self {
        let (kind, is_nack) = match packet.body.packet_type() {
            PacketType::PullRequest => ("pull request", false),
            PacketType::PullData => ("pull data", false),
            PacketType::PushData => ("push data", false),
            PacketType::Resync => ("resync", false),
            PacketType::Ack => ("acknowledgement", false),
            PacketType::ExtendedAck => ("extended acknowledgement", false),
            PacketType::Nack => ("NACK", true),
        };
        let psn = packet.body.psn().map(|psn| psn.value());
        Self { kind, is_nack, qpn: Some(packet.cid.get()), psn, payload_len: packet.payload_len, ..self }
    }
}

/// Effect of a link on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The packet arrives.
    Sent,
    /// A fault loses it.
    Lost,
    /// A fault damages it.
    Damaged,
    /// The packet arrives more than once.
    Duplicated,
}

impl Fate {
    pub(crate) fn of(outcome: &FaultOutcome) -> Self {
        match outcome {
            FaultOutcome { lost: true, .. } => Self::Lost,
            FaultOutcome { corrupt: true, .. } => Self::Damaged,
            FaultOutcome { copies: 1.., .. } => Self::Duplicated,
            _ => Self::Sent,
        }
    }
}

/// An event of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PortRecord {
    /// A packet is sent.
    Packet { from: Time, until: Time, packet: PacketSummary, fate: Fate },
    /// A pause frame is sent.
    PauseFrame { from: Time, until: Time, is_pause: bool },
    /// The neighbour pauses the port.
    Paused { at: Time },
    /// The neighbour resumes the port.
    Resumed { at: Time },
    /// Bytes wait in the switch for the port.
    Depth { at: Time, bytes: u64 },
    /// The switch drops a packet for the port.
    Dropped { at: Time, packet: PacketSummary },
    /// The switch marks a packet for the port.
    Marked { at: Time, packet: PacketSummary },
    /// The switch cuts the payload of a packet for the port.
    Trimmed { at: Time, packet: PacketSummary },
}

/// Statement of a packet that leaves a host about the requests of its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Everything before this sequence number has arrived.
    Covers(u32),
    /// The last packet of a response; those of a queue pair are in the order of its peer's requests.
    Response,
    /// All that has arrived so far.
    All,
}

/// A packet of the engine of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DepartureRecord {
    pub(crate) at: Time,
    /// Queue pair that sends it.
    pub(crate) qpn: u32,
    pub(crate) psn: Option<u32>,
    pub(crate) is_retransmission: bool,
    pub(crate) answer: Option<Answer>,
}

/// An event of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostRecord {
    /// A queue pair sends a packet.
    Departure(DepartureRecord),
    /// A queue pair receives a negative acknowledgement.
    Nack { at: Time, qpn: u32, psn: Option<u32> },
    /// Timeouts of a queue pair cause an action.
    Timeout { at: Time, qpn: u32, count: u32 },
    /// A queue pair has recovered what was in flight when it noticed a loss.
    Recovery { from: Time, until: Time, qpn: u32 },
    /// A queue pair has received all requests before a number.
    Expected { at: Time, qpn: u32, expected: Seq },
    /// The host discards a damaged packet; `None` for one that has waited in a modelled NIC.
    Damaged { at: Time, packet: Option<PacketSummary> },
    /// The modelled NIC has no space for a packet.
    Dropped { at: Time, packet: PacketSummary },
}
