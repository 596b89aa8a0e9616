//! Proofs by yosys: that two circuits are the same function, and that a circuit has the properties in `rtl/formal`.

use std::path::Path;

use rnic_program::{Graph, verilog};

use crate::circuit::{Change, modules};
use crate::tools::{ToolError, run, write};

/// Result of a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Outputs are equal for all inputs.
    Equal,
    /// There are inputs for which the graphs differ.
    Different,
}

/// Proves that two graphs with the same ports compute the same function, or finds that they do not.
///
/// # Errors
/// When yosys is missing or fails.
pub fn compare(one: &Graph, other: &Graph) -> Result<Verdict, ToolError> {
    let folder = tempfile::tempdir().map_err(|source| ToolError::File { path: "a new folder".into(), source })?;
    let at = folder.path();
    write(&at.join("program_maps.sv"), verilog::LIBRARY)?;
    write(&at.join("one.sv"), &verilog::emit("one", one))?;
    write(&at.join("other.sv"), &verilog::emit("other", other))?;
    let script = "read_verilog -sv program_maps.sv one.sv other.sv; hierarchy -check; proc; \
                  miter -equiv -flatten -make_outputs one other miter; hierarchy -top miter; flatten; opt -full; \
                  sat -prove trigger 0 miter";
    let log = run(at, "yosys", &["-p".to_owned(), script.to_owned()])?;
    if is_proved(&log)? { Ok(Verdict::Equal) } else { Ok(Verdict::Different) }
}

/// Modules with memories, whose ports are compared instead of what they hold.
const MEMORIES: [&str; 4] = ["ram_", "bit_array", "flow_set", "fasr_ram"];

/// Proves that two forms of a module are the same circuit: for all inputs and all values of registers, and whatever
/// memories answer, outputs, the next values of registers and the inputs of memories are equal. `one` and `other` are
/// files, a package first, that replace some of those in `folders` of `rtl`. No proof in a minute is a difference.
///
/// # Errors
/// When yosys is missing or fails.
pub fn compare_forms(
    module: &str,
    folders: &[&str],
    one: &[(String, String)],
    other: &[(String, String)],
) -> Result<Verdict, ToolError> {
    let folder = tempfile::tempdir().map_err(|source| ToolError::File { path: "a new folder".into(), source })?;
    let memories: String =
        MEMORIES.iter().filter(|name| !module.contains(*name)).map(|name| format!(" *{name}*")).collect();
    for (name, replaced) in [("one", one), ("other", other)] {
        let at = folder.path().join(name);
        std::fs::create_dir(&at).map_err(|source| ToolError::File { path: at.display().to_string(), source })?;
        let mut packages = String::new();
        for (file, text) in &with_replaced(folders, replaced)? {
            write(&at.join(file), text)?;
            packages += &if file.ends_with("_pkg.sv") { format!(" {file}") } else { String::new() };
        }
        let script = format!(
            "read_verilog -sv{packages} {module}.sv; hierarchy -libdir . -top {module}; proc; blackbox{memories}; \
             flatten; opt_clean; memory -nomap; memory_map; opt_clean; expose -evert-dff -dff; expose -evert -dff; \
             rename {module} {name}; write_rtlil ../{name}.il"
        );
        run(&at, "yosys", &["-p".to_owned(), script])?;
    }
    let script = "read_rtlil one.il; read_rtlil other.il; miter -equiv -flatten -make_outputs one other miter; \
                  hierarchy -top miter; opt -full -share_all; wreduce; opt -full -share_all; \
                  sat -timeout 60 -prove trigger 0 miter";
    let log = run(folder.path(), "yosys", &["-p".to_owned(), script.to_owned()])?;
    if log.contains("Interrupted SAT solver: TIMEOUT!") {
        return Ok(Verdict::Different);
    }
    if is_proved(&log)? { Ok(Verdict::Equal) } else { Ok(Verdict::Different) }
}

/// Returns the files in `folders` of `rtl`, those in `replaced` first and instead of those with their names.
fn with_replaced(folders: &[&str], replaced: &[(String, String)]) -> Result<Vec<(String, String)>, ToolError> {
    let mut all = replaced.to_vec();
    for name in folders {
        let files = modules(name)?.into_iter();
        all.extend(files.filter(|(file, _)| replaced.iter().all(|(other, _)| other != file)));
    }
    Ok(all)
}

/// Returns the file that a change makes of one in `folders` of `rtl`.
fn changed(folders: &[&str], change: Option<&Change>) -> Result<Vec<(String, String)>, ToolError> {
    let Some(change) = change else { return Ok(Vec::new()) };
    let name = format!("{}.sv", change.module);
    let mut found = Vec::new();
    for folder in folders {
        for (file, text) in modules(folder)?.into_iter().filter(|(file, _)| *file == name) {
            found.push((file, change.apply(&text)?));
        }
    }
    Ok(found)
}

/// Proves that the assertions of `module`, a file in `rtl/formal`, hold for all inputs, with the modules in `folders`
/// of `rtl` and with `parameters` of the module; returns false when there are inputs for which one fails. `change` is
/// made in one of the modules first: a test of the assertions.
///
/// # Errors
/// When yosys is missing or fails.
pub fn holds(
    module: &str,
    folders: &[&str],
    parameters: &[(&str, u64)],
    change: Option<&Change>,
) -> Result<bool, ToolError> {
    holds_with(module, folders, parameters, &changed(folders, change)?)
}

/// Does the same with files, a package first, that replace some of those in `folders`.
///
/// # Errors
/// As [`holds`].
pub fn holds_with(
    module: &str,
    folders: &[&str],
    parameters: &[(&str, u64)],
    replaced: &[(String, String)],
) -> Result<bool, ToolError> {
    let commands = "proc; flatten; opt -full; sat -prove-asserts -set-def-inputs";
    is_proved(&run_on(module, folders, parameters, replaced, commands)?)
}

/// Does the same for a module with registers and memories, by induction over time, with its assumptions about inputs;
/// returns false when no proof is found.
///
/// # Errors
/// As [`holds`].
pub fn holds_always(
    module: &str,
    folders: &[&str],
    parameters: &[(&str, u64)],
    change: Option<&Change>,
) -> Result<bool, ToolError> {
    holds_always_with(module, folders, parameters, &changed(folders, change)?)
}

/// Does the same with files, a package first, that replace some of those in `folders`.
///
/// # Errors
/// As [`holds`].
pub fn holds_always_with(
    module: &str,
    folders: &[&str],
    parameters: &[(&str, u64)],
    replaced: &[(String, String)],
) -> Result<bool, ToolError> {
    let commands = format!("{INTO_REGISTERS}; {BY_INDUCTION}");
    is_proved_always(&run_on(module, folders, parameters, replaced, &commands)?)
}

/// Turns a design into registers and logic.
const INTO_REGISTERS: &str = "proc; flatten; memory -nomap; memory_map";

const BY_INDUCTION: &str = "opt -full; sat -tempinduct -prove-asserts -set-assumes -maxsteps 3";

/// Does the same for a proof that looks into an instance of the module `inside`: wires of the proof, which nothing
/// drives, are connected to nets of the flattened design. The instance's own assertions are left out.
///
/// # Errors
/// As [`holds`].
pub fn holds_always_inside(
    module: &str,
    folders: &[&str],
    (inside, nets): (&str, &[(&str, String)]),
    change: Option<&Change>,
) -> Result<bool, ToolError> {
    let connect = |(wire, net): &(&str, String)| format!("connect -set {wire} {net}; ");
    let connects: String = nets.iter().map(connect).collect();
    let commands =
        format!("chformal -assert -remove *{inside}* {module} %d; {INTO_REGISTERS}; {connects}{BY_INDUCTION}");
    is_proved_always(&run_on(module, folders, &[], &changed(folders, change)?, &commands)?)
}

/// Returns whether `log` says that an induction has succeeded.
fn is_proved_always(log: &str) -> Result<bool, ToolError> {
    if log.contains("Induction step proven: SUCCESS!") {
        Ok(true)
    } else if log.contains("FAIL!") || log.contains("Reached maximum number") {
        Ok(false)
    } else {
        Err(no_verdict(log))
    }
}

/// Runs yosys' `commands` on `module` with the modules in `folders`, some of which are replaced.
fn run_on(
    module: &str,
    folders: &[&str],
    parameters: &[(&str, u64)],
    replaced: &[(String, String)],
    commands: &str,
) -> Result<String, ToolError> {
    let folder = tempfile::tempdir().map_err(|source| ToolError::File { path: "a new folder".into(), source })?;
    let at = folder.path();
    let mut files = String::new();
    for (file, text) in with_replaced(folders, replaced)? {
        write(&at.join(&file), &text)?;
        files += &format!(" {file}");
    }
    let own = Path::new("formal").join(format!("{module}.sv"));
    let own = crate::circuit::rtl_folder().join(own).display().to_string();
    let settings: String = parameters.iter().map(|(name, value)| format!(" -set {name} {value}")).collect();
    let chparam = if settings.is_empty() { String::new() } else { format!("chparam{settings} {module}; ") };
    let script = format!("read_verilog -sv -formal{files} {own}; {chparam}hierarchy -check -top {module}; {commands}");
    run(at, "yosys", &["-p".to_owned(), script])
}

/// Returns whether `log` says that the proof has succeeded.
fn is_proved(log: &str) -> Result<bool, ToolError> {
    if log.contains("SAT proof finished - no model found: SUCCESS!") {
        Ok(true)
    } else if log.contains("SAT proof finished - model found: FAIL!") {
        Ok(false)
    } else {
        Err(no_verdict(log))
    }
}

fn no_verdict(log: &str) -> ToolError {
    let lines: Vec<&str> = log.lines().collect();
    let output = lines[lines.len().saturating_sub(20)..].join("\n");
    ToolError::Failed { tool: "yosys (no verdict)".to_owned(), output }
}
