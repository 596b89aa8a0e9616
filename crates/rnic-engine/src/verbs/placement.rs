//! The memory placement extensions (InfiniBand Architecture volume 1, annex A19): atomic writes and flushes.
//!
//! For sequence numbers, order, retransmission and answers they are reads of nothing: done when their turn has come,
//! once, and answered by a Read response without payload. A flush finds that what its connection has written before is
//! visible already, because the processor has written it; memory that is persistent is the body's to grant, by giving
//! no region [`Access::FLUSH_PERSISTENT`] when it has none.

use rnic_wire::{NakCode, PlacementOp};

use super::head::Head;
use crate::core::Core;
use crate::mr::Access;
use crate::wq::{SendWqe, WqeOp};
use crate::wr::RemoteMemory;

/// What a flush may ask for, and the right that it takes.
const PLACEMENTS: [(u8, Access); 2] = [(1, Access::FLUSH_GLOBAL), (2, Access::FLUSH_PERSISTENT)];

/// A flush means a range.
const SELECTS_RANGE: u8 = 0;
/// A flush means all that its key grants.
const SELECTS_REGION: u8 = 1;

/// Puts an operation into a send queue entry.
pub(crate) fn placement_entry(wqe: &mut SendWqe, op: WqeOp, remote: RemoteMemory, operand: u64) {
    (wqe.op, wqe.remote, wqe.rkey, wqe.operand) = (op, remote.addr, remote.rkey, operand);
    (wqe.length, wqe.packets) = (0, 1);
}

/// The operation in a send queue entry.
pub(crate) fn placement_of(wqe: &SendWqe) -> PlacementOp {
    match wqe.op {
        WqeOp::AtomicWrite => PlacementOp::AtomicWrite { value: wqe.operand.to_ne_bytes() },
        _ => PlacementOp::Flush {
            len: wqe.operand as u32,
            placement: wqe.word as u8,
            selectivity: (wqe.word >> 8) as u8,
        },
    }
}

impl Head {
    /// The local address of what an operation is about, where the peer may have it done; of a flush, any.
    pub(crate) fn resolve_placement(&self, core: &Core, va: u64, rkey: u32, op: PlacementOp) -> Result<u64, NakCode> {
        match op {
            PlacementOp::AtomicWrite { .. } if !va.is_multiple_of(8) => Err(NakCode::InvalidRequest),
            PlacementOp::AtomicWrite { .. } => self.resolve_fetch(core, va, rkey, 8, Access::REMOTE_WRITE),
            PlacementOp::Flush { len, placement, selectivity } => {
                let known = PLACEMENTS.iter().fold(0, |all, (bit, _)| all | bit);
                if placement == 0 || placement & !known != 0 || selectivity > SELECTS_REGION {
                    return Err(NakCode::InvalidRequest);
                }
                let asked = PLACEMENTS.iter().filter(|(bit, _)| placement & bit != 0);
                let access = asked.fold(Access::empty(), |all, (_, right)| all | *right);
                let whole = (va, u64::from(len));
                let (va, len) = match selectivity {
                    SELECTS_RANGE => whole,
                    _ => core.objects.mrs.extent(rkey).ok_or(NakCode::RemoteAccessError)?,
                };
                let granted = core.objects.mrs.resolve_remote(self.granted(), rkey, va, len, access);
                granted.map_err(|_| NakCode::RemoteAccessError)
            }
        }
    }
}
