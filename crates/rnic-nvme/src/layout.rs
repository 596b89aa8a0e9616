//! Layout of the blocks of an initiator's namespace: translation of block addresses.
//!
//! Source: OCP NVMe over Falcon Transport, Rev 0.9, section 6.6: chunks of 2^C GB, stripes of 2^S x 256 KB, striping
//! groups of 2^N chunks, at most two target commands for one initiator command.
//!
//! ```text
//!   address   | group | stripe in chunk | chunk in group (N bits) | byte in stripe (18 + S bits) |
//! ```
//!
//! Chunks are pieces of targets' namespaces. A group is 2^N chunks, over which stripes are distributed round robin,
//! starting with the first chunk; groups are concatenated. Where the specification is not explicit, this module
//! assumes: GB and KB are powers of two; with N = 0 there are no stripes, and a command is split only where a chunk
//! ends.

/// A piece of a target's namespace: 2^C GB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Chunk {
    /// Number of the connection to the target of this part of the namespace.
    pub connection: u32,
    /// Namespace ID, in the target's numbering.
    pub namespace: u16,
    /// First block of the chunk in the target's namespace.
    pub first_block: u64,
}

/// Sizes of blocks and stripes, as base-2 logarithms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    /// C: a chunk has 2^C GB.
    pub chunk: u32,
    /// S: a stripe has 2^S x 256 KB.
    pub stripe: u32,
    /// N: a striping group has 2^N chunks.
    pub group: u32,
    /// Base-2 logarithm of the block size in bytes.
    pub block: u32,
}

/// Layout of a namespace over the chunks of targets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    geometry: Geometry,
    chunks: Box<[Chunk]>,
}

/// A part of a command for one target, which is a separate command for that target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part {
    /// Connection to the target.
    pub connection: u32,
    /// Namespace ID at the target.
    pub namespace: u16,
    /// First block at the target.
    pub first_block: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// Reason for which a layout is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// A size is out of range. Valid are blocks of 512 to 4096 bytes, chunks up to 2^20 GB, groups up to 2^16 chunks,
    /// and stripes up to the size of a chunk.
    #[error(
        "a layout size is out of range: blocks 512 to 4096 bytes, chunks up to 2^20 GB, groups up to 2^16 chunks, \
         stripes up to one chunk"
    )]
    Geometry,
    /// The number of chunks is zero or not a multiple of the group size.
    #[error("the number of chunks, {0}, is not a positive multiple of the number of chunks in a group")]
    Chunks(usize),
    /// A chunk ends beyond the largest block address.
    #[error("a chunk ends beyond the largest block address")]
    BeyondAddressSpace,
}

/// Reason for which block addresses are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TranslateError {
    /// The command has no blocks.
    #[error("the command covers no blocks")]
    Empty,
    /// Blocks beyond the last block of the namespace.
    #[error("the command covers blocks beyond the end of the namespace")]
    OutOfRange,
    /// The command needs more than two target commands.
    #[error("the command covers more than two stripes")]
    TooManyStripes,
}

const GB_LOG2: u32 = 30;
const STRIPE_LOG2: u32 = 18;
const BLOCK_LOG2: core::ops::RangeInclusive<u32> = 9..=12;
/// Maximum of [`Geometry::chunk`]: a petabyte; with [`GROUP_MAX`] and [`GB_LOG2`] no shift exceeds 64 bits.
const CHUNK_MAX: u32 = 20;
/// Maximum of [`Geometry::group`]: as many chunks as a tag table has entries.
const GROUP_MAX: u32 = 16;

impl Layout {
    /// Creates a layout.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn new(geometry: Geometry, chunks: &[Chunk]) -> Result<Self, LayoutError> {
        let Geometry { chunk, stripe, group, block } = geometry;
        if chunk > CHUNK_MAX || group > GROUP_MAX || !BLOCK_LOG2.contains(&block) {
            return Err(LayoutError::Geometry);
        }
        if stripe > chunk + GB_LOG2 - STRIPE_LOG2 {
            return Err(LayoutError::Geometry);
        }
        if chunks.is_empty() || !chunks.len().is_multiple_of(1 << group) || chunks.len() > 1 << GROUP_MAX {
            return Err(LayoutError::Chunks(chunks.len()));
        }
        let blocks_of_chunk = 1 << (chunk + GB_LOG2 - block);
        if chunks.iter().any(|chunk| chunk.first_block.checked_add(blocks_of_chunk).is_none()) {
            return Err(LayoutError::BeyondAddressSpace);
        }
        Ok(Self { geometry, chunks: chunks.into() })
    }

    /// Returns the sizes of the layout.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the number of blocks of the namespace.
    pub fn blocks(&self) -> u64 {
        (self.chunks.len() as u64) << self.chunk_log2()
    }

    /// Returns the number of connections: one more than the largest index in a chunk.
    pub fn connections(&self) -> u32 {
        self.chunks.iter().map(|chunk| chunk.connection + 1).max().unwrap_or(0)
    }

    /// Translates `blocks` from `first` on into one or two parts.
    ///
    /// # Errors
    /// [`TranslateError`].
    pub fn translate(&self, first: u64, blocks: u32) -> Result<(Part, Option<Part>), TranslateError> {
        if blocks == 0 {
            return Err(TranslateError::Empty);
        }
        let end = first.checked_add(u64::from(blocks)).ok_or(TranslateError::OutOfRange)?;
        if end > self.blocks() {
            return Err(TranslateError::OutOfRange);
        }
        let first_part = self.part(first, blocks);
        if first_part.blocks == blocks {
            return Ok((first_part, None));
        }
        let second_part = self.part(first + u64::from(first_part.blocks), blocks - first_part.blocks);
        if first_part.blocks + second_part.blocks < blocks {
            Err(TranslateError::TooManyStripes)
        } else {
            Ok((first_part, Some(second_part)))
        }
    }

    /// Returns the part for the longest run of blocks from `first` on that is contiguous at one target, at most
    /// `blocks`.
    fn part(&self, first: u64, blocks: u32) -> Part {
        let Geometry { group, stripe, block, .. } = self.geometry;
        // Without striping, a chunk is one stripe.
        let run_log2 = if group == 0 { self.chunk_log2() } else { stripe + STRIPE_LOG2 - block };
        let group_log2 = self.chunk_log2() + group;
        let (group_index, offset_in_group) = (first >> group_log2, first & ((1 << group_log2) - 1));
        let (run_index, offset_in_run) = (offset_in_group >> run_log2, offset_in_group & ((1 << run_log2) - 1));
        let chunk = self.chunks[((group_index << group) + (run_index & ((1 << group) - 1))) as usize];
        let blocks_left_in_run = (1_u64 << run_log2) - offset_in_run;
        Part {
            connection: chunk.connection,
            namespace: chunk.namespace,
            first_block: chunk.first_block + ((run_index >> group) << run_log2) + offset_in_run,
            blocks: blocks_left_in_run.min(u64::from(blocks)) as u32,
        }
    }

    /// Returns the base-2 logarithm of the number of blocks of a chunk.
    const fn chunk_log2(&self) -> u32 {
        self.geometry.chunk + GB_LOG2 - self.geometry.block
    }
}

#[cfg(test)]
#[path = "layout/tests.rs"]
mod tests;
