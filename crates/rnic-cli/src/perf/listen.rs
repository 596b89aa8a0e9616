//! The end that answers measurements.

use std::net::SocketAddr;

use rnic_host::perf::{ServeConfig, Served, serve};
use rnic_host::{Nic, NicConfig};

use super::{address, neighbour};
use crate::args::PerfArgs;
use crate::failure::Failure;
use crate::{console, output};

/// Runs `rnic perf --listen`.
///
/// # Errors
/// When nobody can listen at `bind`.
pub fn run(bind: &str, args: &PerfArgs) -> Result<(), Failure> {
    let mut nic = open("perf-listen", address::resolve(bind)?, args)?;
    if args.attached {
        console::print(&format!("{}\n", nic.local_addr()));
        neighbour::end_with_parent();
    } else {
        console::line(&format!("listening on {}; end with ctrl-c", nic.local_addr()));
    }
    let quiet = args.attached;
    serve(&mut nic, &ServeConfig::default(), || true, |served| report(served, quiet)).map_err(Failure::input)
}

fn report(served: &Served, quiet: bool) {
    if quiet {
        return;
    }
    let Served { peer, task, problem, packets_sent, packets_retransmitted, .. } = served;
    let end = problem.as_ref().map_or_else(String::new, |problem| format!("; {problem}; listening for the next"));
    console::line(&if task.is_empty() {
        format!("{peer}: nothing was agreed on{end}")
    } else {
        format!("{peer}: {task}; {packets_sent} packets sent, {packets_retransmitted} of them again{end}")
    });
}

/// A NIC at `bind`, capturing if that is asked for.
///
/// # Errors
/// When the address cannot be used or the capture not be written.
pub fn open(name: &str, bind: SocketAddr, args: &PerfArgs) -> Result<Nic, Failure> {
    let protection = super::protection(args)?;
    let config = NicConfig { name: name.to_owned(), mtu_max_bytes: args.mtu, protection, ..NicConfig::at(bind) };
    let config = config.with_environment().map_err(Failure::input)?;
    let mut nic = Nic::open(config).map_err(Failure::input)?;
    if let Some(path) = &args.pcap {
        let output = output::capture(path)?;
        nic.start_capture(Box::new(output)).map_err(|error| Failure::file(path, error))?;
    }
    Ok(nic)
}
