//! Errors in a plan.

use rnic_transports::SelectError;

use super::keys;

/// The reason why a plan cannot be run, in one line with the key or the line number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not TOML.
    #[error("plan, line {line}: {what}")]
    Syntax {
        /// Line number, from 1.
        line: usize,
        /// Message of the parser.
        what: String,
    },
    /// A key that does not exist, is missing, or has a value of the wrong type or unit.
    #[error("plan{}: {key}: {what}", line.map_or_else(String::new, |line| format!(", line {line}")))]
    Key {
        /// The key, with the path of its tables.
        key: String,
        /// Line number, from 1, when the text contains the key.
        line: Option<usize>,
        /// Description of the error.
        what: String,
    },
    /// A value that is invalid, on its own or in combination with other values.
    #[error("plan: {key}: {what}")]
    Value {
        /// The key, with the path of its tables.
        key: &'static str,
        /// Description of the error.
        what: String,
    },
    /// The transport cannot be created.
    #[error("plan: transport: {0}")]
    Transport(#[from] SelectError),
    /// A file that the plan names cannot be read, or its content is invalid.
    #[error("plan: {key}: {name}: {what}")]
    File {
        /// The key that names the file.
        key: &'static str,
        /// Name of the file.
        name: String,
        /// Description of the error.
        what: String,
    },
}

impl PlanError {
    /// Adds the line of the key in the plan's `text`, if it is there and is not replaced.
    pub(super) fn located(self, text: &str, overrides: &[(&str, &str)]) -> Self {
        let line_of = |key: &str| {
            let is_replaced =
                |given: &str| key.strip_prefix(given).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if overrides.iter().any(|(given, _)| is_replaced(given)) { None } else { keys::line_of(text, key) }
        };
        match self {
            Self::Key { key, line: None, what } => Self::Key { line: line_of(&key), key, what },
            Self::Value { key, what } if line_of(key).is_some() => {
                Self::Key { key: key.to_owned(), line: line_of(key), what }
            }
            error => error,
        }
    }

    pub(super) fn value(key: &'static str, what: impl Into<String>) -> Self {
        Self::Value { key, what: what.into() }
    }
}
