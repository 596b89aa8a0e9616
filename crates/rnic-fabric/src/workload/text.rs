//! Lines of the text files that a plan names, and errors with line and column.

use core::fmt::{self, Display};

/// The reason why a file could not be read, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadError {
    /// Line and column, from 1; `None`: the error is that of the whole file.
    pub at: Option<(usize, usize)>,
    /// Description of the error, and of the remedy.
    pub what: String,
}

impl ReadError {
    pub(super) fn at(line: usize, column: usize, what: impl Into<String>) -> Self {
        Self { at: Some((line, column)), what: on_one_line(&what.into()) }
    }

    pub(super) fn whole(what: impl Into<String>) -> Self {
        Self { at: None, what: on_one_line(&what.into()) }
    }
}

impl Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some((line, column)) => write!(f, "line {line}, column {column}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl core::error::Error for ReadError {}

/// A line with text, without its comment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'t> {
    /// Line number, from 1.
    pub(super) number: usize,
    /// The text without the space around it.
    pub(super) text: &'t str,
    /// The number of characters before it.
    indent: usize,
}

/// Returns the lines that are neither empty nor comments, which start with `#`.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    (1..).zip(text.lines()).filter_map(|(number, line)| {
        let line = line.split('#').next().unwrap_or_default();
        let text = line.trim();
        let indent = line.chars().take_while(|character| character.is_whitespace()).count();
        (!text.is_empty()).then_some(Line { number, text, indent })
    })
}

impl<'t> Line<'t> {
    /// Returns an error at `part`, a part of the line's text.
    pub(super) fn error(self, part: &str, what: impl Into<String>) -> ReadError {
        let before = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let before = self.text.get(..before).map_or(0, |before| before.chars().count());
        ReadError::at(self.number, 1 + self.indent + before, what)
    }

    /// Returns the words of the line.
    pub(super) fn words(self) -> impl Iterator<Item = &'t str> {
        self.text.split_whitespace()
    }
}

/// Returns the start of an error that may contain any text of a file.
pub(super) fn on_one_line(what: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    what.chars().take(ERROR_CHARS_MAX).map(plain).collect()
}

/// Returns the start of a text that may be long.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

const SHOWN_CHARS_MAX: usize = 60;
const ERROR_CHARS_MAX: usize = 600;
