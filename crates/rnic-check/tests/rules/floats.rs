//! Floating point where arithmetic decides a run.

use rnic_check::Tree;
use rnic_check::checks::floats::check;

fn lines(name: &str, lib: &str) -> Vec<usize> {
    let tree = Tree::synthetic([
        (format!("crates/{name}/Cargo.toml"), format!("[package]\nname = \"{name}\"\n")),
        (format!("crates/{name}/src/lib.rs"), lib.to_owned()),
        (format!("crates/{name}/tests/t.rs"), "const A: f64 = 1.0;\n".to_owned()),
    ]);
    check(&tree).into_iter().map(|found| found.line).collect()
}

#[test]
fn floats_are_found_as_types_and_literals() {
    assert_eq!(lines("rnic-engine", "fn f(a: u8) -> bool {\n    a as f32 > g(\n1.5)\n}\n"), [2, 3]);
    assert_eq!(lines("rnic-engine", "const A: u8 = g(1e3);\n"), [1]);
    assert_eq!(lines("rnic-engine", "const A: u8 = g(1f64);\n"), [1]);
    assert!(lines("rnic-engine", "fn f(a: T) { a.0.1; 0x1f32; 1..2; }\n// 1.5\n").is_empty());
    assert!(lines("rnic-fabric", "const A: f64 = 1.0;\n").is_empty());
}

#[test]
fn floats_for_printing_and_in_tests_pass() {
    let printed = "impl A {\n    fn as_f64(self) -> f64 {\n        self.0 as f64 / 1e9\n    }\n}\n";
    assert!(lines("rnic-engine", printed).is_empty());
    assert!(lines("rnic-engine", &printed.replace("as_f64", "fmt")).is_empty());
    assert_eq!(lines("rnic-engine", &printed.replace("as_f64", "as_float")), [2, 3]);
    assert!(lines("rnic-engine", "#[cfg(test)]\nmod tests {\n    const A: f64 = 1.0;\n}\n").is_empty());
}
