//! `rnic perf`: one kind of operation, repeated, over sockets or over the simulated fabric.

mod address;
mod bound;
mod listen;
pub mod neighbour;
mod outcome;
mod simulated;
mod udp;

use rnic_host::Protection;

use crate::args::PerfArgs;
use crate::args::values::{Op, Wire};
use crate::console;
use crate::failure::Failure;
use crate::machine::Machine;

pub use outcome::Outcome;
pub use udp::near_side_of;

/// Runs `rnic perf`.
///
/// # Errors
/// Bad input, a far end that does not play along, or data that arrived wrong.
pub fn run(args: &PerfArgs) -> Result<(), Failure> {
    if let Some(bind) = &args.listen {
        return listen::run(bind, args);
    }
    if let (Wire::Sim, Some(host)) = (args.wire, &args.host) {
        return Err(Failure::input(format!("{host}: a simulation (--wire sim) needs no other machine")));
    }
    check_key(args)?;
    // Whoever needs it reads it again, the neighbour in a process of its own; what is wrong with it is said here, once.
    protection(args)?;
    let machine = Machine::here();
    let outcome = match args.wire {
        Wire::Udp => udp::measure(args, machine)?,
        Wire::Sim => simulated::measure(args, machine)?,
    };
    console::result(&outcome.text(), args.json.then_some(&outcome));
    outcome.check()
}

/// A key that protects nothing is a mistake.
fn check_key(args: &PerfArgs) -> Result<(), Failure> {
    match &args.key {
        Some(_) if args.wire == Wire::Sim => Err(Failure::input("--key: packets of a simulation are not encrypted")),
        Some(_) if args.transport != "falcon" => {
            Err(Failure::input(format!("--key: packets of {} are not encrypted, those of falcon are", args.transport)))
        }
        _ => Ok(()),
    }
}

/// What the secret that was named says, if one was.
///
/// # Errors
/// When there is none in that file.
fn protection(args: &PerfArgs) -> Result<Option<Protection>, Failure> {
    let Some(option) = &args.key else { return Ok(None) };
    Protection::from_option(option).map(Some).map_err(|reason| Failure::file(Protection::split(option).1, reason))
}

/// Bytes of each operation when nobody says.
const SIZE_BYTES: u32 = 64 << 10;

/// Bytes of each operation.
fn size_bytes(args: &PerfArgs) -> u32 {
    match args.op {
        Op::Atomic => 8,
        _ => args.size.unwrap_or(SIZE_BYTES),
    }
}
