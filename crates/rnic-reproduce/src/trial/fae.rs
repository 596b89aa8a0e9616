//! Events per second on one core, with the real Swift (F-R19, F-R21): connections x bytes of state x form.
//!
//! Each batch of events names random connections; creating events, and carrying state back for the stateless form, is
//! not timed. On average a connection has two events a round trip, independent of the number of connections, half of
//! them above the target delay: so all loads take the same branches equally often, and differ only in memory accesses.
//! A state larger than Swift's has counters in every further line, one of which every event increments.
//!
//! [`Subject::Memory`] measures memory alone: the same lines are prefetched and incremented, with no program.
//!
//! A result is that of the median batch of the best of several rounds: a batch takes a fraction of a time slice, so
//! other programs interrupt few of them.
//!
//! Source: Falcon (SIGCOMM'25), figures 22a and 23, whose core is a Neoverse-N1.

mod datapath;
mod rate;
mod wide;

#[cfg(test)]
mod tests;

use rnic_fae::record::CONNECTIONS_MAX;
use rnic_fae::{ErasedPolicy, StateLocation, Typed};
use rnic_policy::Configured;
use rnic_policy::{Control, Params};
use rnic_transports::control::swift::Swift;
use serde::Deserialize;
use wide::{Wide128, Wide256, Wide512};

use super::{Trial, TrialKind, read, within};

/// The trial of the adaptive engine's event rate.
pub const TRIAL: Trial = Trial {
    name: "fae",
    kind: TrialKind::Measured,
    numbers: &["million_events_per_s", "ns_per_event"],
    series: &[],
    cost: |arguments| Ok(checked(arguments)?.events() * EVENT_BYTES),
    run: |arguments, seed| {
        let rate = checked(arguments)?.rate(seed)?;
        Ok(serde_json::json!({ "million_events_per_s": rate, "ns_per_event": 1e3 / rate }))
    },
};

/// The measured subject and the length of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Handler of the events.
    pub subject: Subject,
    /// Number of connections that events name.
    pub connections: u32,
    /// Bytes of state of each connection: 64, 128, 256 or 512; 64 for the stateless form.
    pub state: u32,
    /// Way in which the engine calls the program.
    #[serde(default)]
    pub program: Call,
    /// Number of rounds, after one that is not counted; the best counts.
    pub rounds: u32,
    /// Number of batches per round.
    pub batches: u32,
}

/// Handler of the events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The engine whose state travels in events and responses.
    Stateless,
    /// The engine whose state is in a table.
    Table,
    /// The engine whose state is in a table and is prefetched.
    Prefetching,
    /// No engine: lines are prefetched and incremented by one.
    Memory,
}

/// Way in which the engine calls its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// The program is compiled into the engine.
    #[default]
    Type,
    /// Through the registry of control policies, by name as in settings; with 64 bytes of state.
    Name,
}

impl Load {
    /// Returns the rate in millions of events per second.
    ///
    /// # Errors
    /// When arguments are out of range or cannot be combined, or there is no memory for the table.
    pub fn rate(&self, seed: u64) -> Result<f64, String> {
        self.check()?;
        let form = match self.subject {
            Subject::Stateless => StateLocation::Stateless,
            Subject::Table => StateLocation::Table,
            Subject::Prefetching => StateLocation::PREFETCHING,
            Subject::Memory => return rate::of_memory(self, seed),
        };
        let params = Params::defaults(Swift::PARAMS);
        match (self.program, self.state) {
            (Call::Name, _) => {
                let policy = rnic_transports::control::find(Swift::NAME).ok_or("Swift is not registered")?;
                rate::of_engine(ErasedPolicy(Configured { policy, params }), self, form, seed)
            }
            (Call::Type, 128) => rate::of_engine(Typed::<Wide128>::new(params), self, form, seed),
            (Call::Type, 256) => rate::of_engine(Typed::<Wide256>::new(params), self, form, seed),
            (Call::Type, 512) => rate::of_engine(Typed::<Wide512>::new(params), self, form, seed),
            (Call::Type, _) => rate::of_engine(Typed::<Swift>::new(params), self, form, seed),
        }
    }

    /// Checks whether the load can be measured.
    fn check(&self) -> Result<(), String> {
        within("connections", self.connections, 1, CONNECTIONS_MAX)?;
        within("rounds", self.rounds, 1, ROUNDS_MAX)?;
        within("batches", self.batches, 1, BATCHES_MAX)?;
        if !STATE_BYTES.contains(&self.state) {
            let [rest @ .., last] = STATE_BYTES.map(|bytes| bytes.to_string());
            return Err(format!("state: {} bytes; there are states of {} and {last}", self.state, rest.join(", ")));
        }
        let is_swift_size = self.state == STATE_BYTES[0];
        if self.subject == Subject::Stateless && !is_swift_size {
            return Err("state: events carry no more than 64 bytes, and subject is stateless".to_owned());
        }
        if self.program == Call::Name && !is_swift_size {
            return Err("state: no policy with a name has more than 64 bytes; leave out program".to_owned());
        }
        if self.program == Call::Name && self.subject == Subject::Memory {
            return Err("program: memory alone has none".to_owned());
        }
        Ok(())
    }

    /// Returns the events of a run, including the round that is not counted.
    fn events(&self) -> u64 {
        u64::from(self.rounds + 1) * u64::from(self.batches) * BATCH_EVENTS as u64 + u64::from(self.connections)
    }
}

fn checked(arguments: &toml::Table) -> Result<Load, String> {
    let load: Load = read(arguments)?;
    load.check()?;
    Ok(load)
}

/// Events per batch: with their responses they fit into the second-level cache, like records that a NIC has just
/// written.
const BATCH_EVENTS: usize = 4_096;
/// Cost of an event in bytes, with all overhead: the fabric simulates about 0.4 GB per second on a core, in packets of
/// 1 KB, and here it is 8 million events.
const EVENT_BYTES: u64 = 50;
/// Available state sizes in bytes; the first is that of Swift.
pub const STATE_BYTES: [u32; 4] = [64, 128, 256, 512];
/// Maximum number of rounds; more would only take longer.
const ROUNDS_MAX: u32 = 1_000;
const BATCHES_MAX: u32 = 100_000;
