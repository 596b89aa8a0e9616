//! Compares the symbols that the shared object exports with those of the system's libraries.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use object::Endianness;
use object::elf::{FileHeader64, VER_NDX_GLOBAL};
use object::read::elf::{ElfFile64, FileHeader as _, Sym as _};

/// `name@node` of everything that `library` exports.
fn exports(library: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(library).expect("a library can be read");
    let file = ElfFile64::<Endianness>::parse(&*bytes).expect("a shared object");
    let endian = file.endian();
    let header: &FileHeader64<Endianness> = file.elf_header();
    let sections = header.sections(endian, &*bytes).expect("sections");
    let symbols = sections.symbols(endian, &*bytes, object::elf::SHT_DYNSYM).expect("dynamic symbols");
    let versions = sections.versions(endian, &*bytes).expect("versions").expect("a versioned library");
    let mut found = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        let name = symbol.name(endian, symbols.strings()).expect("a name");
        let version = versions.version_index(endian, index);
        if symbol.is_undefined(endian) || name.is_empty() || version.index() <= VER_NDX_GLOBAL {
            continue;
        }
        let node = versions.version(version.into()).expect("a version").expect("a defined one");
        found.insert(format!("{}@{}", String::from_utf8_lossy(name), String::from_utf8_lossy(node.name())));
    }
    found
}

/// The library of the system, not ours.
fn system_library(name: &str) -> Option<std::path::PathBuf> {
    let dirs = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    dirs.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

#[test]
fn all_symbols_of_the_system_libraries_are_exported() {
    let our_symbols = exports(&common::libraries().join("libibverbs.so.1"));
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        let Some(library_path) = system_library(name) else {
            common::skip(&format!("{name} is not installed"));
            continue;
        };
        let system_symbols = exports(&library_path);
        let missing: Vec<_> = system_symbols.difference(&our_symbols).collect();
        assert!(missing.is_empty(), "{name} of the system has {missing:?}");
        assert!(system_symbols.len() > 60, "only {} symbols in {name}", system_symbols.len());
    }
}

#[test]
fn version_nodes_of_all_releases_and_no_other_symbols_are_exported() {
    let our_symbols = exports(&common::libraries().join("libibverbs.so.1"));
    for release in [25, 33, 34, 57, 59, 64, 65] {
        for name in ["ibv_cmd_create_qp", "verbs_set_ops", "ibv_query_gid_type", "verbs_allow_disassociate_destroy"] {
            assert!(our_symbols.contains(&format!("{name}@IBVERBS_PRIVATE_{release}")), "{name} for release {release}");
        }
    }
    // Names of version nodes are symbols too.
    for minor in (0..=18).filter(|minor| ![2, 3, 4].contains(minor)) {
        assert!(our_symbols.contains(&format!("IBVERBS_1.{minor}@IBVERBS_1.{minor}")), "node 1.{minor}");
    }
    // Functions of this project: two that the path shim calls, one for hints of programs.
    for name in ["rnic_list", "rnic_look", "rnic_hint_open"] {
        assert!(our_symbols.contains(&format!("{name}@RNIC_1")), "{name}");
    }
    let is_unversioned =
        |name: &&String| !name.contains("@IBVERBS_") && !name.contains("@RDMACM_") && !name.contains("@RNIC_1");
    let unexpected: Vec<_> = our_symbols.iter().filter(is_unversioned).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

#[test]
fn both_library_names_are_the_same_file() {
    let dir = common::libraries();
    let real = |name: &str| std::fs::canonicalize(dir.join(name)).expect("the library exists");
    assert_eq!(real("librdmacm.so.1"), real("libibverbs.so.1"));
}
