//! Many runs, one seed after the other, until so many packets have been sent.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use serde::Serialize;

use crate::backend::Engines;
use crate::body::{Body, Tally};
use crate::scenario::{Place, Scenario};

/// What to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// On what.
    pub place: Place,
    /// With which transport.
    pub transport: String,
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
    /// Packets sent again.
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
        for (status, count) in &tally.failures {
            *self.failures.entry(status.clone()).or_default() += count;
        }
    }
}

/// Falcon with requests that fail alone, in every order: the other body's ([`crate::loose`]), between engines.
pub const LOOSE: &str = "falcon-cie";

impl Campaign {
    /// The scenario of one seed.
    pub fn scenario(&self, seed: u64) -> Scenario {
        Scenario::draw(self.place, &self.transport, seed, self.packets_per_run)
    }

    /// Runs the scenario of `seed`.
    ///
    /// # Errors
    /// What was not as it must be, with the command that repeats the run.
    pub fn run_one(&self, seed: u64) -> Result<Tally, String> {
        if self.transport == LOOSE {
            let outcome = crate::loose::run(seed, self.packets_per_run);
            return outcome.map_err(|what| format!("{what}\nrun it again: {}", self.replay(seed)));
        }
        let scenario = self.scenario(seed);
        let outcome = match self.place {
            Place::Fabric => self.run_on_fabric(&scenario),
            Place::Engines => Body::run(&mut Engines::new(&scenario), &scenario),
            Place::Sockets => crate::sockets(&scenario).and_then(|mut sockets| Body::run(&mut sockets, &scenario)),
        };
        outcome.map_err(|what| format!("{what}\n{scenario:#?}\nrun it again: {}", self.replay(seed)))
    }

    fn run_on_fabric(&self, scenario: &Scenario) -> Result<Tally, String> {
        let mut fabric = crate::fabric(scenario)?;
        if let Some(path) = &self.capture {
            let named = |error: &dyn Display| format!("{}: {error}", path.display());
            let file = File::create(path).map_err(|error| named(&error))?;
            let capture = fabric.simulation().capture_to(BufWriter::new(file));
            capture.map_err(|error| named(&error))?;
        }
        Body::run(&mut fabric, scenario)
    }

    /// The command that repeats the run of `seed`.
    pub fn replay(&self, seed: u64) -> String {
        let place = match self.place {
            Place::Fabric => "fabric",
            Place::Engines => "engines",
            Place::Sockets => "sockets",
        };
        format!(
            "cargo run -p rnic-conformance --release -- --backend {place} --transport {} --seed {seed} --runs 1 \
             --packets-per-run {}",
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
