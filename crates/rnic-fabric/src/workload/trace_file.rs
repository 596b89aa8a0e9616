//! Flows from a text: `start,src,dst,bytes`, one a line.
//!
//! Starts and sizes are written with their units (`1.5us`, `64KiB`), hosts as numbers; `#` begins a comment. Lines need
//! not be in order of time. A trace has no header line, and at least one flow.

use rnic_base::{Bytes, Duration, Time, UnitError};

use super::TraceFlow;
use crate::link::PLAN_TIME_MAX;

/// Why a trace could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// Not four fields.
    #[error("line {line}: expected start,src,dst,bytes, found `{text}`; {LINE}")]
    Fields {
        /// Which line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A quantity cannot be read.
    #[error("line {line}: {source}; {LINE}")]
    Unit {
        /// Which line, from 1.
        line: usize,
        /// What is wrong with the quantity.
        source: UnitError,
    },
    /// A host is not a number, or there is no such host.
    #[error("line {line}: `{text}` is not a host; there are 0 to {last}; {LINE}")]
    Host {
        /// Which line, from 1.
        line: usize,
        /// What was named.
        text: String,
        /// The last host.
        last: u32,
    },
    /// Names of columns.
    #[error("line {line}: `{text}` is a header, which a trace does not have: remove it; {LINE}")]
    Header {
        /// Which line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A flow begins after the longest run.
    #[error("line {line}: it begins at {start}, after the longest run, {PLAN_TIME_MAX}")]
    Late {
        /// Which line, from 1.
        line: usize,
        /// When.
        start: Duration,
    },
    /// No link carries so much in the longest run.
    #[error("line {line}: a flow of {bytes} bytes lasts longer than the longest run, {PLAN_TIME_MAX}")]
    Large {
        /// Which line, from 1.
        line: usize,
        /// How many.
        bytes: u64,
    },
    /// There is no flow.
    #[error("it has no flows; {LINE}")]
    Empty,
    /// A host sends to itself.
    #[error("line {line}: host {host} sends to itself")]
    ToItself {
        /// Which line, from 1.
        line: usize,
        /// The host.
        host: u32,
    },
}

/// Reads a trace for `hosts` hosts.
///
/// # Errors
/// The first line that is wrong, and how.
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
        if bytes.get() > BYTES_MAX {
            return Err(TraceError::Large { line, bytes: bytes.get() });
        }
        flows.push(TraceFlow { start: Time::ZERO + start, src, dst, bytes: bytes.get() });
    }
    if flows.is_empty() {
        return Err(TraceError::Empty);
    }
    Ok(flows)
}

/// The beginning of what may be long.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// What people are told who bring something else.
const LINE: &str = "a line is start,src,dst,bytes, such as 1.5us,0,3,64KiB";
const SHOWN_MAX: usize = 60;
const BYTE_ORDER_MARK: char = '\u{feff}';
/// As much as the fastest link, 10 Tbit/s, carries in the longest run.
const BYTES_MAX: u64 = 10_000_000_000_000 / 8 * 5 * 3_600;
