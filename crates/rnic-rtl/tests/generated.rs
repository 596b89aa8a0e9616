//! `rtl/gen` holds what the declarations of Tonic's state and of the registered programs generate.

use rnic_rtl::circuit::rtl_folder;
use rnic_rtl::tonic::generated::{Generated, files};
use rnic_transports::programs::all;

fn generated() -> Vec<Generated> {
    files(all()).expect("every program has graphs")
}

#[test]
fn t9_generated_circuits_are_those_of_the_declarations() {
    for Generated { path, text } in generated() {
        let found = std::fs::read_to_string(rtl_folder().join("gen").join(&path)).unwrap_or_default();
        assert!(found == text, "rtl/gen/{path} differs from its declaration: run `make generate`");
    }
}

#[test]
#[ignore = "writes rtl/gen; run by `make generate`"]
fn write_the_generated_circuits() {
    for Generated { path, text } in generated() {
        let at = rtl_folder().join("gen").join(path);
        std::fs::create_dir_all(at.parent().expect("a file is in a folder")).expect("the folder can be created");
        std::fs::write(at, text).expect("the file can be written");
    }
}
