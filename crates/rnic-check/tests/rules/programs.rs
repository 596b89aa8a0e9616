//! Programs that code calls.

use rnic_check::Tree;
use rnic_check::checks::programs::check;

fn findings(lib: &str) -> Vec<String> {
    let tree = Tree::synthetic([("crates/x/Cargo.toml", "[package]\nname = \"x\"\n"), ("crates/x/src/lib.rs", lib)]);
    check(&tree).into_iter().map(|found| format!("{}: {}", found.line, found.what)).collect()
}

#[test]
fn programs_of_every_machine_may_be_called() {
    assert!(
        findings("fn f(a: &str) { Command::new(\"sh\"); Command::new(a); Command::new(\"/bin/x\"); }\n").is_empty()
    );
}

#[test]
fn other_programs_are_found_in_tests_too() {
    let code = "#[cfg(test)]\nmod tests {\n    fn f() { std::process::Command::new(\"kill\").arg(\"1\"); }\n}\n";
    assert_eq!(findings(code), ["3: `kill` is called, which a bare machine may lack"]);
}
