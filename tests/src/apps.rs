//! Unmodified RDMA programs on our library: which, how they are run, what counts as having worked.
//!
//! The programs are those of the distribution. Each case is a server and a client (or one program that starts its own
//! processes); both must end by themselves with exit code 0, and print what a case asks for. Where a program checks its
//! own data, the case makes it do so.

mod catalogue;
mod kill;
mod pair;
mod place;

pub use catalogue::{CASES, Case, Check, needs_of};
pub use kill::{KILL_CASES, kill};
pub use pair::{Outcome, run};
pub(crate) use pair::{free_port, wait_for_port};
pub use place::{Conditions, Place, PlaceError};
