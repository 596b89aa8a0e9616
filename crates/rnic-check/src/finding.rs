//! Findings of checks.

use core::fmt;

/// One violation of a rule: its location, the rule, the problem and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the tree, with `/`.
    pub path: String,
    /// Line, counted from 1; 1 when the finding is about the whole file.
    pub line: usize,
    /// Name of the violated rule.
    pub rule: &'static str,
    /// Description of the problem.
    pub what: String,
    /// How to correct the problem.
    pub remedy: String,
}

impl Finding {
    /// Returns a finding at `path:line`.
    pub fn new(
        path: impl Into<String>,
        line: usize,
        rule: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line, rule, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, what, remedy } = self;
        write!(f, "{path}:{line}: {rule}: {what}; {remedy}")
    }
}
