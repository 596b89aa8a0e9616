//! Perfetto's native format: a protobuf message `Trace`, each of whose packets declares a track, or is an event on one.
//!
//! Source: Perfetto's `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto` and `interned_data.proto`,
//! from which the field numbers here are. Texts are written once, with the first event that has them. Times are whole
//! nanoseconds, rounded down, so that packets which follow each other on a link still do.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rnic_base::{Duration, Time};

use super::TraceError;

/// A track, by its number in the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Track(u64);

/// Type of a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrackKind {
    /// A process: the root of the tracks of a node, which is the node of this number.
    Process(u32),
    /// Slices and instants.
    Events,
    /// Values in bytes over time.
    Bytes,
}

/// Value of an argument.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Value {
    Number(u64),
    Text(&'static str),
}

/// An event: its category, its name and its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'e> {
    pub(crate) category: &'static str,
    pub(crate) name: &'static str,
    pub(crate) arguments: &'e [(&'static str, Value)],
}

/// Writes a trace.
pub(crate) struct TraceFile {
    output: Box<dyn Write + Send>,
    /// Bytes that are not written yet.
    waiting: Vec<u8>,
    /// Reused buffers for messages within a packet.
    packet: Vec<u8>,
    event: Vec<u8>,
    interned: Vec<u8>,
    scratch: Vec<u8>,
    /// Numbers of texts that the file has.
    texts: BTreeMap<(u32, &'static str), u64>,
    tracks: u64,
    events: u64,
    events_max: u64,
    failure: Option<TraceError>,
}

/// Types of texts: field numbers in `InternedData`.
const CATEGORY: u32 = 1;
const NAME: u32 = 2;
const ARGUMENT: u32 = 3;

/// Types of events (`TrackEvent.Type`).
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Bytes that are written at a time.
const BLOCK: usize = 1 << 18;

impl TraceFile {
    pub(crate) fn new(output: Box<dyn Write + Send>, events_max: u64) -> Self {
        let mut file = Self {
            output,
            waiting: Vec::new(),
            packet: Vec::new(),
            event: Vec::new(),
            interned: Vec::new(),
            scratch: Vec::new(),
            texts: BTreeMap::new(),
            tracks: 0,
            events: 0,
            events_max,
            failure: None,
        };
        // From the first packet on, texts have numbers (SEQ_INCREMENTAL_STATE_CLEARED).
        number(&mut file.packet, 10, SEQUENCE);
        number(&mut file.packet, 13, 1);
        file.end_packet();
        file
    }

    /// Returns whether the trace still takes events.
    pub(crate) fn is_open(&self) -> bool {
        self.failure.is_none()
    }

    /// Declares a track.
    pub(crate) fn track(&mut self, parent: Option<Track>, kind: TrackKind, name: &str) -> Track {
        self.tracks += 1;
        let track = Track(self.tracks);
        let (descriptor, scratch) = (&mut self.event, &mut self.scratch);
        descriptor.clear();
        number(descriptor, 1, track.0);
        if let Some(parent) = parent {
            number(descriptor, 5, parent.0);
        }
        match kind {
            TrackKind::Process(node) => {
                scratch.clear();
                number(scratch, 1, u64::from(node) + 1);
                bytes(scratch, 6, name.as_bytes());
                bytes(descriptor, 3, scratch);
            }
            TrackKind::Events => bytes(descriptor, 2, name.as_bytes()),
            TrackKind::Bytes => {
                bytes(descriptor, 2, name.as_bytes());
                scratch.clear();
                number(scratch, 3, 3);
                bytes(descriptor, 8, scratch);
            }
        }
        number(&mut self.packet, 10, SEQUENCE);
        bytes(&mut self.packet, 60, &self.event);
        self.end_packet();
        track
    }

    /// Writes an event that lasts from `from` until `until`.
    pub(crate) fn slice(&mut self, track: Track, from: Time, until: Time, event: &Event<'_>) {
        self.begin(track, from, event);
        self.end(track, until);
    }

    /// Writes the start of an event, which [`Self::end`] ends; events between the two are parts of it.
    pub(crate) fn begin(&mut self, track: Track, at: Time, event: &Event<'_>) {
        self.write_event(track, at, BEGIN, Some(event), None);
    }

    /// Writes the end of the event that began last.
    pub(crate) fn end(&mut self, track: Track, at: Time) {
        self.write_event(track, at, END, None, None);
    }

    /// Writes an event without a duration.
    pub(crate) fn instant(&mut self, track: Track, at: Time, event: &Event<'_>) {
        self.write_event(track, at, INSTANT, Some(event), None);
    }

    /// Writes the value of a counter from `at` on.
    pub(crate) fn count(&mut self, track: Track, at: Time, value: u64) {
        self.write_event(track, at, COUNTER, None, Some(value));
    }

    /// Returns the number of the text `name`, and writes it if the file does not have it yet.
    fn text(&mut self, kind: u32, name: &'static str) -> u64 {
        let next = self.texts.len() as u64 + 1;
        let iid = *self.texts.entry((kind, name)).or_insert(next);
        if iid == next {
            self.scratch.clear();
            number(&mut self.scratch, 1, iid);
            bytes(&mut self.scratch, 2, name.as_bytes());
            bytes(&mut self.interned, kind, &self.scratch);
        }
        iid
    }

    fn write_event(&mut self, track: Track, at: Time, kind: u64, event: Option<&Event<'_>>, value: Option<u64>) {
        if self.failure.is_some() {
            return;
        }
        // An event that has begun may end.
        if self.events >= self.events_max && kind != END {
            self.failure = Some(TraceError::Full(self.events_max));
            return;
        }
        self.events += 1;
        self.event.clear();
        number(&mut self.event, 9, kind);
        number(&mut self.event, 11, track.0);
        if let Some(Event { category, name, arguments }) = event {
            let (category, name) = (self.text(CATEGORY, category), self.text(NAME, name));
            number(&mut self.event, 3, category);
            number(&mut self.event, 10, name);
            for (argument, value) in *arguments {
                let argument = self.text(ARGUMENT, argument);
                self.scratch.clear();
                number(&mut self.scratch, 1, argument);
                match value {
                    Value::Number(value) => number(&mut self.scratch, 3, *value),
                    Value::Text(text) => bytes(&mut self.scratch, 6, text.as_bytes()),
                }
                bytes(&mut self.event, 4, &self.scratch);
            }
        }
        if let Some(value) = value {
            number(&mut self.event, 30, value);
        }
        number(&mut self.packet, 8, at.as_ps() / Duration::from_ns(1).as_ps());
        number(&mut self.packet, 10, SEQUENCE);
        // Its texts are those of earlier packets (SEQ_NEEDS_INCREMENTAL_STATE).
        number(&mut self.packet, 13, 2);
        if !self.interned.is_empty() {
            bytes(&mut self.packet, 12, &self.interned);
            self.interned.clear();
        }
        bytes(&mut self.packet, 11, &self.event);
        self.end_packet();
    }

    /// Completes the packet.
    fn end_packet(&mut self) {
        bytes(&mut self.waiting, 1, &self.packet);
        self.packet.clear();
        if self.waiting.len() >= BLOCK {
            self.write();
        }
    }

    fn write(&mut self) {
        if self.failure.as_ref().is_none_or(|failure| matches!(failure, TraceError::Full(_)))
            && let Err(error) = self.output.write_all(&self.waiting)
        {
            self.failure = Some(error.into());
        }
        self.waiting.clear();
    }

    /// Completes the trace; returns the reason why it ended before the run, if it did.
    pub(crate) fn finish(mut self) -> Option<TraceError> {
        self.write();
        let flushed: io::Result<()> = self.output.flush();
        match (self.failure, flushed) {
            (None | Some(TraceError::Full(_)), Err(error)) => Some(error.into()),
            (failure, _) => failure,
        }
    }
}

/// Number of the writer, which every packet has (`trusted_packet_sequence_id`).
const SEQUENCE: u64 = 1;

/// Writes a number of seven bits a byte, the lowest first.
fn varint(output: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        output.push(value as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

/// Writes field `field`, a number.
fn number(output: &mut Vec<u8>, field: u32, value: u64) {
    varint(output, u64::from(field) << 3);
    varint(output, value);
}

/// Writes field `field`, a text or a message.
fn bytes(output: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(output, u64::from(field) << 3 | 2);
    varint(output, value.len() as u64);
    output.extend_from_slice(value);
}
