//! Flows from a text: `start,src,dst,bytes`, one a line.
//!
//! Starts and sizes are written with their units (`1.5us`, `64KiB`), hosts as numbers; `#` begins a comment. Lines need
//! not be in order of time.

use rnic_base::{Bytes, Duration, Time, UnitError};

use super::TraceFlow;

/// Why a trace could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// Not four fields.
    #[error("line {line}: expected start,src,dst,bytes, found `{text}`")]
    Fields {
        /// Which line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A quantity cannot be read.
    #[error("line {line}: {source}")]
    Unit {
        /// Which line, from 1.
        line: usize,
        /// What is wrong with the quantity.
        source: UnitError,
    },
    /// A host is not a number, or there is no such host.
    #[error("line {line}: `{text}` is not a host; there are 0 to {last}")]
    Host {
        /// Which line, from 1.
        line: usize,
        /// What was named.
        text: String,
        /// The last host.
        last: u32,
    },
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
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let [start, src, dst, bytes] = fields[..] else {
            return Err(TraceError::Fields { line, text: text.to_owned() });
        };
        let host = |text: &str| {
            let wrong = || TraceError::Host { line, text: text.to_owned(), last: hosts - 1 };
            text.parse().ok().filter(|host| *host < hosts).ok_or_else(wrong)
        };
        let (src, dst) = (host(src)?, host(dst)?);
        if src == dst {
            return Err(TraceError::ToItself { line, host: src });
        }
        let start: Duration = start.parse().map_err(|source| TraceError::Unit { line, source })?;
        let bytes: Bytes = bytes.parse().map_err(|source| TraceError::Unit { line, source })?;
        flows.push(TraceFlow { start: Time::ZERO + start, src, dst, bytes: bytes.get() });
    }
    Ok(flows)
}
