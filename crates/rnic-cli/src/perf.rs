//! `rnic perf`: repeats one type of operation, over sockets or over the simulated fabric.

mod address;
mod bound;
mod listen;
pub mod listener_process;
mod outcome;
mod simulated;
mod udp;

use rnic_host::{Protection, ROCE_TRANSPORT};
use rnic_reproduce::machine::Machine;

use crate::args::PerfArgs;
use crate::args::values::{Op, Peers, Wire};
use crate::console;
use crate::failure::Failure;

pub use outcome::Outcome;
pub use udp::bind_address_for;

/// Runs `rnic perf`.
///
/// # Errors
/// Bad input, a remote end that rejects the measurement or does not respond, or received data that was wrong.
pub fn run(args: &PerfArgs) -> Result<(), Failure> {
    if args.attached {
        listener_process::end_with_parent();
    }
    if args.stream && (args.wire == Wire::Sim || args.peers == Peers::Roce) {
        return Err(Failure::input(
            "--stream: streams run between two `rnic` processes over UDP; omit --wire sim and --peers roce",
        ));
    }
    if args.peers == Peers::Roce {
        check_roce(args)?;
    }
    if let Some(bind) = &args.listen {
        return listen::run(bind, args);
    }
    if let (Wire::Sim, Some(host)) = (args.wire, &args.host) {
        return Err(Failure::input(format!("{host}: a simulation (--wire sim) has no remote host; omit it")));
    }
    if args.wire == Wire::Sim && !(args.trim.is_never() && args.mark.is_never()) {
        return Err(Failure::input(
            "--trim and --mark: a simulated link (--wire sim) has no switch; omit them, or use `rnic sim` with \
             [switch.trim] or [switch.ecn]",
        ));
    }
    if args.events && args.wire == Wire::Sim {
        return Err(Failure::input("--events: a simulation (--wire sim) neither polls nor sleeps; omit --events"));
    }
    check_key(args)?;
    // Reads the secret here only so that errors are reported once: the code that needs it reads it again, partly in
    // the second process.
    protection(args)?;
    let machine = Machine::local();
    let outcome = match args.wire {
        Wire::Udp => udp::measure(args, machine)?,
        Wire::Sim => simulated::measure(args, machine)?,
    };
    console::result(&console::text(|| outcome.text()), args.json.then_some(&outcome));
    outcome.check()
}

/// Checks the options for peers that are RoCE adapters: their packets use a fixed UDP port, which only one process of
/// a machine can have.
fn check_roce(args: &PerfArgs) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::input(format!("--peers roce: {why}")));
    if args.wire == Wire::Sim {
        return wrong("not supported in a simulation (--wire sim)".to_owned());
    }
    if args.key.is_some() {
        return wrong("RoCEv2 adapters do not support --key; omit it".to_owned());
    }
    if let Some(bind) = &args.listen {
        let bind = address::resolve(bind)?;
        return match bind.ip().is_unspecified() && bind.port() == address::PORT {
            true => Ok(()),
            false => wrong(format!(
                "{bind}: the service always listens on port {} of all addresses; omit ADDR:PORT",
                address::PORT
            )),
        };
    }
    if args.transport != ROCE_TRANSPORT {
        return wrong(format!("RoCEv2 adapters support only the transport {ROCE_TRANSPORT}, not {}", args.transport));
    }
    let Some(host) = &args.host else {
        return wrong("both ends need port 4791, so they must be two machines; name the listening host".to_owned());
    };
    match address::resolve(host)?.port() {
        address::PORT => Ok(()),
        other => {
            wrong(format!("{host}: packets are always sent to port {}, not {other}; omit the port", address::PORT))
        }
    }
}

/// Rejects a key that would protect no packets, because it is probably given by mistake.
fn check_key(args: &PerfArgs) -> Result<(), Failure> {
    match &args.key {
        Some(_) if args.wire == Wire::Sim => {
            Err(Failure::input("--key: packets of a simulation are not encrypted; omit --key"))
        }
        Some(_) if args.transport != "falcon" => Err(Failure::input(format!(
            "--key: transport {} does not encrypt packets; use --transport falcon, or omit --key",
            args.transport
        ))),
        _ => Ok(()),
    }
}

/// Returns the packet protection for the key in the file that `--key` names; `None` without `--key`.
///
/// # Errors
/// When the file contains no valid key.
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
