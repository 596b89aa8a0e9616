//! The semantics fuzz as a program: long series of runs, or the repetition of one seed.

#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use rnic_conformance::Place;
use rnic_conformance::campaign::{Campaign, LOOSE, ORDERINGS, Summary};

const TRANSPORTS: [&str; 15] = [
    "irn",
    "roce-gbn",
    "roce-sr",
    "roce-ar",
    "tcp",
    "fasr",
    "srnic",
    "falcon",
    LOOSE,
    "tonic-reno",
    "tonic-new-reno",
    "tonic-sack",
    "tonic-ndp",
    "tonic-dcqcn",
    "tonic-irn",
];

/// Runs random verbs operations over faulty networks, checked independently of the engine.
#[derive(Parser, Debug)]
struct Args {
    /// Network to run on
    #[arg(long, value_enum, default_value = "fabric")]
    backend: Backend,
    /// Name of the transport
    #[arg(long, value_parser = TRANSPORTS, default_value = "irn")]
    transport: String,
    /// Number of flows of a queue pair that deliver messages in any order (transports tonic-*)
    #[arg(long)]
    flows: Option<u8>,
    /// Use only this ordering mode for Falcon's queue pairs
    #[arg(long, value_parser = ORDERINGS)]
    ordering: Option<String>,
    /// Seed of the first run; each further run uses the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of packets after which no further run is started
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// Maximum number of runs
    #[arg(long, default_value_t = u64::MAX)]
    runs: u64,
    /// Maximum packets of one run
    #[arg(long, default_value_t = 40_000)]
    packets_per_run: u64,
    /// Write the packets that simulated hosts send to this file, as pcap; the file of the last run is kept
    #[arg(long)]
    pcap: Option<PathBuf>,
    /// Continue after failures, and count them
    #[arg(long)]
    keep_going: bool,
    /// Print one JSON object on the standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Backend {
    /// The simulated network
    Fabric,
    /// Engines alone, with links between them
    Engines,
    /// Real UDP sockets on loopback
    Sockets,
    /// Memory that NICs of one machine share
    Memory,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let place = match args.backend {
        Backend::Fabric => Place::Fabric,
        Backend::Engines => Place::Engines,
        Backend::Sockets => Place::Sockets,
        Backend::Memory => Place::Memory,
    };
    let Args { transport, ordering, flows, seed, runs, packets, packets_per_run, pcap, .. } = args;
    let campaign = Campaign { place, transport, ordering, flows, seed, runs, packets, packets_per_run, capture: pcap };
    if let Err(why) = campaign.check() {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    let start = Instant::now();
    let (mut summary, mut failures) = (Summary::default(), 0);
    let mut seed = campaign.seed;
    while summary.runs + failures < campaign.runs && summary.packets < campaign.packets {
        match campaign.run_one(seed) {
            Ok(tally) => summary.add(&tally),
            Err(what) => {
                eprintln!("{what}");
                failures += 1;
            }
        }
        show(seed, &summary, start);
        if failures > 0 && !args.keep_going {
            break;
        }
        seed += 1;
    }
    report(args.json, &campaign, &summary, failures, start);
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(seed: u64, summary: &Summary, start: Instant) {
    if std::io::stderr().is_terminal() && summary.runs.is_multiple_of(16) {
        let millions = summary.packets as f64 / 1e6;
        eprint!("\rseed {seed}: {millions:.2} million packets, {:.0} s", start.elapsed().as_secs_f64());
        // An error has no effect beyond an incomplete progress line.
        let _ = std::io::stderr().flush();
    }
}

fn report(json: bool, campaign: &Campaign, summary: &Summary, failures: u64, start: Instant) {
    let elapsed = start.elapsed().as_secs_f64();
    if json {
        let mut object = serde_json::to_value(summary).expect("the summary can be serialised");
        object["transport"] = campaign.transport.clone().into();
        object["ordering"] = campaign.ordering.clone().into();
        object["runs_failed"] = failures.into();
        object["elapsed_s"] = elapsed.into();
        println!("{object}");
    } else {
        println!("{}: {failures} runs failed in {elapsed:.1} s: {summary:?}", campaign.transport);
    }
}
