//! Flows from a text: `start,src,dst,bytes`, one per line.
//!
//! Starts and sizes are written with their units (`1.5us`, `64KiB`), hosts as numbers; `#` starts a comment. Lines need
//! not be in order of time. A trace has no header line, and at least one flow.

use rnic_base::{Bytes, Duration, Time, UnitError};

use super::TraceFlow;
use crate::link::PLAN_TIME_MAX;

/// The reason why a trace could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// A line does not have four fields.
    #[error("line {line}: `{text}` does not have four fields; {LINE_FORMAT}")]
    Fields {
        /// Line number, from 1.
        line: usize,
        /// Text of the line.
        text: String,
    },
    /// A quantity cannot be read.
    #[error("line {line}: {source}; {LINE_FORMAT}")]
    Unit {
        /// Line number, from 1.
        line: usize,
        /// The error in the quantity.
        source: UnitError,
    },
    /// A host is not a number, or no host has that number.
    #[error("line {line}: `{text}` is not a host number; hosts are numbered 0 to {last}; {LINE_FORMAT}")]
    Host {
        /// Line number, from 1.
        line: usize,
        /// Text of the field.
        text: String,
        /// Number of the last host.
        last: u32,
    },
    /// A line contains names of columns.
    #[error("line {line}: `{text}` is a header, which is not allowed in a trace; remove it; {LINE_FORMAT}")]
    Header {
        /// Line number, from 1.
        line: usize,
        /// Text of the line.
        text: String,
    },
    /// A flow starts later than the maximum duration of a run.
    #[error(
        "line {line}: the flow starts at {start}, which is later than the maximum duration of a run, {PLAN_TIME_MAX}"
    )]
    Late {
        /// Line number, from 1.
        line: usize,
        /// Start of the flow.
        start: Duration,
    },
    /// A flow is larger than the number of bytes that any link can carry in the longest run.
    #[error("line {line}: a flow of {bytes} bytes takes longer than the maximum duration of a run, {PLAN_TIME_MAX}")]
    Large {
        /// Line number, from 1.
        line: usize,
        /// Size of the flow in bytes.
        bytes: u64,
    },
    /// The trace contains no flow.
    #[error("the trace contains no flows; {LINE_FORMAT}")]
    Empty,
    /// A host sends to itself.
    #[error("line {line}: source and destination are the same host, {host}; they must differ")]
    ToItself {
        /// Line number, from 1.
        line: usize,
        /// Host that is source and destination.
        host: u32,
    },
}

/// Reads a trace for `hosts` hosts.
///
/// # Errors
/// The first invalid line and the reason.
pub fn read_trace(text: &str, hosts: u32) -> Result<Vec<TraceFlow>, TraceError> {
    let mut flows = Vec::new();
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let [start, src, dst, bytes] = fields[..] else {
            return Err(TraceError::Fields { line, text: shown(text) });
        };
        if fields.iter().all(|field| field.starts_with(char::is_alphabetic)) {
            return Err(TraceError::Header { line, text: shown(text) });
        }
        let host = |text: &str| {
            let wrong = || TraceError::Host { line, text: shown(text), last: hosts - 1 };
            text.parse().ok().filter(|host| *host < hosts).ok_or_else(wrong)
        };
        let (src, dst) = (host(src)?, host(dst)?);
        if src == dst {
            return Err(TraceError::ToItself { line, host: src });
        }
        let start: Duration = start.parse().map_err(|source| TraceError::Unit { line, source })?;
        let bytes: Bytes = bytes.parse().map_err(|source| TraceError::Unit { line, source })?;
        if start > PLAN_TIME_MAX {
            return Err(TraceError::Late { line, start });
        }
        if bytes.get() > FLOW_BYTES_MAX {
            return Err(TraceError::Large { line, bytes: bytes.get() });
        }
        flows.push(TraceFlow { start: Time::ZERO + start, src, dst, bytes: bytes.get() });
    }
    if flows.is_empty() {
        return Err(TraceError::Empty);
    }
    Ok(flows)
}

/// Returns the start of a text that may be long.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// Part of error messages: the format of a line.
const LINE_FORMAT: &str = "a line is start,src,dst,bytes, such as 1.5us,0,3,64KiB";
const SHOWN_CHARS_MAX: usize = 60;
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Maximum size of a flow in bytes: as many as the fastest link, 10 Tbit/s, carries in the longest run.
const FLOW_BYTES_MAX: u64 = 10_000_000_000_000 / 8 * 5 * 3_600;
