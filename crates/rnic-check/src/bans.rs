//! Table of banned calls: scope, reason and replacement of each.
//!
//! The check `banned` applies it to production code; the part that clippy can check too is generated from here into
//! clippy.toml (see [`crate::generate`]), so that editors show it and tests are covered.

use crate::crates::Kind;

/// One ban.
#[derive(Debug)]
pub struct Ban {
    /// Name of the ban, which is also the word of its marker comment.
    pub id: &'static str,
    /// Pattern by which it is recognised.
    pub what: What,
    /// Packages in which it applies.
    pub scope: Scope,
    /// Reason for the ban.
    pub because: &'static str,
    /// Replacement to use.
    pub instead: &'static str,
    /// True when a comment `// <id>: <reason>` on the line, or directly above it, lifts the ban there.
    pub can_be_lifted: bool,
    /// Files in which it does not apply.
    pub but: &'static [But],
    /// Entries for clippy.toml.
    pub clippy: &'static [Clippy],
}

/// A file in which a ban does not apply.
#[derive(Debug)]
pub struct But {
    /// Path from the root of the tree.
    pub path: &'static str,
    /// Reason for the exception.
    pub because: &'static str,
}

/// Pattern by which a banned item is recognised.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// Paths that begin with one of these; `core` and `alloc` count as `std`.
    Paths(&'static [&'static str]),
    /// Calls of one of these macros.
    Macros(&'static [&'static str]),
    /// The types `f32` and `f64` and their literals, outside functions that print.
    Floats,
    /// `static mut`.
    StaticMut,
}

/// Packages in which a ban applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every package of the tree.
    Everywhere,
    /// Every core crate.
    Core,
    /// These crates.
    Rooms(&'static [&'static str]),
}

/// An entry of clippy.toml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clippy {
    /// For `disallowed-types`.
    Type(&'static str),
    /// For `disallowed-methods`.
    Method(&'static str),
}

use Clippy::{Method, Type};

impl Scope {
    /// Returns whether the ban applies in the package called `name`.
    pub fn covers(self, name: &str) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Core => crate::crates::rule(name).is_some_and(|rule| rule.kind == Kind::Core),
            Self::Rooms(crates) => crates.contains(&name),
        }
    }
}

/// Every ban.
pub const BANS: &[Ban] = &[
    Ban {
        id: "clock",
        what: What::Paths(&["std::time::Instant", "std::time::SystemTime", "std::time::UNIX_EPOCH"]),
        scope: Scope::Core,
        because: "time is an argument, so that a run can be repeated",
        instead: "take `now: rnic_base::Time` from the caller",
        can_be_lifted: false,
        but: &[But {
            path: "crates/rnic-trials/src/fae/rate.rs",
            because: "it measures how fast code runs on this machine; no other number depends on it",
        }],
        clippy: &[Type("std::time::Instant"), Type("std::time::SystemTime")],
    },
    Ban {
        id: "std-duration",
        what: What::Paths(&["std::time::Duration"]),
        scope: Scope::Core,
        because: "it counts nanoseconds, and two kinds of duration invite mistakes",
        instead: "use rnic_base::Duration",
        // The interface of an external crate may require it.
        can_be_lifted: true,
        but: &[],
        clippy: &[],
    },
    Ban {
        id: "thread",
        what: What::Paths(&["std::thread", "std::sync::mpsc"]),
        scope: Scope::Core,
        because: "the order of a run must not depend on a scheduler",
        instead: "leave threads to rnic-host and rnic-cli; a core crate is driven by its caller",
        can_be_lifted: false,
        but: &[But {
            path: "crates/rnic-fae/src/thread.rs",
            because: "the adaptive engine runs on a core of its own; simulations run it inline or behind a latency",
        }],
        clippy: &[Method("std::thread::spawn"), Method("std::thread::scope"), Method("std::thread::sleep")],
    },
    Ban {
        id: "socket",
        // Addresses (`std::net::IpAddr`, `SocketAddr`) are plain data and remain allowed: headers and captures need
        // them.
        what: What::Paths(&[
            "std::net::TcpListener",
            "std::net::TcpStream",
            "std::net::ToSocketAddrs",
            "std::net::UdpSocket",
            "std::os::unix::net",
        ]),
        scope: Scope::Core,
        because: "packets come in and go out as values",
        instead: "return the packet; rnic-host owns the sockets, rnic-fabric the simulated links",
        can_be_lifted: false,
        but: &[],
        clippy: &[
            Type("std::net::TcpListener"),
            Type("std::net::TcpStream"),
            Type("std::net::UdpSocket"),
            Type("std::os::unix::net::UnixDatagram"),
            Type("std::os::unix::net::UnixStream"),
        ],
    },
    Ban {
        id: "file",
        what: What::Paths(&["std::fs"]),
        scope: Scope::Core,
        because: "what a run reads is part of its plan, and its caller decides where results go",
        instead: "take text or `impl std::io::Read`, give `impl std::io::Write`; rnic-cli opens files",
        can_be_lifted: false,
        but: &[],
        clippy: &[],
    },
    Ban {
        id: "environment",
        what: What::Paths(&["std::env", "std::process"]),
        scope: Scope::Core,
        because: "a run is decided by its arguments alone",
        instead: "add a field to the configuration; rnic-cli reads the command line and the environment",
        can_be_lifted: false,
        but: &[],
        clippy: &[],
    },
    Ban {
        id: "entropy",
        what: What::Paths(&[
            "getrandom",
            "rand::random",
            "rand::rng",
            "rand::rngs::OsRng",
            "rand::rngs::SysRng",
            "rand::rngs::ThreadRng",
            "rand::thread_rng",
            "rand_core::OsRng",
            "std::collections::hash_map::DefaultHasher",
            "std::collections::hash_map::RandomState",
            "std::hash::DefaultHasher",
            "std::hash::RandomState",
        ]),
        scope: Scope::Core,
        because: "plan and seed must give the same run",
        instead: "draw from a stream named after the component: rnic_base::RandomStreams::stream(name)",
        can_be_lifted: false,
        but: &[],
        clippy: &[Type("std::hash::RandomState"), Type("std::hash::DefaultHasher")],
    },
    Ban {
        id: "hash-order",
        what: What::Paths(&["std::collections::HashMap", "std::collections::HashSet", "std::collections::hash_map"]),
        scope: Scope::Core,
        because: "its order differs between runs and machines, and someone will iterate one day",
        instead: "use BTreeMap, a Vec indexed by number, or a sorted Vec",
        can_be_lifted: true,
        but: &[],
        clippy: &[Type("std::collections::HashMap"), Type("std::collections::HashSet")],
    },
    Ban {
        id: "float",
        what: What::Floats,
        scope: Scope::Rooms(&["rnic-base", "rnic-policy", "rnic-engine", "rnic-transports", "rnic-fae"]),
        because: "its results differ between machines and hardware has none",
        instead: "compute in integers; for printing use a function called `..._f64` or the body of a Display",
        can_be_lifted: true,
        but: &[],
        clippy: &[],
    },
    Ban {
        id: "print",
        what: What::Macros(&["print", "println", "eprint", "eprintln"]),
        scope: Scope::Core,
        because: "standard output belongs to the command",
        instead: "return the value, or hand out a trace event",
        can_be_lifted: false,
        but: &[],
        clippy: &[],
    },
    Ban {
        id: "standard-stream",
        what: What::Paths(&["std::io::stdin", "std::io::stdout", "std::io::stderr"]),
        scope: Scope::Core,
        because: "standard streams belong to the command",
        instead: "take `impl std::io::Read` or `impl std::io::Write`",
        can_be_lifted: false,
        but: &[],
        clippy: &[],
    },
    Ban {
        id: "global-state",
        what: What::Macros(&["thread_local", "lazy_static"]),
        scope: Scope::Core,
        because: "two runs in one process must not see each other",
        instead: "keep the state in a value that the caller owns",
        can_be_lifted: false,
        but: &[],
        clippy: &[],
    },
    Ban {
        id: "static-mut",
        what: What::StaticMut,
        scope: Scope::Everywhere,
        because: "any code may change it unseen",
        instead: "keep the state in a value that the caller owns",
        can_be_lifted: false,
        but: &[],
        clippy: &[],
    },
    Ban {
        id: "debris",
        what: What::Macros(&["dbg", "todo", "unimplemented"]),
        scope: Scope::Everywhere,
        because: "it is a note to oneself",
        instead: "finish it, or return a typed error that says what is not supported",
        can_be_lifted: false,
        but: &[],
        clippy: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crates::rule;

    #[test]
    fn names_are_unique_and_rooms_exist() {
        for (index, ban) in BANS.iter().enumerate() {
            assert!(BANS[..index].iter().all(|other| other.id != ban.id), "{} stands twice", ban.id);
            assert!(ban.but.iter().all(|but| but.because.len() > 20), "{}: an exception without its reason", ban.id);
            if let Scope::Rooms(crates) = ban.scope {
                assert!(crates.iter().all(|name| rule(name).is_some()), "{}: unknown crate", ban.id);
            }
        }
    }

    #[test]
    fn clippy_entries_are_for_the_whole_core() {
        // The root clippy.toml serves every core crate alike; a narrower ban cannot be said there.
        let narrow = BANS.iter().find(|ban| matches!(ban.scope, Scope::Rooms(_)) && !ban.clippy.is_empty());
        assert_eq!(narrow.map(|ban| ban.id), None);
    }

    #[test]
    fn edge_rooms_may_touch_the_world() {
        let held = |name: &str| BANS.iter().filter(|ban| ban.scope.covers(name)).map(|ban| ban.id).collect::<Vec<_>>();
        assert_eq!(held("rnic-host"), ["static-mut", "debris"]);
        assert_eq!(held("rnic-engine").len(), BANS.len());
        assert!(!held("rnic-fabric").contains(&"float"));
    }
}
