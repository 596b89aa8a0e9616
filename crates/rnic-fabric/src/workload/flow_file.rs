//! Flows from a file, in four formats.
//!
//! | format | a file of this format |
//! |---|---|
//! | `list` | lines `start,src,dst,bytes`, the first two with units: `1.5us,0,3,64KiB` |
//! | `csv` | a header with the names of the columns, then one flow per line |
//! | `hpcc` | `flow.txt` of HPCC's simulator: the number of flows, then lines `src dst pg dport bytes start_seconds` |
//! | `htsim` | a connection matrix (`.cm`) of htsim: `Nodes`, `Connections`, lines `src->dst start PS size BYTES` |
//!
//! Without a given format, the first line that is neither empty nor a comment decides: their first lines differ. `#`
//! starts a comment. Lines need not be in order of time; every file has at least one flow. Errors name line and column,
//! which counts characters from 1.

mod hpcc;
mod htsim;
mod list;
mod table;
mod triggered;

use rnic_base::{Bytes, Duration, Time};

use super::Operation;
use super::text::{ReadError, lines, shown};
use crate::link::PLAN_TIME_MAX;

pub(super) use triggered::Triggered;

/// A flow of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceFlow {
    /// Time at which the flow starts; of a flow that waits for a trigger, zero.
    pub start: Time,
    /// Source host.
    pub src: u32,
    /// Destination host.
    pub dst: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Operation of its message.
    pub op: Operation,
}

/// The flows of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowFile {
    /// The flows, in the order of the file.
    pub flows: Vec<TraceFlow>,
    /// Flows that start at the end of others, if there are any.
    pub triggers: Option<Triggers>,
    /// Parts of the file that have no effect, one line each.
    pub notes: Vec<String>,
}

/// Which flows start when others have ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Triggers {
    /// The triggers.
    pub kinds: Vec<TriggerKind>,
    /// By flow: its ends.
    pub links: Vec<TriggerLinks>,
}

/// The triggers of a flow, as indices of [`Triggers::kinds`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TriggerLinks {
    /// The trigger that the flow waits for.
    pub waits_for: Option<u32>,
    /// The trigger that is activated when the flow has completed at its sender.
    pub when_sent: Option<u32>,
    /// The trigger that is activated when the flow has arrived at its receiver.
    pub when_received: Option<u32>,
}

/// The effect of an activation of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerKind {
    /// Starts all flows that wait for it, once.
    OneShot,
    /// Starts the next flow that waits for it, in the order of the file.
    MultiShot,
    /// Starts all flows that wait for it at the given number of activations.
    Barrier(u32),
}

/// The format of a file of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowFormat {
    /// Lines `start,src,dst,bytes`.
    List,
    /// A header, and one flow per line.
    Csv,
    /// HPCC's `flow.txt`.
    Hpcc,
    /// htsim's connection matrix.
    Htsim,
}

impl FlowFormat {
    /// Returns the format of a file that starts with `text`.
    fn of(text: &str) -> Self {
        let first = lines(text).next().map_or("", |line| line.text);
        let mut words = first.split_whitespace();
        let (word, count) = (words.next().unwrap_or_default(), 1 + words.count());
        if first.contains("->") || htsim::HEADS.contains(&word) {
            Self::Htsim
        } else if count == 1 && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) {
            Self::Hpcc
        } else if first.starts_with(|first: char| first.is_alphabetic() || first == '"') {
            Self::Csv
        } else {
            Self::List
        }
    }
}

/// Reads the flows of a file between `hosts` hosts; `format` is needed only when the first line does not show it.
///
/// # Errors
/// The first error of the file.
pub fn read_flows(text: &str, format: Option<FlowFormat>, hosts: u32) -> Result<FlowFile, ReadError> {
    if text.len() > FILE_BYTES_MAX {
        let what = format!("the file has {} bytes; the maximum is {FILE_BYTES_MAX}", text.len());
        return Err(ReadError::whole(what));
    }
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let format = format.unwrap_or_else(|| FlowFormat::of(text));
    let (file, example) = match format {
        FlowFormat::List => (list::read(text, hosts)?, list::LINE_FORMAT),
        FlowFormat::Csv => (table::read(text, hosts)?, table::LINE_FORMAT),
        FlowFormat::Hpcc => (hpcc::read(text, hosts)?, hpcc::LINE_FORMAT),
        FlowFormat::Htsim => (htsim::read(text, hosts)?, htsim::LINE_FORMAT),
    };
    if file.flows.is_empty() {
        return Err(ReadError::whole(format!("the file contains no flows; {example}")));
    }
    Ok(file)
}

/// Reads the fields of flows, and checks them.
#[derive(Clone, Copy, Debug)]
struct Fields {
    hosts: u32,
    /// Format of a line, for errors.
    example: &'static str,
}

impl Fields {
    fn host(self, text: &str) -> Result<u32, String> {
        let wrong = || {
            let (text, last, example) = (shown(text), self.hosts.saturating_sub(1), self.example);
            format!("`{text}` is not a host number; hosts are numbered 0 to {last}; {example}")
        };
        text.parse().ok().filter(|host| *host < self.hosts).ok_or_else(wrong)
    }

    fn start(self, text: &str) -> Result<Time, String> {
        let start: Duration = text.parse().map_err(|error| format!("{error}; {}", self.example))?;
        if start > PLAN_TIME_MAX {
            return Err(format!(
                "the flow starts at {start}, which is later than the maximum duration of a run, {PLAN_TIME_MAX}"
            ));
        }
        Ok(Time::ZERO + start)
    }

    fn bytes(self, text: &str) -> Result<u64, String> {
        let bytes: Bytes = text.parse().map_err(|error| format!("{error}; {}", self.example))?;
        if bytes.get() > FLOW_BYTES_MAX {
            let bytes = bytes.get();
            return Err(format!(
                "a flow of {bytes} bytes takes longer than the maximum duration of a run, {PLAN_TIME_MAX}"
            ));
        }
        Ok(bytes.get())
    }
}

/// Checks that a flow has two ends.
fn check_ends(src: u32, dst: u32) -> Result<(), String> {
    if src == dst {
        return Err(format!("source and destination are the same host, {src}; they must differ"));
    }
    Ok(())
}

/// Checks that a file with `count` flows may have one more.
fn check_count(count: usize) -> Result<(), String> {
    if count >= FLOWS_MAX {
        return Err(format!("the file has more than {FLOWS_MAX} flows, the maximum"));
    }
    Ok(())
}

/// Maximum size of a file in bytes.
pub const FILE_BYTES_MAX: usize = 256 << 20;
/// Maximum number of flows of a file.
pub const FLOWS_MAX: usize = 1 << 24;
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Maximum size of a flow in bytes: as many as the fastest link, 10 Tbit/s, carries in the longest run.
const FLOW_BYTES_MAX: u64 = 10_000_000_000_000 / 8 * 5 * 3_600;

#[cfg(test)]
#[path = "flow_file/tests.rs"]
mod tests;
