//! Tables for terminals.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle, presets};

/// Widest line of a table.
const COLUMNS: u16 = 118;
const RULE_BELOW_HEADS: TableStyle = TableStyle::new().header_separator(LineStyle::new('-', '-', '-', '-'));

/// A table of results: a rule under the heads; the first column is text, the others are numbers and stand to the right.
pub fn results(heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(RULE_BELOW_HEADS).set_header(heads.iter().copied()).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    trimmed(&table)
}

/// Names with explanations that wrap beside them, indented by `indent` blanks.
pub fn explained(indent: usize, rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(COLUMNS - indent as u16).add_rows(rows);
    let pad = " ".repeat(indent);
    trimmed(&table).lines().map(|line| format!("{pad}{line}\n")).collect()
}

fn trimmed(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
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
