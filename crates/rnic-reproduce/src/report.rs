//! The report: one page that needs nothing but itself, and the raw numbers beside it.

mod curves;
mod figure;
mod page;
mod plot;
mod raw;
mod table;
mod ticks;

use std::io::Write;

use crate::judge::conditions;
use crate::judge::{Row, Samples, rows};
use crate::origin::Origin;
use crate::work::Work;

pub use raw::RawError;

/// Everything that a report tells.
#[derive(Debug)]
pub struct Report<'r> {
    /// What was run.
    pub work: &'r Work<'r>,
    /// What came out.
    pub samples: &'r Samples,
    /// What repeats it.
    pub command: &'r str,
    /// Where the command ran; not what was measured earlier.
    pub machine: &'r str,
    /// Seconds that the command took.
    pub wall_s: f64,
    /// Runs that were there from earlier commands.
    pub kept: usize,
}

impl Report<'_> {
    /// The rows, experiment by experiment.
    pub fn rows(&self) -> Vec<Vec<Row>> {
        self.work.layouts.iter().map(|layout| rows(self.work, layout, self.samples)).collect()
    }

    /// On what processor, with which build and under which load its measured runs were made; none where none was.
    pub fn conditions(&self) -> Option<String> {
        conditions(self.work, &self.work.layouts, self.samples)
    }

    /// How the numbers of `rows` came about, in words.
    pub fn origins(&self, rows: &[Row]) -> String {
        Origin::all(rows.iter().map(|row| row.origin), self.conditions().as_deref())
    }

    /// The page.
    pub fn html(&self) -> String {
        page::page(self)
    }

    /// The verdicts alone, as a table in Markdown.
    pub fn markdown(&self) -> String {
        table::table(self)
    }

    /// The raw numbers: a line for each number of each run.
    ///
    /// # Errors
    /// When `output` fails.
    pub fn write_csv(&self, output: impl Write) -> Result<(), RawError> {
        raw::write_csv(&raw::lines(self.work, self.samples), output)
    }

    /// The same as Parquet.
    ///
    /// # Errors
    /// When `output` fails.
    pub fn write_parquet(&self, output: impl Write + Send) -> Result<(), RawError> {
        raw::write_parquet(&raw::lines(self.work, self.samples), output)
    }
}
