//! The committed figures of circuits are those of the circuits in the tree, within their limits.

use std::path::{Path, PathBuf};

use rnic_rtl::tools::{are_installed, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn emitted(folder: &Path) {
    let arguments = [folder.display().to_string()];
    run(&root(), env!("CARGO_BIN_EXE_rnic-circuits"), &arguments).expect("the circuits are written");
}

/// `make rtl-report` repairs what this test finds.
#[test]
fn figures_of_circuits_are_those_of_their_sources() {
    if !are_installed(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a new folder");
    emitted(folder.path());
    let place = folder.path().display().to_string();
    let arguments = ["tools/rtl/report.py", "check", "--emitted", &place].map(str::to_owned);
    run(&root(), "python3", &arguments).expect("report, limits, page and sources agree");
}

/// Random programs are generated as when they were synthesised: `tools/rtl/depth.py` repairs what this test finds.
#[test]
fn random_programs_are_those_that_were_synthesised() {
    if !are_installed(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a new folder");
    emitted(folder.path());
    let place = folder.path().display().to_string();
    let arguments = ["tools/rtl/depth.py", "--check", "--emitted", &place].map(str::to_owned);
    run(&root(), "python3", &arguments).expect("rtl/random.json is of these programs");
}

#[test]
fn tools_count_levels_and_find_mutants_as_specified() {
    if !are_installed(&["python3"]) {
        return;
    }
    let arguments = "-m unittest discover --start-directory tools/rtl --pattern *_test.py";
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    run(&root(), "python3", &arguments).expect("the tests of the tools pass");
}
