//! The receiving half of a stream: its posted receives, the data in them, and how many receives have been announced to
//! the peer.

use std::collections::VecDeque;

use super::message::Kind;

/// Data that has arrived and has not been read completely.
#[derive(Clone, Copy, Debug)]
struct Part {
    slot: u32,
    /// First byte that has not been read.
    at: u32,
    /// End of the data.
    len: u32,
}

/// A range of bytes in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Number of the slot.
    pub(super) slot: u32,
    /// First byte in the slot.
    pub(super) at: u32,
    /// Number of bytes.
    pub(super) len: u32,
}

/// The receiving half of a stream. Each slot holds one message and has one receive.
#[derive(Debug)]
pub(super) struct Receiver {
    segment_bytes: u32,
    parts: VecDeque<Part>,
    buffered_bytes: u64,
    /// Messages that used receives for data.
    messages: u64,
    /// Receives for data that have been posted since the beginning.
    posted: u64,
    /// Number of receives that have been announced to the peer.
    announced: u64,
    has_ended: bool,
}

impl Receiver {
    /// Returns a receiver with `window` receives for data, which the peer knows from the start.
    pub(super) fn new(segment_bytes: u32, window: u32) -> Self {
        let window = u64::from(window);
        Self {
            segment_bytes,
            parts: VecDeque::new(),
            buffered_bytes: 0,
            messages: 0,
            posted: window,
            announced: window,
            has_ended: false,
        }
    }

    /// Takes a message that has arrived in `slot`; returns whether the slot has to be posted again immediately.
    ///
    /// # Errors
    /// The violation of the protocol, as text.
    pub(super) fn take(&mut self, kind: Kind, len: u32, slot: u32) -> Result<bool, String> {
        if !kind.permits(len, self.segment_bytes) {
            return Err(format!("a message of kind {kind:?} has {len} bytes; segments have {}", self.segment_bytes));
        }
        if !kind.uses_credit() {
            return Ok(true);
        }
        if self.has_ended {
            return Err(format!("a message of kind {kind:?} followed the end of its data"));
        }
        if self.messages >= self.announced {
            return Err(format!(
                "the peer sent more messages with data than the {} receives announced to it",
                self.announced
            ));
        }
        self.messages += 1;
        if kind == Kind::End {
            self.has_ended = true;
            return Ok(true);
        }
        self.parts.push_back(Part { slot, at: 0, len });
        self.buffered_bytes += u64::from(len);
        Ok(false)
    }

    /// Returns the bytes to read next, at most `most`.
    pub(super) fn peek(&self, most: usize) -> Option<Piece> {
        let Part { slot, at, len } = *self.parts.front()?;
        Some(Piece { slot, at, len: (len - at).min(u32::try_from(most).unwrap_or(u32::MAX)) })
    }

    /// Records that the first `bytes` bytes have been read, which must be in one slot; returns the slot if it has to be
    /// posted again.
    pub(super) fn consume(&mut self, bytes: u32) -> Option<u32> {
        let part = self.parts.front_mut()?;
        part.at += bytes;
        self.buffered_bytes -= u64::from(bytes);
        if part.at < part.len {
            return None;
        }
        self.posted += 1;
        self.parts.pop_front().map(|part| part.slot)
    }

    /// Returns the number of posted receives, for a message that announces them to the peer.
    pub(super) fn announce(&mut self) -> u64 {
        self.announced = self.posted;
        self.posted
    }

    /// Returns the number of receives that have not been announced to the peer.
    pub(super) fn unannounced(&self) -> u64 {
        self.posted - self.announced
    }

    /// Returns the number of bytes that can be read.
    pub(super) fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes
    }

    /// Returns whether the peer has sent the end of its data. Some of the data may not have been read yet.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_announced_only_after_it_has_been_read_completely() {
        let mut receiver = Receiver::new(100, 2);
        assert_eq!(receiver.take(Kind::Whole, 100, 0), Ok(false));
        assert_eq!(receiver.take(Kind::SubSegment, 30, 1), Ok(false));
        assert_eq!(receiver.buffered_bytes(), 130);
        assert_eq!(receiver.peek(60), Some(Piece { slot: 0, at: 0, len: 60 }));
        assert_eq!((receiver.consume(60), receiver.unannounced()), (None, 0));
        assert_eq!(receiver.peek(60), Some(Piece { slot: 0, at: 60, len: 40 }));
        assert_eq!((receiver.consume(40), receiver.unannounced()), (Some(0), 1));
        assert_eq!((receiver.announce(), receiver.unannounced()), (3, 0));
        assert_eq!(receiver.peek(60), Some(Piece { slot: 1, at: 0, len: 30 }));
    }

    #[test]
    fn each_violation_is_refused() {
        let new = || Receiver::new(100, 2);
        for (kind, len) in [(Kind::Whole, 99), (Kind::SubSegment, 100), (Kind::SubSegment, 0), (Kind::End, 1)] {
            assert!(new().take(kind, len, 0).is_err(), "{kind:?} of {len} bytes");
        }
        let mut full = new();
        assert!(full.take(Kind::Whole, 100, 0).is_ok() && full.take(Kind::Whole, 100, 1).is_ok());
        assert_eq!(full.take(Kind::Credit, 0, 2), Ok(true));
        assert!(full.take(Kind::Whole, 100, 3).expect_err("the window is used up").contains("2 receives"));
        for kind in [Kind::End, Kind::SubSegment] {
            let mut ended = new();
            assert_eq!(ended.take(Kind::End, 0, 0), Ok(true));
            assert!(ended.take(kind, u32::from(kind == Kind::SubSegment), 1).is_err(), "{kind:?} after the end");
        }
    }
}
