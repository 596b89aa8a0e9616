//! The fuzz target of all parsers; the environment variable `FUZZ_PARSER` names the one that is tested.
#![no_main]

#[path = "../../crates/rnic-wire/tests/parsers/mod.rs"]
mod parsers;

use std::sync::LazyLock;

static CHECK: LazyLock<fn(&[u8]) -> bool> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_PARSER").unwrap_or_default();
    let target = parsers::TARGETS.iter().find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("FUZZ_PARSER=`{name}`: {:?}", parsers::TARGETS.map(|target| target.name))).check
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    CHECK(data);
});
