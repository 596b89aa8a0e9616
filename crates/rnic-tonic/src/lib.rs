//! Model of the hardware of Tonic, a NIC for transport programs, cycle by cycle: the reference for circuits.
//!
//! ```text
//! CRATE    rnic-tonic (red: circuits and this model agree in every cycle)
//! Purpose  data delivery, credit, sets, rings, timing wheel and receiver of Tonic, one step a cycle
//! May use  rnic-base, rnic-program
//! Must not depend on packet formats or engines, read a clock, compute in floating point
//! Add here a module of the NIC, a service discipline, a kind of receiver
//! Not here programs (rnic-transports), the network around the NIC (rnic-fabric), RTL
//! Tested by a test for each mechanism, all conflicts of events, eager against lazy stepping over random traffic
//! ```
//!
//! Source: Tonic, "Enabling Programmable Transport Protocols in High-Speed NICs" (NSDI'20).
//!
//! ```text
//!   driver: add, remove, limit                                acknowledgements, grants, CNPs
//!        |                                                            |
//!   +----v------- data delivery: which segment ---------------------- v ----------+
//!   |  Generation      Transmitted      Periodic (program)      Incoming (fixed, program)
//!   +----|-----------------^------------------|--------------------------|---------+
//!        | address         | departure        | parameters               |
//!   +----v----------------- credit: when -----v--------------------------v---------+
//!   |  Enqueue -> ring a flow -> Transmit      timing wheel, tokens                |
//!   +-------------------------------|----------------------------------------------+
//!                                   v one address a cycle
//! ```
//!
//! An event that is in a stage in cycle `c` is in the next one in `c + 1`; a module sees all writes of earlier cycles.
//!
//! | event | stages, one cycle each |
//! |---|---|
//! | turn of an active flow | set, memory, Generation, wire, memory, Enqueue (then the set of ready flows) |
//! | turn of a ready flow | set, memory, Transmit, output register |
//! | packet | port, memory, Incoming (fixed), Incoming (program), wire, memory, credit |
//! | departure | Transmit, wire, memory, Segment Transmitted (then the active set) |
//! | visit | round, memory, Periodic, wire, memory, credit |
//! | command | queue, memory, Generation's slot, wire, memory, credit |
//! | wait for a rate | Transmit or Enqueue, four of a division, wheel until due (then the set of ready flows) |
//!
//! A flow that enters an empty set is taken from it in the same cycle.
//!
//! * [`Tonic`] is the NIC (the paper calls its fixed part *template*) with a program; [`Tonic::step`] runs a cycle,
//!   [`Tonic::advance_to`] only those in which something can change, with the same outputs and state;
//! * [`Receiver`] generates acknowledgements and grants, one packet a cycle.
//!
//! The state of all flows stays in the NIC: exchanging it with memory outside, for more flows, is not modelled.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod bits;
pub mod cr;
mod dd;
pub mod driver;
mod nic;
pub mod program;
pub mod receiver;
pub mod sets;
pub mod shape;
pub mod state;
mod tonic;
mod touched;
pub mod wires;

pub use cr::CreditCounters;
pub use dd::{DeliveryCounters, Visits};
pub use driver::{Driver, Refused};
pub use nic::Nic;
pub use program::{InstallError, Installed};
pub use receiver::{Arrival, Receiver, ReceiverKind, ReceiverSizes};
pub use sets::{ActiveSet, Fifo, Priorities};
pub use shape::{FlowId, SegmentId, SizeError, Sizes, Ticks};
pub use tonic::{FlowView, Input, Tonic};
pub use wires::{Address, Command, FlowSetup, Packet};
