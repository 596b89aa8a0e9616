//! Treats everything that comes from the network as hostile.
//!
//! Two engines carry honest traffic over many connections. In between, an attacker who knows the protocol well sends
//! packets to both: headers of any kind, numbers near and far from the expected ones, keys that exist and keys that
//! do not, addresses around the edges of regions, lengths that do not fit, unsolicited responses; from the right peer
//! and from wrong ones, in the right protocol and in the other one, to queue pairs in every state. Some of them are
//! honest packets with a detail changed.
//!
//! Properties that hold for every sequence of packets:
//!
//! * no panic;
//! * every access lies in memory that is registered, in the protection domain of the queue pair, with the right that
//!   the packet needs; what is sent comes from memory that may be sent;
//! * memory in use is bounded: the engines do not grow with the number of packets;
//! * other connections, whose packets the attacker cannot forge, lose nothing: every operation completes with the
//!   right bytes.
//!
//! Each step sends one hostile packet, or more in bursts: about four million per seed in a release build. A failure
//! prints the command that replays it; `RNIC_HOSTILE_FIRST` and `RNIC_HOSTILE_STEPS` choose seeds and length.
#![expect(clippy::disallowed_methods, reason = "the environment selects longer runs")]

mod common;
#[path = "common/heap.rs"]
mod heap;

#[path = "hostile/attack.rs"]
mod attack;
#[path = "hostile/honest.rs"]
mod honest;
#[path = "hostile/lies.rs"]
mod lies;
#[path = "hostile/node.rs"]
mod node;
#[path = "hostile/world.rs"]
mod world;

use world::World;

/// Transports of the connections under attack, with their options; the receivers of `ndp-test` pull. The honest
/// connections use the plain transports.
const TRANSPORTS: &[(&str, &[(&str, &str)])] = &[
    ("roce-gbn", &[]),
    ("roce-gbn", &[("cap_packets", "3"), ("control", "dcqcn")]),
    ("irn", &[]),
    ("irn", &[("recovery", "go-back-n")]),
    ("irn", &[("cap_packets", "0"), ("sack_bitmap", "false")]),
    ("irn", &[("cap_packets", "5"), ("control", "dcqcn"), ("nack_threshold", "3"), ("paths", "spray")]),
    ("irn", &[("dynamic_rto", "true")]),
    ("ndp-test", &[]),
    ("fasr", &[]),
    ("fasr", &[("cap_packets", "64"), ("pool_units", "1"), ("pool_blocks", "2")]),
];

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs seed `nth` of the four seeds of this run.
fn survives(nth: u64) {
    let seed = environment("RNIC_HOSTILE_FIRST").unwrap_or(1) + nth;
    let steps = environment("RNIC_HOSTILE_STEPS").unwrap_or(if cfg!(debug_assertions) { 60_000 } else { 1_000_000 });
    let outcome = std::panic::catch_unwind(|| World::new(seed, TRANSPORTS).run(steps));
    if outcome.is_err() {
        let variables = format!("RNIC_HOSTILE_FIRST={seed} RNIC_HOSTILE_STEPS={steps}");
        panic!("replay: {variables} cargo test -p rnic-engine --test hostile first");
    }
}

#[test]
fn first_seed() {
    survives(0);
}

#[test]
fn second_seed() {
    survives(1);
}

#[test]
fn third_seed() {
    survives(2);
}

#[test]
fn fourth_seed() {
    survives(3);
}
