//! Failures of commands, and their exit codes.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Reason why a command has no result, or a bad one. It is displayed as one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The request cannot be carried out: exit code 2.
    Input(String),
    /// The request was carried out, and a check failed: exit code 1.
    Check(String),
}

impl Failure {
    /// Returns a failure for bad input, with the error text of the function that found it.
    pub fn input(reason: impl fmt::Display) -> Self {
        Self::Input(reason.to_string())
    }

    /// Returns a failure for a file that could not be used.
    pub fn file(path: &Path, reason: impl fmt::Display) -> Self {
        Self::Input(format!("{}: {reason}", path.display()))
    }

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Input(_) => ExitCode::from(2),
            Self::Check(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(reason) | Self::Check(reason)) = self;
        write!(f, "rnic: {}", one_line(reason))
    }
}

/// Returns `text` with every run of white space replaced by one blank: error messages of libraries often have several
/// lines.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_for_any_source() {
        let failure = Failure::file(Path::new("a.toml"), "line 3\n  |\n3 | x = \n  wrong");
        assert_eq!(failure.to_string(), "rnic: a.toml: line 3 | 3 | x = wrong");
    }
}
