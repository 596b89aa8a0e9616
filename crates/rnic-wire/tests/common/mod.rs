//! Helpers for several tests in this folder.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod dissect;
pub mod falcon;
pub mod falcon_strategy;
pub mod golden;
pub mod messages;
pub mod scr;
pub mod strategy;

use rnic_wire::Addresses;

/// Returns the addresses of packets from `src` to `dst`.
pub fn path(src: &str, dst: &str) -> Addresses {
    Addresses::new(src.parse().expect("an address"), dst.parse().expect("an address")).expect("one IP version")
}

/// Returns addresses of each IP version.
pub fn paths() -> [Addresses; 2] {
    [path("10.1.2.3:49152", "10.4.5.6:4791"), path("[fd00::3]:49153", "[fd00::6]:4791")]
}

/// `len` bytes that differ from their neighbours.
pub fn payload(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + 1) as u8).collect()
}
