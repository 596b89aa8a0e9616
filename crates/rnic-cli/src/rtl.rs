//! `rnic rtl`: circuits in simulated networks.

use std::fs;
use std::path::Path;

use rnic_reproduce::trial::tonic::NicSpec;
use rnic_reproduce::trial::tonic::new_reno::{self, Arguments, Side};
use rnic_rtl::tonic::endpoint::CircuitNic;
use rnic_rtl::tonic::nic::Nic;
use rnic_rtl::verilated::Verilated;
use serde::Serialize;

use crate::args::{RtlAction, RtlArgs, TraceArgs};
use crate::console;
use crate::failure::Failure;

/// Maximum number of cycles of a trace: a cycle of 16 flows takes about a kilobyte.
const CYCLES_MAX: u64 = 200_000;

/// Maximum size of a plan in bytes.
const PLAN_BYTES_MAX: u64 = 1 << 20;

/// The JSON object that `rnic rtl trace --json` prints.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    plan: &'a Path,
    program: &'a str,
    out: &'a Path,
    seed: u64,
    cycles: u64,
    /// Bytes that each flow's receiver has received.
    delivered: Vec<u64>,
    /// Number of retransmissions of each flow.
    retransmissions: Vec<usize>,
    /// Hash of all packets and their times.
    trace_hash: &'a str,
}

/// Runs `rnic rtl`.
///
/// # Errors
/// When the plan or a tool cannot be used, or circuit and model differ.
pub fn run(args: &RtlArgs) -> Result<(), Failure> {
    let RtlAction::Trace(args) = &args.action;
    trace(args)
}

fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let arguments = read(&args.plan)?;
    let cycles = arguments.cycles().map_err(|reason| Failure::file(&args.plan, reason))?;
    if cycles > CYCLES_MAX {
        let reason = format!("{cycles} cycles are too many for waves: at most {CYCLES_MAX}; shorten network.duration");
        return Err(Failure::file(&args.plan, reason));
    }
    let failed = |reason: String| Failure::file(&args.plan, reason);
    let by_model = arguments.tonic(&args.program, args.seed).map_err(failed)?;
    console::line("building the model of the circuit (15 to 60 s)");
    let mut is_first = true;
    let build = |spec: &NicSpec| -> Result<Box<dyn rnic_tonic::Nic>, String> {
        // The first sender is the circuit; the others have the model.
        if !core::mem::take(&mut is_first) {
            return Ok(Box::new(spec.model()?));
        }
        Ok(Box::new(circuit(spec, &args.out)?))
    };
    let side = arguments.tonic_with(&args.program, args.seed, build).map_err(failed)?;
    if side.trace_hash != by_model.trace_hash {
        let out = args.out.display();
        return Err(Failure::Check(format!("circuit and model sent different packets; the waves are in {out}")));
    }
    report(args, cycles, &side);
    Ok(())
}

fn read(path: &Path) -> Result<Arguments, Failure> {
    let failed = |reason: String| Failure::file(path, reason);
    let size = fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if size > PLAN_BYTES_MAX {
        return Err(failed(format!("{size} bytes are too many for a plan; at most {PLAN_BYTES_MAX}")));
    }
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let mut table: toml::Table = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
    if let Some(network) = table.get_mut("network").and_then(toml::Value::as_table_mut) {
        // A circuit runs every cycle.
        network.insert("every_cycle".to_owned(), toml::Value::Boolean(true));
    }
    new_reno::checked(&table).map_err(failed)
}

/// Builds and starts the circuit, which writes its waves to `out`.
fn circuit(spec: &NicSpec, out: &Path) -> Result<CircuitNic, String> {
    let NicSpec { program, parameters, link_rate, sizes, .. } = spec;
    if !sizes.flows.is_power_of_two() {
        return Err(format!("network.template is {}, but a circuit needs a power of two", sizes.flows));
    }
    let nic = Nic::new(program.description(), parameters.clone(), *link_rate, sizes.window, sizes.flows);
    let verilated = Verilated::build_with_waves(&[nic.circuit("tonic", None)]).map_err(|error| error.to_string())?;
    let out = std::path::absolute(out).map_err(|error| format!("{}: {error}", out.display()))?;
    fs::File::create(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let model = verilated.start_with_waves("tonic", 1, &out).map_err(|error| error.to_string())?;
    Ok(CircuitNic::new(nic, model))
}

fn report(args: &TraceArgs, cycles: u64, side: &Side) {
    let delivered = side.delivered.last().cloned().unwrap_or_default();
    let retransmissions: Vec<usize> = side.repeats.iter().map(Vec::len).collect();
    let text = format!(
        "{}: {cycles} cycles of {} in the first sender (simulated); {} flows delivered {} bytes with {} \
         retransmissions, as the model does\nopen it: gtkwave {}\n",
        args.out.display(),
        args.program,
        delivered.len(),
        delivered.iter().sum::<u64>(),
        retransmissions.iter().sum::<usize>(),
        args.out.display(),
    );
    let outcome = Outcome {
        plan: &args.plan,
        program: &args.program,
        out: &args.out,
        seed: args.seed,
        cycles,
        delivered,
        retransmissions,
        trace_hash: &side.trace_hash,
    };
    console::result(&text, args.json.then_some(&outcome));
}
