//! Files, inline tests and functions are short, or on a list that may only shrink.
//!
//! The list is `ratchet.toml` in this crate's directory. An entry must name exactly today's size, so that whoever
//! shortens something lowers the entry in the same change, and nobody can let it grow. Functions of one name in one
//! file share an entry, which is for the longest of them.

use crate::finding::Finding;
use crate::rust_source::function_lengths;
use crate::tree::Tree;

const RULE: &str = "size";

/// Production lines of a file: all but those of test items. Test files count whole.
pub const FILE_LINES_MAX: usize = 800;
/// Lines of test items inside a production file; more than this hides the code.
pub const INLINE_TEST_LINES_MAX: usize = 200;
/// Lines of a function, from `fn` to the closing brace: what one sees at once.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Where the exceptions stand.
pub const RATCHET: &str = "crates/rnic-check/ratchet.toml";

/// Something whose size has a limit.
#[derive(Debug, PartialEq, Eq)]
struct Sized {
    path: String,
    line: usize,
    /// Name of the function; `None` for a file.
    function: Option<String>,
    lines: usize,
}

/// An exception.
#[derive(Debug)]
struct Entry {
    path: String,
    function: Option<String>,
    lines: usize,
    has_reason: bool,
}

/// Names what is too long, and entries of the list that are no longer true.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = inline_tests(tree);
    let (entries, malformed) = ratchet(tree);
    findings.extend(malformed);
    let sizes = sizes(tree);
    for size in sizes.iter().filter(|size| size.lines > limit(size.function.as_deref())) {
        let entry = entries.iter().find(|entry| entry.path == size.path && entry.function == size.function);
        findings.extend(judge(size, entry));
    }
    for entry in &entries {
        let now = sizes.iter().find(|size| entry.path == size.path && entry.function == size.function);
        findings.extend(judge_entry(tree, entry, now));
    }
    findings
}

fn limit(function: Option<&str>) -> usize {
    if function.is_some() { FUNCTION_LINES_MAX } else { FILE_LINES_MAX }
}

fn sizes(tree: &Tree) -> Vec<Sized> {
    let mut sizes = Vec::new();
    for (file, source) in tree.rust() {
        let is_test_file = source.production_line_count() == 0;
        let lines = if is_test_file { source.line_count() } else { source.production_line_count() };
        sizes.push(Sized { path: file.path.clone(), line: 1, function: None, lines });
        sizes.extend(function_lengths(source).into_iter().map(|(name, (lines, line))| Sized {
            path: file.path.clone(),
            line,
            function: Some(name),
            lines,
        }));
    }
    sizes
}

fn inline_tests(tree: &Tree) -> Vec<Finding> {
    let too_long = tree.production_rust().filter_map(|(file, source)| {
        let lines = source.test_line_count();
        let is_mixed = source.production_line_count() > 0;
        (is_mixed && lines > INLINE_TEST_LINES_MAX).then(|| {
            let what = format!("{lines} lines of inline tests, the limit is {INLINE_TEST_LINES_MAX}");
            let stem = file.path.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
            Finding::new(&file.path, 1, RULE, what, format!("move them to {stem}/tests.rs beside the file"))
        })
    });
    too_long.collect()
}

fn judge(size: &Sized, entry: Option<&Entry>) -> Option<Finding> {
    let lines = size.lines;
    let (subject, split) = match &size.function {
        Some(name) => (format!("fn {name} has"), "keep the decisions and the state, and move pure parts out"),
        None => ("the file has".to_owned(), "split it: one idea a file"),
    };
    match entry {
        None => {
            let what = format!("{subject} {lines} lines, the limit is {}", limit(size.function.as_deref()));
            Some(Finding::new(&size.path, size.line, RULE, what, split))
        }
        Some(entry) if lines > entry.lines => {
            let what = format!("{subject} {lines} lines and grew; {RATCHET} allows {}", entry.lines);
            Some(Finding::new(&size.path, size.line, RULE, what, split))
        }
        Some(_) => None,
    }
}

fn judge_entry(tree: &Tree, entry: &Entry, now: Option<&Sized>) -> Option<Finding> {
    let line =
        tree.file(RATCHET).map_or(1, |file| file.line_where(|line| line.contains(&format!("\"{}\"", entry.path))));
    let subject = match &entry.function {
        Some(name) => format!("fn {name} in {}", entry.path),
        None => entry.path.clone(),
    };
    let finding = |what: String, instead: String| Some(Finding::new(RATCHET, line, RULE, what, instead));
    match now.map(|size| size.lines) {
        None => finding(format!("{subject} does not exist"), "remove the entry".to_owned()),
        Some(lines) if lines <= limit(entry.function.as_deref()) => {
            finding(format!("{subject} has {lines} lines and needs no exception"), "remove the entry".to_owned())
        }
        Some(lines) if lines < entry.lines => finding(
            format!("{subject} shrank from {} to {lines} lines", entry.lines),
            format!("lower it: lines = {lines}"),
        ),
        Some(_) if !entry.has_reason => {
            finding(format!("{subject} has no reason"), "say why it cannot be split now".to_owned())
        }
        Some(_) => None,
    }
}

fn ratchet(tree: &Tree) -> (Vec<Entry>, Option<Finding>) {
    let table: toml::Table = match tree.file(RATCHET).and_then(|file| file.text()).map(str::parse) {
        Some(Ok(table)) => table,
        // That it does not parse is the business of the check `parses`.
        Some(Err(_)) | None => return (Vec::new(), None),
    };
    let mut entries = Vec::new();
    for (kind, value) in &table {
        for row in value.as_array().into_iter().flatten() {
            match entry(kind, row) {
                Some(entry) => entries.push(entry),
                None => {
                    let what = format!("cannot read this entry of `{kind}`: {row}");
                    let instead = "give path, lines, reason, and name for a function";
                    return (entries, Some(Finding::new(RATCHET, 1, RULE, what, instead)));
                }
            }
        }
    }
    (entries, None)
}

fn entry(kind: &str, row: &toml::Value) -> Option<Entry> {
    let text = |key: &str| row.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let function = match kind {
        "file" => None,
        "function" => Some(text("name")?),
        _ => return None,
    };
    let lines = usize::try_from(row.get("lines")?.as_integer()?).ok()?;
    let has_reason = text("reason").is_some_and(|reason| !reason.trim().is_empty());
    Some(Entry { path: text("path")?, function, lines, has_reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/rnic-x/src/lib.rs";

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn findings(source: &str, ratchet: &str) -> Vec<String> {
        let manifest = "[package]\nname = \"rnic-x\"\n";
        let tree = Tree::invent([("crates/rnic-x/Cargo.toml", manifest), (PATH, source), (RATCHET, ratchet)]);
        check(&tree).into_iter().map(|found| format!("{}:{} {}", found.path, found.line, found.what)).collect()
    }

    fn allow(lines: usize) -> String {
        format!("[[function]]\npath = \"{PATH}\"\nname = \"long\"\nlines = {lines}\nreason = \"a table\"\n")
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        assert!(findings(&function(FUNCTION_LINES_MAX), "").is_empty());
        let expected = format!("{PATH}:1 fn long has 71 lines, the limit is 70");
        assert_eq!(findings(&function(FUNCTION_LINES_MAX + 1), ""), [expected]);
    }

    #[test]
    fn files_count_without_their_tests() {
        let production = "const A: u8 = 1;\n".repeat(FILE_LINES_MAX - 1);
        let tests = "#[cfg(test)]\nmod tests {\n    const B: u8 = 1;\n}\n";
        assert_eq!(findings(&format!("{production}const B: u8 = 1;\n{tests}"), ""), Vec::<String>::new());
        assert_eq!(findings(&format!("{production}const B: u8 = 1;\nconst C: u8 = 1;\n"), "").len(), 1);
        let many = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const B: u8 = 1;\n".repeat(INLINE_TEST_LINES_MAX));
        assert_eq!(findings(&format!("fn f() {{}}\n{many}"), "").len(), 1);
        let test_file = format!("#![cfg(test)]\n{}", "const B: u8 = 1;\n".repeat(FILE_LINES_MAX));
        assert_eq!(findings(&test_file, "").len(), 1, "test files have the limit too");
    }

    #[test]
    fn an_exception_holds_at_exactly_its_size() {
        assert!(findings(&function(80), &allow(80)).is_empty());
        assert_eq!(findings(&function(81), &allow(80)).len(), 1);
        assert_eq!(
            findings(&function(79), &allow(80)),
            [format!("{RATCHET}:2 fn long in {PATH} shrank from 80 to 79 lines")]
        );
    }

    #[test]
    fn an_exception_must_be_needed_and_have_a_reason() {
        assert_eq!(findings(&function(70), &allow(80)).len(), 1);
        assert_eq!(findings("fn other() {}\n", &allow(80)), [format!("{RATCHET}:2 fn long in {PATH} does not exist")]);
        assert_eq!(findings(&function(80), &allow(80).replace("a table", " ")).len(), 1);
        assert_eq!(findings("", "[[functoin]]\npath = \"x\"\nlines = 1\n").len(), 1);
    }
}
