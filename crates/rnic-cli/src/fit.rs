//! Fits text into a width, in columns of a terminal.

use console::{measure_text_width, truncate_str};

/// Returns `text` shortened to at most `columns`. The part before the last blank is cut, because the number after the
/// blank identifies the entry (`ib_write_b… (4711)`).
pub fn cut(text: &str, columns: usize) -> String {
    if measure_text_width(text) <= columns {
        return text.to_owned();
    }
    if let Some((front, last)) = text.rsplit_once(' ') {
        let front_columns = columns.saturating_sub(measure_text_width(last) + 1);
        if front_columns >= FRONT_COLUMNS_MIN {
            return format!("{} {last}", truncate_str(front, front_columns, ELLIPSIS));
        }
    }
    truncate_str(text, columns, ELLIPSIS).into_owned()
}

/// Cuts every line of `text` to at most `columns`.
pub fn lines(text: &str, columns: usize) -> String {
    text.lines().map(|line| format!("{}\n", truncate_str(line, columns, ELLIPSIS).trim_end())).collect()
}

/// Returns `parts` separated by commas, on as many lines as needed, all but the first indented.
pub fn list(parts: &[String], columns: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    for (index, part) in parts.iter().enumerate() {
        let (width, comma) = (measure_text_width(part), if index + 1 < parts.len() { "," } else { "" });
        if used > 0 && used + 1 + width + comma.len() > columns {
            text += "\n   ";
            used = 3;
        }
        let separator = if text.is_empty() { "" } else { " " };
        text += &format!("{separator}{part}{comma}");
        used += separator.len() + width + comma.len();
    }
    lines(&text, columns)
}

/// Returns `text` without terminal control characters: the name of a program is untrusted and may contain them.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

const ELLIPSIS: &str = "…";

/// Minimum length of the cut front part: a shorter rest would not be recognisable.
const FRONT_COLUMNS_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_too_long_is_cut_before_its_last_word() {
        assert_eq!(cut("ib_write_bw (4711)", 18), "ib_write_bw (4711)");
        assert_eq!(cut("ib_write_bw (4711)", 17), "ib_write_… (4711)");
        assert_eq!(cut("ib_write_bw (4711)", 10), "ib… (4711)");
        assert_eq!(cut("[2001:db8::1234:5678]:4800 0xabcdef", 20), "[2001:db8:… 0xabcdef");
        assert_eq!(cut("ib_write_bw (4711)", 8), "ib_writ…");
        assert_eq!(cut("one-long-word", 5), "one-…");
        // Each of these characters occupies two columns.
        assert_eq!(cut("\u{6e2c}\u{8a66}\u{6e2c}\u{8a66} (1)", 9), "\u{6e2c}\u{8a66}… (1)");
    }

    #[test]
    fn lists_wrap_between_their_parts() {
        let parts = ["rnic0", "irn", "loss 1%"].map(str::to_owned);
        assert_eq!(list(&parts, 40), "rnic0, irn, loss 1%\n");
        assert_eq!(list(&parts, 12), "rnic0, irn,\n    loss 1%\n");
        assert_eq!(list(&parts, 9), "rnic0,\n    irn,\n    loss…\n");
    }

    #[test]
    fn control_characters_in_names_are_replaced() {
        assert_eq!(printable("a\x1b[2J\u{9b}b\n"), "a?[2J?b?");
    }
}
