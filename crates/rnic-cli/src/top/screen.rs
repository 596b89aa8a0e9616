//! The terminal of `rnic top`: queue pairs that can be sorted and selected, and the history of the selected one.
//!
//! [`Screen`] is the state, without a terminal: snapshots and keys in, a drawing out. [`run`] connects it to one.

mod history;

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use rnic_host::observe::Snapshot;

use super::page::{self, PAIRS, PairKey, PairRows};
use super::shares;
use crate::failure::Failure;
use history::History;

/// Shows snapshots, which `fetch` returns, until the user ends it.
///
/// # Errors
/// When snapshots cannot be fetched, or the terminal cannot be used.
pub(super) fn run(interval: Duration, fetch: impl Fn() -> Result<Vec<Snapshot>, Failure>) -> Result<(), Failure> {
    let mut screen = Screen::new(fetch()?);
    let unusable = |error: std::io::Error| Failure::input(format!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(unusable)?;
    let result = (|| {
        let mut due = Instant::now() + interval;
        loop {
            terminal.draw(|frame| screen.draw(frame)).map_err(unusable)?;
            if event::poll(due.saturating_duration_since(Instant::now())).map_err(unusable)? {
                let key = match event::read().map_err(unusable)? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => key,
                    _ => continue,
                };
                if screen.press(key) == Reaction::Quit {
                    return Ok(());
                }
            } else {
                due = Instant::now() + interval;
                if !screen.is_paused {
                    screen.update(fetch()?);
                }
            }
        }
    })();
    ratatui::restore();
    result
}

/// Result of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reaction {
    Stay,
    Quit,
}

/// State of the terminal.
struct Screen {
    before: Vec<Snapshot>,
    now: Vec<Snapshot>,
    /// Queue pairs in the order in which they are shown.
    rows: Vec<PairRows>,
    history: History,
    /// Column of [`PAIRS`] by which queue pairs are sorted, and whether the smallest value is first.
    sort: (usize, bool),
    selected: Option<PairKey>,
    /// Set once the user has moved: until then, the first row is selected, whichever queue pair is in it.
    is_pinned: bool,
    table: TableState,
    /// Queue pairs that fit into the table when it was last drawn.
    page_rows: usize,
    is_paused: bool,
}

impl Screen {
    fn new(first: Vec<Snapshot>) -> Self {
        let mut screen = Self {
            before: Vec::new(),
            now: first.clone(),
            rows: Vec::new(),
            history: History::default(),
            sort: (FIRST_NUMBER, false),
            selected: None,
            is_pinned: false,
            table: TableState::default(),
            page_rows: 1,
            is_paused: false,
        };
        // Until the next snapshot rates are zero, not averages since the start of each process.
        screen.before = first;
        screen.arrange();
        screen
    }

    fn update(&mut self, now: Vec<Snapshot>) {
        self.before = std::mem::replace(&mut self.now, now);
        self.arrange();
        self.history.add(&self.rows);
    }

    /// Sorts the queue pairs; the selected one stays selected while it exists.
    fn arrange(&mut self) {
        let (column, ascending) = self.sort;
        self.rows = page::pairs(&self.before, &self.now);
        let order = |a: &PairRows, b: &PairRows| {
            let order = a.numbers[column].total_cmp(&b.numbers[column]);
            if ascending { order } else { order.reverse() }.then_with(|| a.key.cmp(&b.key))
        };
        self.rows.sort_by(order);
        let pinned = self.selected.filter(|_| self.is_pinned);
        self.select(pinned.and_then(|key| self.rows.iter().position(|row| row.key == key)).unwrap_or(0));
    }

    /// Selects row `index`, or the last one, for the user.
    fn go_to(&mut self, index: usize) {
        self.is_pinned = true;
        self.select(index);
    }

    /// Selects the queue pair in row `index`, or the last one.
    fn select(&mut self, index: usize) {
        let index = index.min(self.rows.len().saturating_sub(1));
        self.selected = self.rows.get(index).map(|row| row.key);
        self.table.select(self.selected.map(|_| index));
    }

    fn press(&mut self, key: KeyEvent) -> Reaction {
        let at = self.table.selected().unwrap_or(0);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Reaction::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Reaction::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.go_to(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go_to(at + 1),
            KeyCode::PageUp => self.go_to(at.saturating_sub(self.page_rows)),
            KeyCode::PageDown => self.go_to(at + self.page_rows),
            KeyCode::Home => self.go_to(0),
            KeyCode::End => self.go_to(usize::MAX),
            KeyCode::Right | KeyCode::Char('s') => self.sort_by(1),
            KeyCode::Left | KeyCode::Char('S') => self.sort_by(PAIRS.heads.len() - FIRST_NUMBER - 1),
            KeyCode::Char('r') => {
                self.sort.1 = !self.sort.1;
                self.arrange();
            }
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            _ => {}
        }
        Reaction::Stay
    }

    /// Sorts by the column that is `steps` to the right of the present one, around the columns with numbers.
    fn sort_by(&mut self, steps: usize) {
        let columns = PAIRS.heads.len() - FIRST_NUMBER;
        self.sort = (FIRST_NUMBER + (self.sort.0 - FIRST_NUMBER + steps) % columns, false);
        self.arrange();
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let columns = usize::from(area.width);
        let devices =
            page::devices(&self.before, &self.now, columns) + &shares::tables(&self.before, &self.now, columns);
        let device_lines = (devices.lines().count() as u16).min(area.height / 2);
        let history_lines = if self.selected.is_some() && area.height >= HISTORY_FROM { history::LINES } else { 0 };
        let [top, _, middle, bottom, help] = Layout::vertical([
            Constraint::Length(device_lines),
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(history_lines),
            Constraint::Length(1),
        ])
        .areas(area);
        frame.render_widget(Paragraph::new(Text::raw(devices)), top);
        self.draw_pairs(frame, middle);
        if let Some(key) = self.selected.filter(|_| history_lines > 0) {
            self.history.draw(key, frame, bottom);
        }
        frame.render_widget(Line::raw(self.help()).style(Style::new().add_modifier(Modifier::DIM)), help);
    }

    fn draw_pairs(&mut self, frame: &mut Frame<'_>, area: Rect) {
        self.page_rows = usize::from(area.height.saturating_sub(1)).max(1);
        if self.rows.is_empty() {
            return;
        }
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| row.row.clone()).collect();
        let kept = PAIRS.kept(&cells, usize::from(area.width), GAP);
        let heading = |column: usize| {
            let mark = match self.sort {
                (sorted, true) if sorted == column => "^",
                (sorted, false) if sorted == column => "v",
                _ => "",
            };
            aligned(column, &format!("{}{mark}", PAIRS.heads[column]))
        };
        let heads = Row::new(kept.iter().map(|(column, _)| heading(*column)));
        let body = cells.iter().map(|row| Row::new(kept.iter().map(|(column, _)| aligned(*column, &row[*column]))));
        // The mark of the sorted column needs a place.
        let widths = kept.iter().map(|(column, width)| {
            let marked = PAIRS.heads[*column].chars().count() + usize::from(*column == self.sort.0);
            Constraint::Length((*width).max(marked) as u16)
        });
        let table = Table::new(body, widths)
            .header(heads.style(Style::new().add_modifier(Modifier::BOLD)))
            .column_spacing(GAP as u16)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn help(&self) -> String {
        let at = self.table.selected().map_or(0, |at| at + 1);
        let paused = if self.is_paused { "paused, " } else { "" };
        format!(
            "{paused}queue pair {at} of {}, by {}: up down select, left right sort, r reverse, space pause, q quit",
            self.rows.len(),
            PAIRS.heads[self.sort.0]
        )
    }
}

/// Returns a cell: texts to the left, numbers to the right.
fn aligned(column: usize, text: &str) -> Text<'static> {
    let text = Text::raw(text.to_owned());
    if column < FIRST_NUMBER { text.left_aligned() } else { text.right_aligned() }
}

/// First column of [`PAIRS`] with numbers.
const FIRST_NUMBER: usize = 3;
/// Blanks between two columns.
const GAP: usize = 2;
/// Height of a terminal from which the history is shown, in lines.
const HISTORY_FROM: u16 = 18;

#[cfg(test)]
mod tests;
