//! Heads of algorithms.

use rnic_check::Tree;
use rnic_check::checks::heads::check;

fn findings(path: &str, text: &str) -> usize {
    check(&Tree::synthetic([(path, text)])).len()
}

#[test]
fn heads_of_algorithms_have_source_and_deviations() {
    let path = "crates/rnic-transports/src/recovery/new.rs";
    assert_eq!(findings(path, "//! New.\n//!\n//! Source: RFC 1.\n//!\n//! Deviations: none.\n"), 0);
    assert_eq!(findings(path, "//! New.\n//!\n//! Source: RFC 1.\n"), 1);
    assert_eq!(findings(path, "//! New, without source: or deviations.\n"), 2);
    assert_eq!(
        findings(path, "//! New.\n\n//! Source: RFC 1.\n//! Deviations: none.\n"),
        2,
        "lines after the documentation were counted"
    );
    assert_eq!(findings("crates/rnic-transports/src/recovery.rs", "//! A list.\n"), 0);
    assert_eq!(findings("crates/rnic-transports/src/recovery/new/part.rs", "//! A part.\n"), 0);
    assert_eq!(findings("crates/rnic-host/src/recovery/new.rs", "//! Another crate.\n"), 0);
}
