//! Many runs, one seed after the other, until so many packets have been sent.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use serde::Serialize;

use crate::backend::{Engines, Fabric};
use crate::body::{Body, Tally};
use crate::loose;
use crate::scenario::{Place, Scenario};

/// What to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// On what.
    pub place: Place,
    /// With which transport.
    pub transport: String,
    /// Falcon's queue pairs are all of this order ([`ORDERINGS`]), and no others stand beside them.
    pub ordering: Option<String>,
    /// The first run's seed; the others count up.
    pub seed: u64,
    /// Runs, at most.
    pub runs: u64,
    /// Packets after which no further run begins.
    pub packets: u64,
    /// Packets of one run, at most.
    pub packets_per_run: u64,
    /// Where every packet that a simulated host sends is written, as a capture.
    pub capture: Option<PathBuf>,
}

/// What has been run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// Packets sent, acknowledgements and repetitions included.
    pub packets: u64,
    /// Retransmitted packets.
    pub packets_repeated: u64,
    /// Requests that succeeded and were checked.
    pub requests: u64,
    /// Requests that failed as they had to.
    pub requests_failed: u64,
    /// Receives completed and checked.
    pub receives: u64,
    /// Connections that ended in an error that was meant.
    pub connections_failed: u64,
    /// Of these, connections made again.
    pub connections_again: u64,
    /// Send queues drained and resumed.
    pub drained: u64,
    /// Requests whose receiver was not ready.
    pub not_ready: u64,
    /// Commands of NVMe that were done and checked.
    pub commands: u64,
    /// Packets that found no room at their receiver, and were refused.
    pub no_room: u64,
    /// Packets by the order of Falcon's queue pairs.
    pub packets_by_ordering: BTreeMap<String, u64>,
    /// First failures of a queue pair, by what they were.
    pub failures: BTreeMap<String, u64>,
}

impl Summary {
    /// Counts a run in.
    pub fn add(&mut self, tally: &Tally) {
        self.runs += 1;
        self.packets += tally.packets;
        self.packets_repeated += tally.repeated;
        self.requests += tally.succeeded;
        self.requests_failed += tally.failed;
        self.receives += tally.received;
        self.connections_failed += tally.buried;
        self.connections_again += tally.reconnected;
        self.drained += tally.drained;
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

/// Falcon with requests that fail alone, in every order: the other body's ([`crate::loose`]).
pub const LOOSE: &str = "falcon-cie";

/// Orders of Falcon's queue pairs. With verbs' errors, which end a queue pair, there is none without any.
pub const ORDERINGS: [&str; 3] = ["ordered", "weak", "unordered"];

impl Campaign {
    /// Whether there is such a campaign.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), String> {
        match (self.transport.as_str(), self.ordering.as_deref()) {
            (_, None) | (LOOSE, _) | ("falcon", Some("ordered" | "weak")) => Ok(()),
            ("falcon", Some(_)) => Err(format!("verbs' errors need an order: use {LOOSE}")),
            (other, Some(_)) => Err(format!("{other} has one order only")),
        }
    }

    /// The scenario of one seed.
    ///
    /// # Panics
    /// When there is no such campaign ([`Campaign::check`]).
    pub fn scenario(&self, seed: u64) -> Scenario {
        let drawn = if self.transport == LOOSE {
            loose::draw(self.place, seed, self.packets_per_run)
        } else {
            Scenario::draw(self.place, &self.transport, seed, self.packets_per_run)
        };
        match &self.ordering {
            Some(ordering) => drawn.alone_with("ordering", ordering),
            None => drawn,
        }
    }

    /// Runs the scenario of `seed`.
    ///
    /// # Errors
    /// What was not as it must be, with the command that repeats the run.
    pub fn run_one(&self, seed: u64) -> Result<Tally, String> {
        self.run_scenario(&self.scenario(seed)).map_err(|what| format!("{what}\nrun it again: {}", self.replay(seed)))
    }

    /// Runs `scenario`, which may differ from that of its seed.
    ///
    /// # Errors
    /// What was not as it must be, with the scenario.
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
            Place::Fabric => loose::run(&mut self.fabric(scenario)?, scenario),
            Place::Engines => loose::run(&mut Engines::new(scenario), scenario),
            Place::Sockets | Place::Memory => loose::run(&mut crate::sockets(scenario, self.place)?, scenario),
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

    /// The command that repeats the run of `seed`.
    pub fn replay(&self, seed: u64) -> String {
        let place = match self.place {
            Place::Fabric => "fabric",
            Place::Engines => "engines",
            Place::Sockets => "sockets",
            Place::Memory => "memory",
        };
        let ordering = self.ordering.as_ref().map_or(String::new(), |ordering| format!(" --ordering {ordering}"));
        format!(
            "cargo run -p rnic-conformance --release -- --backend {place} --transport {}{ordering} --seed {seed} \
             --runs 1 --packets-per-run {}",
            self.transport, self.packets_per_run
        )
    }

    /// Runs all; `progress` hears of each run that is done.
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
