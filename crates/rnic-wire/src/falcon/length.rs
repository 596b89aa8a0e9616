//! Length of a packet on the wire, computed without encoding it, because the fabric needs it for every packet.

use crate::falcon::header::{
    acknowledgement, base, bitmaps, nbth, nvme_command, nvme_status, rbth, refusal, request_length, resync, sink_tag,
};
use crate::falcon::{Body, Packet, PacketType, Ulp, UlpProtocol, esp, nvme, psp, rdma};
use crate::header::{atomic_ack_eth, atomic_eth, deth, ieth, immdt, reth};
use crate::net::{self, IpVersion};
use crate::packet::SendTail;

/// Maximum length of a packet's headers in bytes, including the upper layer's: that of an NVMe Read as a Pull.
pub const HEADERS_MAX: usize = base::LEN + request_length::PULL_LEN + nbth::LEN + nvme_command::LEN;

const _: () = assert!(
    HEADERS_MAX
        >= base::LEN + request_length::PULL_LEN + rbth::LEN + atomic_eth::LEN + sink_tag::WORD_LEN + sink_tag::LEN
);
const _: () = assert!(HEADERS_MAX >= base::START_LEN + acknowledgement::LEN + bitmaps::LEN);

impl PacketType {
    /// Returns the length of Falcon's own headers in bytes.
    #[inline]
    pub const fn headers_len(self) -> u32 {
        let len = match self {
            Self::PullRequest => base::LEN + request_length::PULL_LEN,
            Self::PullData => base::LEN,
            Self::PushData => base::LEN + request_length::PUSH_LEN,
            Self::Resync => base::LEN + resync::LEN,
            Self::Nack => base::START_LEN + acknowledgement::LEN + refusal::LEN,
            Self::Ack => base::START_LEN + acknowledgement::LEN,
            Self::ExtendedAck => base::START_LEN + acknowledgement::LEN + bitmaps::LEN,
        };
        len as u32
    }
}

impl rdma::Operation {
    /// Returns the type of Falcon packet that carries the operation.
    #[inline]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Send { .. } | Self::Write { .. } | Self::Datagram { .. } => PacketType::PushData,
            Self::ReadRequest { .. } | Self::AtomicRequest { .. } => PacketType::PullRequest,
            Self::ReadResponse { .. } | Self::AtomicResponse { .. } => PacketType::PullData,
        }
    }

    /// Returns whether these headers are followed by a payload, which may be empty.
    #[inline]
    pub const fn has_payload(&self) -> bool {
        match self {
            Self::Send { .. } | Self::Write { .. } | Self::ReadResponse { .. } | Self::Datagram { .. } => true,
            Self::ReadRequest { .. } | Self::AtomicRequest { .. } | Self::AtomicResponse { .. } => false,
        }
    }

    /// Returns the number of bytes of headers, payload and padding: [`Ulp::request_len`] of such headers.
    #[inline(always)]
    pub const fn request_len(&self, payload_len: u32) -> u32 {
        self.headers_len() + payload_len + Self::pad_len(payload_len)
    }

    /// Returns the number of padding bytes after a payload of `payload_len` bytes: up to a multiple of 4.
    #[inline]
    const fn pad_len(payload_len: u32) -> u32 {
        payload_len.wrapping_neg() & 3
    }

    /// Returns the length of the headers in bytes, including RBTH.
    #[inline]
    pub const fn headers_len(&self) -> u32 {
        let extended = match self {
            Self::Send { tail, .. } => {
                let tail = match tail {
                    SendTail::Plain => 0,
                    SendTail::Immediate(_) => immdt::LEN,
                    SendTail::Invalidate(_) => ieth::LEN,
                };
                2 * sink_tag::WORD_LEN + tail
            }
            Self::Write { tail: None, .. } => reth::LEN,
            Self::Write { tail: Some(_), .. } => reth::LEN + sink_tag::WORD_LEN + immdt::LEN,
            Self::ReadRequest { .. } => reth::LEN + sink_tag::WORD_LEN + sink_tag::LEN,
            Self::ReadResponse { .. } => sink_tag::LEN,
            Self::AtomicRequest { .. } => atomic_eth::LEN + sink_tag::WORD_LEN + sink_tag::LEN,
            Self::AtomicResponse { .. } => atomic_ack_eth::LEN + sink_tag::LEN,
            Self::Datagram { immediate: None, .. } => deth::LEN,
            Self::Datagram { immediate: Some(_), .. } => deth::LEN + immdt::LEN,
        };
        (rbth::LEN + extended) as u32
    }
}

impl nvme::Operation {
    /// Returns whether a Falcon packet of `packet_type` may carry the operation. A Read is a Push in each direction in
    /// the specification (section 7.1), and a Pull in the paper (Falcon, SIGCOMM'25, table 2): both are supported here.
    #[inline]
    pub const fn may_be(&self, packet_type: PacketType) -> bool {
        match self {
            Self::WriteRequest { .. } | Self::WriteCompletion { .. } => matches!(packet_type, PacketType::PushData),
            Self::ReadRequest { .. } => matches!(packet_type, PacketType::PushData | PacketType::PullRequest),
            Self::ReadResponse { .. } => matches!(packet_type, PacketType::PushData | PacketType::PullData),
            Self::WriteDataRequest => matches!(packet_type, PacketType::PullRequest),
            Self::WriteData => matches!(packet_type, PacketType::PullData),
        }
    }

    /// Returns the largest payload that may follow, in bytes.
    #[inline]
    pub const fn payload_max(&self) -> u32 {
        match self {
            Self::WriteData | Self::ReadResponse { .. } => nvme::PAYLOAD_MAX,
            _ => 0,
        }
    }

    /// Returns the length of the headers in bytes, including NBTH.
    #[inline]
    pub const fn headers_len(&self) -> u32 {
        let rest = match self {
            Self::WriteRequest { .. } | Self::ReadRequest { .. } => nvme_command::LEN,
            Self::WriteCompletion { .. } | Self::ReadResponse { .. } => nvme_status::LEN,
            Self::WriteDataRequest | Self::WriteData => 0,
        };
        (nbth::LEN + rest) as u32
    }
}

impl Ulp {
    /// Returns the upper layer protocol.
    #[inline]
    pub const fn protocol(&self) -> UlpProtocol {
        match self {
            Self::None => UlpProtocol::None,
            Self::Rdma(_) => UlpProtocol::Rdma,
            Self::Nvme(_) => UlpProtocol::Nvme,
        }
    }

    /// Returns whether a Falcon packet of `packet_type` may carry these headers; always false for [`Self::None`].
    #[inline]
    pub const fn may_be(&self, packet_type: PacketType) -> bool {
        match self {
            Self::None => false,
            Self::Rdma(header) => header.operation.packet_type() as u8 == packet_type as u8,
            Self::Nvme(header) => header.operation.may_be(packet_type),
        }
    }

    /// Returns the length of the headers in bytes.
    #[inline]
    pub const fn headers_len(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Rdma(header) => header.operation.headers_len(),
            Self::Nvme(header) => header.operation.headers_len(),
        }
    }

    /// Returns the number of padding bytes after a payload of `payload_len` bytes: RDMA pads to a multiple of 4, NVMe
    /// does not pad, because it has no field for the number.
    #[inline]
    pub const fn pad_len(&self, payload_len: u32) -> u32 {
        match self {
            Self::Rdma(_) => rdma::Operation::pad_len(payload_len),
            Self::None | Self::Nvme(_) => 0,
        }
    }

    /// Returns the number of bytes of headers, payload and padding: the request length of the specification.
    #[inline]
    pub const fn request_len(&self, payload_len: u32) -> u32 {
        self.headers_len() + payload_len + self.pad_len(payload_len)
    }
}

/// Encapsulation of a packet, as far as it affects the length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Encapsulation {
    /// IP version. The paper's flows need version 6, because they use its flow label.
    pub ip: IpVersion,
    /// Encapsulation between UDP and the packet.
    pub form: Form,
}

/// Encapsulation between UDP and a packet, as far as it affects the length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// PSP without a virtualization cookie.
    Psp,
    /// PSP with a virtualization cookie.
    PspCookie,
    /// Encapsulation in ESP.
    Esp,
}

impl Form {
    /// Returns the encapsulation PSP, with or without a cookie.
    #[inline]
    pub const fn psp(has_cookie: bool) -> Self {
        if has_cookie { Self::PspCookie } else { Self::Psp }
    }
}

impl Encapsulation {
    /// IPv6, PSP without a cookie.
    pub const IPV6: Self = Self { ip: IpVersion::V6, form: Form::Psp };

    /// Returns the number of bytes that the encapsulation adds to a packet of `message_len` bytes: header, ESP's
    /// trailer, check value.
    #[inline]
    pub const fn encapsulation_len(self, message_len: u32) -> u32 {
        let len = match self.form {
            Form::Psp => psp::header_len(false) + psp::ICV_LEN,
            Form::PspCookie => psp::header_len(true) + psp::ICV_LEN,
            Form::Esp => esp::encapsulation_len(message_len as usize),
        };
        len as u32
    }
}

impl Packet {
    /// Returns the length of the headers in bytes, Falcon's and the upper layer's.
    #[inline]
    pub const fn headers_len(&self) -> u32 {
        let ulp = match self.body.ulp() {
            Some(ulp) => ulp.headers_len(),
            None => 0,
        };
        self.body.packet_type().headers_len() + ulp
    }

    /// Returns the number of padding bytes after the payload.
    #[inline]
    pub const fn pad_len(&self) -> u32 {
        match self.body.ulp() {
            Some(ulp) => ulp.pad_len(self.payload_len),
            None => 0,
        }
    }

    /// Returns the number of bytes from Falcon's first header to the padding: the content of the PSP packet.
    #[inline]
    pub const fn message_len(&self) -> u32 {
        self.headers_len() + self.payload_len + self.pad_len()
    }

    /// Returns the length of the UDP payload in bytes: PSP's or ESP's header through check value.
    #[inline]
    pub const fn udp_payload_len(&self, encapsulation: Encapsulation) -> u32 {
        let message_len = self.message_len();
        encapsulation.encapsulation_len(message_len) + message_len
    }

    /// Returns the length of the Ethernet frame in bytes, header to frame check sequence; see [`net::frame_len`].
    #[inline]
    pub const fn frame_len(&self, encapsulation: Encapsulation) -> u32 {
        net::frame_len(encapsulation.ip, self.udp_payload_len(encapsulation))
    }

    /// Returns the number of byte times for which the packet occupies a link; see [`net::link_len`].
    #[inline]
    pub const fn link_len(&self, encapsulation: Encapsulation) -> u32 {
        net::link_len(encapsulation.ip, self.udp_payload_len(encapsulation))
    }

    /// Returns whether the packet may carry a payload of `payload_len` bytes: an empty one is always allowed.
    #[inline]
    pub const fn allows_payload(&self, payload_len: u32) -> bool {
        let ulp = match &self.body {
            Body::PullData { ulp, .. } | Body::PushData { ulp, .. } => ulp,
            Body::PullRequest { .. } | Body::Resync { .. } | Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_) => {
                return payload_len == 0;
            }
        };
        match ulp {
            Ulp::None => true,
            Ulp::Rdma(header) => payload_len == 0 || header.operation.has_payload(),
            Ulp::Nvme(header) => payload_len <= header.operation.payload_max(),
        }
    }
}
