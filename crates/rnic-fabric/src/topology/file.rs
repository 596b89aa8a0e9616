//! Topologies from files: OpenRNIC's own format, HPCC's `topology.txt` and htsim's `.topo`.
//!
//! A file has at most [`FILE_BYTES_MAX`] bytes, and the graph the sizes that [`super::wiring`] allows. An error has one
//! line, with the position of the word that is wrong; errors of the complete graph name nodes instead. No text makes a
//! reader panic (`tests/text_parsers.rs`, and the fuzz target of that name).

mod hpcc;
mod htsim;
mod own;

use core::str::FromStr;

use rnic_base::{BitRate, Duration, similar};

use super::Topology;
use super::wiring::Wiring;
use crate::link_spec::{DELAY_MAX, DELAY_MIN, LinkPlan, RATE_MAX, RATE_MIN};

/// Maximum size of a file in bytes: about 60 for each link of the largest graph.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// Format of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// Lines `host NAME`, `switch NAME` and `link A B RATE DELAY`.
    Graph,
    /// Numbers of nodes, switches and links, the switches, and one link on each line.
    Hpcc,
    /// Numbers of a folded Clos, tier by tier.
    Htsim,
}

/// Rate and delay of links for which a file does not give them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Defaults {
    /// Links of hosts.
    pub host: (Option<BitRate>, Option<Duration>),
    /// Links between switches.
    pub fabric: (Option<BitRate>, Option<Duration>),
}

/// The reason why a file could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileError {
    /// A word is wrong.
    #[error("line {line}, column {column}: {what}")]
    At {
        /// Line number, from 1.
        line: usize,
        /// Number of the character in the line, from 1.
        column: usize,
        /// Description of the error.
        what: String,
    },
    /// The graph as a whole, or the file, is wrong.
    #[error("{0}")]
    Graph(String),
}

/// A topology from a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// Nodes, links and routes.
    pub topology: Topology,
    /// Content of the file that the simulator does not use, one line each.
    pub notes: Vec<String>,
}

/// Reads a topology; without a `format`, it is recognized by the content.
///
/// # Errors
/// The first error in the text.
pub fn read(text: &str, format: Option<FileFormat>, defaults: &Defaults) -> Result<Read, FileError> {
    if text.len() > FILE_BYTES_MAX {
        let what = format!("has {} bytes; a topology may have {FILE_BYTES_MAX}", text.len());
        return Err(FileError::Graph(what));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (wiring, notes) = match format.unwrap_or_else(|| recognize(text)) {
        FileFormat::Graph => (own::read(text, defaults)?, Vec::new()),
        FileFormat::Hpcc => (hpcc::read(text)?, Vec::new()),
        FileFormat::Htsim => htsim::read(text)?,
    };
    let topology = wiring.build().map_err(FileError::Graph)?;
    Ok(Read { topology, notes })
}

/// Returns the format that the first word indicates: a number for HPCC, a key for htsim.
fn recognize(text: &str) -> FileFormat {
    let first = words(text).next().map_or("", |word| word.text);
    if first.bytes().all(|byte| byte.is_ascii_digit()) && !first.is_empty() {
        FileFormat::Hpcc
    } else if htsim::is_key(first) {
        FileFormat::Htsim
    } else {
        FileFormat::Graph
    }
}

/// A word of a text, and its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word<'t> {
    text: &'t str,
    line: usize,
    column: usize,
}

impl Word<'_> {
    fn wrong(&self, what: impl Into<String>) -> FileError {
        FileError::At { line: self.line, column: self.column, what: what.into() }
    }

    /// Returns the word for an error message: at most 40 characters of it.
    fn shown(&self) -> String {
        match self.text.char_indices().nth(40) {
            Some((at, _)) => format!("{}...", &self.text[..at]),
            None => self.text.to_owned(),
        }
    }

    /// Returns the word as a number.
    fn number(&self, what: &str) -> Result<u32, FileError> {
        self.text.parse().map_err(|_| self.wrong(format!("`{}` is not {what}, a whole number", self.shown())))
    }

    /// Returns the word as a quantity with its unit.
    fn quantity<T: FromStr>(&self, what: &str) -> Result<T, FileError> {
        self.text.parse().map_err(|_| self.wrong(format!("`{}` is not {what}", self.shown())))
    }

    fn rate(&self) -> Result<BitRate, FileError> {
        let rate: BitRate = self.quantity("a rate such as 100Gbps")?;
        self.check_rate(rate)
    }

    fn check_rate(&self, rate: BitRate) -> Result<BitRate, FileError> {
        match (RATE_MIN..=RATE_MAX).contains(&rate.as_bps()) {
            true => Ok(rate),
            false => Err(self.wrong("the rate must be between 1Mbps and 10Tbps")),
        }
    }

    fn delay(&self) -> Result<Duration, FileError> {
        let delay: Duration = self.quantity("a delay such as 1us")?;
        self.check_delay(delay)
    }

    fn check_delay(&self, delay: Duration) -> Result<Duration, FileError> {
        match (DELAY_MIN..=DELAY_MAX).contains(&delay) {
            true => Ok(delay),
            false => Err(self.wrong(format!("the delay must be between {DELAY_MIN} and {DELAY_MAX}"))),
        }
    }
}

/// Returns the words of a line before `#`.
fn words_of_line((line, text): (usize, &str)) -> impl Iterator<Item = Word<'_>> {
    let text = text.split('#').next().unwrap_or_default();
    let mut column = 1;
    text.split(char::is_whitespace).filter_map(move |word| {
        let at = column;
        column += word.chars().count() + 1;
        (!word.is_empty()).then_some(Word { text: word, line, column: at })
    })
}

fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    (1..).zip(text.lines()).flat_map(words_of_line)
}

#[cfg(test)]
#[path = "file/tests.rs"]
mod tests;
