//! How long a packet is on the wire, without encoding it: the fabric asks for every packet.

use crate::falcon::header::{
    acknowledgement, base, bitmaps, nbth, nvme_command, nvme_status, rbth, refusal, request_length, resync, sink_tag,
};
use crate::falcon::{Body, Packet, PacketType, Ulp, UlpProtocol, esp, nvme, psp, rdma};
use crate::header::{atomic_ack_eth, atomic_eth, deth, ieth, immdt, reth};
use crate::net::{self, IpVersion};
use crate::packet::SendTail;

/// Most bytes of headers that a packet has, its upper layer's with them: an NVMe Read that is a Pull.
pub const HEADERS_MAX: usize = base::LEN + request_length::PULL_LEN + nbth::LEN + nvme_command::LEN;

const _: () = assert!(
    HEADERS_MAX
        >= base::LEN + request_length::PULL_LEN + rbth::LEN + atomic_eth::LEN + sink_tag::WORD_LEN + sink_tag::LEN
);
const _: () = assert!(HEADERS_MAX >= base::START_LEN + acknowledgement::LEN + bitmaps::LEN);

impl PacketType {
    /// Bytes of Falcon's own headers.
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
    /// The type of Falcon packet that carries it.
    #[inline]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Send { .. } | Self::Write { .. } | Self::Datagram { .. } => PacketType::PushData,
            Self::ReadRequest { .. } | Self::AtomicRequest { .. } => PacketType::PullRequest,
            Self::ReadResponse { .. } | Self::AtomicResponse { .. } => PacketType::PullData,
        }
    }

    /// Whether payload follows; it may be empty even so.
    #[inline]
    pub const fn has_payload(&self) -> bool {
        match self {
            Self::Send { .. } | Self::Write { .. } | Self::ReadResponse { .. } | Self::Datagram { .. } => true,
            Self::ReadRequest { .. } | Self::AtomicRequest { .. } | Self::AtomicResponse { .. } => false,
        }
    }

    /// Bytes of headers, payload and padding: [`Ulp::request_len`] of such headers.
    #[inline(always)]
    pub const fn request_len(&self, payload_len: u32) -> u32 {
        self.headers_len() + payload_len + Self::pad_len(payload_len)
    }

    /// Bytes of padding behind a payload of `payload_len` bytes: words are filled.
    #[inline]
    const fn pad_len(payload_len: u32) -> u32 {
        payload_len.wrapping_neg() & 3
    }

    /// Bytes of the headers, with RBTH.
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
    /// Returns whether a Falcon packet of `packet_type` may carry it. A Read is a Push there and a Push back in the
    /// specification (section 7.1), and a Pull in the paper (Falcon, SIGCOMM'25, table 2): both are legal here.
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

    /// Most bytes of payload that may follow.
    #[inline]
    pub const fn payload_max(&self) -> u32 {
        match self {
            Self::WriteData | Self::ReadResponse { .. } => nvme::PAYLOAD_MAX,
            _ => 0,
        }
    }

    /// Bytes of the headers, with NBTH.
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
    /// Its protocol.
    #[inline]
    pub const fn protocol(&self) -> UlpProtocol {
        match self {
            Self::None => UlpProtocol::None,
            Self::Rdma(_) => UlpProtocol::Rdma,
            Self::Nvme(_) => UlpProtocol::Nvme,
        }
    }

    /// Returns whether a Falcon packet of `packet_type` may carry it; without headers, none may.
    #[inline]
    pub const fn may_be(&self, packet_type: PacketType) -> bool {
        match self {
            Self::None => false,
            Self::Rdma(header) => header.operation.packet_type() as u8 == packet_type as u8,
            Self::Nvme(header) => header.operation.may_be(packet_type),
        }
    }

    /// Bytes of the headers.
    #[inline]
    pub const fn headers_len(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Rdma(header) => header.operation.headers_len(),
            Self::Nvme(header) => header.operation.headers_len(),
        }
    }

    /// Bytes of padding behind a payload of `payload_len` bytes: RDMA fills words, NVMe has no field for it.
    #[inline]
    pub const fn pad_len(&self, payload_len: u32) -> u32 {
        match self {
            Self::Rdma(_) => rdma::Operation::pad_len(payload_len),
            Self::None | Self::Nvme(_) => 0,
        }
    }

    /// Bytes of headers, payload and padding: what the specification calls the request length.
    #[inline]
    pub const fn request_len(&self, payload_len: u32) -> u32 {
        self.headers_len() + payload_len + self.pad_len(payload_len)
    }
}

/// What lies around a packet, as far as it has to do with length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Encapsulation {
    /// The version of IP. The paper's flows need version 6, whose label they are.
    pub ip: IpVersion,
    /// The encapsulation between UDP and the packet.
    pub form: Form,
}

/// The encapsulation between UDP and a packet, as far as it has to do with length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// PSP without a virtualization cookie.
    Psp,
    /// PSP with one.
    PspCookie,
    /// ESP.
    Esp,
}

impl Form {
    /// PSP, with a cookie or without.
    #[inline]
    pub const fn psp(has_cookie: bool) -> Self {
        if has_cookie { Self::PspCookie } else { Self::Psp }
    }
}

impl Encapsulation {
    /// IPv6, PSP without a cookie.
    pub const IPV6: Self = Self { ip: IpVersion::V6, form: Form::Psp };

    /// Bytes of the UDP payload around a packet of `message_len` bytes: header, ESP's trailer, check value.
    #[inline]
    pub const fn around_len(self, message_len: u32) -> u32 {
        let len = match self.form {
            Form::Psp => psp::header_len(false) + psp::ICV_LEN,
            Form::PspCookie => psp::header_len(true) + psp::ICV_LEN,
            Form::Esp => esp::around_len(message_len as usize),
        };
        len as u32
    }
}

impl Packet {
    /// Bytes of headers, Falcon's and the upper layer's.
    #[inline]
    pub const fn headers_len(&self) -> u32 {
        let ulp = match self.body.ulp() {
            Some(ulp) => ulp.headers_len(),
            None => 0,
        };
        self.body.packet_type().headers_len() + ulp
    }

    /// Bytes of padding behind the payload.
    #[inline]
    pub const fn pad_len(&self) -> u32 {
        match self.body.ulp() {
            Some(ulp) => ulp.pad_len(self.payload_len),
            None => 0,
        }
    }

    /// Bytes from Falcon's first header to the padding: what PSP carries.
    #[inline]
    pub const fn message_len(&self) -> u32 {
        self.headers_len() + self.payload_len + self.pad_len()
    }

    /// Bytes of the UDP payload: PSP's or ESP's header through check value.
    #[inline]
    pub const fn udp_payload_len(&self, around: Encapsulation) -> u32 {
        let message_len = self.message_len();
        around.around_len(message_len) + message_len
    }

    /// Bytes of the Ethernet frame, header to frame check sequence; see [`net::frame_len`].
    #[inline]
    pub const fn frame_len(&self, around: Encapsulation) -> u32 {
        net::frame_len(around.ip, self.udp_payload_len(around))
    }

    /// Byte times that the packet keeps a link busy; see [`net::link_len`].
    #[inline]
    pub const fn link_len(&self, around: Encapsulation) -> u32 {
        net::link_len(around.ip, self.udp_payload_len(around))
    }

    /// Whether a payload of `payload_len` bytes has a place in it: an empty one always has.
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
