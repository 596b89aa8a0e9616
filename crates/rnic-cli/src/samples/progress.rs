//! Progress of the runs.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rnic_reproduce::{RunSpec, Sample};

use crate::console;

/// A progress bar that advances by the cost of each run.
pub struct Bar {
    bar: ProgressBar,
    costs: BTreeMap<String, u64>,
    runs: usize,
    done: usize,
}

/// Creates the bar for the runs in `left`, which remain to be executed, and reports `kept`, the number of runs whose
/// samples exist already.
pub fn bar(left: &[&RunSpec], kept: usize) -> Bar {
    let costs: BTreeMap<String, u64> = left.iter().map(|run| (run.key.clone(), run.task.cost)).collect();
    if kept > 0 {
        console::line(&format!("{kept} runs are available from earlier commands, {} remain", left.len()));
    }
    let bar = if std::io::stderr().is_terminal() && !left.is_empty() {
        ProgressBar::new(costs.values().sum())
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_message(format!("0 of {} runs", left.len()));
    bar.enable_steady_tick(TICK);
    Bar { bar, costs, runs: left.len(), done: 0 }
}

impl Bar {
    /// Records that one more run is complete.
    pub fn done(&mut self, sample: &Sample) {
        self.done += 1;
        self.bar.inc(self.costs.get(&sample.key).copied().unwrap_or(0));
        self.bar.set_message(format!("{} of {} runs", self.done, self.runs));
    }

    /// Removes the bar after the last run.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

const TEMPLATE: &str = "{bar:40} {msg}, {elapsed} so far, about {eta} left";
const TICK: Duration = Duration::from_millis(200);
