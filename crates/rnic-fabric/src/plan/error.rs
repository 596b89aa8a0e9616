//! What can be wrong with a plan.

use rnic_transports::SelectError;

/// Why a plan cannot be run: one line that says what and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// Not TOML.
    #[error("plan, line {line}: {what}")]
    Syntax {
        /// Which line, from 1.
        line: usize,
        /// What the parser says.
        what: String,
    },
    /// A key that does not exist, is missing, or has a value of the wrong kind or unit.
    #[error("plan{}: {key}: {what}", line.map_or_else(String::new, |line| format!(", line {line}")))]
    Key {
        /// The key, with the tables it is in.
        key: String,
        /// Which line, from 1, when the text has one.
        line: Option<usize>,
        /// What is wrong.
        what: String,
    },
    /// A value that cannot be, or not together with the others.
    #[error("plan: {key}: {what}")]
    Value {
        /// The key, with the tables it is in.
        key: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The transport cannot be made.
    #[error("plan: transport: {0}")]
    Transport(#[from] SelectError),
    /// A file that the plan names cannot be read, or makes no sense.
    #[error("plan: {key}: {name}: {what}")]
    File {
        /// The key that names it.
        key: &'static str,
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
}

impl PlanError {
    pub(super) fn value(key: &'static str, what: impl Into<String>) -> Self {
        Self::Value { key, what: what.into() }
    }
}
