//! Settings of the streams of a NIC.

use rnic_base::Duration;
use rnic_stream::SEGMENT_BYTES_MAX;

use super::error::StreamError;
use super::limits::{SEGMENT_BYTES_LEAST, WINDOW_BYTES};
use crate::defaults::TransportChoice;

/// Transport of streams for which no hardware flow id is left.
pub const SOFTWARE_TRANSPORT: &str = "tcp";

/// Settings of the streams of a NIC.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Transport of streams that have a flow id.
    pub transport: TransportChoice,
    /// Number of flow ids. Further streams use [`SOFTWARE_TRANSPORT`].
    pub flows: u16,
    /// Largest segment size to offer, in bytes; the path and the other end may require a smaller one.
    pub segment_bytes: u32,
    /// Time for which less than a segment of data waits for more.
    pub hold: Duration,
    /// Number of segments after which a Send is signaled, so that its completion frees a part of the buffer.
    pub ack_every: u32,
    /// Time limit for making a connection.
    pub connect_timeout: Duration,
    /// Time without a response after which the peer counts as failed.
    pub peer_timeout: Duration,
    /// Time without a message from the peer after which a probe is sent, to detect that it no longer exists.
    pub probe_after: Duration,
}

impl StreamConfig {
    /// Returns the default settings for streams over `transport`.
    pub fn over(transport: TransportChoice) -> Self {
        let defaults = rnic_stream::StreamConfig::default();
        Self {
            transport,
            flows: FLOWS,
            segment_bytes: defaults.segment_bytes,
            hold: defaults.hold,
            ack_every: defaults.ack_every,
            connect_timeout: Duration::from_secs(5),
            peer_timeout: Duration::from_secs(5),
            probe_after: Duration::from_secs(2),
        }
    }

    pub(super) fn check(&self) -> Result<(), StreamError> {
        if !(SEGMENT_BYTES_LEAST..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            return Err(StreamError::SegmentBytes(self.segment_bytes));
        }
        rnic_stream::Sender::new(self.sender(self.segment_bytes))?;
        Ok(())
    }

    /// Returns the settings of the stream layer for segments of `segment_bytes`.
    pub(super) fn sender(&self, segment_bytes: u32) -> rnic_stream::StreamConfig {
        rnic_stream::StreamConfig {
            segment_bytes,
            hold: self.hold,
            ack_every: self.ack_every,
            buffer_bytes: WINDOW_BYTES.into(),
        }
    }
}

/// Default number of flow ids: that of Tonic (section 4).
const FLOWS: u16 = 1_024;
