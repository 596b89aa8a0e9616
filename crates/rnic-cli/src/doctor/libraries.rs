//! Checks of the project's libraries, and of the system libraries that they replace.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::read::elf::{ElfFile64, VersionTable};
use object::{Endianness, Object, ObjectSymbol};

use super::Check;
use crate::run::library::Libraries;
use crate::run::loader_variables;

/// Runs the checks of the libraries.
pub fn checks() -> Vec<Check> {
    let mut checks = match Libraries::find() {
        Ok(libraries) => vec![exports(&libraries), loads(&libraries)],
        Err(failure) => {
            let failure_text = failure.to_string();
            let failure_text = failure_text.strip_prefix("rnic: ").unwrap_or(&failure_text).to_owned();
            vec![Check::fails("libraries", failure_text, "build the libraries, then run `rnic doctor` again")]
        }
    };
    checks.push(of_the_system());
    checks.push(hardware());
    checks
}

/// Checks that the project's verbs library exports the functions that programs need first.
fn exports(libraries: &Libraries) -> Check {
    const NAME: &str = "libraries";
    let path = libraries.verbs();
    let symbols = match exported(&path) {
        Ok(symbols) => symbols,
        Err(reason) => return Check::fails(NAME, format!("{}: {reason}", path.display()), REBUILD),
    };
    let missing: Vec<&str> = REQUIRED_SYMBOLS.iter().copied().filter(|name| !symbols.contains(*name)).collect();
    if !missing.is_empty() {
        let found = format!("{} lacks {}", path.display(), missing.join(", "));
        return Check::fails(NAME, found, REBUILD);
    }
    Check::ok(NAME, format!("{} with {} symbols, librdmacm.so.1, path shim", path.display(), symbols.len()))
}

/// Returns the names that a shared object exports.
fn exported(path: &Path) -> Result<BTreeSet<String>, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let file = ElfFile64::<Endianness>::parse(&*bytes).map_err(|error| error.to_string())?;
    let names = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    Ok(names.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect())
}

/// Checks that the dynamic linker accepts the libraries: otherwise it reports an error on standard error and starts the
/// program without them.
fn loads(libraries: &Libraries) -> Check {
    const NAME: &str = "dynamic linker";
    let variables = loader_variables(libraries, false, |_| None);
    let mut command = Command::new("true");
    command.envs(variables).env("LD_BIND_NOW", "1").stdin(Stdio::null()).stdout(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() && output.stderr.is_empty() => {
            Check::ok(NAME, "loads the libraries before those of the program")
        }
        Ok(output) => {
            let output_text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            Check::fails(NAME, format!("cannot load the libraries: {output_text} ({})", output.status), REBUILD)
        }
        Err(error) => Check::note(
            NAME,
            format!("could not be tested: {error}"),
            "the test runs the program `true`; make sure that it is on the PATH",
        ),
    }
}

/// Reports the verbs library of the system, before which the project's library is loaded.
fn of_the_system() -> Check {
    const NAME: &str = "system libibverbs";
    let found =
        SYSTEM_FOLDERS.iter().map(|folder| Path::new(folder).join("libibverbs.so.1")).find(|path| path.exists());
    let Some(path) = found else {
        return Check::ok(NAME, "not installed; not needed, but most programs that use verbs depend on it");
    };
    let real: PathBuf = path.canonicalize().unwrap_or(path);
    let nodes = version_nodes(&real).unwrap_or_default();
    let newest = nodes.iter().filter_map(|node| Some((minor(node)?, node))).max();
    let newest = newest.map_or_else(String::new, |(_, node)| format!(", up to {node}"));
    Check::ok(NAME, format!("{}{newest}; the library of OpenRNIC is loaded before it", real.display()))
}

/// Returns the minor version of a version node: 14 for `IBVERBS_1.14`.
fn minor(node: &str) -> Option<u32> {
    node.strip_prefix("IBVERBS_1.")?.parse().ok()
}

fn version_nodes(path: &Path) -> Option<Vec<String>> {
    let bytes = fs::read(path).ok()?;
    let file = ElfFile64::<Endianness>::parse(&*bytes).ok()?;
    let endian = file.endian();
    let versions: VersionTable<'_, _> = file.elf_section_table().versions(endian, &*bytes).ok()??;
    let defined = file.elf_dynamic_symbol_table().enumerate();
    let names = defined.filter_map(|(index, _)| {
        let version = versions.version(versions.version_index(endian, index).into()).ok()??;
        Some(String::from_utf8_lossy(version.name()).into_owned())
    });
    Some(names.collect::<BTreeSet<_>>().into_iter().collect())
}

/// Reports hardware devices that exist but are hidden from programs under `rnic run`.
fn hardware() -> Check {
    const NAME: &str = "RDMA hardware";
    let names: Vec<String> = fs::read_dir("/sys/class/infiniband").map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect(),
    );
    if names.is_empty() {
        return Check::ok(NAME, "none, and none is needed");
    }
    let advice =
        "under `rnic run`, programs see only the software device; start them without `rnic run` to use the hardware";
    Check::note(NAME, format!("{} (hidden by `rnic run`)", names.join(", ")), advice)
}

const REBUILD: &str = "build the libraries again with scripts/link-verbs release";
/// Functions that programs call first, of each of the three parts.
const REQUIRED_SYMBOLS: &[&str] =
    &["ibv_get_device_list", "ibv_open_device", "ibv_reg_mr_iova2", "rdma_create_event_channel", "rnic_look"];
const SYSTEM_FOLDERS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbol_versions_are_compared_as_numbers() {
        let nodes = ["IBVERBS_1.9", "IBVERBS_1.14", "IBVERBS_PRIVATE_34"];
        assert_eq!(nodes.iter().filter_map(|node| minor(node)).max(), Some(14));
    }

    #[test]
    fn the_exported_symbols_of_a_library_are_read() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let (source, made) = (folder.path().join("a.c"), folder.path().join("a.so"));
        fs::write(&source, "int rnic_probe_me(void) { return 1; }\n").expect("it is written");
        let status = Command::new("cc").arg("-shared").arg("-o").arg(&made).arg(&source).status();
        assert!(status.expect("there is a compiler").success());
        assert!(exported(&made).expect("it is a library").contains("rnic_probe_me"));
        assert!(exported(&source).is_err());
    }
}
