//! Tools for programs on a small processor: compact state, and numbers with 16 fractional bits.
//!
//! Source: SCR (NSDI'25), section 4.3.3. Sizes and bounds of errors are OpenRNIC's, and tested.
//!
//! | tool | memory | answer |
//! |---|---|---|
//! | [`BloomFilter`] | 8 KiB | whether a flow was seen; wrongly "yes" for 3 % of the others at 8192 flows |
//! | [`FlowBitmap`] | 2 MiB | the same, exactly |
//! | [`FlowMap`] | as created | a value per flow |
//! | [`HyperLogLog`] | 2 KiB | number of distinct flows, within 4.6 % in 95 of 100 cases |
//! | [`CountMin`] | 16 KiB | bytes per flow, never too few |
//! | [`Fpx16`] | 4 B | a number with 16 fractional bits |
//!
//! A Bloom filter may say that a new flow was seen, so a program that initialises flows asks the [`FlowMap`] too, which
//! decides.

pub mod bloom;
pub mod count_min;
pub mod fixed;
pub mod flow_map;
pub mod hash;
pub mod hyperloglog;

pub use bloom::{BloomFilter, FlowBitmap};
pub use count_min::CountMin;
pub use fixed::Fpx16;
pub use flow_map::{FlowMap, MapFull};
pub use hash::keyed_hash;
pub use hyperloglog::HyperLogLog;
