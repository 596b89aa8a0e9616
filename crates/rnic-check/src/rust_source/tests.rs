//! Tests the Rust reader on snippets that a text search would misread.

use super::*;

fn parse(text: &str) -> RustSource {
    RustSource::parse(text).expect("the snippet is Rust")
}

fn resolved(text: &str) -> Vec<String> {
    let source = parse(text);
    source.paths().iter().map(|path| source.resolve(path).join("::")).collect()
}

#[test]
fn imports_are_flattened() {
    let source = parse("use std::{fs, io::{self as stream, Write as _}, time::*};\nuse a as b;\n");
    let seen: Vec<_> =
        source.imports.iter().map(|found| format!("{}={}", found.alias, found.path.join("::"))).collect();
    assert_eq!(seen, ["fs=std::fs", "stream=std::io", "_=std::io::Write", "*=std::time", "b=a"]);
}

#[test]
fn a_nested_self_is_called_after_its_parent() {
    let source = parse("use std::time::{self, Instant};\n");
    assert_eq!(source.import_of("time").map(|found| found.path.join("::")).as_deref(), Some("std::time"));
}

#[test]
fn paths_resolve_through_imports_and_inside_macros() {
    let text = "use std::time as clock;\nfn f() { println!(\"{:?}\", clock::Instant::now()); }\n";
    let paths = resolved(text);
    assert!(paths.contains(&"std::time::Instant::now".to_owned()), "{paths:?}");
    assert!(paths.contains(&"println".to_owned()), "{paths:?}");
}

#[test]
fn comments_strings_methods_and_tests_are_no_paths() {
    let text = "// std::fs\nfn f(a: A) { a.std(); g(\"std::fs\"); <A as B>::std(); Vec::<u8>::std() }\n\
                #[cfg(test)]\nmod tests { use std::fs; fn f() { std::fs::read(\"\"); } }\n";
    let paths = resolved(text);
    assert_eq!(paths.iter().filter(|path| path.starts_with("std")).count(), 0, "{paths:?}");
    assert!(parse(text).imports.is_empty());
}

#[test]
fn an_absolute_path_ignores_imports() {
    let paths = resolved("use other as std;\nfn f() { ::std::process::exit(1) }\n");
    assert!(paths.contains(&"std::process::exit".to_owned()), "{paths:?}");
}

#[test]
fn only_conditions_that_need_test_are_test_only() {
    let lines = |condition: &str| parse(&format!("#[cfg({condition})]\nmod m {{}}\n")).test_line_count();
    assert_eq!([lines("test"), lines("all(test, unix)"), lines("any(test)")], [2, 2, 2]);
    assert_eq!([lines("not(test)"), lines("any(test, feature = \"kit\")"), lines("unix")], [0, 0, 0]);
}

#[test]
fn a_whole_file_can_be_test_only() {
    assert_eq!(parse("#![cfg(test)]\nfn f() {}\n").production_line_count(), 0);
}

#[test]
fn functions_are_measured_from_first_line_to_closing_brace() {
    let text = "/// Docs do not count.\nfn one() {}\n\nfn four<const N: usize>(\n    a: [u8; { 2 }],\n\
                ) -> A<{ N }> {\n}\nm! { fn in_macro() {\n} }\ntrait T { fn none(); }\ntype F = fn(u8) -> u8;\n";
    let source = parse(text);
    let seen: Vec<_> = source.functions().into_iter().map(|function| (function.name, function.lines)).collect();
    assert_eq!(seen, [("one", 2..=2), ("four", 4..=7), ("in_macro", 8..=9)]);
}
