//! Checks single lines against `patterns.toml` in this crate's directory: what no line of certain files may contain.

use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

/// The table.
pub static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let table: Table =
        toml::from_str(include_str!("../../patterns.toml")).expect("patterns.toml is a table of patterns");
    table.pattern
});

#[derive(Deserialize)]
struct Table {
    pattern: Vec<Pattern>,
}

/// A pattern that no line may have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Ends or beginnings of the paths of files that are checked; none for all.
    #[serde(default)]
    files: Vec<String>,
    /// Paths of files that may contain it.
    #[serde(default)]
    except: Vec<String>,
    line: Expression,
    unless: Option<Expression>,
    what: String,
    instead: String,
    /// Lines that it matches.
    pub finds: Vec<String>,
    /// Lines that it does not match.
    pub passes: Vec<String>,
}

/// A regular expression in the table.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Expression(Regex);

impl TryFrom<String> for Expression {
    type Error = regex::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Regex::new(&text).map(Self)
    }
}

impl Pattern {
    /// Returns whether `line` has the pattern.
    pub fn matches(&self, line: &str) -> bool {
        self.line.0.is_match(line) && !self.unless.as_ref().is_some_and(|unless| unless.0.is_match(line))
    }

    fn covers(&self, path: &str) -> bool {
        let is_named = |part: &String| path.ends_with(part.as_str()) || path.starts_with(part.as_str());
        (self.files.is_empty() || self.files.iter().any(is_named)) && !self.except.iter().any(|file| file == path)
    }
}

/// Reports lines that have one of the patterns.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files().flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pattern in PATTERNS.iter().filter(|pattern| pattern.covers(&file.path)) {
        let lines = (1..).zip(file.text().unwrap_or_default().split('\n'));
        let found = lines.filter(|(_, line)| pattern.matches(line));
        findings
            .extend(found.map(|(line, _)| Finding::new(&file.path, line, "patterns", &pattern.what, &pattern.instead)));
    }
    findings
}
