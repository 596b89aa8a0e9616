//! The report: one self-contained HTML page, and the raw numbers in separate files.

mod curves;
mod figure;
mod page;
mod raw;
mod table;

use std::io::Write;

use crate::judge::conditions;
use crate::judge::{Row, Samples, rows};
use crate::origin::Origin;
use crate::work::Work;

pub(crate) use page::verdict_class;
pub use raw::RawError;
pub(crate) use table::cell;

/// Contents of a report.
#[derive(Debug)]
pub struct Report<'r> {
    /// Experiments and runs of the report.
    pub work: &'r Work<'r>,
    /// Samples of the runs.
    pub samples: &'r Samples,
    /// Command that repeats the report.
    pub command: &'r str,
    /// Machine on which the command ran; earlier runs may have been measured on another one.
    pub machine: &'r str,
    /// Duration of the command, in seconds.
    pub wall_s: f64,
    /// Number of runs whose samples were stored by earlier commands.
    pub kept: usize,
}

impl Report<'_> {
    /// Returns the rows, grouped by experiment.
    pub fn rows(&self) -> Vec<Vec<Row>> {
        self.work.layouts.iter().map(|layout| rows(self.work, layout, self.samples)).collect()
    }

    /// Returns the processor, build and load of the measured runs; `None` when no run was measured.
    pub fn conditions(&self) -> Option<String> {
        conditions(self.work, &self.work.layouts, self.samples)
    }

    /// Describes the origins of the numbers of `rows`.
    pub fn origins(&self, rows: &[Row]) -> String {
        Origin::all(rows.iter().map(|row| row.origin), self.conditions().as_deref())
    }

    /// Returns the HTML page.
    pub fn html(&self) -> String {
        page::page(self)
    }

    /// Returns only the verdicts, as a table in Markdown.
    pub fn markdown(&self) -> String {
        table::table(self)
    }

    /// Writes the raw numbers as CSV: a line for each number of each run.
    ///
    /// # Errors
    /// When writing to `output` fails.
    pub fn write_csv(&self, output: impl Write) -> Result<(), RawError> {
        raw::write_csv(&raw::lines(self.work, self.samples), output)
    }

    /// Writes the raw numbers as Parquet.
    ///
    /// # Errors
    /// When writing to `output` fails.
    pub fn write_parquet(&self, output: impl Write + Send) -> Result<(), RawError> {
        raw::write_parquet(&raw::lines(self.work, self.samples), output)
    }
}
