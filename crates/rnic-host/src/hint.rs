//! The hint line: memory by which a program tells its NIC about itself, without a system call.
//!
//! Source: SCR (NSDI'25) section 4.3.1, mechanism S-9. The program writes a line of 64 bytes with plain stores, and the
//! NIC's loop compares its sequence number once per turn, whatever the number of queue pairs; it reads the rest only
//! when the number has changed. Both are in one process, so the line is ordinary memory of that process.
//!
//! ```text
//!   byte 0   magic and version      8 bytes, written by the NIC
//!        8   sequence number        4        odd while the program writes
//!       12   weight                 4        1 to 1000, at the shared link
//!       16   cap                    4        kbit/s, of each queue pair; 0 for none
//!       20   reserved               44       zero
//! ```
//!
//! The sequence number makes it a seqlock: a reader that finds an odd number, or another one after reading, discards
//! what it has read. The contents are not trusted; what may be in force is decided where it is applied (`nic/hint`).
//! `crates/rnic-verbs/include/rnic_hint.h` is the same structure for programs in C.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Memory that a program writes and its NIC reads; see [`crate::Verbs::hint_line`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct HintLine {
    magic: AtomicU64,
    sequence: AtomicU32,
    weight: AtomicU32,
    cap_kbps: AtomicU32,
    reserved: [AtomicU32; RESERVED_WORDS],
}

// A line is one cache line, so that a turn without a hint costs one load from the first level of the cache.
const _: () = assert!(size_of::<HintLine>() == 64 && align_of::<HintLine>() == 64);

/// Contents of a hint, as written by the program: any values are possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    /// Weight of the process at the shared link, from 1 to [`rnic_engine::WEIGHT_MAX`].
    pub weight: u32,
    /// Limit of the dequeue rate of each queue pair in kbit/s; 0 for none.
    pub cap_kbps: u32,
}

/// Reason that a line has no hint to apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unreadable {
    /// The program was changing the hint while it was read.
    Torn,
    /// The memory is not a hint line of this version.
    Foreign,
}

impl HintLine {
    fn new(hint: Hint) -> Self {
        Self {
            magic: AtomicU64::new(MAGIC),
            sequence: AtomicU32::new(0),
            weight: AtomicU32::new(hint.weight),
            cap_kbps: AtomicU32::new(hint.cap_kbps),
            reserved: [const { AtomicU32::new(0) }; RESERVED_WORDS],
        }
    }

    /// Writes a hint, as programs in C do: with plain stores. Only one thread at a time may write.
    pub fn write(&self, hint: Hint) {
        let odd = self.begin(hint);
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// Writes a hint that is not complete before the next sequence number is stored; returns the present one.
    pub(crate) fn begin(&self, hint: Hint) -> u32 {
        let odd = self.sequence.load(Ordering::Relaxed) | 1;
        self.sequence.store(odd, Ordering::Relaxed);
        // The odd number must be visible before the contents that it protects.
        fence(Ordering::Release);
        self.weight.store(hint.weight, Ordering::Relaxed);
        self.cap_kbps.store(hint.cap_kbps, Ordering::Relaxed);
        odd
    }
}

/// The NIC's side of a hint line.
#[derive(Debug)]
pub(crate) struct HintReader {
    line: Arc<HintLine>,
    /// Sequence number when the line was last read.
    seen: u32,
    /// The hint that is applied.
    in_force: Hint,
}

impl HintReader {
    /// Returns a reader of a new line that contains `hint`, which is already applied.
    pub(crate) fn new(hint: Hint) -> Self {
        Self { line: Arc::new(HintLine::new(hint)), seen: 0, in_force: hint }
    }

    /// Returns the hint line: the memory into which the program writes its hint.
    pub(crate) fn line(&self) -> &Arc<HintLine> {
        &self.line
    }

    /// Returns the hint that is applied.
    pub(crate) fn in_force(&self) -> Hint {
        self.in_force
    }

    /// Records that `hint` is applied.
    pub(crate) fn set_in_force(&mut self, hint: Hint) {
        self.in_force = hint;
    }

    /// Returns whether the line has been written since it was last read; this costs one load.
    #[inline]
    pub(crate) fn has_changed(&self) -> bool {
        self.line.sequence.load(Ordering::Relaxed) != self.seen
    }

    /// Reads the line. If the program was changing it, it is read again once its sequence number has changed.
    ///
    /// # Errors
    /// When the line contains no valid hint.
    pub(crate) fn read(&mut self) -> Result<Hint, Unreadable> {
        let line = &*self.line;
        self.seen = line.sequence.load(Ordering::Acquire);
        let hint =
            Hint { weight: line.weight.load(Ordering::Relaxed), cap_kbps: line.cap_kbps.load(Ordering::Relaxed) };
        let is_ours = line.magic.load(Ordering::Relaxed) == MAGIC
            && line.reserved.iter().all(|word| word.load(Ordering::Relaxed) == 0);
        // The contents must have been loaded before the number is compared again.
        fence(Ordering::Acquire);
        if !self.seen.is_multiple_of(2) || line.sequence.load(Ordering::Relaxed) != self.seen {
            return Err(Unreadable::Torn);
        }
        is_ours.then_some(hint).ok_or(Unreadable::Foreign)
    }
}

/// Identifies a line, and its version in the last byte.
const MAGIC: u64 = u64::from_be_bytes(*b"rnichnt1");

/// Number of reserved words.
const RESERVED_WORDS: usize = 11;

#[cfg(test)]
mod tests;
