//! Progress of the runs.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rnic_page::number;
use rnic_reproduce::{RunSpec, Sample};

use crate::console;
use crate::heartbeat::{Ticker, left};

/// A progress bar that advances by the cost of each run.
pub struct Bar {
    bar: ProgressBar,
    costs: BTreeMap<String, u64>,
    runs: usize,
    done: Arc<Done>,
    /// Writes lines where there is no bar.
    ticker: Option<Ticker>,
}

/// Runs that are complete.
#[derive(Debug, Default)]
struct Done {
    runs: AtomicU64,
    cost: AtomicU64,
}

impl Done {
    /// Returns the line of progress after `elapsed`, of `runs` runs that cost `cost`.
    fn line(&self, runs: usize, cost: u64, elapsed: Duration) -> String {
        let share = self.cost.load(Ordering::Relaxed) as f64 / cost as f64;
        format!(
            "{} of {runs} runs after {}, {}",
            self.runs.load(Ordering::Relaxed),
            number::seconds(elapsed.as_secs_f64()),
            left(share, elapsed)
        )
    }
}

/// Creates the bar for the runs in `remaining`, which are to be executed, and reports `kept`, the number of runs whose
/// samples exist already.
pub fn bar(remaining: &[&RunSpec], kept: usize) -> Bar {
    let costs: BTreeMap<String, u64> = remaining.iter().map(|run| (run.key.clone(), run.task.cost)).collect();
    if kept > 0 {
        console::line(&format!("{kept} runs are available from earlier commands, {} remain", remaining.len()));
    }
    let bar = if std::io::stderr().is_terminal() && !remaining.is_empty() {
        ProgressBar::new(costs.values().sum())
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_message(format!("0 of {} runs", remaining.len()));
    bar.enable_steady_tick(TICK);
    let (done, runs, cost) = (Arc::new(Done::default()), remaining.len(), costs.values().sum());
    let shared = Arc::clone(&done);
    let ticker = (runs > 0).then(|| Ticker::start(move |elapsed| shared.line(runs, cost, elapsed)));
    Bar { bar, costs, runs, done, ticker }
}

impl Bar {
    /// Records that one more run is complete.
    pub fn done(&mut self, sample: &Sample) {
        let cost = self.costs.get(&sample.key).copied().unwrap_or(0);
        self.done.cost.fetch_add(cost, Ordering::Relaxed);
        let done = self.done.runs.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.inc(cost);
        self.bar.set_message(format!("{done} of {} runs", self.runs));
    }

    /// Removes the bar after the last run, and ends the lines.
    pub fn finish(&mut self) {
        self.ticker = None;
        self.bar.finish_and_clear();
    }
}

const TEMPLATE: &str = "{bar:40} {msg}, {elapsed} so far, about {eta} left";
const TICK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_says_what_is_done_and_what_is_left() {
        let done = Done { runs: AtomicU64::new(12), cost: AtomicU64::new(25) };
        let line = done.line(44, 100, Duration::from_secs(20));
        assert_eq!(line, "12 of 44 runs after 20 s, about 60 s left");
        assert!(
            Done::default().line(44, 100, Duration::from_secs(20)).contains("0 of 44 runs after 20 s, no estimate")
        );
    }
}
