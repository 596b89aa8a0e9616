//! Limits with exceptions that may only shrink.
//!
//! The exceptions are in `ratchet.toml` in this crate's directory. An entry states the exact present amount: the check
//! fails when the amount grows, and when it falls and the entry is not lowered in the same change.

use crate::finding::Finding;
use crate::tree::Tree;

/// Path of the list of exceptions.
pub const RATCHET: &str = "crates/rnic-check/ratchet.toml";

/// A limit on a counted property.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Name of the rule in findings.
    pub rule: &'static str,
    /// Name of the table of exceptions in `ratchet.toml`.
    pub table: &'static str,
    /// Unit of the count, in the plural; also the key of the amount in an exception.
    pub unit: &'static str,
    /// Maximum without an exception.
    pub most: usize,
    /// Advice for getting below the limit.
    pub remedy: &'static str,
}

/// An item and its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Path of its file or folder.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// Its name within the file; `None` for the file or folder itself.
    pub name: Option<String>,
    /// Its description in a finding, such as `fn f` or `the file`.
    pub subject: String,
    /// Count, in the unit of the limit.
    pub amount: usize,
}

/// An entry of the list.
#[derive(Debug)]
struct Exception {
    path: String,
    name: Option<String>,
    amount: usize,
    has_reason: bool,
}

/// Returns a finding for everything in `counted` that is above the limit without an exception, and for each exception
/// that is no longer accurate.
pub fn judge(tree: &Tree, limit: Limit, counted: &[Counted]) -> Vec<Finding> {
    let (exceptions, mut findings) = exceptions(tree, limit);
    for found in counted.iter().filter(|found| found.amount > limit.most) {
        let exception = exceptions.iter().find(|exception| exception.is_for(found));
        findings.extend(judge_counted(limit, found, exception));
    }
    for exception in &exceptions {
        let now = counted.iter().find(|found| exception.is_for(found));
        findings.extend(judge_exception(tree, limit, exception, now));
    }
    findings
}

impl Exception {
    fn is_for(&self, counted: &Counted) -> bool {
        self.path == counted.path && self.name == counted.name
    }

    fn read(limit: Limit, row: &toml::Value) -> Option<Self> {
        let text = |key: &str| row.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        let amount = usize::try_from(row.get(limit.unit)?.as_integer()?).ok()?;
        let has_reason = text("reason").is_some_and(|reason| !reason.trim().is_empty());
        Some(Self { path: text("path")?, name: text("name"), amount, has_reason })
    }
}

fn judge_counted(limit: Limit, found: &Counted, exception: Option<&Exception>) -> Option<Finding> {
    let Limit { rule, unit, most, remedy, .. } = limit;
    let Counted { subject, amount, .. } = found;
    let what = match exception {
        None => format!("{subject} has {amount} {unit}, the limit is {most}"),
        Some(exception) if *amount > exception.amount => {
            format!("{subject} has {amount} {unit} and grew; {RATCHET} allows {}", exception.amount)
        }
        Some(_) => return None,
    };
    Some(Finding::new(&found.path, found.line, rule, what, remedy))
}

fn judge_exception(tree: &Tree, limit: Limit, exception: &Exception, now: Option<&Counted>) -> Option<Finding> {
    let Limit { rule, unit, most, .. } = limit;
    let is_it = |line: &str| line.contains(&format!("\"{}\"", exception.path));
    let line = tree.file(RATCHET).map_or(1, |file| file.line_where(is_it));
    let subject = match (now, &exception.name) {
        (Some(Counted { subject, path, name: Some(_), .. }), _) => format!("{subject} in {path}"),
        (None, Some(name)) => format!("{name} in {}", exception.path),
        _ => exception.path.clone(),
    };
    let finding = |what: String, instead: String| Some(Finding::new(RATCHET, line, rule, what, instead));
    match now.map(|found| found.amount) {
        None => finding(format!("{subject} does not exist"), "remove the entry".to_owned()),
        Some(amount) if amount <= most => {
            finding(format!("{subject} has {amount} {unit} and needs no exception"), "remove the entry".to_owned())
        }
        Some(amount) if amount < exception.amount => finding(
            format!("{subject} shrank from {} to {amount} {unit}", exception.amount),
            format!("lower it: {unit} = {amount}"),
        ),
        Some(_) if !exception.has_reason => {
            finding(format!("{subject} has no reason"), "say why it cannot be lowered now".to_owned())
        }
        Some(_) => None,
    }
}

fn exceptions(tree: &Tree, limit: Limit) -> (Vec<Exception>, Vec<Finding>) {
    // A file that does not parse is reported by the check `parses`.
    let Some(Ok(table)) = tree.file(RATCHET).and_then(|file| file.text()).map(str::parse::<toml::Table>) else {
        return (Vec::new(), Vec::new());
    };
    let rows = table.get(limit.table).and_then(toml::Value::as_array).into_iter().flatten();
    let (mut read, mut findings) = (Vec::new(), Vec::new());
    for row in rows {
        match Exception::read(limit, row) {
            Some(exception) => read.push(exception),
            None => {
                let what = format!("cannot read this entry of `{}`: {row}", limit.table);
                let instead = format!("give path, {}, reason, and name for what is within a file", limit.unit);
                findings.push(Finding::new(RATCHET, 1, limit.rule, what, instead));
            }
        }
    }
    (read, findings)
}

/// Returns a finding for each table of the list that no rule reads.
pub fn unknown_tables(tree: &Tree, rule: &'static str) -> Vec<Finding> {
    let Some(Ok(table)) = tree.file(RATCHET).and_then(|file| file.text()).map(str::parse::<toml::Table>) else {
        return Vec::new();
    };
    let unknown = table.keys().filter(|table| !TABLES.contains(&table.as_str()));
    unknown
        .map(|table| {
            Finding::new(RATCHET, 1, rule, format!("no rule reads `{table}`"), format!("one of {}", TABLES.join(", ")))
        })
        .collect()
}

/// The tables of all rules.
const TABLES: [&str; 4] = ["file", "function", "type", "circle"];
