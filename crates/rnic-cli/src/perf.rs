//! `rnic perf`: repeats one type of operation, over sockets or over the simulated fabric.

mod address;
mod bound;
mod listen;
pub mod neighbour;
mod outcome;
mod simulated;
mod udp;

use rnic_host::{Protection, ROCE_TRANSPORT};

use crate::args::PerfArgs;
use crate::args::values::{Op, Peers, Wire};
use crate::console;
use crate::failure::Failure;
use crate::machine::Machine;

pub use outcome::Outcome;
pub use udp::near_side_of;

/// Runs `rnic perf`.
///
/// # Errors
/// Bad input, a remote end that does not cooperate, or data that arrived wrong.
pub fn run(args: &PerfArgs) -> Result<(), Failure> {
    if args.peers == Peers::Roce {
        check_roce(args)?;
    }
    if let Some(bind) = &args.listen {
        return listen::run(bind, args);
    }
    if let (Wire::Sim, Some(host)) = (args.wire, &args.host) {
        return Err(Failure::input(format!("{host}: a simulation (--wire sim) needs no other machine")));
    }
    check_key(args)?;
    // Reads the secret only to report errors once, here: the code that needs it reads it again, the neighbour in a
    // process of its own.
    protection(args)?;
    let machine = Machine::here();
    let outcome = match args.wire {
        Wire::Udp => udp::measure(args, machine)?,
        Wire::Sim => simulated::measure(args, machine)?,
    };
    console::result(&outcome.text(), args.json.then_some(&outcome));
    outcome.check()
}

/// Checks the options for peers that are RoCE adapters: their packets use one UDP port of each machine, and only one
/// process of a machine can have it.
fn check_roce(args: &PerfArgs) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::input(format!("--peers roce: {why}")));
    if args.wire == Wire::Sim {
        return wrong("a simulation (--wire sim) has no peers of other makes".to_owned());
    }
    if args.key.is_some() {
        return wrong("adapters of other makes know no --key".to_owned());
    }
    if let Some(bind) = &args.listen {
        let bind = address::resolve(bind)?;
        return match bind.ip().is_unspecified() && bind.port() == address::PORT {
            true => Ok(()),
            false => {
                wrong(format!("{bind}: it listens at port {} of all addresses; leave ADDR:PORT out", address::PORT))
            }
        };
    }
    if args.transport != ROCE_TRANSPORT {
        return wrong(format!("adapters of other makes speak {ROCE_TRANSPORT}, not {}", args.transport));
    }
    let Some(host) = &args.host else {
        return wrong("both ends need port 4791, so they are two machines: name the one that listens".to_owned());
    };
    match address::resolve(host)?.port() {
        address::PORT => Ok(()),
        other => wrong(format!("{host}: packets go to port {}, not {other}", address::PORT)),
    }
}

/// Refuses a key that would protect nothing, because it is probably a mistake.
fn check_key(args: &PerfArgs) -> Result<(), Failure> {
    match &args.key {
        Some(_) if args.wire == Wire::Sim => Err(Failure::input("--key: packets of a simulation are not encrypted")),
        Some(_) if args.transport != "falcon" => {
            Err(Failure::input(format!("--key: packets of {} are not encrypted, those of falcon are", args.transport)))
        }
        _ => Ok(()),
    }
}

/// Returns the protection with the secret in the file that `--key` names, if it was given.
///
/// # Errors
/// When the file contains no valid secret.
fn protection(args: &PerfArgs) -> Result<Option<Protection>, Failure> {
    let Some(option) = &args.key else { return Ok(None) };
    Protection::from_option(option).map(Some).map_err(|reason| Failure::file(Protection::split(option).1, reason))
}

/// Default size of each operation, in bytes.
const SIZE_BYTES: u32 = 64 << 10;

/// Returns the size of each operation, in bytes.
fn size_bytes(args: &PerfArgs) -> u32 {
    match args.op {
        Op::Atomic => 8,
        _ => args.size.unwrap_or(SIZE_BYTES),
    }
}
