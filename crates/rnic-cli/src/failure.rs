//! How a command ends when it does not end well.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Why there is no result, or not a good one. Prints as one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// What was asked for cannot be done: exit code 2.
    Input(String),
    /// It was done, and a check failed: exit code 1.
    Check(String),
}

impl Failure {
    /// Bad input, in the words of whoever found it.
    pub fn input(reason: impl fmt::Display) -> Self {
        Self::Input(reason.to_string())
    }

    /// A file that could not be used.
    pub fn file(path: &Path, reason: impl fmt::Display) -> Self {
        Self::Input(format!("{}: {reason}", path.display()))
    }

    /// What the process ends with.
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

/// `text` with every run of white space made one blank: messages of libraries like to have several lines.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_its_source_says() {
        let failure = Failure::file(Path::new("a.toml"), "line 3\n  |\n3 | x = \n  wrong");
        assert_eq!(failure.to_string(), "rnic: a.toml: line 3 | 3 | x = wrong");
    }
}
