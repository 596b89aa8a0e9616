//! One established stream.

use std::net::SocketAddr;

use rnic_base::{Duration, Time};
use rnic_engine::{Completion, CqId, RecvRequest, SendFlags, SendOp, SendRequest, WcOpcode, WcStatus};
use rnic_stream::{Segment, Sender};
use rnic_wire::Qpn;

use super::error::Broken;
use super::limits::{SPARE_RECEIVES, WINDOW_BYTES};
use super::message::{self, Kind};
use super::receiver::Receiver;
use super::settings::StreamConfig;
use crate::memory::Region;
use crate::nic::Nic;

/// Resources of a stream, and the values agreed between its ends.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) qpn: Qpn,
    pub(super) cq: CqId,
    pub(super) peer: SocketAddr,
    pub(super) segment_bytes: u32,
    /// Number of receives for data of each end.
    pub(super) window: u32,
}

/// An established stream. Its region holds the ring of bytes to send, followed by the slots of the receives.
#[derive(Debug)]
pub(super) struct Single {
    parts: Parts,
    region: Region,
    sender: Sender,
    receiver: Receiver,
    /// False at the accepting end until the connection is established.
    may_send: bool,
    /// Messages sent that use the peer's receives for data.
    sent: u64,
    /// Receives for data that the peer has posted since the beginning.
    credit: u64,
    is_end_posted: bool,
    is_end_delivered: bool,
    is_confirmed: bool,
    /// True when the peer has closed the connection after the end of its data.
    is_peer_gone: bool,
    /// True while a message of kind [`Kind::Credit`] is not acknowledged.
    is_credit_out: bool,
    /// Time of the last message or acknowledgement of the peer.
    active_at: Time,
    probe_after: Duration,
    broken: Option<Broken>,
    /// True when the caller has been notified that the stream is broken.
    is_end_told: bool,
}

impl Single {
    /// Starts a stream on a connection that was just made: posts its receives.
    pub(super) fn new(
        nic: &mut Nic,
        parts: Parts,
        region: Region,
        config: &StreamConfig,
    ) -> Result<Self, rnic_stream::ConfigError> {
        let mut stream = Self {
            sender: Sender::new(config.sender(parts.segment_bytes))?,
            receiver: Receiver::new(parts.segment_bytes, parts.window),
            may_send: false,
            sent: 0,
            credit: parts.window.into(),
            is_end_posted: false,
            is_end_delivered: false,
            is_confirmed: false,
            is_peer_gone: false,
            is_credit_out: false,
            active_at: nic.now(),
            probe_after: config.probe_after,
            broken: None,
            is_end_told: false,
            parts,
            region,
        };
        (0..stream.parts.window + SPARE_RECEIVES).for_each(|slot| stream.post_receive(nic, slot));
        Ok(stream)
    }

    /// Returns the bytes of the region that a stream needs.
    pub(super) fn region_bytes(parts: &Parts) -> usize {
        let slots = (parts.window + SPARE_RECEIVES) as usize;
        WINDOW_BYTES as usize + slots * parts.segment_bytes as usize
    }

    /// Permits sending, because the connection is established.
    pub(super) fn establish(&mut self) {
        self.may_send = true;
    }

    /// Posts the receives at the accepting end, and confirms the stream to the peer by a message.
    pub(super) fn establish_and_confirm(&mut self, nic: &mut Nic) {
        self.establish();
        self.post_credit(nic);
    }

    /// Returns whether a message of the peer has arrived.
    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    pub(super) fn check(&self) -> Result<(), Broken> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Accepts as many of `bytes` as the send buffer has space for; returns their number.
    pub(super) fn write(&mut self, nic: &mut Nic, bytes: &[u8]) -> Result<usize, Broken> {
        if self.is_peer_gone && !bytes.is_empty() {
            self.broken.get_or_insert(Broken::Reset(self.parts.peer));
        }
        self.check()?;
        let from = self.sender.tail();
        let taken = self.sender.send(nic.now(), bytes.len() as u64) as usize;
        let ring = &mut nic.bytes_mut(&self.region)[..WINDOW_BYTES as usize];
        let at = ring_offset(from);
        let first = taken.min(ring.len() - at);
        ring[at..at + first].copy_from_slice(&bytes[..first]);
        ring[..taken - first].copy_from_slice(&bytes[first..taken]);
        self.send_ready(nic);
        Ok(taken)
    }

    /// Copies bytes that have arrived into `into`; returns how many.
    pub(super) fn read(&mut self, nic: &mut Nic, into: &mut [u8]) -> Result<usize, Broken> {
        self.check()?;
        let mut done = 0;
        while let Some(piece) = self.receiver.peek(into.len() - done).filter(|piece| piece.len > 0) {
            let (at, len) = (self.slot_offset(piece.slot) + piece.at as usize, piece.len as usize);
            into[done..done + len].copy_from_slice(&nic.bytes(&self.region)[at..at + len]);
            done += len;
            if let Some(slot) = self.receiver.consume(piece.len) {
                self.post_receive(nic, slot);
            }
        }
        self.send_ready(nic);
        Ok(done)
    }

    /// Ends the stream in this direction.
    pub(super) fn finish(&mut self, nic: &mut Nic) {
        self.sender.finish();
        self.send_ready(nic);
    }

    /// Processes completions, and sends what can be sent; returns whether there was any work.
    pub(super) fn progress(&mut self, nic: &mut Nic) -> bool {
        let moved = self.take_completions(nic);
        self.send_ready(nic) | moved
    }

    /// Returns once whether the stream has ended with an error.
    pub(super) fn take_news_of_end(&mut self) -> bool {
        self.broken.is_some() && !std::mem::replace(&mut self.is_end_told, true)
    }

    /// Handles the end of the connection, of which the NIC or the peer has notified this end.
    pub(super) fn on_disconnected(&mut self, nic: &mut Nic) {
        self.take_completions(nic);
        self.note_reset();
    }

    /// Returns whether both directions have ended and everything has been delivered.
    pub(super) fn is_over(&self) -> bool {
        self.is_end_delivered && self.receiver.has_ended()
    }

    /// Returns whether the peer has ended its direction and everything has been read.
    pub(super) fn is_at_end(&self) -> bool {
        self.receiver.has_ended() && self.receiver.buffered_bytes() == 0
    }

    pub(super) fn sender(&self) -> &Sender {
        &self.sender
    }

    pub(super) fn buffered_bytes(&self) -> u64 {
        self.receiver.buffered_bytes()
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.parts.peer
    }

    pub(super) fn segment_bytes(&self) -> u32 {
        self.parts.segment_bytes
    }

    /// Returns the time at which [`Self::progress`] has work even if nothing arrives.
    pub(super) fn next_at(&self) -> Option<Time> {
        if self.broken.is_some() || !self.may_send || self.is_peer_gone {
            return None;
        }
        let probe = (!self.is_over() && !self.is_credit_out).then(|| self.active_at + self.probe_after);
        self.sender.next_at().into_iter().chain(probe).min()
    }

    /// Returns the resources, to be released.
    pub(super) fn into_resources(self) -> (CqId, Region) {
        (self.parts.cq, self.region)
    }

    fn slot_offset(&self, slot: u32) -> usize {
        WINDOW_BYTES as usize + slot as usize * self.parts.segment_bytes as usize
    }

    fn post_receive(&mut self, nic: &mut Nic, slot: u32) {
        let sges = [self.region.sge(self.slot_offset(slot), self.parts.segment_bytes)];
        let request = RecvRequest { wr_id: slot.into(), sges: &sges };
        if let Err(error) = nic.verbs().post_recv(self.parts.qpn, &request) {
            self.refuse(error.to_string());
        }
    }

    fn take_completions(&mut self, nic: &mut Nic) -> bool {
        let mut batch = [Completion::BLANK; COMPLETIONS];
        let mut moved = false;
        loop {
            let count = nic.verbs().poll_cq(self.parts.cq, &mut batch);
            for completion in &batch[..count] {
                if self.broken.is_none() {
                    self.take_completion(nic, completion);
                }
            }
            moved |= count > 0;
            if count < batch.len() {
                return moved;
            }
        }
    }

    fn take_completion(&mut self, nic: &mut Nic, completion: &Completion) {
        match completion.status {
            WcStatus::Success => self.active_at = nic.now(),
            // The queue pair has ended: for a reason that an earlier completion states, or because the peer has
            // disconnected.
            WcStatus::WrFlushed => return self.note_reset(),
            status if completion.opcode == WcOpcode::Recv => {
                return self.violated(format!("a message of the peer could not be received: {status:?}"));
            }
            status => {
                self.broken = Some(Broken::Undelivered { peer: self.parts.peer, status });
                return;
            }
        }
        match completion.opcode {
            WcOpcode::Recv => self.take_message(nic, completion),
            _ if completion.wr_id == END_ID => self.is_end_delivered = true,
            _ if completion.wr_id == CREDIT_ID => self.is_credit_out = false,
            _ => {
                if let Err(error) = self.sender.acknowledge(completion.wr_id) {
                    self.refuse(error.to_string());
                }
            }
        }
    }

    fn take_message(&mut self, nic: &mut Nic, completion: &Completion) {
        if !completion.flags.contains(rnic_engine::WcFlags::WITH_IMM) {
            return self.violated("a message has no immediate data".to_owned());
        }
        self.is_confirmed = true;
        let (kind, low_bits) = message::parse(completion.word);
        let most = self.sent + u64::from(self.parts.window);
        match message::extend(low_bits, self.credit, most) {
            Some(credit) => self.credit = credit,
            None => {
                let window = self.parts.window;
                return self.violated(format!("the peer announced receives beyond the window of {window} messages"));
            }
        }
        // Receives are posted with the numbers of slots.
        let slot = completion.wr_id as u32;
        match self.receiver.take(kind, completion.byte_len, slot) {
            Ok(true) => self.post_receive(nic, slot),
            Ok(false) => {}
            Err(what) => self.violated(what),
        }
    }

    /// Sends what can be sent; returns whether anything was posted.
    fn send_ready(&mut self, nic: &mut Nic) -> bool {
        if self.is_peer_gone && self.sender.is_finished() {
            self.is_end_delivered = true;
        }
        if self.broken.is_some() || !self.may_send || self.is_peer_gone {
            return false;
        }
        let now = nic.now();
        let mut has_posted = false;
        while self.has_credit(nic)
            && let Some(segment) = self.sender.poll(now)
        {
            self.post_segment(nic, segment);
            has_posted = true;
        }
        let is_all_sent = self.sender.is_finished() && self.sender.tonic_tail() == self.sender.tail();
        if is_all_sent && !self.is_end_posted && self.has_credit(nic) {
            self.is_end_posted = true;
            self.post(nic, Kind::End, END_ID, &[], SendFlags::SIGNALED);
            has_posted = true;
        }
        let is_announcement_due = self.receiver.unannounced() >= u64::from(self.parts.window / ANNOUNCED_PART).max(1);
        let is_probe_due = now >= self.active_at + self.probe_after && !self.is_over();
        let is_wanted = (is_announcement_due && !self.receiver.has_ended()) || is_probe_due;
        if is_wanted && !self.is_credit_out && self.has_space(nic) {
            self.post_credit(nic);
            has_posted = true;
        }
        has_posted
    }

    fn post_credit(&mut self, nic: &mut Nic) {
        self.is_credit_out = true;
        self.post(nic, Kind::Credit, CREDIT_ID, &[], SendFlags::SIGNALED);
    }

    fn has_credit(&self, nic: &Nic) -> bool {
        self.broken.is_none() && self.sent < self.credit && self.has_space(nic)
    }

    fn has_space(&self, nic: &Nic) -> bool {
        nic.send_queue_space(self.parts.qpn).is_some_and(|entries| entries > 0)
    }

    fn post_segment(&mut self, nic: &mut Nic, segment: Segment) {
        let Segment { at, bytes, is_sub, reports } = segment;
        let from = ring_offset(at);
        let first = bytes.min(WINDOW_BYTES - from as u32);
        let sges = [self.region.sge(from, first), self.region.sge(0, bytes - first)];
        let sges = if first == bytes { &sges[..1] } else { &sges[..] };
        let kind = if is_sub { Kind::SubSegment } else { Kind::Whole };
        let flags = if reports { SendFlags::SIGNALED } else { SendFlags::empty() };
        self.post(nic, kind, at + u64::from(bytes), sges, flags);
    }

    fn post(&mut self, nic: &mut Nic, kind: Kind, wr_id: u64, sges: &[rnic_engine::Sge], flags: SendFlags) {
        self.sent += u64::from(kind.uses_credit());
        let op = SendOp::Send { immediate: Some(message::immediate(kind, self.receiver.announce())) };
        if let Err(error) = nic.verbs().post_send(self.parts.qpn, &SendRequest { wr_id, op, sges, flags }) {
            self.refuse(error.to_string());
        }
    }

    /// Records that the connection has ended. This is no error if the peer had ended its direction and everything that
    /// was written has been delivered; further writes fail.
    fn note_reset(&mut self) {
        let is_delivered = self.sender.head() == self.sender.tail();
        if self.receiver.has_ended() && (self.is_end_posted || is_delivered) {
            self.is_peer_gone = true;
            // The peer disconnects after the end of both directions has been delivered to it.
            self.is_end_delivered |= self.is_end_posted;
        } else {
            self.broken.get_or_insert(Broken::Reset(self.parts.peer));
        }
    }

    fn violated(&mut self, what: String) {
        self.broken = Some(Broken::Violation { peer: self.parts.peer, what });
    }

    fn refuse(&mut self, why: String) {
        self.broken.get_or_insert(Broken::Refused { peer: self.parts.peer, why });
    }
}

/// Returns the offset in the ring of the byte at this position of the stream.
fn ring_offset(position: u64) -> usize {
    (position % u64::from(WINDOW_BYTES)) as usize
}

/// Identifiers of Sends without data. Those of segments are positions in the stream, which are below 2^62.
const END_ID: u64 = 1 << 62;
const CREDIT_ID: u64 = 1 << 63;

/// Fraction of the window after which its receives are announced in a separate message.
const ANNOUNCED_PART: u32 = 4;

/// Completions that are polled together.
const COMPLETIONS: usize = 32;
