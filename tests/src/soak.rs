//! Runs real NICs under random loads and faults, for as long as wanted.
//!
//! A step is a load and a fault, generated completely from a seed and the step's number ([`Step::draw`]), so that any
//! step can be run again by itself. Loads are `rnic perf` against a listener that keeps running from step to step,
//! programs of the distribution that check their data, `rping` against a server that keeps running too, and the
//! semantics fuzz, over sockets and through memory. Faults are losses and reordering, busy loops on every processor,
//! `kill -9`, processes that are stopped for a while, a cable that is cut or carries shorter packets, and another user
//! of the machine who attacks.
//!
//! After each step the processes that keep running (survivors) must complete a small transfer without faults and hold
//! no more files, threads and shared memory than they did at rest, and the step must leave nothing behind: no process,
//! no name, no file. Over many steps their memory must not grow.

mod attack;
mod draw;
mod role;
mod stage;
mod step;
mod survivor;

pub use draw::Step;
pub use role::Role;
pub use stage::{Stage, Trend};
pub use step::Verdict;
