//! The sending half of a connection: from writes to segments (Tonic, section 5).

use rnic_base::{Duration, Time};

/// Maximum size of a segment, in bytes: lengths have 14 bits in the template.
pub const SEGMENT_BYTES_MAX: u32 = (1 << 14) - 1;

/// Settings of the sending half of a stream connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// Bytes of a segment, C.
    pub segment_bytes: u32,
    /// Time for which fewer bytes than a segment wait for more, T.
    pub hold: Duration,
    /// Number of segments after which the transport forwards its acknowledgements.
    pub ack_every: u32,
    /// Bytes that are sent or wait to be sent: the size of the socket's buffer.
    pub buffer_bytes: u64,
}

impl Default for StreamConfig {
    /// Segments of 4096 bytes, no holding, an acknowledgement for every eighth of the 64 segments in the buffer.
    fn default() -> Self {
        Self { segment_bytes: 4_096, hold: Duration::ZERO, ack_every: 8, buffer_bytes: 256 << 10 }
    }
}

/// Error in the settings of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A segment cannot have this size.
    #[error("the segment size is {0} bytes, but must be 1 to {SEGMENT_BYTES_MAX}")]
    SegmentBytes(u32),
    /// The buffer could fill up before the transport reports that some of it was delivered.
    #[error(
        "a buffer of {buffer_bytes} bytes is too small: it must hold twice the {ack_every} segments of {segment_bytes} \
         bytes that are acknowledged together, and at least one is"
    )]
    Buffer {
        /// Size of the send buffer in bytes.
        buffer_bytes: u64,
        /// Segments that are acknowledged together.
        ack_every: u32,
        /// Size of a segment in bytes.
        segment_bytes: u32,
    },
}

/// Error: an acknowledgement of bytes that were not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {to} of the stream is acknowledged, but only {sent} bytes were sent")]
pub struct NotSent {
    /// Bytes that are acknowledged, from the beginning of the stream.
    pub to: u64,
    /// Number of bytes sent.
    pub sent: u64,
}

/// State of the sending half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All data is in whole segments, sent or ready to be sent.
    Whole,
    /// Bytes that do not fill a segment are held back, so that more bytes can be sent with them.
    Holding {
        /// Time at which the bytes held back are sent, although they do not fill a segment.
        until: Time,
    },
    /// A sub-segment is in flight: nothing is sent until it is delivered.
    SubSegment,
}

/// A segment of the stream to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Position of its first byte in the stream.
    pub at: u64,
    /// Length of the segment in bytes.
    pub bytes: u32,
    /// True for a sub-segment, which is shorter than the segment size of the stream.
    pub is_sub: bool,
    /// True when the transport shall forward its acknowledgement, which covers all segments before it.
    pub reports: bool,
}

/// The sending half of a connection. Positions are bytes from the beginning of the stream; payload stays outside.
#[derive(Clone, Debug)]
pub struct Sender {
    config: StreamConfig,
    /// First byte that is not known to be delivered.
    head: u64,
    /// First byte that has not been passed to the transport.
    tonic_tail: u64,
    /// First byte that is not written yet.
    tail: u64,
    /// Time at which the first byte was written that does not yet fill a segment.
    rest_since: Time,
    is_sub_out: bool,
    is_finished: bool,
    /// Segments since the last that reports.
    unreported: u32,
    sub_segments: u64,
}

impl Sender {
    /// Creates the sending half of a connection.
    ///
    /// # Errors
    /// A segment size that no template has, or a buffer in which data could wait for an acknowledgement forever.
    pub fn new(config: StreamConfig) -> Result<Self, ConfigError> {
        let StreamConfig { segment_bytes, ack_every, buffer_bytes, .. } = config;
        if !(1..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
            return Err(ConfigError::SegmentBytes(segment_bytes));
        }
        if ack_every == 0 || buffer_bytes < 2 * u64::from(ack_every) * u64::from(segment_bytes) {
            return Err(ConfigError::Buffer { buffer_bytes, ack_every, segment_bytes });
        }
        Ok(Self {
            config,
            head: 0,
            tonic_tail: 0,
            tail: 0,
            rest_since: Time::ZERO,
            is_sub_out: false,
            is_finished: false,
            unreported: 0,
            sub_segments: 0,
        })
    }

    /// Returns the bytes that can be written now.
    pub fn space(&self) -> u64 {
        if self.is_finished { 0 } else { self.config.buffer_bytes - (self.tail - self.head) }
    }

    /// Writes up to `bytes` bytes; returns how many were taken.
    pub fn send(&mut self, now: Time, bytes: u64) -> u64 {
        let taken = bytes.min(self.space());
        let rest = self.rest();
        if taken > 0 && (rest == 0 || rest + taken >= u64::from(self.config.segment_bytes)) {
            self.rest_since = now;
        }
        self.tail += taken;
        taken
    }

    /// Ends the stream: nothing more can be written, and a partial segment is sent.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Returns the next segment to send, if there is one.
    pub fn poll(&mut self, now: Time) -> Option<Segment> {
        let whole = u64::from(self.config.segment_bytes);
        let waiting = self.tail - self.tonic_tail;
        let is_due = self.is_finished || now >= self.rest_since + self.config.hold;
        let is_sub = waiting < whole;
        if self.is_sub_out || waiting == 0 || (is_sub && !is_due) {
            return None;
        }
        let (at, bytes) = (self.tonic_tail, waiting.min(whole));
        self.tonic_tail += bytes;
        self.is_sub_out = is_sub;
        self.sub_segments += u64::from(is_sub);
        self.unreported += 1;
        let is_last = self.is_finished && self.tonic_tail == self.tail;
        let reports = is_sub || is_last || self.unreported >= self.config.ack_every;
        if reports {
            self.unreported = 0;
        }
        // At most a segment, whose size is below 2^14.
        Some(Segment { at, bytes: bytes as u32, is_sub, reports })
    }

    /// Returns the time at which [`Sender::poll`] has a segment even if nothing else happens.
    pub fn next_at(&self) -> Option<Time> {
        match self.state() {
            State::Holding { until } if self.tail - self.tonic_tail < u64::from(self.config.segment_bytes) => {
                Some(until)
            }
            _ => None,
        }
    }

    /// Processes an acknowledgement forwarded by the transport: all bytes before `to` are delivered.
    ///
    /// # Errors
    /// When such bytes were not sent; nothing has changed then.
    pub fn acknowledge(&mut self, to: u64) -> Result<(), NotSent> {
        if to > self.tonic_tail {
            return Err(NotSent { to, sent: self.tonic_tail });
        }
        self.head = self.head.max(to);
        if self.head == self.tonic_tail {
            self.is_sub_out = false;
        }
        Ok(())
    }

    /// Returns the state of the sending half.
    pub fn state(&self) -> State {
        match (self.is_sub_out, self.rest()) {
            (true, _) => State::SubSegment,
            (false, 0) => State::Whole,
            (false, _) if self.is_finished => State::Holding { until: self.rest_since },
            (false, _) => State::Holding { until: self.rest_since + self.config.hold },
        }
    }

    /// Returns the position of the first byte that is not known to be delivered.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the position of the first byte that has not been passed to the transport.
    pub fn tonic_tail(&self) -> u64 {
        self.tonic_tail
    }

    /// Returns the position of the first byte that is not written.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the number of sub-segments that were sent.
    pub fn sub_segments(&self) -> u64 {
        self.sub_segments
    }

    /// Returns whether nothing more is written.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns whether the stream has ended and all of it is delivered.
    pub fn is_delivered(&self) -> bool {
        self.is_finished && self.head == self.tail
    }

    /// Returns the bytes that fill no segment.
    fn rest(&self) -> u64 {
        (self.tail - self.tonic_tail) % u64::from(self.config.segment_bytes)
    }
}
