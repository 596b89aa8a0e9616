//! Falcon's base header (OCP Falcon Transport Protocol, Rev 0.9, section 7.2).
//!
//! ```text
//!     0               1               2               3
//!  0 |version| rsvd  |          destination connection               |
//!  1 |       destination function            |  upper layer |type |A | 3, 4 and 1 bits
//!  2 |                    data window base                           |
//!  3 |                   request window base                         |
//!  4 |                            PSN                                |
//!  5 |                            RSN                                |
//! ```
//!
//! Every packet begins with words 0 to 3 ([`StartView`]). Acknowledgements end there, and in their word 1 only the
//! type is meaningful. In word 1 the upper layer, the type and A (acknowledgement request) have 3, 4 and 1 bits.

use rnic_base::Psn32;

use super::split;
use crate::bytes::{be24, be32, put, put24};
use crate::falcon::{Cid, Packet, PacketType, Rsn, UlpProtocol, WindowBases, WireError};

/// Version of the protocol.
pub const VERSION: u8 = 1;
/// Length in bytes of the four words that every packet begins with.
pub const START_LEN: usize = 16;
/// Length of the sequence numbers, in bytes.
pub const NUMBERS_LEN: usize = 8;
/// Length of the header in bytes.
pub const LEN: usize = START_LEN + NUMBERS_LEN;

/// Largest function number, 24 bits.
pub const FUNCTION_MAX: u32 = 0xff_ffff;

/// View of the words that every packet begins with.
#[derive(Clone, Copy, Debug)]
pub struct StartView<'a>(&'a [u8; START_LEN]);

impl<'a> StartView<'a> {
    /// Splits the words off the front of `bytes`; returns them and the bytes after them.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the version of the protocol.
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// Returns the connection that the packet is for.
    #[inline]
    pub fn cid(self) -> Cid {
        Cid::new(be24(self.0, 1))
    }

    /// Returns the function that the packet is for; has no meaning in acknowledgements.
    #[inline]
    pub fn function(self) -> u32 {
        be24(self.0, 4)
    }

    /// Returns the code of the upper layer; has no meaning in acknowledgements.
    #[inline]
    pub const fn protocol(self) -> u8 {
        self.0[7] >> PROTOCOL_SHIFT
    }

    /// Returns the code of the packet's type.
    #[inline]
    pub const fn packet_type(self) -> u8 {
        self.0[7] >> TYPE_SHIFT & 0xf
    }

    /// Returns whether an acknowledgement is requested; has no meaning in acknowledgements.
    #[inline]
    pub const fn ack_request(self) -> bool {
        self.0[7] & ACK_REQUEST != 0
    }

    /// Returns the bases of the sender's windows.
    #[inline]
    pub fn bases(self) -> WindowBases {
        WindowBases { data: Psn32::new(be32(self.0, 8)), request: Psn32::new(be32(self.0, 12)) }
    }
}

/// Writes the words that every packet begins with.
#[inline]
pub fn emit_start(packet: &Packet, packet_type: PacketType, out: &mut [u8; START_LEN]) {
    put(out, 0, packet.cid.get().to_be_bytes());
    out[0] = VERSION << 4;
    put24(out, 4, packet.function);
    out[7] = packet.protocol.code() << PROTOCOL_SHIFT
        | packet_type.code() << TYPE_SHIFT
        | if packet.ack_request { ACK_REQUEST } else { 0 };
    put(out, 8, packet.bases.data.value().to_be_bytes());
    put(out, 12, packet.bases.request.value().to_be_bytes());
}

/// Reads the sequence numbers at the end of the base header.
///
/// # Errors
/// [`WireError::Short`] when `bytes` is too short.
#[inline]
pub fn split_numbers(bytes: &[u8]) -> Result<((Psn32, Rsn), &[u8]), WireError> {
    let (numbers, rest) = split::<NUMBERS_LEN>(bytes)?;
    Ok(((Psn32::new(be32(numbers, 0)), Rsn::new(be32(numbers, 4))), rest))
}

/// Writes the sequence numbers.
#[inline]
pub fn emit_numbers(psn: Psn32, rsn: Rsn, out: &mut [u8; NUMBERS_LEN]) {
    put(out, 0, psn.value().to_be_bytes());
    put(out, 4, rsn.value().to_be_bytes());
}

impl UlpProtocol {
    /// Returns the code on the wire, 3 bits. 0 is reserved: it is sent only in packets that do not have this field.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Rdma => 2,
            Self::Nvme => 3,
        }
    }

    /// Returns the upper layer with that code; `None` for reserved codes.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            2 => Some(Self::Rdma),
            3 => Some(Self::Nvme),
            _ => None,
        }
    }
}

const PROTOCOL_SHIFT: u32 = 5;
const TYPE_SHIFT: u32 = 1;
const ACK_REQUEST: u8 = 1;
