//! Who may use whom: the one table of rooms.
//!
//! Arrows go down only. A row for a room that does not exist yet is the plan for it. What a card says under `May use`
//! and what a Cargo.toml depends on are both held against this table.

/// How far a room is from the outside world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Decides what happens in a run: no clock, entropy, socket, thread, file or hash order inside.
    Core,
    /// Touches the world: sockets, threads, files, people.
    Edge,
}

/// One room: a crate under `crates/`, or one with a directory of its own ([`dir_of`]).
#[derive(Debug)]
pub struct Room {
    /// The name of its package, which is also that of its directory, but for [`dir_of`].
    pub name: &'static str,
    /// Which rules it lives under.
    pub kind: Kind,
    /// Rooms it may depend on.
    pub may_use: &'static [&'static str],
    /// Rooms that its tests and benches may depend on besides.
    pub tests_may_use: &'static [&'static str],
    /// Whether `unsafe` may stand in it, and why.
    pub unsafe_because: Option<&'static str>,
}

/// Every room, from the ground up.
pub const ROOMS: &[Room] = &[
    Room { name: "rnic-base", kind: Kind::Core, may_use: &[], tests_may_use: &[], unsafe_because: None },
    Room { name: "rnic-wire", kind: Kind::Core, may_use: &["rnic-base"], tests_may_use: &[], unsafe_because: None },
    Room { name: "rnic-policy", kind: Kind::Core, may_use: &["rnic-base"], tests_may_use: &[], unsafe_because: None },
    Room {
        name: "rnic-transports",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-policy"],
        // An algorithm is shown to work inside the engine it was written for.
        tests_may_use: &["rnic-wire", "rnic-engine"],
        unsafe_because: None,
    },
    Room {
        name: "rnic-fae",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-policy"],
        // Its programs come through the contract; tests run the real one, and the benchmark prints what trials measure.
        tests_may_use: &["rnic-transports", "rnic-trials"],
        unsafe_because: None,
    },
    Room {
        name: "rnic-falcon",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-fae"],
        // Windows and gates take policies through the contract; only tests name real ones. What a search for deadlocks
        // is made of serves tests of the transaction layer too.
        tests_may_use: &["rnic-transports", "rnic-trials"],
        unsafe_because: None,
    },
    Room {
        name: "rnic-psp",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    Room {
        name: "rnic-nvme",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire", "rnic-falcon"],
        tests_may_use: &["rnic-fae", "rnic-policy", "rnic-transports"],
        unsafe_because: None,
    },
    Room {
        name: "rnic-trials",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-transports", "rnic-fae", "rnic-falcon"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    Room {
        name: "rnic-engine",
        kind: Kind::Core,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-falcon", "rnic-fae", "rnic-nvme"],
        // The engine takes policies through the contract; only its tests name real ones.
        tests_may_use: &["rnic-transports"],
        unsafe_because: None,
    },
    Room {
        name: "rnic-fabric",
        kind: Kind::Core,
        // Of rnic-nvme the device: a drive that its own host uses needs no engine.
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-transports", "rnic-engine", "rnic-nvme"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    Room {
        name: "rnic-host",
        kind: Kind::Edge,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-transports", "rnic-engine", "rnic-psp"],
        tests_may_use: &[],
        unsafe_because: Some("sockets and shared memory are reached through system calls"),
    },
    Room {
        name: "rnic-verbs",
        kind: Kind::Edge,
        may_use: &["rnic-base", "rnic-wire", "rnic-policy", "rnic-transports", "rnic-engine", "rnic-host"],
        tests_may_use: &[],
        unsafe_because: Some("it is called from C"),
    },
    Room {
        name: "rnic-reproduce",
        kind: Kind::Edge,
        may_use: &["rnic-base", "rnic-policy", "rnic-transports", "rnic-trials", "rnic-fabric"],
        tests_may_use: &[],
        unsafe_because: None,
    },
    Room {
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
    Room {
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
    Room {
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
    Room { name: "rnic-check", kind: Kind::Edge, may_use: &[], tests_may_use: &[], unsafe_because: None },
];

/// Outside crates that a core room may not depend on, with the reason.
pub const CRATES_NOT_IN_CORE: &[(&str, &str)] = &[
    ("ahash", "its hash order differs between runs and machines"),
    ("chrono", "it reads the wall clock"),
    ("crossbeam", "a core room has one thread"),
    ("getrandom", "it draws entropy from the system"),
    ("hashbrown", "its hash order differs between machines"),
    ("libc", "it reaches the system"),
    ("log", "a core room hands out trace events; it does not print"),
    ("mio", "it opens sockets"),
    ("nix", "it reaches the system"),
    ("rand", "its default generators are seeded by the system; rnic_base::RandomStreams are not"),
    ("rayon", "a core room has one thread"),
    ("rustix", "it reaches the system"),
    ("socket2", "it opens sockets"),
    ("tokio", "it owns time, threads and sockets"),
    ("tracing", "a core room hands out trace events; it does not print"),
];

/// The directory of the room called `name`. Tests that need both bodies stand beside the rooms, where people look for
/// tests.
pub fn dir_of(name: &str) -> String {
    if name == "rnic-conformance" { "tests".to_owned() } else { format!("crates/{name}") }
}

/// Whether the package in `dir` must be a room.
pub fn is_room_dir(dir: &str) -> bool {
    dir.starts_with("crates/") || dir == "tests"
}

/// The room called `name`.
pub fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_go_down_only() {
        for (index, row) in ROOMS.iter().enumerate() {
            for used in row.may_use {
                let place = ROOMS.iter().position(|room| room.name == *used).expect("a used room has a row");
                assert!(place < index, "{} uses {used}, which stands above it", row.name);
            }
            for used in row.tests_may_use {
                assert!(room(used).is_some(), "{}: {used} has no row", row.name);
            }
        }
    }

    #[test]
    fn the_bodies_do_not_know_each_other_and_algorithms_do_not_know_the_engine() {
        let uses = |user: &str, used: &str| room(user).expect("the room exists").may_use.contains(&used);
        assert!(!uses("rnic-fabric", "rnic-host") && !uses("rnic-host", "rnic-fabric"));
        assert!(!uses("rnic-transports", "rnic-engine") && !uses("rnic-engine", "rnic-transports"));
    }

    #[test]
    fn a_core_room_uses_core_rooms_only() {
        for user in ROOMS.iter().filter(|room| room.kind == Kind::Core) {
            for used in user.may_use {
                assert_eq!(room(used).map(|room| room.kind), Some(Kind::Core), "{} uses {used}", user.name);
            }
        }
    }
}
