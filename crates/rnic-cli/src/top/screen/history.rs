//! Past rates of queue pairs.

use std::collections::{HashMap, HashSet, VecDeque};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Sparkline;
use rnic_page::number;

use crate::top::page::{PairKey, PairRows};

/// Rates of each queue pair that exists, one value an update, the newest last.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<PairKey, Past>);

/// Past of a queue pair.
#[derive(Debug, Default)]
struct Past {
    /// Packets sent per second.
    sent: VecDeque<u64>,
    /// Packets retransmitted since the update before, and in all.
    retransmitted: VecDeque<u64>,
    retransmitted_in_all: Option<u64>,
}

impl History {
    /// Adds the present rates, and forgets queue pairs that no longer exist.
    pub(super) fn add(&mut self, rows: &[PairRows]) {
        let existing: HashSet<PairKey> = rows.iter().map(|row| row.key).collect();
        self.0.retain(|key, _| existing.contains(key));
        for row in rows {
            let past = self.0.entry(row.key).or_default();
            let in_all = row.numbers[RETRANSMITTED] as u64;
            let before = past.retransmitted_in_all.replace(in_all).unwrap_or(in_all);
            for (values, value) in
                [(&mut past.sent, row.numbers[SENT] as u64), (&mut past.retransmitted, in_all.saturating_sub(before))]
            {
                if values.len() == UPDATES_MAX {
                    values.pop_front();
                }
                values.push_back(value);
            }
        }
    }

    /// Draws the past of a queue pair into [`LINES`] lines, the newest value at the right.
    pub(super) fn draw(&self, key: PairKey, frame: &mut Frame<'_>, area: Rect) {
        let Some(past) = self.0.get(&key) else { return };
        let areas: [Rect; 4] = Layout::vertical([1, 3, 1, 2].map(Constraint::Length)).areas(area);
        for ((what, values), (title, chart)) in
            [("packets sent per second", &past.sent), ("retransmitted since the update before", &past.retransmitted)]
                .into_iter()
                .zip([(areas[0], areas[1]), (areas[2], areas[3])])
        {
            let shown = values.len().min(usize::from(chart.width));
            let values: Vec<u64> = values.iter().skip(values.len() - shown).copied().collect();
            let [most, last] = [values.iter().max(), values.last()].map(|value| value.copied().unwrap_or(0));
            let (pid, _, qpn) = key;
            let text = format!(
                "{pid} {qpn:#08x}, {what}: {} (at most {} in {shown} updates)",
                number::grouped(last),
                number::grouped(most)
            );
            frame.render_widget(Line::raw(text), title);
            frame.render_widget(Sparkline::default().data(&values), chart);
        }
    }
}

/// Height of the drawing.
pub(super) const LINES: u16 = 7;
/// Values that are kept, more than a terminal has columns.
const UPDATES_MAX: usize = 512;
/// Columns of the table of queue pairs.
const SENT: usize = 3;
const RETRANSMITTED: usize = 5;
