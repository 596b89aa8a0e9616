//! Tables for terminals.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle, presets};
use console::measure_text_width;

use crate::fit;

/// Maximum width of a table, in columns of the terminal.
const COLUMNS: u16 = 118;
/// Padding to the left and right of a cell, so that columns are two blanks apart.
const CLOSE: (u16, u16) = (1, 0);
/// Smallest width to which a text column is cut.
const TEXT_MIN: usize = 12;

/// Width from which text counts as long: wider than an IPv4 address with its port and a queue pair's number.
const TEXT_LONG: usize = 30;
const RULE_BELOW_HEADS: TableStyle = TableStyle::new().header_separator(LineStyle::new('-', '-', '-', '-'));

/// Formats a table of results: with a rule below the column heads; the first column is text, the others are
/// right-aligned numbers.
pub fn results(heads: &[&str], rows: Vec<Vec<String>>) -> String {
    padded(heads, rows, (1, 1))
}

fn padded(heads: &[&str], rows: Vec<Vec<String>>, padding: (u16, u16)) -> String {
    let mut table = Table::new();
    table.load_style(RULE_BELOW_HEADS).set_header(heads.iter().copied()).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding(padding);
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    trimmed(&table)
}

/// Columns of a table that must fit into a width.
#[derive(Clone, Copy, Debug)]
pub struct Fit<'a> {
    /// Column heads.
    pub heads: &'a [&'a str],
    /// Number of leading columns that are text, which may be cut.
    pub texts: usize,
    /// Columns that may be omitted, in the order in which they are omitted, and their names for the note that they are
    /// missing.
    pub omittable: &'a [(usize, &'a str)],
}

impl Fit<'_> {
    /// Returns the columns, with their widths, that remain when columns are omitted until the rest, with `gap` blanks
    /// between two, fits into `columns`, or until none is left that may be omitted.
    pub fn kept(&self, rows: &[Vec<String>], columns: usize, gap: usize) -> Vec<(usize, usize)> {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| measure_text_width(&row[column]));
            cells.max().unwrap_or(0).max(measure_text_width(self.heads[column]))
        };
        let mut kept: Vec<(usize, usize)> = (0..self.heads.len()).map(|column| (column, width(column))).collect();
        for (omittable, _) in self.omittable {
            if kept.iter().map(|(_, width)| width + gap).sum::<usize>() <= columns + gap {
                break;
            }
            kept.retain(|(column, _)| column != omittable);
        }
        kept
    }
}

/// Formats a table as [`results`] does, in at most `columns`; also returns the names of the omitted columns. Long text
/// is cut first, the widest first; when that is not enough, columns are omitted, then short text is cut, and finally
/// lines are truncated.
pub fn fitted<'a>(fit: &Fit<'a>, rows: &[Vec<String>], columns: usize) -> (String, Vec<&'a str>) {
    let mut omitted = 0;
    loop {
        let left = |column: &usize| fit.omittable[..omitted].iter().all(|(omittable, _)| omittable != column);
        let kept: Vec<usize> = (0..fit.heads.len()).filter(left).collect();
        let heads: Vec<&str> = kept.iter().map(|column| fit.heads[*column]).collect();
        let mut rows: Vec<Vec<String>> =
            rows.iter().map(|row| kept.iter().map(|column| row[*column].clone()).collect()).collect();
        let text = padded(&heads, rows.clone(), CLOSE);
        let excess_columns = widest(&text).saturating_sub(columns);
        let names = fit.omittable[..omitted].iter().map(|(_, name)| *name).collect();
        if excess_columns == 0 {
            return (text, names);
        }
        let texts = kept.iter().filter(|column| **column < fit.texts).count();
        let is_last = omitted == fit.omittable.len();
        let is_enough = cut_texts(&mut rows, texts, if is_last { TEXT_MIN } else { TEXT_LONG }, excess_columns);
        if is_enough || is_last {
            return (fit::lines(&padded(&heads, rows, CLOSE), columns), names);
        }
        omitted += 1;
    }
}

/// Cuts the first `texts` columns by `excess_columns` in total, none below `least`; returns `true` if that was
/// possible.
fn cut_texts(rows: &mut [Vec<String>], texts: usize, least: usize, excess_columns: usize) -> bool {
    let widest_cell = |column: usize| rows.iter().map(move |row| measure_text_width(&row[column])).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..texts).map(widest_cell).collect();
    let mut cut = 0;
    while cut < excess_columns
        && let Some(most) = widths.iter_mut().max().filter(|most| **most > least)
    {
        *most -= 1;
        cut += 1;
    }
    for row in rows {
        row.iter_mut().zip(&widths).for_each(|(cell, width)| *cell = fit::cut(cell, *width));
    }
    cut == excess_columns
}

fn widest(text: &str) -> usize {
    text.lines().map(measure_text_width).max().unwrap_or(0)
}

/// Formats names with explanations that wrap beside them, indented by `indent` blanks.
pub fn explained(indent: usize, rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(COLUMNS - indent as u16).add_rows(rows);
    let indentation = " ".repeat(indent);
    trimmed(&table).lines().map(|line| format!("{indentation}{line}\n")).collect()
}

fn trimmed(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned() {
        let text = results(&["what", "Gbit/s"], vec![vec!["a".into(), "1".into()], vec!["b".into(), "10".into()]]);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with([' ', 'a', 'b'])).collect();
        assert!(rows.iter().any(|row| row.ends_with("  1")), "{text}");
        assert!(rows.iter().any(|row| row.ends_with(" 10")), "{text}");
    }

    #[test]
    fn explanations_wrap_within_the_width() {
        let text = explained(4, vec![vec!["name".into(), "word ".repeat(60)]]);
        assert!(text.lines().count() > 1);
        assert!(text.lines().all(|line| line.starts_with("    ") && line.chars().count() <= usize::from(COLUMNS)));
    }
}
