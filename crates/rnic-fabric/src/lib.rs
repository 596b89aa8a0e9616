//! The simulator driver: the simulated network, with real engines at its hosts.
//!
//! ```text
//! CRATE    rnic-fabric (amber: change with a scenario or property test)
//! Purpose  clock, links, switches, PFC and ECN, topologies, workloads, faults, host models, checkers, metrics
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-transports, rnic-engine, rnic-nvme
//! Must not read a clock, use the system's random numbers, open a file or a socket, start a thread; allocate per packet
//! Add here a topology, a workload, a fault rule, a switch model, a measurement (each says how in its module)
//! Not here what a NIC does (rnic-engine), algorithms (rnic-transports), reading files and printing (rnic-cli)
//! Tested by tests/ here: determinism, conservation under random faults, PFC, ECMP, round robin, workloads, plans
//! ```
//!
//! A [`Plan`] and a seed make a [`Simulation`]; running it gives a [`Report`]. The same plan and seed give the same
//! trace hash, on every machine.
//!
//! ```
//! use core::ops::ControlFlow;
//! use rnic_fabric::{Plan, Simulation};
//!
//! let plan = Plan::from_toml(r#"
//!     [topology]
//!     kind = "point-to-point"
//!     [links]
//!     rate = "100Gbps"
//!     delay = "1us"
//!     [transport]
//!     name = "irn"
//!     [workload]
//!     kind = "permutation"
//!     bytes = "100KB"
//! "#).expect("a sound plan");
//! let report = Simulation::new(&plan, 1).expect("a sound plan").run(&mut |_| ControlFlow::Continue(()));
//! assert_eq!(report.flows, 2);
//! report.check().expect("every promise is kept");
//! ```
//!
//! Each mechanism is described in its module: [`simulation`] (windows, parts), `link` and `switch` (one event per hop),
//! [`host`] (the pull model), [`fault`], [`workload`], [`check`]; the keys of a plan in [`plan`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

mod addresses;
mod calendar;
pub mod check;
mod classes;
pub mod endpoint;
mod entry;
mod falcon_counts;
pub mod fault;
mod frames;
pub mod host;
mod ideal;
mod link;
mod link_spec;
mod network;
mod packets;
pub mod plan;
mod port;
pub mod record;
pub mod report;
mod route;
pub mod simulation;
pub mod switch;
pub mod topology;
pub mod trace;
pub mod workload;

pub use falcon_counts::{FalconFigures, FalconFlow};
pub use ideal::message_frame_bytes;
pub use plan::{Plan, PlanError};
pub use report::{FlowRecord, Report};
pub use route::RouteSpec;
pub use simulation::{NodeOrder, Progress, Simulation};
