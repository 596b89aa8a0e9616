//! The programming interface for transports.
//!
//! ```text
//! CRATE    rnic-policy (red: every algorithm in the tree is written against this)
//! Purpose  the extension point: events, views, actions, bounded state, parameters, profiles, the contract kit
//! May use  rnic-base, rnic-program
//! Must not depend on the engine, allocate per event, compute in floating point
//! Add here an event or an action that several algorithms need
//! Not here algorithms (rnic-transports)
//! Tested by kit tests here on deliberately broken policies; every registered policy passes the kit in rnic-transports
//! ```
//!
//! Four types of policy share one structure, at which Tonic (section 3.5), Linux (`tcp_congestion_ops`) and CCP
//! arrived independently: *event + read-only view + bounded private state in; new state + actions out*. A policy has
//! no clock and no memory beyond its state block, so the same code can run inline, asynchronously after a queue, on
//! another thread, or be implemented in hardware; equal events always give equal actions.
//!
//! | type | called | decides |
//! |---|---|---|
//! | [`recovery`] | on acknowledgements, NACKs and timeouts | packets to retransmit, timeouts |
//! | [`control`] | on acknowledgements, congestion marks, ticks | window and rate |
//! | [`paths`] | before a packet is sent, and when the timer expires | the label that switches hash |
//! | [`schedule`] | when queue pairs gain or lose work | packets per scheduling turn, and the rate |
//!
//! A [`profile::Profile`] composes one of each, under a name, into a transport.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod control;
pub mod falcon;
mod field;
pub mod footprint;
pub mod kit;
pub mod law;
pub mod meter;
mod parameters;
pub mod params;
pub mod paths;
pub mod profile;
pub mod program;
pub mod recovery;
mod recovery_policy;
pub mod schedule;
pub mod state;

pub use control::report::{FlowActions, FlowReport, ReportKind, Ticks};
pub use control::report_control::{ReportControl, ReportPolicy};
pub use control::signals::Signals;
pub use control::{Control, ControlActions, ControlEvent, ControlPolicy, ControlView, Cwnd, HostDelays};
pub use falcon::{AdaptiveForm, AdaptivePlace, FalconErrors, FalconIsolation, FalconOrdering, FalconShape};
pub use field::{FootprintField, Per};
pub use law::{LawError, LawPolicy};
pub use meter::{Meter, MeterScale, MeterWeight, SHARE_ONE};
pub use params::{Configured, ParamError, ParamOwner, ParamSpec, ParamUnit, Params};
pub use paths::{FlowWeights, OpenWindows, PathActions, PathEvent, PathLabel, PathPolicy, PathProbe, PathView, Paths};
pub use profile::{AckRule, PoolShape, Profile, ProfileError, Protocol, SequenceSpaces, Store};
pub use program::ProgramPolicy;
pub use recovery::{
    LossCause, LossReport, LossRule, Placement, Recovery, RecoveryActions, RecoveryEvent, TimerChange, WindowView,
};
pub use recovery_policy::RecoveryPolicy;
pub use schedule::{Schedule, ScheduleActions, ScheduleEvent, SchedulePolicy, ScheduleView, Served, TURN_PACKETS_MAX};
pub use state::PolicyState;
