//! The memory placement extensions (InfiniBand Architecture volume 1, annex A19): atomic writes and flushes.
//!
//! For sequence numbers, order, retransmission and responses they are reads of zero bytes: executed once, in order,
//! and acknowledged by a Read response without payload. When a flush is executed, earlier writes of its connection
//! are already visible, because the CPU has performed them. A driver without persistent memory grants no region the
//! right [`Access::FLUSH_PERSISTENT`].

use rnic_wire::{NakCode, PlacementOp};

use super::head::Head;
use crate::core::Core;
use crate::mr::Access;
use crate::wq::{SendWqe, WqeOp};
use crate::wr::RemoteMemory;

/// Placement types that a flush may request, and the right that each requires.
const PLACEMENTS: [(u8, Access); 2] = [(1, Access::FLUSH_GLOBAL), (2, Access::FLUSH_PERSISTENT)];

/// Selectivity of a flush that covers a range.
const SELECTS_RANGE: u8 = 0;
/// Selectivity of a flush that covers all memory to which its key grants access.
const SELECTS_REGION: u8 = 1;

/// Stores a placement operation in a send queue entry.
pub(crate) fn placement_entry(wqe: &mut SendWqe, op: WqeOp, remote: RemoteMemory, operand: u64) {
    (wqe.op, wqe.remote, wqe.rkey, wqe.operand) = (op, remote.addr, remote.rkey, operand);
    (wqe.length, wqe.packets) = (0, 1);
}

/// Returns the placement operation stored in a send queue entry.
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
    /// Returns the local address that an operation applies to, if the peer is permitted to execute it; for a flush, an
    /// arbitrary address.
    pub(crate) fn resolve_placement(&self, core: &Core, va: u64, rkey: u32, op: PlacementOp) -> Result<u64, NakCode> {
        match op {
            PlacementOp::AtomicWrite { .. } if !va.is_multiple_of(8) => Err(NakCode::InvalidRequest),
            PlacementOp::AtomicWrite { .. } => self.resolve_fetch(core, va, rkey, 8, Access::REMOTE_WRITE),
            PlacementOp::Flush { len, placement, selectivity } => {
                let known_types = PLACEMENTS.iter().fold(0, |types, (bit, _)| types | bit);
                if placement == 0 || placement & !known_types != 0 || selectivity > SELECTS_REGION {
                    return Err(NakCode::InvalidRequest);
                }
                let requested = PLACEMENTS.iter().filter(|(bit, _)| placement & bit != 0);
                let access = requested.fold(Access::empty(), |access, (_, right)| access | *right);
                let range = (va, u64::from(len));
                let (va, len) = match selectivity {
                    SELECTS_RANGE => range,
                    _ => core.objects.mrs.extent(rkey).ok_or(NakCode::RemoteAccessError)?,
                };
                let granted = core.objects.mrs.resolve_remote(self.granted(), rkey, va, len, access);
                granted.map_err(|_| NakCode::RemoteAccessError)
            }
        }
    }
}
