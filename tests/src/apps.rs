//! Runs unmodified RDMA programs on the OpenRNIC library: the programs, how they are run, and the criteria of success.
//!
//! The programs are those of the distribution. Each case is a server and a client (or one program that starts its own
//! processes); both must exit by themselves with exit code 0, and print what a case requires. Where a program can check
//! its own data, the case enables that check.

mod catalogue;
mod kill;
mod pair;
mod place;

pub use catalogue::{CASES, Case, Check, needs_of};
pub use kill::{KILL_CASES, kill};
pub use pair::{Outcome, run};
pub(crate) use pair::{free_port, wait_for_port};
pub use place::{Conditions, Place, PlaceError};
