//! The table of crates itself.

use rnic_check::crates::{CRATES, rule};

#[test]
fn a_crate_uses_only_crates_listed_before_it() {
    for (index, row) in CRATES.rules.iter().enumerate() {
        for used in &row.may_use {
            let used_index = CRATES.rules.iter().position(|rule| rule.name == *used).expect("a used crate has a row");
            assert!(used_index < index, "{} uses {used}, which is not listed before it", row.name);
        }
        for used in &row.tests_may_use {
            assert!(rule(used).is_some(), "{}: {used} has no row", row.name);
        }
    }
}

#[test]
fn fabric_and_host_and_transports_and_engine_are_independent() {
    let uses = |user: &str, used: &str| rule(user).expect("the crate exists").may_use.iter().any(|name| name == used);
    assert!(!uses("rnic-fabric", "rnic-host") && !uses("rnic-host", "rnic-fabric"));
    assert!(!uses("rnic-transports", "rnic-engine") && !uses("rnic-engine", "rnic-transports"));
}

/// Crates that core crates use by a feature only, which is off by default: calls of machine code are `unsafe`.
const OPTIONAL: [&str; 1] = ["rnic-jit"];

#[test]
fn a_core_crate_uses_only_core_crates() {
    for user in CRATES.rules.iter().filter(|rule| rule.core) {
        for used in &user.may_use {
            let is_optional = OPTIONAL.contains(&used.as_str());
            assert!(is_optional || rule(used).is_some_and(|rule| rule.core), "{} uses {used}", user.name);
        }
    }
}
