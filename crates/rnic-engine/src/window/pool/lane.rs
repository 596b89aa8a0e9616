//! One bitmap (lane) of a unit, the recovery state of a queue pair: the packets received after a gap, as one number or
//! as a list of blocks.

use rnic_base::Seq;

/// Marks the end of the list.
const NIL: u16 = u16::MAX;

/// Maximum value of the 3-bit loss counter (section III-D).
pub(super) const LOST_MAX: u64 = 7;

/// Maximum value of the 10-bit compression counter (section III-D).
pub(super) const COMPRESSION_MAX: u64 = 1_023;

/// Number of packets that a receiver misses below the highest one received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lost {
    /// Number of missing packets, at most [`LOST_MAX`]: `lost-cnt`.
    pub(crate) count: u8,
    /// Set when more packets were missing than the counter can hold; the counter then no longer changes (FaSR mechanism
    ///
    pub(crate) overflow: bool,
}

impl Lost {
    fn add(&mut self, packets: u64) {
        let sum = u64::from(self.count) + packets;
        if self.overflow || sum > LOST_MAX {
            *self = Self { count: LOST_MAX as u8, overflow: true };
        } else {
            self.count = sum as u8;
        }
    }

    fn repaired(&mut self) {
        if !self.overflow {
            self.count = self.count.saturating_sub(1);
        }
    }

    /// Returns whether exactly one packet is missing, so that the highest received packet describes the complete state.
    pub(super) fn is_one(self) -> bool {
        self == Self { count: 1, overflow: false }
    }
}

/// Level 2 of the pool: the blocks of bits, and the map of the blocks in use.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) bits: u64,
    blocks: Vec<Block>,
    pub(super) taken: Slots,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    bits: u64,
    next: u16,
}

impl Blocks {
    pub(super) fn new(count: u32, bits: u32) -> Self {
        Self {
            bits: u64::from(bits),
            blocks: vec![Block { bits: 0, next: NIL }; count as usize],
            taken: Slots::new(count),
        }
    }

    fn take(&mut self) -> u16 {
        let index = self.taken.take().expect("the caller has checked for free space");
        self.blocks[usize::from(index)] = Block { bits: 0, next: NIL };
        index
    }
}

/// Bitmap of the entries in use, in which the first free entry is found without a free list.
#[derive(Debug)]
pub(super) struct Slots {
    words: Vec<u64>,
    count: u16,
    taken: u16,
    taken_max: u16,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let count = u16::try_from(count).ok().filter(|count| *count < NIL).expect("the profile limits the count");
        Self { words: vec![0; usize::from(count).div_ceil(64)], count, taken: 0, taken_max: 0 }
    }

    pub(super) fn take(&mut self) -> Option<u16> {
        let word = self.words.iter().position(|word| *word != u64::MAX)?;
        let bit = self.words[word].trailing_ones();
        let index = word as u64 * 64 + u64::from(bit);
        if index >= u64::from(self.count) {
            return None;
        }
        self.words[word] |= 1 << bit;
        self.taken += 1;
        self.taken_max = self.taken_max.max(self.taken);
        Some(index as u16)
    }

    pub(super) fn free(&mut self, index: u16) {
        let (word, bit) = (usize::from(index / 64), index % 64);
        assert!(self.words[word] & 1 << bit != 0, "slot {index} is freed twice");
        self.words[word] &= !(1 << bit);
        self.taken -= 1;
    }

    pub(super) fn taken(&self) -> u16 {
        self.taken
    }

    pub(super) fn taken_max(&self) -> u16 {
        self.taken_max
    }

    pub(super) fn free_count(&self) -> u16 {
        self.count - self.taken
    }
}

/// The state of one bitmap.
///
/// Received packets are those with `hole < seq < run_end`, and those whose bit is set in the blocks, the first of which
/// starts at `base`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    open: bool,
    /// Set while no out-of-order packets are kept, until this recovery is over.
    pub(super) fallen_back: bool,
    pub(super) lost: Lost,
    /// The oldest packet that is missing.
    hole: Seq,
    /// End of the consecutive packets received directly behind the gap.
    run_end: Seq,
    /// The highest packet received: `sack-high`.
    pub(super) high: Seq,
    /// The packet represented by the first bit of the first block.
    base: Seq,
    head: u16,
    tail: u16,
    /// Number of blocks in the list.
    blocks: u16,
    /// Packets missed in this recovery and, in the next field, whether a block was ever needed: for statistics only.
    pub(super) missed: u64,
    pub(super) was_slow: bool,
}

/// Result of an access to a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Access {
    /// Set when the list had to be walked to find a block in its middle.
    pub(super) walked: bool,
    /// Set when the bit was clear before.
    pub(super) fresh: bool,
}

impl Lane {
    pub(super) const CLOSED: Self = Self {
        open: false,
        fallen_back: false,
        lost: Lost { count: 0, overflow: false },
        hole: Seq::UNSET,
        run_end: Seq::UNSET,
        high: Seq::UNSET,
        base: Seq::UNSET,
        head: NIL,
        tail: NIL,
        blocks: 0,
        missed: 0,
        was_slow: false,
    };

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Returns whether the bitmap (lane) has no block: the missing packet and the highest received one are its whole
    /// state (FaSR mechanism R-2).
    pub(super) fn is_fast(&self) -> bool {
        self.blocks == 0
    }

    /// Returns the number of blocks needed to start a bitmap (lane) with `seq` when `hole` is missing.
    pub(super) fn blocks_to_open(hole: Seq, seq: Seq, bits: u64) -> u64 {
        let lost = seq.since(hole);
        if lost == 1 { 0 } else { lost.div_ceil(bits) }
    }

    /// Starts the bitmap (lane): `hole` is missing, and no later packet is recorded.
    pub(super) fn open(&mut self, hole: Seq) {
        *self = Self { open: true, hole, run_end: hole + 1, high: hole, ..Self::CLOSED };
    }

    /// Returns the number of additional blocks needed to record `seq`.
    pub(super) fn blocks_for(&self, seq: Seq, bits: u64) -> u64 {
        if seq <= self.high || (self.is_fast() && seq == self.high + 1 && self.high > self.hole) {
            return 0;
        }
        let base = if self.blocks > 0 { self.base } else { self.first_block_base(bits) };
        (seq.since(base) + 1).div_ceil(bits).saturating_sub(u64::from(self.blocks))
    }

    /// Returns the packet at which the blocks would start if they were needed now (FaSR mechanism R-13): the one after
    /// the run of consecutive packets, unless the run is shorter than a block.
    fn first_block_base(&self, bits: u64) -> Seq {
        let run = self.run_end.since(self.hole) - 1;
        self.hole + 1 + if run < bits { 0 } else { run.min(COMPRESSION_MAX) }
    }

    /// Switches from recording a single packet number to recording bitmaps in blocks of the pool.
    fn enter_slow_path(&mut self, blocks: &mut Blocks) {
        let (base, run_end) = (self.first_block_base(blocks.bits), self.run_end);
        (self.base, self.run_end, self.was_slow) = (base, base, true);
        let mut seq = base;
        while seq < run_end {
            self.append(seq, blocks);
            seq += 1;
        }
    }

    /// Records the arrival of packet `seq`, which is higher than all earlier ones; the caller has checked that there
    /// is free space. Returns whether it is recorded without a block.
    pub(super) fn extend(&mut self, seq: Seq, blocks: &mut Blocks) -> bool {
        let is_first_gap = self.high == self.hole;
        let missed = seq.since(self.high) - u64::from(!is_first_gap);
        self.lost.add(missed);
        self.missed += missed;
        if self.is_fast() && self.lost.is_one() {
            (self.high, self.run_end) = (seq, seq + 1);
            return true;
        }
        if self.is_fast() {
            self.enter_slow_path(blocks);
        }
        self.append(seq, blocks);
        self.high = seq;
        false
    }

    /// Sets the bit of `seq`, in the tail block or in a new block after it.
    fn append(&mut self, seq: Seq, blocks: &mut Blocks) {
        let index = seq.since(self.base) / blocks.bits;
        while u64::from(self.blocks) <= index {
            let new = blocks.take();
            if self.tail == NIL {
                self.head = new;
            } else {
                blocks.blocks[usize::from(self.tail)].next = new;
            }
            self.tail = new;
            self.blocks += 1;
        }
        blocks.blocks[usize::from(self.tail)].bits |= 1 << (seq.since(self.base) % blocks.bits);
    }

    /// Returns the block of `seq`, if there is one, and whether the list had to be walked to find it.
    fn locate(&self, seq: Seq, blocks: &Blocks) -> Option<(u16, bool)> {
        if self.blocks == 0 || seq < self.base {
            return None;
        }
        let index = seq.since(self.base) / blocks.bits;
        let last_index = u64::from(self.blocks) - 1;
        if index > last_index {
            return None;
        }
        if index == 0 || index == last_index {
            return Some((if index == 0 { self.head } else { self.tail }, false));
        }
        let next = |at: u16| blocks.blocks[usize::from(at)].next;
        Some(((0..index).fold(self.head, |at, _| next(at)), true))
    }

    /// Returns whether `seq` was received.
    pub(super) fn test(&self, seq: Seq, blocks: &Blocks) -> bool {
        if self.hole < seq && seq < self.run_end {
            return true;
        }
        let bit = |at: u16| blocks.blocks[usize::from(at)].bits & 1 << (seq.since(self.base) % blocks.bits) != 0;
        self.locate(seq, blocks).is_some_and(|(at, _)| bit(at))
    }

    /// Records `seq`, which is not the highest so far.
    pub(super) fn set(&mut self, seq: Seq, blocks: &mut Blocks) -> Access {
        if seq < self.run_end {
            return Access::default();
        }
        let Some((at, walked)) = self.locate(seq, blocks) else { return Access::default() };
        let bit = 1 << (seq.since(self.base) % blocks.bits);
        let word = &mut blocks.blocks[usize::from(at)].bits;
        let fresh = *word & bit == 0;
        *word |= bit;
        Access { walked, fresh }
    }

    /// Counts the arrival of one of the missing packets.
    pub(super) fn count_repair(&mut self) {
        self.lost.repaired();
    }

    /// Returns the number of consecutive packets received from `from` on, and the number of blocks read to find it.
    pub(super) fn run(&self, from: Seq, blocks: &Blocks) -> (u64, u64) {
        let mut at = from;
        if self.hole < at && at < self.run_end {
            at = self.run_end;
        }
        let mut visited = 0;
        let (mut block, mut start) = (self.head, self.base);
        while block != NIL && start + blocks.bits <= at {
            (block, start) = (blocks.blocks[usize::from(block)].next, start + blocks.bits);
        }
        while block != NIL && at >= start {
            visited += 1;
            let Block { bits, next } = blocks.blocks[usize::from(block)];
            let offset = at.since(start);
            let ones = u64::from((bits >> offset).trailing_ones()).min(blocks.bits - offset);
            at += ones;
            if offset + ones < blocks.bits {
                break;
            }
            (block, start) = (next, start + blocks.bits);
        }
        (at.since(from), visited)
    }

    /// Frees the blocks before `expected`, because everything before it has been processed.
    pub(super) fn release_before(&mut self, expected: Seq, blocks: &mut Blocks) {
        while self.blocks > 0 && self.base + blocks.bits <= expected {
            let head = self.head;
            self.head = blocks.blocks[usize::from(head)].next;
            self.base += blocks.bits;
            self.blocks -= 1;
            if self.blocks == 0 {
                (self.head, self.tail) = (NIL, NIL);
            }
            blocks.taken.free(head);
        }
    }

    pub(super) fn release_blocks(&mut self, blocks: &mut Blocks) {
        while self.blocks > 0 {
            let start = self.base + blocks.bits;
            self.release_before(start, blocks);
        }
    }

    /// Moves the oldest missing packet to `hole`.
    pub(super) fn move_hole(&mut self, hole: Seq) {
        if hole > self.hole {
            self.run_end = self.run_end.max(hole + 1);
            self.hole = hole;
        }
    }

    /// Switches back to a single number and frees the blocks, because only the packet at the gap is missing. Returns
    /// whether there were blocks before.
    pub(super) fn enter_fast_path(&mut self, blocks: &mut Blocks) -> bool {
        let had_blocks = self.blocks > 0;
        self.release_blocks(blocks);
        self.run_end = self.high + 1;
        had_blocks
    }

    /// At a sender: records that no packet up to `seq` is missing except the one at the gap.
    pub(super) fn set_all_but_hole(&mut self, seq: Seq, blocks: &mut Blocks) {
        self.high = self.high.max(seq);
        self.enter_fast_path(blocks);
    }

    /// At a sender: records that `seq`, the highest packet so far, was received, and that more than the packet at the
    /// gap is missing. Returns whether there was free space to record it.
    pub(super) fn note_higher(&mut self, seq: Seq, blocks: &mut Blocks) -> bool {
        let needed = if self.blocks == 0 {
            (seq.since(self.first_block_base(blocks.bits)) + 1).div_ceil(blocks.bits)
        } else {
            self.blocks_for(seq, blocks.bits)
        };
        self.high = seq;
        if needed > u64::from(blocks.taken.free_count()) {
            return false;
        }
        if self.blocks == 0 {
            self.enter_slow_path(blocks);
        }
        self.append(seq, blocks);
        true
    }

    /// Calls `visit` with each packet of `from..end` whose bit is not set.
    pub(super) fn each_unmarked(&self, from: Seq, end: Seq, blocks: &Blocks, mut visit: impl FnMut(Seq)) {
        let (mut block, mut start) = (self.head, self.base);
        let mut seq = from;
        while seq < end {
            while block != NIL && start + blocks.bits <= seq {
                (block, start) = (blocks.blocks[usize::from(block)].next, start + blocks.bits);
            }
            let in_run = self.hole < seq && seq < self.run_end;
            let bit = |block: u16| blocks.blocks[usize::from(block)].bits & 1 << seq.since(start) != 0;
            let in_block = block != NIL && seq >= start && bit(block);
            if !(in_run || in_block) {
                visit(seq);
            }
            seq += 1;
        }
    }
}
