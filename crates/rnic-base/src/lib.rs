//! Types shared by all other crates: time, units, sequence numbers, ring bitmaps, random numbers, bounds.
//!
//! ```text
//! CRATE    rnic-base (red: a change here affects every other crate)
//! Purpose  types that make misuse a compile error, and arithmetic that is exact on every machine
//! May use  no other crate here
//! Must not read a clock, use the system's random numbers, use floating point where a result depends on it
//! Add here a unit, a counter width, a bound that two crates share
//! Not here protocol formats (rnic-wire), decisions (rnic-transports)
//! Tested by unit and property tests beside each module, against naive models
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod absence;
pub mod bitmap;
pub mod csig;
pub mod fairness;
pub mod lazy_queue;
pub mod limits;
pub mod plain;
pub mod prefetch;
pub mod rng;
pub mod rtt;
pub mod scaled;
pub mod seq;
pub mod similar;
pub mod time;
pub mod trace;
pub mod units;

pub use absence::Absence;
pub use bitmap::{AnyRing, RingBitmap};
pub use csig::Csig;
pub use fairness::jain_f64;
pub use lazy_queue::LazyQueue;
pub use prefetch::{prefetch, prefetch_all, prefetch_at, prefetch_soon_at, prefetch_whole, prefetch_whole_at};
pub use rng::{Probability, RandomStream, RandomStreams};
pub use rtt::RttEstimator;
pub use scaled::UnitError;
pub use seq::{Psn, Psn32, Seq, SeqRange, Serial};
pub use time::{Duration, Time};
pub use trace::TraceHash;
pub use units::{BitRate, Bytes};
