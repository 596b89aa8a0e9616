//! One end of the stream that is measured, with messages before and behind the data.

use std::net::SocketAddr;

use rnic_base::Duration;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MESSAGE_BYTES;
use crate::connection::ConnectionEvent;
use crate::nic::Nic;
use crate::perf::PerfError;
use crate::perf::control::IdleBackoff;
use crate::stream::{StreamEvent, StreamId, Streams};

/// One end of the stream.
#[derive(Debug)]
pub(super) struct Channel {
    streams: Streams,
    id: StreamId,
    peer: SocketAddr,
    is_established: bool,
    backoff: IdleBackoff,
    /// Time without packets after which the stream is given up.
    patience: Duration,
    /// Bytes of a message that has not arrived completely.
    pending: Vec<u8>,
}

impl Channel {
    /// Returns a channel on the stream `id`, the only one of `streams`, with the peer `peer`.
    pub(super) fn new(
        nic: &Nic,
        (streams, id, peer): (Streams, StreamId, SocketAddr),
        patience: Duration,
        sleeps_at_once: bool,
    ) -> Self {
        let backoff = IdleBackoff::new(nic.now(), sleeps_at_once);
        Self { streams, id, peer, is_established: false, backoff, patience, pending: Vec::new() }
    }

    /// Polls the NIC and the stream once; sleeps if both have been idle for some time. Passes stream requests of other
    /// clients to `refuse`.
    ///
    /// # Errors
    /// If the stream could not be established or has failed, or no packet has arrived within the time limit.
    pub(super) fn step(&mut self, nic: &mut Nic, mut refuse: impl FnMut(&mut Nic, StreamId)) -> Result<(), PerfError> {
        let mut moved = nic.progress();
        // One event at a time: after the end of the stream, the next may be the request of another client, which is
        // then not for this session to refuse.
        if let Some(event) = nic.poll_connection_event() {
            moved = true;
            if let ConnectionEvent::Requested(request) = &event {
                refuse(nic, request.id);
            } else {
                match self.streams.process(nic, event) {
                    Some(StreamEvent::Established(_)) => self.is_established = true,
                    Some(StreamEvent::Failed(_, error)) => return Err(error.into()),
                    None => {}
                }
            }
        }
        moved |= self.streams.progress(nic);
        if let Some(broken) = self.streams.broken(self.id) {
            return Err(crate::stream::StreamError::from(broken).into());
        }
        let idle = self.backoff.sleep_if_idle(nic, moved)?;
        if idle > self.patience {
            return Err(PerfError::Silent { peer: self.peer, after: idle });
        }
        Ok(())
    }

    pub(super) fn is_established(&self) -> bool {
        self.is_established
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the transport and the segment size on which the ends have agreed.
    pub(super) fn negotiated(&self) -> (&'static str, u32) {
        (self.streams.transport(self.id).unwrap_or(""), self.streams.segment_bytes(self.id).unwrap_or(0))
    }

    /// See [`Streams::write`].
    pub(super) fn write(&mut self, nic: &mut Nic, bytes: &[u8]) -> Result<usize, PerfError> {
        Ok(self.streams.write(nic, self.id, bytes)?)
    }

    /// See [`Streams::read`].
    pub(super) fn read(&mut self, nic: &mut Nic, into: &mut [u8]) -> Result<usize, PerfError> {
        Ok(self.streams.read(nic, self.id, into)?)
    }

    pub(super) fn undelivered_bytes(&self) -> u64 {
        self.streams.undelivered_bytes(self.id)
    }

    pub(super) fn finish(&mut self, nic: &mut Nic) {
        self.streams.finish(nic, self.id);
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.streams.is_at_end(self.id)
    }

    pub(super) fn is_over(&self) -> bool {
        self.streams.is_over(self.id)
    }

    /// Sends a message: its length, then the message as JSON.
    pub(super) fn send(&mut self, nic: &mut Nic, message: &impl Serialize) -> Result<(), PerfError> {
        let text = serde_json::to_vec(message)
            .map_err(|error| self.violation(format!("a message for it cannot be encoded: {error}")))?;
        let framed = [&(text.len() as u32).to_be_bytes()[..], &text].concat();
        // Messages are sent when the buffer is empty, and are shorter than the buffer.
        if self.write(nic, &framed)? < framed.len() {
            return Err(self.violation("a message did not fit behind the data".to_owned()));
        }
        Ok(())
    }

    /// Returns the next message, when it has arrived completely. Reads no byte beyond it.
    pub(super) fn receive<T: DeserializeOwned>(&mut self, nic: &mut Nic) -> Result<Option<T>, PerfError> {
        loop {
            let wanted = match self.pending.first_chunk() {
                None => LENGTH_BYTES - self.pending.len(),
                Some(length) => {
                    let length = u32::from_be_bytes(*length) as usize;
                    if length > MESSAGE_BYTES {
                        return Err(self.violation(format!("its message of {length} bytes is too long")));
                    }
                    LENGTH_BYTES + length - self.pending.len()
                }
            };
            if wanted == 0 {
                let message = serde_json::from_slice(&self.pending[LENGTH_BYTES..]);
                self.pending.clear();
                return message
                    .map(Some)
                    .map_err(|error| self.violation(format!("its message cannot be parsed: {error}")));
            }
            let mut part = [0; MESSAGE_BYTES];
            let len = self.read(nic, &mut part[..wanted.min(MESSAGE_BYTES)])?;
            if len == 0 {
                return if self.is_at_end() { Err(PerfError::Ended { peer: self.peer }) } else { Ok(None) };
            }
            self.pending.extend_from_slice(&part[..len]);
        }
    }

    /// Releases the stream.
    pub(super) fn close(self, nic: &mut Nic) {
        self.streams.close_all(nic);
    }

    pub(super) fn violation(&self, what: String) -> PerfError {
        PerfError::Protocol { peer: self.peer, what }
    }
}

/// Bytes of the length before a message.
const LENGTH_BYTES: usize = 4;
