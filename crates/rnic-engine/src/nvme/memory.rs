//! Location of NVMe data: at an initiator, the scatter/gather lists of its commands; at a target, the memory region
//! of its namespace.
//!
//! Received data is placed when its packet is processed. For data to be sent, only its location is recorded when it
//! is submitted to the transaction layer; the bytes are read each time its packet is sent.

use rnic_nvme::{Extent, Fault, HostMemory, Media, Span, UnitTransaction};
use rnic_wire::falcon::Rsn;

use crate::dma::{Dma, Segments};
use crate::mr::{Access, MrTable};
use crate::namespace::NamespaceConfig;
use crate::verbs::gather::for_each_segment;
use crate::verbs::head::Head;
use crate::verbs::send::SendHalf;
use crate::wr::Sge;

/// Location of the response data for the peer's Pulls, by request number.
#[derive(Debug)]
pub(crate) struct Sources(Box<[Source]>);

/// A range of bytes of a command's memory or of a namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Source {
    /// Send queue entry; unused by a target.
    pub(super) counter: u32,
    /// Length in bytes.
    pub(super) len: u32,
    /// Offset of the first byte in the command or in the namespace.
    pub(super) offset: u64,
}

impl Sources {
    /// Returns a table for up to `requests_max` requests at a time.
    pub(super) fn new(requests_max: u32) -> Self {
        Self(vec![Source::default(); requests_max as usize].into_boxed_slice())
    }

    fn insert(&mut self, rsn: Rsn, source: Source) {
        let place = rsn.value() as usize & (self.0.len() - 1);
        self.0[place] = source;
    }

    pub(super) fn get(&self, rsn: Rsn) -> Source {
        self.0[rsn.value() as usize & (self.0.len() - 1)]
    }
}

/// An initiator's access to the memory of its commands, borrowed for one call.
pub(crate) struct CommandMemory<'a, D> {
    pub(super) head: &'a Head,
    pub(super) send: &'a SendHalf,
    pub(super) mrs: &'a MrTable,
    pub(super) sources: &'a mut Sources,
    pub(super) dma: &'a mut D,
}

impl<D: Dma> HostMemory for CommandMemory<'_, D> {
    fn place(&mut self, _: usize, to: Span) -> Result<(), Fault> {
        let Self { head, send, mrs, dma, .. } = self;
        let counter = to.cookie as u32;
        if !send.is_pending(counter) {
            return Err(Fault);
        }
        let sges = send.queue.sges(counter);
        let place = |at, segment| dma.place(at, segment);
        for_each_segment(mrs, head.pd, sges, to.offset, to.length, Access::LOCAL_WRITE, place).map_err(|_| Fault)
    }

    fn gather(&mut self, _: usize, rsn: Rsn, from: Span) -> Result<(), Fault> {
        let Self { head, send, mrs, sources, .. } = self;
        let source = Source { counter: from.cookie as u32, len: from.length, offset: from.offset.into() };
        if !send.is_pending(source.counter) {
            return Err(Fault);
        }
        let sges = send.queue.sges(source.counter);
        let readable = for_each_segment(mrs, head.pd, sges, from.offset, from.length, Access::empty(), |_, _| Ok(()));
        readable.map_err(|_| Fault)?;
        sources.insert(rsn, source);
        Ok(())
    }
}

/// A target's access to the memory of its namespace, borrowed for one call.
pub(crate) struct Medium<'a, D> {
    pub(super) namespace: Option<&'a NamespaceConfig>,
    pub(super) mrs: &'a MrTable,
    pub(super) sources: &'a mut Sources,
    pub(super) dma: &'a mut D,
}

impl<D: Dma> Media for Medium<'_, D> {
    fn read(&mut self, transaction: UnitTransaction, from: Extent) {
        if let (UnitTransaction::Response(rsn), Some(namespace)) = (transaction, self.namespace) {
            let block_log2 = namespace.device.block_log2;
            let (len, offset) = (from.blocks << block_log2, from.first_block << block_log2);
            self.sources.insert(rsn, Source { counter: 0, len, offset });
        }
    }

    fn write(&mut self, to: Extent) -> Result<(), Fault> {
        let Self { namespace, mrs, dma, .. } = self;
        let namespace = namespace.ok_or(Fault)?;
        let block_log2 = namespace.device.block_log2;
        let sge = namespace_bytes(namespace, to.first_block << block_log2, to.blocks << block_log2);
        let place = |at, segment| dma.place(at, segment);
        for_each_segment(mrs, namespace.pd, &[sge], 0, sge.len, Access::LOCAL_WRITE, place).map_err(|_| Fault)
    }
}

/// Returns the memory range of `len` bytes of `namespace` from byte `offset`.
fn namespace_bytes(namespace: &NamespaceConfig, offset: u64, len: u32) -> Sge {
    Sge { addr: namespace.addr.wrapping_add(offset), len, lkey: namespace.key.0 }
}

/// Collects the memory segments of `len` bytes of `namespace` from byte `offset`; returns false when the key does not
/// cover it.
pub(super) fn gather_blocks(
    namespace: &NamespaceConfig,
    mrs: &MrTable,
    segments: &mut Segments,
    offset: u64,
    len: u32,
) -> bool {
    segments.clear();
    let sge = namespace_bytes(namespace, offset, len);
    for_each_segment(mrs, namespace.pd, &[sge], 0, len, Access::empty(), |_, segment| {
        segments.push(segment);
        Ok(())
    })
    .is_ok()
}
