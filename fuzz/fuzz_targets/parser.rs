//! The fuzz target of all parsers and readers; the environment variable `FUZZ_PARSER` names the one that is tested.
#![no_main]

#[path = "../../crates/rnic-wire/tests/parsers/mod.rs"]
mod parsers;
#[path = "../../crates/rnic-fabric/tests/readers/mod.rs"]
mod readers;

use std::sync::LazyLock;

type Check = fn(&[u8]) -> bool;

static CHECK: LazyLock<Check> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_PARSER").unwrap_or_default();
    let parsers = parsers::TARGETS.iter().map(|target| (target.name, target.check));
    let targets: Vec<(&str, Check)> =
        parsers.chain(readers::TARGETS.iter().map(|target| (target.name, target.check))).collect();
    let names = || targets.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    targets.iter().find(|target| target.0 == name).unwrap_or_else(|| panic!("FUZZ_PARSER=`{name}`: {:?}", names())).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    CHECK(data);
});
