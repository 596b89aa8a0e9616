//! Events a second on one core, with the real Swift (F-R19, F-R21): connections x bytes of state x form.
//!
//! Each batch of events names random connections; making events, and carrying state back for the stateless form, is not
//! timed. On average a connection has two events a round trip, whatever the number of connections, half of them above
//! the target delay: so all loads take the same branches equally often, and what differs is memory. A state larger than
//! Swift's has counters in every further line, one of which every event raises.
//!
//! [`Subject::Memory`] is what memory alone gives: the same lines asked for ahead and raised by one, with no program.
//!
//! A figure is that of the median batch of the best of several rounds: a batch takes a fraction of a time slice, so
//! other programs interrupt few of them.
//!
//! Source: Falcon (SIGCOMM'25), figures 22a and 23, whose core is a Neoverse-N1.

mod datapath;
mod rate;
mod wide;

#[cfg(test)]
mod tests;

use rnic_fae::record::CONNECTIONS_MAX;
use rnic_fae::{Erased, Form, Typed};
use rnic_policy::profile::Configured;
use rnic_policy::{Control, Params};
use rnic_transports::control::swift::Swift;
use serde::Deserialize;
use wide::{Wide128, Wide256, Wide512};

use crate::{Nature, Trial, read, within};

/// The trial.
pub const TRIAL: Trial = Trial {
    name: "fae",
    nature: Nature::Measured,
    numbers: &["million_events_per_s", "ns_per_event"],
    cost: |arguments| Ok(checked(arguments)?.events() * EVENT_BYTES),
    run: |arguments, seed| {
        let rate = checked(arguments)?.rate(seed)?;
        Ok(serde_json::json!({ "million_events_per_s": rate, "ns_per_event": 1e3 / rate }))
    },
};

/// What is measured, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// What handles events.
    pub subject: Subject,
    /// Connections that events name.
    pub connections: u32,
    /// Bytes of state of each: 64, 128, 256 or 512; of the stateless form 64.
    pub state: u32,
    /// How the engine calls its program.
    #[serde(default)]
    pub program: Call,
    /// Rounds, after one that is not counted; the best counts.
    pub rounds: u32,
    /// Batches of a round.
    pub batches: u32,
}

/// What handles events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The engine whose state travels.
    Stateless,
    /// The engine whose state lies in a table.
    Table,
    /// The engine whose state lies in a table and is fetched ahead.
    Prefetching,
    /// Nothing: lines are fetched ahead and raised by one.
    Memory,
}

/// How the engine calls its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// It is compiled into the engine.
    #[default]
    Type,
    /// Through the registry of control policies, as settings name it; with 64 bytes of state.
    Name,
}

impl Load {
    /// Millions of events a second.
    ///
    /// # Errors
    /// Arguments out of range, or together without sense; no memory for the table.
    pub fn rate(&self, seed: u64) -> Result<f64, String> {
        self.check()?;
        let form = match self.subject {
            Subject::Stateless => Form::Stateless,
            Subject::Table => Form::Table,
            Subject::Prefetching => Form::PREFETCHING,
            Subject::Memory => return rate::of_memory(self, seed),
        };
        let params = Params::defaults(Swift::PARAMS);
        match (self.program, self.state) {
            (Call::Name, _) => {
                let policy = rnic_transports::control::find(Swift::NAME).ok_or("Swift is not registered")?;
                rate::of_engine(Erased(Configured { policy, params }), self, form, seed)
            }
            (Call::Type, 128) => rate::of_engine(Typed::<Wide128>::new(params), self, form, seed),
            (Call::Type, 256) => rate::of_engine(Typed::<Wide256>::new(params), self, form, seed),
            (Call::Type, 512) => rate::of_engine(Typed::<Wide512>::new(params), self, form, seed),
            (Call::Type, _) => rate::of_engine(Typed::<Swift>::new(params), self, form, seed),
        }
    }

    /// Whether it can be measured.
    fn check(&self) -> Result<(), String> {
        within("connections", self.connections, 1, CONNECTIONS_MAX)?;
        within("rounds", self.rounds, 1, ROUNDS_MAX)?;
        within("batches", self.batches, 1, BATCHES_MAX)?;
        if !STATE_BYTES.contains(&self.state) {
            let [rest @ .., last] = STATE_BYTES.map(|bytes| bytes.to_string());
            return Err(format!("state: {} bytes; there are states of {} and {last}", self.state, rest.join(", ")));
        }
        let is_own = self.state == STATE_BYTES[0];
        if self.subject == Subject::Stateless && !is_own {
            return Err("state: events carry no more than 64 bytes, and subject is stateless".to_owned());
        }
        if self.program == Call::Name && !is_own {
            return Err("state: no policy with a name has more than 64 bytes; leave out program".to_owned());
        }
        if self.program == Call::Name && self.subject == Subject::Memory {
            return Err("program: memory alone has none".to_owned());
        }
        Ok(())
    }

    /// Events of a run, the round that is not counted included.
    fn events(&self) -> u64 {
        u64::from(self.rounds + 1) * u64::from(self.batches) * BATCH as u64 + u64::from(self.connections)
    }
}

fn checked(arguments: &toml::Table) -> Result<Load, String> {
    let load: Load = read(arguments)?;
    load.check()?;
    Ok(load)
}

/// Events of a batch: with their responses they fit into the second-level cache, as what a NIC has just written would.
const BATCH: usize = 4_096;
/// What an event costs with all around it: the fabric moves some 8 GB in a second on a core, and here it is 8 million.
const EVENT_BYTES: u64 = 1_000;
/// Sizes of state that there are; the first is Swift's own.
pub const STATE_BYTES: [u32; 4] = [64, 128, 256, 512];
/// More only takes longer.
const ROUNDS_MAX: u32 = 1_000;
const BATCHES_MAX: u32 = 100_000;
