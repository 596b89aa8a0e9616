//! What acknowledgements say (OCP Falcon Transport Protocol, Rev 0.9, sections 7.7 and 7.8).

use rnic_base::{Csig, Psn32};

use crate::falcon::{NackCode, Timestamp, Window};

/// Whether a receiver has dropped packets because they lay beyond a window ("out of window notification").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct OutOfWindow {
    /// Of the data window.
    pub data: bool,
    /// Of the request window.
    pub request: bool,
}

impl OutOfWindow {
    /// Whether it is one of them.
    #[inline]
    pub const fn any(self) -> bool {
        self.data || self.request
    }

    /// Of `window`.
    #[inline]
    pub const fn of(self, window: Window) -> bool {
        match window {
            Window::Request => self.request,
            Window::Data => self.data,
        }
    }
}

/// What every acknowledgement says beside the bases of the windows. Where a connection has several flows, it is about
/// the one that the acknowledgement travels on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Acknowledgement {
    /// When the packet received last left its sender.
    pub t1: Timestamp,
    /// When it arrived here.
    pub t2: Timestamp,
    /// Switches on its way, 4 bits.
    pub hops: u8,
    /// How full the receiver's buffers are, 5 bits: 0 empty, 31 full.
    pub rx_level: u8,
    /// Packets received with a congestion mark, counted modulo 2^14.
    pub ecn: u16,
    /// What the receiver's adaptive engine has to say to the sender's, opaque to the packet: 22 bits. Ours say one
    /// thing, [`reflection`].
    pub metadata: u32,
    /// Whether packets were dropped for lack of a place in a window.
    pub out_of_window: OutOfWindow,
}

/// Returns the adaptive engine's bits of an answer that reflects the tag of the packet that drew it: the lowest 16 are
/// the tag's, the others zero. Without a tag all are zero, as they were before there were any.
///
/// The specification has no field for it and leaves these bits to the engines of both ends; so this is our choice.
#[inline]
pub const fn reflection(csig: Option<Csig>) -> u32 {
    Csig::bits(csig) as u32
}

/// Returns the tag that the engine's bits of an answer reflect; `None` where they say anything else.
#[inline]
pub const fn reflected(metadata: u32) -> Option<Csig> {
    if metadata <= u16::MAX as u32 { Csig::from_bits(metadata as u16) } else { None }
}

/// What came beyond the bases: bit n is the packet with the base's number plus n.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Bitmaps {
    /// Data packets that are acknowledged.
    pub data_acked: u128,
    /// Data packets that are here, whether or not the upper layer has acknowledged them.
    pub data_received: u128,
    /// Requests that are here.
    pub request_received: u64,
}

/// Refuses a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nack {
    /// When that packet left its sender.
    pub t1: Timestamp,
    /// When it arrived here.
    pub t2: Timestamp,
    /// Switches on its way, 4 bits.
    pub hops: u8,
    /// How full the receiver's buffers are, 5 bits.
    pub rx_level: u8,
    /// Packets received with a congestion mark, counted modulo 2^14.
    pub ecn: u16,
    /// What the receiver's adaptive engine has to say to the sender's, opaque to the packet: 24 bits. Ours say one
    /// thing, [`reflection`].
    pub metadata: u32,
    /// The packet.
    pub psn: Psn32,
    /// The window that it is in.
    pub window: Window,
    /// Why.
    pub code: NackCode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_reflected_in_22_bits_and_nothing_else_is_taken_for_one() {
        for bits in 0..=u16::MAX {
            let tag = Csig::from_bits(bits);
            let metadata = reflection(tag);
            assert!(metadata <= 0xffff && reflected(metadata) == tag);
        }
        assert_eq!((reflection(None), reflected(0)), (0, None));
        for hostile in [1 << 16, 1 << 16 | 0x4000, 0x3f_ffff, 0xff_ffff, u32::MAX] {
            assert_eq!(reflected(hostile), None, "{hostile:#x}");
        }
    }
}
