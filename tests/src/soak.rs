//! Real NICs under everything at once, for as long as wanted.
//!
//! A step is a load and a trouble, drawn whole from a seed and the step's number ([`Step::draw`]), so that any step can
//! be run again by itself. Loads are `rnic perf` against a listener that lives on from step to step, programs of the
//! distribution that check their data, `rping` against a server that lives on too, and the semantics fuzz, over sockets
//! and through memory. Troubles are losses and reordering, busy loops on every processor, `kill -9`, processes that are
//! stopped for a while, a cable that is cut or carries shorter packets, and another user of the machine who attacks.
//!
//! After each step the survivors must do a clean piece of work, hold no more files, threads and shared memory than they
//! did at rest, and nothing of the step may be left: no process, no name, no file. Over many steps their memory
//! must not grow.

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
