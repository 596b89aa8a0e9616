//! Opcodes of the base transport header, and the payload rule of each.
//!
//! Source: InfiniBand Architecture volume 1, table 38; annex A17 (CNP); annex A19 (Flush, Atomic Write). The five low
//! bits of the opcode byte select the operation, the three high bits the transport service: 000 reliable connections
//! (RC), 001 unreliable connections (UC), 011 unreliable datagrams (UD). An [`Opcode`] has the value for RC;
//! [`Opcode::byte`] sets the service bits of a packet's format. [`Opcode::Cnp`] is the exception: it is the complete
//! byte. Two values that the table leaves unused are extensions of OpenRNIC: [`Opcode::ReadAck`] for IRN (section 5.2),
//! and [`Opcode::Pull`] for NDP's pulls.

use crate::packet::{Format, PacketFlags};

/// Type of a packet, and its position in its message. The values are those of reliable connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// Send, first packet.
    SendFirst = 0x00,
    /// Send, middle packet.
    SendMiddle = 0x01,
    /// Send, last packet.
    SendLast = 0x02,
    /// Send with immediate, last packet.
    SendLastImmediate = 0x03,
    /// Send, only packet.
    SendOnly = 0x04,
    /// Send with immediate, only packet.
    SendOnlyImmediate = 0x05,
    /// Write, first packet.
    WriteFirst = 0x06,
    /// Write, middle packet.
    WriteMiddle = 0x07,
    /// Write, last packet.
    WriteLast = 0x08,
    /// Write with immediate, last packet.
    WriteLastImmediate = 0x09,
    /// Write, only packet.
    WriteOnly = 0x0a,
    /// Write with immediate, only packet.
    WriteOnlyImmediate = 0x0b,
    /// Read request.
    ReadRequest = 0x0c,
    /// Read response, first packet.
    ReadResponseFirst = 0x0d,
    /// Read response, middle packet.
    ReadResponseMiddle = 0x0e,
    /// Read response, last packet.
    ReadResponseLast = 0x0f,
    /// Read response, only packet.
    ReadResponseOnly = 0x10,
    /// Acknowledgement, positive or negative.
    Acknowledge = 0x11,
    /// Response to an atomic operation.
    AtomicAcknowledge = 0x12,
    /// Compare and swap.
    CompareSwap = 0x13,
    /// Fetch and add.
    FetchAdd = 0x14,
    /// Send with invalidate, last packet.
    SendLastInvalidate = 0x16,
    /// Send with invalidate, only packet.
    SendOnlyInvalidate = 0x17,
    /// Acknowledgement of a Read or atomic response, positive or negative (IRN only).
    ReadAck = 0x18,
    /// Grant of further packets (IRN with NDP's pulls only).
    Pull = 0x19,
    /// Flush (annex A19).
    Flush = 0x1c,
    /// Atomic write (annex A19).
    AtomicWrite = 0x1d,
    /// Congestion notification.
    Cnp = 0x81,
}

/// Payload allowed in packets with an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadRule {
    /// Packets with the opcode have no payload.
    Never,
    /// Any length up to the MTU, including zero: the complete message.
    Maybe,
    /// At least one byte: every packet of a message of several packets has payload.
    Always,
}

impl Opcode {
    /// All opcodes, in numerical order.
    pub const ALL: [Self; 28] = [
        Self::SendFirst,
        Self::SendMiddle,
        Self::SendLast,
        Self::SendLastImmediate,
        Self::SendOnly,
        Self::SendOnlyImmediate,
        Self::WriteFirst,
        Self::WriteMiddle,
        Self::WriteLast,
        Self::WriteLastImmediate,
        Self::WriteOnly,
        Self::WriteOnlyImmediate,
        Self::ReadRequest,
        Self::ReadResponseFirst,
        Self::ReadResponseMiddle,
        Self::ReadResponseLast,
        Self::ReadResponseOnly,
        Self::Acknowledge,
        Self::AtomicAcknowledge,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::SendLastInvalidate,
        Self::SendOnlyInvalidate,
        Self::ReadAck,
        Self::Pull,
        Self::Flush,
        Self::AtomicWrite,
        Self::Cnp,
    ];

    /// Returns the opcode that `byte` represents in `format`, if any.
    #[inline]
    pub const fn from_byte(format: Format, byte: u8) -> Option<Self> {
        match format {
            Format::RoceV2 | Format::Fasr => ROCE[byte as usize],
            Format::Irn => IRN[byte as usize],
            Format::UnreliableConnection => UNRELIABLE_CONNECTION[byte as usize],
            Format::UnreliableDatagram => UNRELIABLE_DATAGRAM[byte as usize],
        }
    }

    /// Returns the byte that represents the opcode in `format`.
    #[inline]
    pub const fn byte(self, format: Format) -> u8 {
        self as u8 | service(format)
    }

    /// Returns whether packets of `format` can have this opcode.
    const fn is_of(self, format: Format) -> bool {
        match format {
            Format::RoceV2 | Format::Fasr => !matches!(self, Self::ReadAck | Self::Pull),
            Format::Irn => true,
            Format::UnreliableConnection => (self as u8) < Self::ReadRequest as u8,
            Format::UnreliableDatagram => matches!(self, Self::SendOnly | Self::SendOnlyImmediate),
        }
    }

    /// Returns the payload rule of the opcode.
    #[inline]
    pub const fn payload(self) -> PayloadRule {
        match self {
            Self::SendFirst
            | Self::SendMiddle
            | Self::SendLast
            | Self::SendLastImmediate
            | Self::SendLastInvalidate
            | Self::WriteFirst
            | Self::WriteMiddle
            | Self::WriteLast
            | Self::WriteLastImmediate
            | Self::ReadResponseFirst
            | Self::ReadResponseMiddle
            | Self::ReadResponseLast => PayloadRule::Always,
            Self::SendOnly
            | Self::SendOnlyImmediate
            | Self::SendOnlyInvalidate
            | Self::WriteOnly
            | Self::WriteOnlyImmediate
            | Self::ReadResponseOnly => PayloadRule::Maybe,
            Self::ReadRequest
            | Self::Acknowledge
            | Self::AtomicAcknowledge
            | Self::CompareSwap
            | Self::FetchAdd
            | Self::ReadAck
            | Self::Pull
            | Self::Flush
            // Its eight bytes count as a header, because the engine compares and stores values and never accesses
            // payload.
            | Self::AtomicWrite
            | Self::Cnp => PayloadRule::Never,
        }
    }
}

impl PayloadRule {
    /// Returns whether a payload of `bytes` satisfies the rule. The upper bound is [`rnic_base::limits::MTU_MAX`].
    #[inline]
    pub const fn allows(self, bytes: u32) -> bool {
        match self {
            Self::Never => bytes == 0,
            Self::Maybe => bytes <= rnic_base::limits::MTU_MAX,
            Self::Always => bytes > 0 && bytes <= rnic_base::limits::MTU_MAX,
        }
    }

    /// Returns whether a packet of `format` with `flags` may have no payload although the rule requires one: a switch
    /// has cut the payload ([`crate::Packet::is_trimmed`]).
    #[cold]
    pub(crate) const fn allows_trimmed(self, format: Format, flags: PacketFlags, bytes: u32) -> bool {
        matches!((self, format), (Self::Always, Format::Irn)) && flags.fecn && bytes == 0
    }
}

/// Opcode of every byte value, one table per format: one table access for each packet.
static ROCE: [Option<Opcode>; 256] = decode_table(Format::RoceV2);
static IRN: [Option<Opcode>; 256] = decode_table(Format::Irn);
static UNRELIABLE_CONNECTION: [Option<Opcode>; 256] = decode_table(Format::UnreliableConnection);
static UNRELIABLE_DATAGRAM: [Option<Opcode>; 256] = decode_table(Format::UnreliableDatagram);

/// Returns the transport service bits of an opcode: the three high bits.
const fn service(format: Format) -> u8 {
    match format {
        Format::RoceV2 | Format::Irn | Format::Fasr => 0,
        Format::UnreliableConnection => UNRELIABLE_CONNECTION_BITS,
        Format::UnreliableDatagram => UNRELIABLE_DATAGRAM_BITS,
    }
}

/// Returns the service given by the opcode `byte` of a RoCEv2 packet; CNPs and unknown services count as reliable.
#[inline]
pub(crate) const fn service_of(byte: u8) -> Format {
    match byte & 0xe0 {
        UNRELIABLE_CONNECTION_BITS => Format::UnreliableConnection,
        UNRELIABLE_DATAGRAM_BITS => Format::UnreliableDatagram,
        _ => Format::RoceV2,
    }
}

const UNRELIABLE_CONNECTION_BITS: u8 = 0x20;
const UNRELIABLE_DATAGRAM_BITS: u8 = 0x60;

const fn decode_table(format: Format) -> [Option<Opcode>; 256] {
    let mut table = [None; 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        if opcode.is_of(format) {
            table[opcode.byte(format) as usize] = Some(opcode);
        }
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENSIONS: [Opcode; 2] = [Opcode::ReadAck, Opcode::Pull];

    #[test]
    fn every_byte_has_one_meaning_or_none() {
        for format in [Format::RoceV2, Format::Irn, Format::Fasr] {
            for byte in 0..=u8::MAX {
                let expected = Opcode::ALL.into_iter().find(|opcode| opcode.byte(format) == byte);
                let expected = expected.filter(|opcode| format == Format::Irn || !EXTENSIONS.contains(opcode));
                assert_eq!(Opcode::from_byte(format, byte), expected, "{byte:#x} in {format:?}");
            }
        }
    }

    #[test]
    fn unreliable_services_have_the_ranges_of_table_38() {
        let used = |format| (0..=u8::MAX).filter(|byte| Opcode::from_byte(format, *byte).is_some()).collect::<Vec<_>>();
        assert_eq!(used(Format::UnreliableConnection), (0x20..=0x2b).collect::<Vec<_>>());
        assert_eq!(used(Format::UnreliableDatagram), [0x64, 0x65]);
        for format in [Format::RoceV2, Format::UnreliableConnection, Format::UnreliableDatagram] {
            assert!(used(format).into_iter().all(|byte| service_of(byte) == format), "{format:?}");
        }
        for byte in used(Format::UnreliableConnection) {
            let opcode = Opcode::from_byte(Format::UnreliableConnection, byte).expect("used");
            assert_eq!((opcode as u8, opcode.byte(Format::UnreliableConnection)), (byte - 0x20, byte));
        }
    }

    #[test]
    fn extensions_take_unused_values() {
        let used: Vec<u8> = (0..0x20).filter(|byte| Opcode::from_byte(Format::RoceV2, *byte).is_some()).collect();
        let expected: Vec<u8> = (0..=0x14).chain([0x16, 0x17, 0x1c, 0x1d]).collect();
        assert_eq!(used, expected, "table 38 and annex A19; 0x15 is reserved, six are unused");
        assert_eq!(EXTENSIONS.map(|opcode| opcode.byte(Format::Irn)), [0x18, 0x19]);
    }
}
