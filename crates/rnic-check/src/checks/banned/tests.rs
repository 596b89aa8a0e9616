//! Each ban, in the spellings that a search for words would miss or mistake.

use super::*;

fn in_crate(rule: &str, lib: &str) -> Vec<String> {
    let manifest = format!("[package]\nname = \"{rule}\"\n");
    let tree = Tree::invent([
        (format!("crates/{rule}/Cargo.toml"), manifest),
        (format!("crates/{rule}/src/lib.rs"), lib.to_owned()),
        (format!("crates/{rule}/tests/t.rs"), "use std::time::Instant;\n".to_owned()),
    ]);
    let short = |found: Finding| format!("{}: {}", found.line, found.what.split(": ").next().unwrap_or_default());
    check(&tree).into_iter().map(short).collect()
}

fn in_engine(lib: &str) -> Vec<String> {
    in_crate("rnic-engine", lib)
}

#[test]
fn an_import_is_found_once_however_often_it_is_used() {
    let lib = "use std::time::Instant;\nfn f() { Instant::now(); Instant::now(); }\n";
    assert_eq!(in_engine(lib), ["1: `std::time::Instant`"]);
}

#[test]
fn whole_paths_renamed_modules_globs_and_core_are_found() {
    let instant = "`std::time::Instant::now`";
    assert_eq!(in_engine("fn f() { std::time::Instant::now(); }\n"), [format!("1: {instant}")]);
    assert_eq!(in_engine("fn f() { ::std::time::Instant::now(); }\n"), [format!("1: {instant}")]);
    assert_eq!(in_engine("use std as s;\nfn f() {\n    s::time::Instant::now();\n}\n"), [format!("3: {instant}")]);
    assert_eq!(in_engine("use std::thread as t;\n"), ["1: `std::thread`"]);
    assert_eq!(in_engine("use core::time::Duration;\n"), ["1: `std::time::Duration`"]);
    let glob = "1: `std::collections::*`, which brings in what is banned";
    assert_eq!(in_engine("use std::collections::*;\n").first().map(String::as_str), Some(glob));
    assert_eq!(in_engine("fn f() { assert!(x, \"{:?}\", std::env::args()); }\n"), ["1: `std::env::args`"]);
    assert_eq!(in_engine("use std::collections;\nfn f() { collections::HashMap::new(); }\n").len(), 1);
}

#[test]
fn what_only_looks_banned_is_left_alone() {
    assert!(in_engine("// std::time::Instant\nconst A: &str = \"std::time::Instant\";\n").is_empty());
    assert!(in_engine("mod time {}\nuse crate::time;\nfn f() { time::now(); thread(); x.fs(); }\n").is_empty());
    assert!(
        in_engine("struct HashMap;\nfn f() -> HashMap { HashMap }\nfn g(a: bool) -> bool { print != a }\n").is_empty()
    );
    assert!(in_engine("use std::net::{IpAddr, SocketAddr};\nuse std::collections::BTreeMap;\n").is_empty());
}

#[test]
fn tests_and_edge_rooms_are_free() {
    assert!(
        in_engine("#[cfg(test)]\nmod tests {\n    use std::time::Instant;\n    const A: f64 = 1.0;\n}\n").is_empty()
    );
    assert!(in_crate("rnic-host", "use std::time::Instant;\nfn f() { println!(); }\n").is_empty());
}

#[test]
fn a_thread_is_started_in_one_file_of_the_core() {
    let threads = "use std::thread;\nuse std::time::Instant;\n".to_owned();
    let tree = Tree::invent([
        ("crates/rnic-fae/Cargo.toml".to_owned(), "[package]\nname = \"rnic-fae\"\n".to_owned()),
        ("crates/rnic-fae/src/lib.rs".to_owned(), format!("{threads}mod thread;\n")),
        ("crates/rnic-fae/src/thread.rs".to_owned(), threads),
    ]);
    let mut places: Vec<_> = check(&tree).into_iter().map(|found| (found.path, found.line)).collect();
    places.sort();
    let expected = [("lib.rs", 1), ("lib.rs", 2), ("thread.rs", 2)];
    assert_eq!(places, expected.map(|(file, line)| (format!("crates/rnic-fae/src/{file}"), line)));
}

#[test]
fn every_kind_of_world_is_found() {
    for path in [
        "std::thread::spawn",
        "std::net::UdpSocket",
        "std::os::unix::net::UnixStream",
        "std::fs::File",
        "std::env::var",
        "std::process::exit",
        "rand::thread_rng",
        "getrandom::fill",
        "std::hash::RandomState",
        "std::io::stdout",
        "std::collections::HashSet",
    ] {
        assert_eq!(in_engine(&format!("use {path};\n")), [format!("1: `{path}`")]);
    }
}

#[test]
fn macros_are_found_by_call() {
    assert_eq!(in_engine("fn f() { println!(\"x\") }\n"), ["1: `println!`"]);
    assert_eq!(in_engine("fn f() { std::eprintln!(\"x\") }\n"), ["1: `std::eprintln!`"]);
    assert_eq!(in_engine("thread_local! { static A: u8 = 1; }\n"), ["1: `thread_local!`"]);
    assert!(in_engine("fn f() { mine::println!(\"x\") }\n").is_empty());
    assert_eq!(in_crate("rnic-cli", "fn f() { dbg!(1); }\nfn g() { todo!() }\n"), ["1: `dbg!`", "2: `todo!`"]);
    assert_eq!(in_crate("rnic-host", "static mut A: u8 = 1;\n"), ["1: `static mut`"]);
}

#[test]
fn floats_are_found_as_types_and_literals() {
    assert_eq!(in_engine("fn f(a: u8) -> bool {\n    a as f32 > g(\n1.5)\n}\n").len(), 2);
    assert_eq!(in_engine("const A: u8 = g(1e3);\n"), ["1: floating point (`1e3`)"]);
    assert_eq!(in_engine("const A: u8 = g(1f64);\n"), ["1: floating point (`1f64`)"]);
    assert!(in_engine("fn f(a: T) { a.0.1; 0x1f32; 1..2; }\n").is_empty());
    assert!(in_crate("rnic-fabric", "const A: f64 = 1.0;\n").is_empty());
}

#[test]
fn floats_for_the_reader_are_fine() {
    assert!(in_engine("impl A {\n    fn as_f64(self) -> f64 {\n        self.0 as f64 / 1e9\n    }\n}\n").is_empty());
    assert!(in_engine("impl fmt::Display for A {\n    fn fmt(&self) { write(self.as_f64() * 1.0) }\n}\n").is_empty());
    assert_eq!(in_engine("impl A {\n    fn fmt(&self) { 1.0 }\n}\n").len(), 1, "only the formatting traits print");
}

#[test]
fn a_marker_lifts_with_a_reason_and_only_where_it_is_needed() {
    let map = "use std::collections::HashMap;";
    let reason = "// hash-order: looked up by key, never walked";
    assert!(in_engine(&format!("{map} {reason}\n")).is_empty());
    assert!(in_engine(&format!("{reason}\n// and measured\n{map}\n")).is_empty());
    assert_eq!(in_engine(&format!("{map} // hash-order: fast\n")).len(), 1, "no reason given");
    assert_eq!(in_engine(&format!("{reason}\n\n{map}\n")).len(), 2, "the marker stands elsewhere");
    assert_eq!(in_engine(&format!("{reason}\nfn f() {{}}\n")), ["1: the marker `// hash-order:` lifts nothing here"]);
    assert_eq!(in_engine("use std::fs; // file: because I say so\n").len(), 1, "files cannot be lifted");
}
