//! The table of crates ("crates") and their permitted dependencies.
//!
//! Dependencies lead only to crates with an earlier row. A row for a crate that does not exist yet is the plan for it.
//! Both `May use` in crate headers and the dependencies in Cargo.toml are checked against this table.

/// Distance of a crate from the outside world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Determines what happens in a run: uses no clock, entropy, socket, thread, file or hash order.
    Core,
    /// Interacts with the outside world: sockets, threads, files, users.
    Edge,
}

/// One crate, under `crates/` or in a directory of its own ([`dir_of`]).
#[derive(Debug)]
pub struct CrateRule {
    /// Name of its package, which is also that of its directory, except for those in [`dir_of`].
    pub name: &'static str,
    /// Type of the crate, which determines the rules that apply to it.
    pub kind: Kind,
    /// Crates on which it may depend.
    pub may_use: &'static [&'static str],
    /// Further crates on which its tests and benches may depend.
    pub tests_may_use: &'static [&'static str],
    /// Reason why it may contain `unsafe`; `None` when it may not.
    pub unsafe_because: Option<&'static str>,
}

/// Every crate, from the lowest layer up.
pub const CRATES: &[CrateRule] = &[
    CrateRule { name: "rnic-base", kind: Kind::Core, may_use: &[], tests_may_use: &[], unsafe_because: None },
    CrateRule {
        name: "rnic-wire",
        kind: Kind::Core,
        may_use: &["rnic-base"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-policy",
        kind: Kind::Core,
        may_use: &["rnic-base"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-transports",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-policy"],
        // Tests show that an algorithm works inside the engine for which it was written.
        tests_may_use: &["rnic-wire", "rnic-engine"],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-fae",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-policy"],
        // The policies that it runs are passed through the policy interface; tests use the real one, and the benchmark
        // prints what trials measure.
        tests_may_use: &["rnic-transports", "rnic-trials"],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-falcon",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-fae"],
        // Windows and gates use policies through the policy interface; only tests name real ones. The components of the
        // deadlock search also serve tests of the transaction layer.
        tests_may_use: &["rnic-transports", "rnic-trials"],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-psp",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-nvme",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire", "rnic-falcon"],
        tests_may_use: &["rnic-fae", "rnic-policy", "rnic-transports"],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-trials",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-transports", "rnic-fae", "rnic-falcon"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-engine",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-falcon", "rnic-fae", "rnic-nvme"],
        // The engine uses policies through the policy interface; only its tests name real ones.
        tests_may_use: &["rnic-transports"],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-fabric",
        kind: Kind::Core,
        // Only the device of rnic-nvme is used: a drive that its own host uses needs no engine.
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-transports", "rnic-engine", "rnic-nvme"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-host",
        kind: Kind::Edge,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-transports", "rnic-engine", "rnic-psp"],
        tests_may_use: &[],
        unsafe_because: Some("sockets and shared memory are reached through system calls"),
    },
    CrateRule {
        name: "rnic-verbs",
        kind: Kind::Edge,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-transports", "rnic-engine", "rnic-host"],
        tests_may_use: &[],
        unsafe_because: Some("it is called from C"),
    },
    CrateRule {
        name: "rnic-reproduce",
        kind: Kind::Edge,
        may_use: &["rnic-base", "rnic-policy", "rnic-transports", "rnic-trials", "rnic-fabric"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-cli",
        kind: Kind::Edge,
        may_use: &[
            "rnic-base",
            "rnic-wire",
            "rnic-policy",
            "rnic-transports",
            "rnic-engine",
            "rnic-fabric",
            "rnic-host",
            "rnic-reproduce",
        ],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-py",
        kind: Kind::Edge,
        may_use: &[
            "rnic-base",
            "rnic-wire",
            "rnic-policy",
            "rnic-transports",
            "rnic-engine",
            "rnic-fabric",
            "rnic-host",
        ],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule {
        name: "rnic-conformance",
        kind: Kind::Edge,
        may_use: &[
            "rnic-base",
            "rnic-wire",
            "rnic-policy",
            "rnic-transports",
            "rnic-engine",
            "rnic-fabric",
            "rnic-host",
        ],
        tests_may_use: &[],
        unsafe_because: None,
    },
    CrateRule { name: "rnic-check", kind: Kind::Edge, may_use: &[], tests_may_use: &[], unsafe_because: None },
];

/// External crates on which a core crate may not depend, with the reason.
pub const CRATES_NOT_IN_CORE: &[(&str, &str)] = &[
    ("ahash", "its hash order differs between runs and machines"),
    ("chrono", "it reads the wall clock"),
    ("crossbeam", "a core crate has one thread"),
    ("getrandom", "it draws entropy from the system"),
    ("hashbrown", "its hash order differs between machines"),
    ("libc", "it reaches the system"),
    ("log", "a core crate hands out trace events; it does not print"),
    ("mio", "it opens sockets"),
    ("nix", "it reaches the system"),
    ("rand", "its default generators are seeded by the system; rnic_base::RandomStreams are not"),
    ("rayon", "a core crate has one thread"),
    ("rustix", "it reaches the system"),
    ("socket2", "it opens sockets"),
    ("tokio", "it owns time, threads and sockets"),
    ("tracing", "a core crate hands out trace events; it does not print"),
];

/// Returns the directory of the crate called `name`. Tests that need both drivers, simulator and host, are in `tests`,
/// where they are expected.
pub fn dir_of(name: &str) -> String {
    if name == "rnic-conformance" { "tests".to_owned() } else { format!("crates/{name}") }
}

/// Returns whether the package in `dir` must be in the table.
pub fn is_crate_dir(dir: &str) -> bool {
    dir.starts_with("crates/") || dir == "tests"
}

/// Returns the entry of the crate called `name`.
pub fn rule(name: &str) -> Option<&'static CrateRule> {
    CRATES.iter().find(|rule| rule.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_go_down_only() {
        for (index, row) in CRATES.iter().enumerate() {
            for used in row.may_use {
                let place = CRATES.iter().position(|rule| rule.name == *used).expect("a used crate has a row");
                assert!(place < index, "{} uses {used}, which stands above it", row.name);
            }
            for used in row.tests_may_use {
                assert!(rule(used).is_some(), "{}: {used} has no row", row.name);
            }
        }
    }

    #[test]
    fn the_bodies_do_not_know_each_other_and_algorithms_do_not_know_the_engine() {
        let uses = |user: &str, used: &str| rule(user).expect("the crate exists").may_use.contains(&used);
        assert!(!uses("rnic-fabric", "rnic-host") && !uses("rnic-host", "rnic-fabric"));
        assert!(!uses("rnic-transports", "rnic-engine") && !uses("rnic-engine", "rnic-transports"));
    }

    #[test]
    fn a_core_room_uses_core_rooms_only() {
        for user in CRATES.iter().filter(|rule| rule.kind == Kind::Core) {
            for used in user.may_use {
                assert_eq!(rule(used).map(|rule| rule.kind), Some(Kind::Core), "{} uses {used}", user.name);
            }
        }
    }
}
