//! Files beside the notebooks. The notebooks themselves are executed by `make wheel`.
#![expect(clippy::disallowed_methods, reason = "it reads and writes a file of the tree on request")]

use std::fs;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/notebooks/my-law.rnicp");

fn program() -> String {
    rnic_transports::laws::to_file(&my_law::Law).expect("the law keeps the contract")
}

#[test]
fn the_program_of_the_notebook_is_that_of_the_template() {
    let found = fs::read_to_string(PROGRAM).expect("there is a file");
    assert!(found == program(), "write it again: cargo test -p rnic-examples --test notebooks -- --ignored write");
}

#[test]
#[ignore = "writes examples/notebooks/my-law.rnicp"]
fn write_the_program_of_the_notebook() {
    fs::write(PROGRAM, program()).expect("it is written");
}
