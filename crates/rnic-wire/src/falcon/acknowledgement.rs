//! Content of acknowledgements (OCP Falcon Transport Protocol, Rev 0.9, sections 7.7 and 7.8).

use rnic_base::{Csig, Psn32};

use crate::falcon::{NackCode, Timestamp, Window};

/// Flags that a receiver sets after it has dropped packets because their sequence numbers were beyond a window ("out of
/// window notification").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct OutOfWindow {
    /// True when packets beyond the data window were dropped.
    pub data: bool,
    /// True when packets beyond the request window were dropped.
    pub request: bool,
}

impl OutOfWindow {
    /// Returns whether packets beyond either window were dropped.
    #[inline]
    pub const fn any(self) -> bool {
        self.data || self.request
    }

    /// Returns whether packets beyond `window` were dropped.
    #[inline]
    pub const fn of(self, window: Window) -> bool {
        match window {
            Window::Request => self.request,
            Window::Data => self.data,
        }
    }
}

/// Content of every acknowledgement besides the bases of the windows. On a connection with several flows, it refers to
/// the flow on which the acknowledgement is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Acknowledgement {
    /// Time at which the packet received last was sent.
    pub t1: Timestamp,
    /// Time at which that packet arrived at the receiver.
    pub t2: Timestamp,
    /// Number of switches on the path of that packet, 4 bits.
    pub hops: u8,
    /// Fill level of the receiver's buffers, 5 bits: 0 empty, 31 full.
    pub rx_level: u8,
    /// Number of packets received with a congestion mark, modulo 2^14.
    pub ecn: u16,
    /// Information from the receiver's adaptive engine for the sender's engine, opaque to the packet format: 22 bits.
    /// OpenRNIC uses them only for [`reflected_metadata`].
    pub metadata: u32,
    /// Indicates whether packets were dropped because their sequence numbers were beyond a window.
    pub out_of_window: OutOfWindow,
}

/// Returns the bits for the adaptive engine in an acknowledgement that reflects the congestion signal tag of the
/// acknowledged packet: the lowest 16 are those of the tag, the others are zero. Without a tag all are zero, as in
/// versions that have no tags.
///
/// The specification has no field for it and leaves these bits to the engines of both ends; the encoding is therefore
/// OpenRNIC's choice.
#[inline]
pub const fn reflected_metadata(csig: Option<Csig>) -> u32 {
    Csig::bits(csig) as u32
}

/// Returns the tag that the engine's bits of an acknowledgement reflect; `None` when they have any other content.
#[inline]
pub const fn reflected(metadata: u32) -> Option<Csig> {
    if metadata <= u16::MAX as u32 { Csig::from_bits(metadata as u16) } else { None }
}

/// Packets received beyond the bases: bit n represents the packet whose number is the base plus n.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Bitmaps {
    /// Data packets that are acknowledged.
    pub data_acked: u128,
    /// Data packets that have been received, whether or not the upper layer has acknowledged them.
    pub data_received: u128,
    /// Requests that have been received.
    pub request_received: u64,
}

/// Content of a NACK, which rejects a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nack {
    /// Time at which the rejected packet was sent.
    pub t1: Timestamp,
    /// Time at which that packet arrived at the receiver.
    pub t2: Timestamp,
    /// Number of switches on the path of that packet, 4 bits.
    pub hops: u8,
    /// Fill level of the receiver's buffers, 5 bits.
    pub rx_level: u8,
    /// Number of packets received with a congestion mark, modulo 2^14.
    pub ecn: u16,
    /// Information from the receiver's adaptive engine for the sender's engine, opaque to the packet format: 24 bits.
    /// OpenRNIC uses them only for [`reflected_metadata`].
    pub metadata: u32,
    /// Sequence number of the rejected packet.
    pub psn: Psn32,
    /// Window that the rejected packet belongs to.
    pub window: Window,
    /// Reason for the rejection.
    pub code: NackCode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csig_tag_is_reflected_in_22_bits_and_other_metadata_is_no_tag() {
        for bits in 0..=u16::MAX {
            let tag = Csig::from_bits(bits);
            let metadata = reflected_metadata(tag);
            assert!(metadata <= 0xffff && reflected(metadata) == tag);
        }
        assert_eq!((reflected_metadata(None), reflected(0)), (0, None));
        for hostile in [1 << 16, 1 << 16 | 0x4000, 0x3f_ffff, 0xff_ffff, u32::MAX] {
            assert_eq!(reflected(hostile), None, "{hostile:#x}");
        }
    }
}
