//! A series of runs, one seed after the other, until a number of packets has been sent.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use serde::Serialize;

use crate::backend::{Engines, Fabric};
use crate::body::{Body, Tally};
use crate::individual_errors;
use crate::scenario::{Place, Scenario};

/// Description of a series of runs.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Type of network.
    pub place: Place,
    /// Name of the transport.
    pub transport: String,
    /// Ordering mode of all Falcon queue pairs ([`ORDERINGS`]); when it is given, no queue pairs of another transport
    /// are used.
    pub ordering: Option<String>,
    /// Number of flows of a queue pair that deliver messages in any order (Tonic, appendix A); when it is given, no
    /// queue pairs of another transport are used.
    pub flows: Option<u8>,
    /// Seed of the first run; each further run uses the next number.
    pub seed: u64,
    /// Maximum number of runs.
    pub runs: u64,
    /// Packets after which no further run starts.
    pub packets: u64,
    /// Maximum packets of one run.
    pub packets_per_run: u64,
    /// File to which every packet that a simulated host sends is written, as a capture.
    pub capture: Option<PathBuf>,
}

/// Counters of all runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Summary {
    /// Number of runs.
    pub runs: u64,
    /// Packets sent, acknowledgements and retransmissions included.
    pub packets: u64,
    /// Retransmitted packets.
    pub packets_repeated: u64,
    /// Requests that succeeded and were checked.
    pub requests: u64,
    /// Requests that failed as expected.
    pub requests_failed: u64,
    /// Receives completed and checked.
    pub receives: u64,
    /// Connections that ended in an intended error.
    pub connections_failed: u64,
    /// Connections that were established again after they had failed.
    pub connections_again: u64,
    /// Send queues drained and resumed.
    pub drained: u64,
    /// Limits of dequeue rates set.
    pub rate_limits: u64,
    /// Requests whose receiver was not ready (RNR).
    pub not_ready: u64,
    /// NVMe commands that completed and were checked.
    pub commands: u64,
    /// Packets that were refused because their receiver had no buffer space.
    pub no_room: u64,
    /// Packets by the ordering mode of Falcon's queue pairs.
    pub packets_by_ordering: BTreeMap<String, u64>,
    /// Number of first failures of a queue pair, by completion status.
    pub failures: BTreeMap<String, u64>,
}

impl Summary {
    /// Adds the counters of a run.
    pub fn add(&mut self, tally: &Tally) {
        self.runs += 1;
        self.packets += tally.packets;
        self.packets_repeated += tally.repeated;
        self.requests += tally.succeeded;
        self.requests_failed += tally.failed;
        self.receives += tally.received;
        self.connections_failed += tally.connections_failed;
        self.connections_again += tally.reconnected;
        self.drained += tally.drained;
        self.rate_limits += tally.rate_limits;
        self.not_ready += tally.not_ready;
        self.commands += tally.commands;
        self.no_room += tally.no_room;
        if let Some(ordering) = &tally.ordering {
            *self.packets_by_ordering.entry(ordering.clone()).or_default() += tally.packets;
        }
        for (status, count) in &tally.failures {
            *self.failures.entry(status.clone()).or_default() += count;
        }
    }
}

/// Falcon with requests that fail alone, in every ordering mode: runs on the second test driver
/// ([`crate::individual_errors`]).
pub const LOOSE: &str = "falcon-cie";

/// Ordering modes of Falcon's queue pairs. With the error semantics of verbs, where an error ends the queue pair,
/// `unordered` does not exist.
pub const ORDERINGS: [&str; 3] = ["ordered", "weak", "unordered"];

impl Campaign {
    /// Checks whether the campaign is valid.
    ///
    /// # Errors
    /// The reason, when it is not.
    pub fn check(&self) -> Result<(), String> {
        if self.flows.is_some_and(|flows| !(1..=8).contains(&flows)) || self.flows.is_some() && !self.has_flows() {
            return Err(format!("--flows is for the transports tonic-*, from 1 to 8, not for {}", self.transport));
        }
        match (self.transport.as_str(), self.ordering.as_deref()) {
            (_, None) | (LOOSE, _) | ("falcon", Some("ordered" | "weak")) => Ok(()),
            ("falcon", Some(_)) => Err(format!("verbs' errors need an order: use {LOOSE}")),
            (other, Some(_)) => Err(format!("{other} has one order only")),
        }
    }

    fn has_flows(&self) -> bool {
        self.transport.starts_with("tonic-")
    }

    /// Returns the scenario of one seed.
    ///
    /// # Panics
    /// When the campaign is invalid ([`Campaign::check`]).
    pub fn scenario(&self, seed: u64) -> Scenario {
        let generated = if self.transport == LOOSE {
            individual_errors::draw(self.place, seed, self.packets_per_run)
        } else {
            Scenario::draw(self.place, &self.transport, seed, self.packets_per_run)
        };
        match (&self.ordering, self.flows) {
            (Some(ordering), _) => generated.alone_with("ordering", ordering),
            (None, Some(flows)) => generated.alone_with("flows", &flows.to_string()),
            (None, None) => generated,
        }
    }

    /// Runs the scenario of `seed`.
    ///
    /// # Errors
    /// The violation found, with the command that repeats the run.
    pub fn run_one(&self, seed: u64) -> Result<Tally, String> {
        self.run_scenario(&self.scenario(seed)).map_err(|what| format!("{what}\nrun it again: {}", self.replay(seed)))
    }

    /// Runs `scenario`, which may differ from that of its seed.
    ///
    /// # Errors
    /// The violation found, with the scenario.
    pub fn run_scenario(&self, scenario: &Scenario) -> Result<Tally, String> {
        let run = if self.transport == LOOSE { Self::run_loose } else { Self::run_body };
        let outcome = run(self, scenario);
        let ordering = scenario.transport.ordering().map(str::to_owned);
        outcome.map(|tally| Tally { ordering, ..tally }).map_err(|what| format!("{what}\n{scenario:#?}"))
    }

    fn run_body(&self, scenario: &Scenario) -> Result<Tally, String> {
        match self.place {
            Place::Fabric => Body::run(&mut self.fabric(scenario)?, scenario),
            Place::Engines => Body::run(&mut Engines::new(scenario), scenario),
            Place::Sockets | Place::Memory => Body::run(&mut crate::sockets(scenario, self.place)?, scenario),
        }
    }

    fn run_loose(&self, scenario: &Scenario) -> Result<Tally, String> {
        match self.place {
            Place::Fabric => individual_errors::run(&mut self.fabric(scenario)?, scenario),
            Place::Engines => individual_errors::run(&mut Engines::new(scenario), scenario),
            Place::Sockets | Place::Memory => {
                individual_errors::run(&mut crate::sockets(scenario, self.place)?, scenario)
            }
        }
    }

    fn fabric(&self, scenario: &Scenario) -> Result<Fabric, String> {
        let mut fabric = crate::fabric(scenario)?;
        if let Some(path) = &self.capture {
            let named = |error: &dyn Display| format!("{}: {error}", path.display());
            let file = File::create(path).map_err(|error| named(&error))?;
            let capture = fabric.simulation().capture_to(BufWriter::new(file));
            capture.map_err(|error| named(&error))?;
        }
        Ok(fabric)
    }

    /// Returns the command that repeats the run of `seed`.
    pub fn replay(&self, seed: u64) -> String {
        let place = match self.place {
            Place::Fabric => "fabric",
            Place::Engines => "engines",
            Place::Sockets => "sockets",
            Place::Memory => "memory",
        };
        let ordering = self.ordering.as_ref().map_or(String::new(), |ordering| format!(" --ordering {ordering}"));
        let flows = self.flows.map_or(String::new(), |flows| format!(" --flows {flows}"));
        format!(
            "cargo run -p rnic-conformance --release -- --backend {place} --transport {}{ordering}{flows} \
             --seed {seed} --runs 1 --packets-per-run {}",
            self.transport, self.packets_per_run
        )
    }

    /// Runs all; calls `progress` after each run.
    ///
    /// # Errors
    /// The first failure.
    pub fn run(&self, mut progress: impl FnMut(u64, &Summary)) -> Result<Summary, String> {
        let mut summary = Summary::default();
        while summary.runs < self.runs && summary.packets < self.packets {
            let seed = self.seed + summary.runs;
            summary.add(&self.run_one(seed)?);
            progress(seed, &summary);
        }
        Ok(summary)
    }
}
