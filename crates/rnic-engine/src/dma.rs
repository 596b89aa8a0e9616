//! The engine's hand in memory.

use rnic_base::limits::SGE_MAX;
use rnic_wire::AtomicOp;

/// A run of local memory, in the addresses that the body gave when it registered the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Local address of the first byte.
    pub local: u64,
    /// Bytes.
    pub len: u32,
}

/// The payload of one packet: as many runs as a request has scatter/gather entries, at most.
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

/// A registered address that cannot be read or written: since the region was registered its owner has unmapped,
/// shortened, protected or replaced the memory behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFault;

/// Where received bytes go. A body implements this for the packet at hand and passes it to [`crate::Engine::receive`].
///
/// Addresses are local ones ([`crate::MemoryRegion::local`] plus the offset into the region); the engine has checked
/// key, range and rights, and that atomics are aligned to eight bytes. Calls come in the order in which a program must
/// see their effects.
///
/// A body whose memory can disappear after its registration answers with a [`MemoryFault`]; some of the bytes may have
/// been placed by then. The engine turns it into the completion status or NAK of an access that was not allowed. What a
/// body finds when it reads payload that leaves, it reports with [`crate::Engine::fault_payload`].
pub trait Dma {
    /// Copies bytes `offset .. offset + target.len` of the present packet's payload to `target`. Before the payload of
    /// a datagram stand the [`crate::GRH_LEN`] bytes of its global route header, and count.
    ///
    /// # Errors
    /// When the target cannot be written.
    fn place(&mut self, offset: u32, target: Segment) -> Result<(), MemoryFault>;

    /// Whether the header in front of the present datagram is IPv4's (annex A17.4.5.1: a completion tells which it is).
    fn has_ipv4_header(&self) -> bool {
        false
    }

    /// Stores the eight bytes of an atomic response or an atomic write, in the host's byte order; as one step for other
    /// threads when `local` is aligned.
    ///
    /// # Errors
    /// When they cannot be written.
    fn store(&mut self, local: u64, value: u64) -> Result<(), MemoryFault>;

    /// On the eight bytes at `local`: when they equal `compare`, stores `swap`; returns what was there.
    ///
    /// # Errors
    /// When they cannot be read and written; nothing has changed then.
    fn compare_swap(&mut self, local: u64, compare: u64, swap: u64) -> Result<u64, MemoryFault>;

    /// Adds `add` to the eight bytes at `local`, wrapping; returns what was there.
    ///
    /// # Errors
    /// As [`Dma::compare_swap`].
    fn fetch_add(&mut self, local: u64, add: u64) -> Result<u64, MemoryFault>;

    /// Copies the present packet's payload aside, to be placed later under the name `handle`: it has come before its
    /// turn on an ordered Falcon connection. No two that are kept by an engine have the same name, and how many there
    /// are is bounded by the NIC's resources ([`crate::FalconArrival`]).
    fn keep(&mut self, handle: u64) {
        let _ = handle;
    }

    /// As [`Dma::place`], from the payload that is kept as `handle`.
    ///
    /// # Errors
    /// As [`Dma::place`].
    fn place_kept(&mut self, handle: u64, offset: u32, target: Segment) -> Result<(), MemoryFault> {
        let _ = (handle, offset, target);
        Ok(())
    }

    /// Forgets what is kept as `handle`. Comes once for every [`Dma::keep`], as late as with the packet that arrives
    /// after the end of a connection.
    fn release(&mut self, handle: u64) {
        let _ = handle;
    }
}

/// Does `op` at `local`; returns what was there.
pub(crate) fn execute<D: Dma>(dma: &mut D, op: AtomicOp, local: u64) -> Result<u64, MemoryFault> {
    match op {
        AtomicOp::CompareSwap { compare, swap } => dma.compare_swap(local, compare, swap),
        AtomicOp::FetchAdd { add } => dma.fetch_add(local, add),
    }
}

/// Memory that keeps nothing: for runs in which only timing matters.
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
