//! The server side of `rnic perf`.

use std::net::SocketAddr;

use rnic_host::perf::{ServeConfig, Served, serve};
use rnic_host::{Nic, NicConfig, TransportChoice};

use super::address;
use crate::args::PerfArgs;
use crate::args::values::Peers;
use crate::failure::Failure;
use crate::{console, output};

/// Runs `rnic perf --listen`.
///
/// # Errors
/// When the command cannot listen at `bind`.
pub fn run(bind: &str, args: &PerfArgs) -> Result<(), Failure> {
    let bind = address::resolve(bind)?;
    let mut nic = open("perf-listen", bind, args)?;
    let at = if args.peers == Peers::Roce { bind } else { nic.local_addr() };
    if args.attached {
        console::print(&format!("{at}\n"));
    } else {
        console::line(&format!("listening on {at}; stop with ctrl-c"));
    }
    let quiet = args.attached;
    let config = ServeConfig { sleeps_at_once: args.events, ..ServeConfig::default() };
    serve(&mut nic, &config, || true, |served| report(served, quiet)).map_err(Failure::input)
}

fn report(served: &Served, quiet: bool) {
    if quiet {
        return;
    }
    let Served { peer, task, problem, packets_sent, packets_retransmitted, .. } = served;
    let end = problem.as_ref().map_or_else(String::new, |problem| format!("; {problem}; waiting for the next session"));
    console::line(&if task.is_empty() {
        format!("{peer}: the session was not established{end}")
    } else {
        format!("{peer}: {task}; {packets_sent} packets sent, {packets_retransmitted} of them retransmissions{end}")
    });
}

/// Returns `true` if the measured transport slows down when the network marks packets. A listener is not told the
/// transport on its command line.
fn reacts_to_ecn(args: &PerfArgs) -> Result<bool, Failure> {
    let options: Vec<(&str, &str)> = args.settings.iter().map(|setting| (&*setting.key, &*setting.value)).collect();
    Ok(TransportChoice::for_roce_peers(&options).map_err(Failure::input)?.reacts_to_ecn())
}

/// Opens a NIC at `bind`, or at the port of RoCEv2 when its peers are RoCE adapters, with a packet capture when
/// requested.
///
/// # Errors
/// When the address cannot be used or the capture cannot be written.
pub fn open(name: &str, bind: SocketAddr, args: &PerfArgs) -> Result<Nic, Failure> {
    let protection = super::protection(args)?;
    let base = match args.peers {
        Peers::Rnic => NicConfig::at(bind),
        Peers::Roce => {
            NicConfig { real_roce_peers: true, marks_congestion: reacts_to_ecn(args)?, ..NicConfig::shared() }
        }
    };
    let config = NicConfig { name: name.to_owned(), mtu_max_bytes: args.mtu, protection, ..base };
    let mut config = config.with_environment().map_err(Failure::input)?;
    if let (Some(share), Some(group)) = (&mut config.share, &args.link_group) {
        share.group.clone_from(group);
    }
    rnic_host::shorten_slices();
    let mut nic = Nic::open(config).map_err(Failure::input)?;
    if let Some(path) = &args.pcap {
        let output = output::capture(path)?;
        nic.start_capture(Box::new(output)).map_err(|error| Failure::file(path, error))?;
    }
    Ok(nic)
}
