//! A plan: the complete description of a run except its seed.
//!
//! Plans are TOML. Quantities are written with their unit in quotes (`"100Gbps"`, `"2us"`, `"240KB"`, `"1%"`); unknown
//! keys, wrong units and impossible combinations are rejected with one line that contains the error and its position.
//! Only tables that the topology does not use (`[switch]` without switches, `links.fabric` without links between them)
//! are allowed nevertheless, so that another topology can be tried with `--set`.
//!
//! Every key is declared once, in `plan/raw.rs`, with its type, default and meaning. The reader of plans,
//! `docs/plans.md` and `rnic list` use these declarations.

mod chakra;
mod classes;
mod collective;
mod derived;
mod error;
mod faults;
mod fitted;
mod groups;
mod hints;
mod json_schema;
mod keys;
mod nic;
mod nvme;
mod packet_buffer;
mod processors;
mod quantity;
mod raw;
mod record;
mod resolve;
mod schema;
mod scr;
mod slow_host;
mod switches;
mod tables;
mod tenants;
mod topologies;
mod traffic;
mod transports;
mod warnings;
mod workloads;

use rnic_base::{BitRate, Duration, Time, similar};
use rnic_engine::PoolConfig;
use rnic_policy::{ParamError, Profile};
use rnic_transports::SelectError;

use crate::fault::FaultPlan;
use crate::record::RecordPlan;
use crate::switch::SwitchPlan;
use crate::trace::TracePlan;
use crate::workload::WorkloadPlan;

pub use crate::classes::ClassPlan;
pub use crate::link_spec::LinkPlan;
pub use chakra::TraceFiles;
pub use error::PlanError;
pub use json_schema::json_schema;
pub use keys::insert;
pub use nic::{BusPlan, NicPlan, WorkFetch};
pub use packet_buffer::{DramPlan, PacketBufferPlan};
pub use raw::SCHEMA;
pub use schema::{Absent, Doc, Key, TABLES_BY_NAME, Table, Word};
pub use scr::ScrPlan;
pub use slow_host::SlowHostPlan;
pub use tables::TablesPlan;
pub use topologies::{GraphPlan, TopologyPlan};

/// Time limits of a run, and selection of the measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunPlan {
    /// Simulated time at which the run is cut off.
    pub limit: Time,
    /// The run has failed when no useful packet arrives for this duration.
    pub stall_after: Duration,
    /// Flows that start before this time are excluded from averages.
    pub warmup: Duration,
    /// For workloads that end at a given time: messages posted in the last part of this length are excluded from
    /// latencies, and the steady goodput ends at its start. When such messages complete, other senders have already
    /// stopped, so that they complete faster than in the steady state.
    pub cooldown: Duration,
    /// Length of the time slices for which the report lists the goodput of hosts.
    pub slice: Option<Duration>,
    /// True when the report has the parts of the latency of each operation.
    pub latency_parts: bool,
}

/// A plan that has been checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the plan, any text, for the report.
    pub name: String,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Maximum number of Reads and atomics of a queue pair in flight.
    pub reads: u32,
    /// True when packets carry real bytes, which are verified.
    pub checked_payload: bool,
    /// True when packets are encoded to bytes and decoded at the receiver.
    pub encoded: bool,
    /// Topology of the simulated network.
    pub topology: TopologyPlan,
    /// Links of hosts; in a topology from a file, the highest rate and the longest delay of any.
    pub host_links: LinkPlan,
    /// Links between switches; in a topology from a file, like `host_links`.
    pub fabric_links: LinkPlan,
    /// Links between switches of different pods or groups.
    pub core_links: LinkPlan,
    /// For a leaf-spine: rate of the links of each spine, if the rates differ. A rate is at most that of
    /// [`Self::fabric_links`], from which expected values are computed.
    pub spine_rates: Vec<BitRate>,
    /// The switches, all alike.
    pub switch: Option<SwitchPlan>,
    /// Classes of packets, ordered by name; empty when all packets are treated alike.
    pub classes: Vec<ClassPlan>,
    /// The transport of every queue pair, except those of groups of traffic with a transport of their own.
    pub transport: Profile,
    /// The NIC memory model, when there is one.
    pub nic: Option<NicPlan>,
    /// Threads on which schedulers run.
    pub processors: Option<PoolConfig>,
    /// Hosts with slow memory, if any.
    pub slow_host: Option<SlowHostPlan>,
    /// Messages between NICs, if there are any.
    pub scr: Option<ScrPlan>,
    /// Flows and messages of the simulation.
    pub workload: WorkloadPlan,
    /// The fault rules, in order.
    pub faults: Vec<FaultPlan>,
    /// Limits of the run and measurements.
    pub run: RunPlan,
    /// Time series to record, if any.
    pub record: Option<RecordPlan>,
    /// Selection of what a trace contains, if there is one.
    pub trace: TracePlan,
}

/// Returns the text of a file that a plan names, or the reason why it cannot be read.
pub type FileReader<'f> = dyn FnMut(&str) -> Result<String, String> + 'f;

impl Plan {
    /// Reads a plan that names no files.
    ///
    /// # Errors
    /// A description of the error, in one line.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        Self::from_toml_with(text, &[], &mut |_| {
            Err("the plan was given as text, without the files that it names".to_owned())
        })
    }

    /// Reads a plan, with some of its keys replaced first: `("transport.name", "roce-gbn")`. Values are parsed as TOML,
    /// or taken as text when they are not valid TOML; a table replaces a table. `files` returns the content of the
    /// files that the plan names.
    ///
    /// # Errors
    /// A description of the error, in one line.
    pub fn from_toml_with(
        text: &str,
        overrides: &[(&str, &str)],
        files: &mut FileReader<'_>,
    ) -> Result<Self, PlanError> {
        Self::from_toml_in(text, overrides, files, &mut chakra::NoTraceFiles)
    }

    /// Reads a plan like [`Plan::from_toml_with`]; `traces` has the execution traces that the plan names.
    ///
    /// # Errors
    /// A description of the error, in one line.
    pub fn from_toml_in(
        text: &str,
        overrides: &[(&str, &str)],
        files: &mut FileReader<'_>,
        traces: &mut dyn TraceFiles,
    ) -> Result<Self, PlanError> {
        let locate = |error: PlanError| error.located(text, overrides);
        let raw = resolve::read(text, overrides).map_err(|error| locate(Self::explain_key(error, overrides)))?;
        let plan =
            resolve::resolve(raw, files, traces).map_err(|error| locate(Self::explain(error, text, overrides)))?;
        plan.check().map_err(locate)?;
        Ok(plan)
    }

    /// Extends the error about an unknown key that was given without a table: it may be an option of the transport.
    fn explain_key(error: PlanError, overrides: &[(&str, &str)]) -> PlanError {
        match error {
            PlanError::Key { key, line: None, what }
                if !key.contains('.')
                    && what.starts_with("unknown key")
                    && !what.contains("; there is ")
                    && overrides.iter().any(|(given, _)| *given == key) =>
            {
                let what = format!("{what}; an option of the transport is `transport.{key}`");
                PlanError::Key { key, line: None, what }
            }
            error => error,
        }
    }

    /// Extends the error about a transport option by the line of the option. Overriding only the transport's name keeps
    /// the options of the plan's transport, which the new one may not have.
    fn explain(error: PlanError, text: &str, overrides: &[(&str, &str)]) -> PlanError {
        let mut of_transport = overrides.iter().filter(|(key, _)| key.starts_with("transport.")).map(|(key, _)| *key);
        let is_name_alone = of_transport.next() == Some("transport.name") && of_transport.next().is_none();
        match error {
            PlanError::Transport(source @ SelectError::Option { .. }) if is_name_alone => {
                let what =
                    format!("{source}; to drop the plan's options of `transport` too, set transport=NAME instead");
                PlanError::Value { key: "transport.name", what }
            }
            PlanError::Transport(SelectError::Option { transport, source: ParamError::Unknown { name, known } }) => {
                let line = keys::line_of(text, &format!("transport.{name}"));
                let what = format!(
                    "unknown parameter `{name}` of the transport `{transport}`; the valid parameters are: {known}{}",
                    similar::hint(
                        &name,
                        known.split(", ").chain(["recovery", "control", "paths", "schedule", "program"])
                    )
                );
                PlanError::Key { key: format!("transport.{name}"), line, what }
            }
            error => error,
        }
    }

    /// Rejects a plan that cannot be run. Plans from [`Plan::from_toml`] have been checked; plans that were changed
    /// afterwards are checked again when a simulation is created.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(&self) -> Result<(), PlanError> {
        resolve::check(self)
    }
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
