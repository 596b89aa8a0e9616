//! State, in bits, that a transport's loss recovery stores on a NIC, beyond the state that every RoCE adapter stores
//! for go-back-N.
//!
//! Source of the counting method: IRN (SIGCOMM'18) section 6.1 and FaSR (2025) sections III-D and V-A. Every number
//! follows from constants of the algorithm and from the width of its windows; none is given directly. Congestion
//! control is not counted, as in the papers, because any congestion control can be combined with any recovery.

use rnic_base::Psn;

use crate::falcon::FalconShape;
use crate::field::{FootprintField, Per};
use crate::profile::{PoolShape, Profile, Store};
use crate::recovery::Placement;

/// Width of a packet sequence number in bits.
pub const PSN_BITS: u64 = Psn::MAX.value().count_ones() as u64;

/// Size in bytes of the queue pair context that every adapter stores, whatever its loss recovery (FaSR section V-A).
pub const CONTEXT_BYTES: u64 = 256;

/// Bits that SRNIC stores on the NIC for a queue pair; its bitmaps are in host memory (FaSR section V-A).
const HOST_STATE_BITS: u64 = 12 * 8;

/// Bitmaps of IRN (section 6.1): packets arrived and packets with an action at the responder, responses arrived at the
/// requester, and selective acknowledgements at the senders of both.
const RECEIVER_BITMAPS: u64 = 3;
const SENDER_BITMAPS: u64 = 2;

/// Lanes of a queue pair in FaSR's pool, each with a list of blocks and two counters (section III-D counts five).
const POOL_LANES: u64 = 5;
/// Number of bits of the other state that a queue pair in recovery holds in FaSR's pool (section III-D: 20 bytes).
const UNIT_STATE_BITS: u64 = 20 * 8;
/// Number of bits of a pointer to a block at either end of a list, or from a queue pair to its recovery state in FaSR's
/// pool (section III-D: a byte each).
const POINTER_BITS: u64 = 8;
/// Number of bits of the compression counter of a bitmap, up to 1 K packets, and of its `lost-cnt` (FaSR).
const COMPRESSION_BITS: u64 = 10;
const LOST_BITS: u64 = 3;

impl Profile {
    /// Returns the fields that the profile's loss recovery stores on a NIC.
    pub fn footprint(&self) -> Vec<FootprintField> {
        let recovery = self.recovery.policy.footprint.iter().copied();
        if let Some(shape) = self.protocol.falcon() {
            return recovery.chain(falcon(shape)).collect();
        }
        match self.store {
            Store::Host => vec![FootprintField::connection("state; bitmaps in the host's memory", HOST_STATE_BITS)],
            Store::Pool(shape) => pool(shape),
            Store::Rings => recovery.chain(bitmaps(self.placement(), u64::from(self.window_bits))).collect(),
        }
    }

    /// Returns the total number of bits of the fields stored for each `per`.
    pub fn footprint_bits(&self, per: Per) -> u64 {
        self.footprint().iter().filter(|field| field.per == per).map(|field| field.bits).sum()
    }
}

fn bitmaps(placement: Placement, width: u64) -> impl Iterator<Item = FootprintField> {
    let receiver_bitmaps = FootprintField::connection("bitmaps of received packets", RECEIVER_BITMAPS * width);
    let sender_bitmaps = FootprintField::connection("bitmaps of selective acknowledgements", SENDER_BITMAPS * width);
    let receiver_field = placement.keeps_out_of_order().then_some(receiver_bitmaps);
    receiver_field.into_iter().chain((placement == Placement::PlaceOutOfOrder).then_some(sender_bitmaps))
}

/// Returns the bitmaps at both ends (OCP Falcon Transport Protocol, Rev 0.9, section 9.1.1). The timer and the
/// counter of a packet in flight are not counted: they belong to the packet's context.
fn falcon(shape: &FalconShape) -> [FootprintField; 2] {
    let (request, data) = (u64::from(shape.request_window), u64::from(shape.data_window));
    [
        FootprintField::connection("bitmaps of received packets, and of acknowledged packets", request + 2 * data),
        FootprintField::connection("bitmaps of selective acknowledgements", request + data),
    ]
}

/// Returns the fields of FaSR's pool (section III-D): units (per-connection recovery state), and blocks of bitmaps.
fn pool(shape: PoolShape) -> Vec<FootprintField> {
    let (units, blocks) = (u64::from(shape.units), u64::from(shape.blocks));
    let unit = UNIT_STATE_BITS + POOL_LANES * (2 * POINTER_BITS + COMPRESSION_BITS + LOST_BITS);
    let block_pointer = u64::from(shape.blocks.max(2).next_power_of_two().trailing_zeros());
    vec![
        FootprintField::connection("pointer to a unit", POINTER_BITS),
        FootprintField::shared("units", units * unit),
        FootprintField::shared("blocks", blocks * u64::from(shape.block_bits)),
        FootprintField::shared("links between blocks", blocks * block_pointer),
        FootprintField::shared("flags of free units and blocks", units + blocks),
    ]
}
