//! Control messages of sent and received datagrams (cmsg(3)): properties that are not in the datagram itself.

use libc::c_int;

use super::{IPV6_FLOWINFO, Outgoing};
use std::mem::size_of;

/// Buffer for the control messages of one datagram, aligned as the kernel requires.
#[repr(align(8))]
pub(super) struct Control<const BYTES: usize = SENT_BYTES> {
    pub(super) bytes: [u8; BYTES],
}

impl<const BYTES: usize> Control<BYTES> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; BYTES] }
    }
}

impl Control {
    /// Appends control messages for the IP header fields of `message`; returns the number of bytes used afterwards.
    #[cold]
    pub(super) fn push_ip_fields(&mut self, mut used: usize, message: &Outgoing<'_>) -> usize {
        let ip_fields = message.ip_fields;
        let (class, hops) = (c_int::from(ip_fields.traffic_class()), c_int::from(ip_fields.hop_limit()));
        if message.to.is_ipv4() {
            used += self.push(used, libc::SOL_IP, libc::IP_TOS, &class);
            return used + self.push(used, libc::SOL_IP, libc::IP_TTL, &hops);
        }
        used += self.push(used, libc::SOL_IPV6, libc::IPV6_TCLASS, &class);
        used += self.push(used, libc::SOL_IPV6, libc::IPV6_HOPLIMIT, &hops);
        match ip_fields.flow_label() {
            0 => used,
            label => used + self.push(used, libc::SOL_IPV6, IPV6_FLOWINFO, &label.to_be()),
        }
    }

    /// Appends a control message after the `used` bytes; returns its size in bytes.
    pub(super) fn push<T: Copy>(&mut self, used: usize, level: c_int, kind: c_int, value: &T) -> usize {
        // SAFETY: these two functions only compute sizes.
        let (len, space) = unsafe {
            (libc::CMSG_LEN(size_of::<T>() as u32) as usize, libc::CMSG_SPACE(size_of::<T>() as u32) as usize)
        };
        let buffer = &mut self.bytes[used..used + space];
        // SAFETY: `buffer` has `space` bytes, enough for a header followed by a `T`; `used` is a sum of such spaces, so
        // the header is aligned as the buffer is. The value is written unaligned.
        unsafe {
            let header: *mut libc::cmsghdr = buffer.as_mut_ptr().cast();
            (*header).cmsg_len = len as _;
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(*value);
        }
        space
    }
}

/// One received control message.
pub(super) struct ControlMessage<'a> {
    pub(super) level: c_int,
    pub(super) kind: c_int,
    pub(super) data: &'a [u8],
}

impl ControlMessage<'_> {
    /// Returns the data of the control message as a plain kernel structure; `None` if the data is incomplete.
    pub(super) fn read<T: KernelData>(&self) -> Option<T> {
        let bytes = self.data.get(..size_of::<T>())?;
        // SAFETY: the bytes exist, any bytes are a valid `T`, and the read is unaligned.
        Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
    }
}

/// Marks kernel structures for which any bytes are valid.
///
/// # Safety
/// Every bit pattern must be a valid value.
pub(super) unsafe trait KernelData: Copy {}
// SAFETY: every bit pattern is a valid integer.
unsafe impl KernelData for c_int {}
// SAFETY: every bit pattern is a valid integer.
unsafe impl KernelData for u8 {}
// SAFETY: a structure of integers.
unsafe impl KernelData for libc::sock_extended_err {}
// SAFETY: a structure of integers.
unsafe impl KernelData for libc::in_pktinfo {}
// SAFETY: a structure of integers.
unsafe impl KernelData for libc::in6_pktinfo {}
// SAFETY: a structure of integers.
unsafe impl KernelData for libc::timespec {}

/// Iterates over the control messages that the kernel wrote for `header`.
pub(super) fn control_messages(header: &libc::msghdr) -> impl Iterator<Item = ControlMessage<'_>> {
    // SAFETY: the kernel has filled the control buffer that the header points to and has set its length to the bytes
    // used.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    std::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: `next` came from CMSG_FIRSTHDR or CMSG_NXTHDR, which return headers inside the buffer or null. The
        // kernel's `cmsg_len` counts header and data, all within the buffer.
        let message = unsafe {
            let overhead = libc::CMSG_LEN(0) as usize;
            let len = ((*next).cmsg_len as usize).saturating_sub(overhead);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(next), len);
            ControlMessage { level: (*next).cmsg_level, kind: (*next).cmsg_type, data }
        };
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
        Some(message)
    })
}

/// Size of the buffer for control messages of a datagram to send, in bytes: sufficient for a segment size (24 bytes),
/// an address (at most 40), traffic class, hop limit and flow label (24 each). A reported error (16 + 16 + 28) is
/// shorter.
pub(super) const SENT_BYTES: usize = 144;

/// Space for the control messages of a received datagram in bytes: as for a sent one ([`SENT_BYTES`]), and 32 for a
/// timestamp.
pub(super) const RECEIVED_BYTES: usize = SENT_BYTES + 32;
