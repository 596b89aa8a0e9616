//! Single faults of modules written by hand, all of them in one model.
//!
//! An expression `e` becomes a choice between `e` and its faulty forms by the number of a mutant, which a model is
//! given when it starts. So Verilator and the compiler run once for any number of mutants.

use core::ops::Range;

use crate::circuit::rtl_folder;
use crate::tools::ToolError;

pub mod family;

/// The package with the number of the mutant that a model is: none for 0.
const PACKAGE: &str = "package mutant_pkg;
  function automatic int unsigned chosen();
    int unsigned value;
    if ($value$plusargs(\"mutant=%d\", value) == 0) value = 0;
    return value;
  endfunction
  int unsigned number = chosen();
endpackage
";

/// A fault: one operator, constant or condition that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// Module in which it is.
    pub module: String,
    /// Line of the expression.
    pub line: usize,
    /// The line up to the end of the expression.
    pub before: String,
    /// The same with the fault.
    pub after: String,
}

impl core::fmt::Display for Mutant {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { module, line, before, after } = self;
        write!(f, "{module}:{line}: {before} -> {after}")
    }
}

/// Modules with all their mutants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mutants {
    /// The mutants: the first one has the number 1.
    pub list: Vec<Mutant>,
    /// Names of files, and their texts with the choices; a package first. [`Circuit::replaced`] takes them, and
    /// [`Verilated::start_mutant`] chooses a mutant.
    ///
    /// [`Circuit::replaced`]: crate::circuit::Circuit::replaced
    /// [`Verilated::start_mutant`]: crate::verilated::Verilated::start_mutant
    pub files: Vec<(String, String)>,
}

impl Mutants {
    /// Returns all mutants of modules, each named by its place in `rtl`, such as `lib/flow_set`. Checks of the
    /// simulation alone have none, nor have outputs that only tests read (`DEBUG`), a condition by which modules are
    /// elaborated, and a width.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn of(places: &[&str]) -> Result<Self, ToolError> {
        let mut mutants = Self { list: Vec::new(), files: vec![("mutant_pkg.sv".to_owned(), PACKAGE.to_owned())] };
        for place in places {
            let path = rtl_folder().join(format!("{place}.sv"));
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|source| ToolError::File { path: path.display().to_string(), source })?;
            let module = place.rsplit('/').next().unwrap_or(place);
            let text = mutants.add(module, &text);
            mutants.files.push((format!("{module}.sv"), text));
        }
        Ok(mutants)
    }

    /// Returns the files for one mutant, or 0: its number is a constant, for tools without arguments of a simulation.
    pub fn fixed(&self, number: usize) -> Vec<(String, String)> {
        let mut files = self.files.clone();
        if let Some((_, package)) = files.first_mut() {
            *package = format!("package mutant_pkg;\n  localparam logic [31:0] number = 32'd{number};\nendpackage\n");
        }
        files
    }

    /// Appends the mutants of a module, and returns its text with the choices.
    fn add(&mut self, module: &str, text: &str) -> String {
        let code = without_comments(text);
        let (mut changed, mut copied) = (String::new(), 0);
        for site in expressions(&code) {
            let expression = &code[site.clone()];
            changed.push_str(&text[copied..site.start]);
            copied = site.end;
            let line = 1 + text[..site.start].matches('\n').count();
            let faults = faults(expression);
            let choices: String = faults
                .iter()
                .zip(self.list.len() + 1..)
                .map(|(fault, number)| format!("(mutant_pkg::number == 32'd{number}) ? ({fault}) : "))
                .collect();
            let whole = format!("({choices}({expression}))");
            changed.push_str(if faults.is_empty() { expression } else { &whole });
            let begin = &code[code[..site.start].rfind('\n').map_or(0, |at| at + 1)..site.start];
            self.list.extend(faults.iter().map(|fault| Mutant {
                module: module.to_owned(),
                line,
                before: in_one_line(&format!("{begin}{expression}")),
                after: in_one_line(&format!("{begin}{fault}")),
            }));
        }
        changed + &text[copied..]
    }
}

fn in_one_line(text: &str) -> String {
    text.replace('\\', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a text in which comments, what is not synthesised, and outputs that only tests read are blank.
fn without_comments(text: &str) -> String {
    let (mut is_checked_only, mut is_debug) = (false, false);
    let line = |line: &str| {
        is_checked_only |= line.starts_with("`ifndef SYNTHESIS");
        is_debug |= line.trim_start().starts_with("if (DEBUG != 0) begin");
        is_debug &= !line.trim_start().starts_with("endgenerate");
        let is_blank = is_checked_only || is_debug || line.starts_with('`');
        let keep = if is_blank { 0 } else { line.find("//").unwrap_or(line.len()) };
        is_checked_only &= !line.starts_with("`endif");
        // A comment may have letters of several bytes.
        format!("{}{}", &line[..keep], " ".repeat(line.len() - keep))
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Beginnings of lines without any expression that is mutated.
const DECLARATIONS: [&str; 13] = [
    "localparam",
    "parameter",
    "input",
    "output",
    "logic",
    "module",
    "typedef",
    "function",
    "for (",
    "import",
    "case",
    "return",
    "assert",
];

/// Returns where expressions are: right sides of assignments, conditions, inputs of instances.
fn expressions(code: &str) -> Vec<Range<usize>> {
    let (mut found, mut start, mut is_type) = (Vec::new(), 0, false);
    for line in code.split_inclusive('\n') {
        let from = start + line.len() - line.trim_start().len();
        let end = start + line.len();
        start = end;
        // The values of an enumeration are no expressions of a circuit.
        is_type |= code[from..].starts_with("typedef");
        let is_inside = is_type || found.last().is_some_and(|last: &Range<usize>| from < last.end);
        is_type &= !line.contains('}');
        if !is_inside && !DECLARATIONS.iter().any(|word| code[from..].starts_with(word)) {
            statement(code, from..end, &mut found);
        }
    }
    found
}

/// Appends the expressions of a statement, or of connections of an instance, that begins in a line.
fn statement(code: &str, line: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut at = line.start;
    loop {
        let rest = &code[at..];
        if let Some(word) = ["end ", "else ", "assign "].iter().find(|word| rest.starts_with(**word)) {
            at += word.len();
        } else if rest.starts_with("if (") {
            let close = closing(code, at + 4);
            let after = code[close + 1..].trim_start();
            if after.starts_with("begin :") {
                return;
            }
            found.push(at + 4..close);
            at = code.len() - after.len();
        } else {
            break;
        }
    }
    let Some(rest) = code.get(at..line.end.max(at)) else { return };
    if let Some(right) = right_side(rest) {
        let from = at + right;
        found.push(from..from + code[from..].find(';').unwrap_or(0));
        return;
    }
    let mut from = at;
    while let Some(port) = code[from..line.end.max(from)].find("_i(") {
        let open = from + port + 3;
        let close = closing(code, open);
        let name = code[..open - 1].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        if code[..open - 1 - name.len()].ends_with('.') {
            found.push(open..close);
        }
        from = close;
    }
}

/// Returns where the right side of an assignment begins in a line.
fn right_side(line: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, letter) in line.char_indices() {
        depth += i32::from(matches!(letter, '(' | '[' | '{')) - i32::from(matches!(letter, ')' | ']' | '}'));
        let rest = &line[at..];
        if depth == 0 && (rest.starts_with(" = ") || rest.starts_with(" <= ")) {
            return Some(at + rest.find("= ").unwrap_or(0) + 2);
        }
    }
    None
}

/// Returns where the bracket closes that was opened before `from`.
fn closing(code: &str, from: usize) -> usize {
    let mut depth = 1;
    for (at, letter) in code[from..].char_indices() {
        depth += i32::from(matches!(letter, '(' | '[' | '{')) - i32::from(matches!(letter, ')' | ']' | '}'));
        if depth == 0 {
            return from + at;
        }
    }
    code.len()
}

/// Operators, the longest first, and what replaces each; those between two operands, and those before one.
const BETWEEN: [(&str, &str); 17] = [
    ("<<", ">>"),
    (">>", "<<"),
    ("==", "!="),
    ("!=", "=="),
    (">=", ">"),
    ("<=", "<"),
    ("&&", "||"),
    ("||", "&&"),
    ("<", "<="),
    (">", ">="),
    ("&", "|"),
    ("|", "&"),
    ("^", "|"),
    ("+", "-"),
    ("-", "+"),
    ("*", "+"),
    ("?", "== 1'b0 ?"),
];
const BEFORE: [(&str, &str); 2] = [("!", ""), ("~", "")];

/// Returns the forms of an expression with one fault. Indices, ranges, the widths of casts and the counts of
/// replications are left alone.
fn faults(expression: &str) -> Vec<String> {
    let (mut found, mut depth, mut at, mut is_operand_before) = (Vec::new(), 0, 0, false);
    while at < expression.len() {
        let (before, rest) = expression.split_at(at);
        let mut replace = |length: usize, by: &str| found.push(format!("{before}{by}{}", &rest[length..]));
        let first = rest.chars().next().unwrap_or(' ');
        depth += i32::from(first == '[') - i32::from(first == ']');
        let operators: &[(&str, &str)] = if is_operand_before { &BETWEEN } else { &BEFORE };
        let operator = operators.iter().find(|(operator, _)| rest.starts_with(operator));
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'').unwrap_or(rest.len());
        if first == '(' && expression[closing(expression, at + 1)..].starts_with(")'(") {
            at = closing(expression, at + 1) + 1;
        } else if first == '{'
            && let Some(length) = replication(&rest[1..])
        {
            at += 1 + length;
            is_operand_before = false;
        } else if word > 0 && first != '\'' {
            if let Some(other) = constant(&rest[..word]).filter(|_| depth == 0) {
                replace(word, &other);
            }
            at += word;
            is_operand_before = true;
        } else if let Some((operator, by)) = operator {
            if depth == 0 {
                replace(operator.len(), by);
            }
            at += operator.len();
            is_operand_before = false;
        } else {
            at += first.len_utf8();
            is_operand_before =
                if first.is_whitespace() { is_operand_before } else { matches!(first, ')' | ']' | '}') };
        }
    }
    // A condition without any operator.
    if found.is_empty() && is_flag(expression.trim()) {
        found.push(format!("!{}", expression.trim()));
    }
    found
}

/// Returns the length of the count of a replication, `B - 1` in `{B - 1{1'b0}}`, from the text behind its first brace.
fn replication(text: &str) -> Option<usize> {
    let end = text.find(['{', '}', ',', '?', '=', '<', '>', '&', '|'])?;
    (text[end..].starts_with('{') && !text[..end].trim().is_empty()).then_some(end)
}

/// Returns another value of a constant with a width.
fn constant(word: &str) -> Option<String> {
    let (width, value) = word.split_once('\'')?;
    let bits: u32 = width.parse().ok()?;
    let (radix, digits) = (value.chars().next()?, value.get(1..)?);
    let base = match radix {
        'd' => 10,
        'h' => 16,
        'b' => 2,
        _ => return None,
    };
    let value = u64::from_str_radix(digits, base).ok()?;
    let next = value.wrapping_add(1) & u64::MAX.checked_shr(64_u32.saturating_sub(bits)).unwrap_or(0);
    Some(format!("{width}'d{next}"))
}

/// Returns whether a name is that of one bit, by the naming of this project.
fn is_flag(name: &str) -> bool {
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let own = name.rsplit('.').next().unwrap_or_default();
    is_name && ["is_", "has_", "valid_", "same_"].iter().any(|begin| own.starts_with(begin))
}
