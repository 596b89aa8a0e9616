//! A network of the trial `tonic-new-reno`, cycle by cycle: the first sender is Tonic's NIC with all its flows.

use std::path::Path;

use rnic_reproduce::trial::tonic::NicSpec;
use rnic_reproduce::trial::tonic::new_reno::{self, Arguments, Side};
use rnic_rtl::tonic::endpoint::CircuitNic;
use rnic_rtl::tonic::nic::Nic;
use rnic_rtl::verilated::Verilated;
use serde::Serialize;

use super::{create, require_verilator};
use crate::args::TraceArgs;
use crate::console;
use crate::failure::Failure;

/// Maximum number of cycles of a trace: a cycle of 16 flows takes about a kilobyte.
const CYCLES_MAX: u64 = 200_000;

/// Program of the senders, unless another is named.
const PROGRAM: &str = "new-reno";

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

/// Simulates the network of a plan that has been read.
///
/// # Errors
/// When the plan or a tool cannot be used, or circuit and model differ.
pub(super) fn trace(args: &TraceArgs, table: toml::Table) -> Result<(), Failure> {
    if !args.settings.is_empty() || args.flow.is_some() {
        let reason = "is a network of cycles, which --set and --flow do not apply to: change the file";
        return Err(Failure::file(&args.plan, reason));
    }
    let arguments = checked(table).map_err(|reason| Failure::file(&args.plan, reason))?;
    let cycles = arguments.cycles().map_err(|reason| Failure::file(&args.plan, reason))?;
    if cycles > CYCLES_MAX {
        let reason = format!("{cycles} cycles are too many for waves: at most {CYCLES_MAX}; shorten network.duration");
        return Err(Failure::file(&args.plan, reason));
    }
    let failed = |reason: String| Failure::file(&args.plan, reason);
    let program = args.program.as_deref().unwrap_or(PROGRAM);
    let by_model = arguments.tonic(program, args.seed).map_err(failed)?;
    require_verilator()?;
    console::line("building the model of the circuit (15 to 60 s)");
    let mut is_first = true;
    let build = |spec: &NicSpec| -> Result<Box<dyn rnic_tonic::Nic>, String> {
        // The first sender is the circuit; the others have the model.
        if !core::mem::take(&mut is_first) {
            return Ok(Box::new(spec.model()?));
        }
        Ok(Box::new(circuit(spec, args)?))
    };
    let side = arguments.tonic_with(program, args.seed, build).map_err(failed)?;
    if side.trace_hash != by_model.trace_hash {
        let out = args.out.display();
        return Err(Failure::Check(format!("circuit and model sent different packets; the waves are in {out}")));
    }
    report(args, program, cycles, &side);
    Ok(())
}

fn checked(mut table: toml::Table) -> Result<Arguments, String> {
    if let Some(network) = table.get_mut("network").and_then(toml::Value::as_table_mut) {
        // A circuit runs every cycle.
        network.insert("every_cycle".to_owned(), toml::Value::Boolean(true));
    }
    new_reno::checked(&table)
}

/// Builds and starts the circuit, which writes its waves to `out`.
fn circuit(spec: &NicSpec, args: &TraceArgs) -> Result<CircuitNic, String> {
    let NicSpec { program, parameters, link_rate, sizes, .. } = spec;
    if !sizes.flows.is_power_of_two() {
        return Err(format!("network.template is {}, but a circuit needs a power of two", sizes.flows));
    }
    let nic = Nic::new(program.description(), parameters.clone(), *link_rate, sizes.window, sizes.flows);
    let verilated = Verilated::build_with_waves(&[nic.circuit("tonic", None)]).map_err(|error| error.to_string())?;
    let model = verilated.start_with_waves("tonic", 1, &create(args)?).map_err(|error| error.to_string())?;
    Ok(CircuitNic::new(nic, model))
}

fn report(args: &TraceArgs, program: &str, cycles: u64, side: &Side) {
    let delivered = side.delivered.last().cloned().unwrap_or_default();
    let retransmissions: Vec<usize> = side.repeats.iter().map(Vec::len).collect();
    let text = format!(
        "{}: {cycles} cycles of {} in the first sender (simulated); {} flows delivered {} bytes with {} \
         retransmissions, as the model does\nopen it: gtkwave {}\n",
        args.out.display(),
        program,
        delivered.len(),
        delivered.iter().sum::<u64>(),
        retransmissions.iter().sum::<usize>(),
        args.out.display(),
    );
    let outcome = Outcome {
        plan: &args.plan,
        program,
        out: &args.out,
        seed: args.seed,
        cycles,
        delivered,
        retransmissions,
        trace_hash: &side.trace_hash,
    };
    console::result(&text, args.json.then_some(&outcome));
}
