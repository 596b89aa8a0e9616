//! Access of the engine to registered memory.

use rnic_base::limits::SGE_MAX;
use rnic_wire::AtomicOp;

/// A contiguous range of local memory, in the address space in which the driver registered the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Local address of the first byte.
    pub local: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Memory ranges of the payload of one packet: at most as many as a request has scatter/gather entries.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    list: [Segment; SGE_MAX],
    count: usize,
}

impl Segments {
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, segment: Segment) {
        self.list[self.count] = segment;
        self.count += 1;
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Segment] {
        &self.list[..self.count]
    }
}

/// Error: a registered address cannot be read or written, because the owner of the memory has unmapped, shortened,
/// protected or replaced it since the region was registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFault;

/// Destination of received bytes. A driver implements this trait for the current packet and passes it to
/// [`crate::Engine::receive`].
///
/// Addresses are local ones ([`crate::MemoryRegion::local`] plus the offset into the region); the engine has checked
/// key, range and access rights, and that atomics are aligned to eight bytes. The calls are made in the order in which
/// a program must observe their effects.
///
/// A driver whose memory can disappear after its registration returns a [`MemoryFault`]; some of the bytes may have
/// been written by then. The engine then reports the same completion status or NAK as for an access that is not
/// permitted. If the driver cannot read the payload of a packet to be sent, it reports this with
/// [`crate::Engine::fault_payload`].
pub trait Dma {
    /// Copies bytes `offset .. offset + target.len` of the current packet's payload to `target`. The payload of a
    /// datagram is preceded by the [`crate::GRH_LEN`] bytes of its global route header, which count in `offset`.
    ///
    /// # Errors
    /// When the target cannot be written.
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault>;

    /// Returns `true` if the header before the current datagram is an IPv4 header (annex A17.4.5.1: the completion
    /// states the type of header).
    fn has_ipv4_header(&self) -> bool {
        false
    }

    /// Stores the eight bytes of an atomic response or an atomic write, in the host's byte order; atomically for other
    /// threads when `local` is aligned.
    ///
    /// # Errors
    /// When the bytes cannot be written.
    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault>;

    /// Compares the eight bytes at `local` with `compare` and stores `swap` when they are equal; returns the previous
    /// value.
    ///
    /// # Errors
    /// When the bytes cannot be read and written; in this case they are unchanged.
    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault>;

    /// Adds `add` to the eight bytes at `local`, wrapping; returns the previous value.
    ///
    /// # Errors
    /// As [`Dma::compare_swap`].
    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault>;

    /// Buffers a copy of the current packet's payload under the name `handle`, to be placed later: the packet arrived
    /// out of order on an ordered Falcon connection. No two payloads that an engine keeps at the same time have the
    /// same handle, and the NIC's resources bound their number ([`crate::FalconArrival`]).
    fn keep(&mut self, handle: u64) {
        let _ = handle;
    }

    /// As [`Dma::place`], but copies from the payload that is kept under `handle`.
    ///
    /// # Errors
    /// As [`Dma::place`].
    fn place_kept(&mut self, handle: u64, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let _ = (handle, offset, target);
        Ok(())
    }

    /// Frees the payload that is kept under `handle`. The engine calls this once for every [`Dma::keep`], at the
    /// latest when it receives the first packet after the end of the connection.
    fn release(&mut self, handle: u64) {
        let _ = handle;
    }
}

/// Executes `op` at `local`; returns the previous value.
pub(crate) fn execute<D: Dma>(dma: &mut D, op: AtomicOp, local: u64) -> Result<u64, MemoryFault> {
    match op {
        AtomicOp::CompareSwap { compare, swap } => dma.compare_swap(local, compare, swap),
        AtomicOp::FetchAdd { add } => dma.fetch_add(local, add),
    }
}

/// A [`Dma`] that stores no data: for simulations in which only timing matters.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDma;

impl Dma for NoDma {
    #[inline]
    fn place(&mut self, _: u32, _: Segment) -> Result<(), MemoryFault> {
        Ok(())
    }

    #[inline]
    fn store(&mut self, _: u64, _: u64) -> Result<(), MemoryFault> {
        Ok(())
    }

    #[inline]
    fn compare_swap(&mut self, _: u64, _: u64, _: u64) -> Result<u64, MemoryFault> {
        Ok(0)
    }

    #[inline]
    fn fetch_add(&mut self, _: u64, _: u64) -> Result<u64, MemoryFault> {
        Ok(0)
    }
}
