//! Transport programs: functions over bounded state that run as they stand, and are recorded as graphs of gates.
//!
//! ```text
//! CRATE    rnic-program (red: what runs is what is emitted)
//! Purpose  numbers of a given width, tracing of functions into graphs, checks, an interpreter, SystemVerilog, files
//! May use  rnic-base, rnic-program-macros
//! Must not depend on packets or engines, read a clock, compute in floating point, trap, loop over anything unbounded
//! Add here an operation of every form (native, graph, interpreter, circuit); an input of programs
//! Not here programs (rnic-transports), the NIC around them (rnic-tonic), where packets come from (rnic-engine)
//! Tested by native code against the interpreter over random events, two traces of each function, hostile files
//! ```
//!
//! Source: Tonic, "Enabling Programmable Transport Protocols in High-Speed NICs" (NSDI'20): a transport is two small
//! functions over bounded state in a fixed template (section 3.5).
//!
//! ```text
//!   #[program] fn  --->  native code                          simulated, run on sockets
//!        |
//!        +-- recorded -> Graph --> Machine                     interpreted: loaded from a file
//!                          +-----> machine code                compiled when loaded (rnic-jit)
//!                          +-----> WebAssembly (feature wasm)   interpreted, as are modules in other languages
//!                          +-----> SystemVerilog               synthesised
//!                          +-----> report: state, levels, lines
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

// Macros name this crate by its name, in this crate too.
extern crate self as rnic_program;

pub mod any;
pub mod bundle;
pub mod declare;
pub mod dot;
pub mod fields;
pub mod file;
pub mod graph;
pub mod ignored;
pub mod interface;
pub mod law;
pub mod loaded;
pub mod lockstep;
pub mod machine;
pub mod mutate;
pub mod random;
pub mod record;
pub mod stimuli;
pub mod transport;
pub mod value;
pub mod verilog;
#[cfg(feature = "wasm")]
pub mod wasm;

pub use bundle::{Bundle, Field};
pub use fields::{Due, Fields, Initial, Parameter, StateField, Unit};
pub use graph::{Graph, GraphError, Kind, Node, Op, Port};
pub use interface::{Actions, Id, Incoming, Periodic, Rate, Ticks};
pub use law::{Law, LawDescription, LawKind, LoadedLaw};
pub use loaded::{LoadError, Loaded};
pub use machine::Machine;
pub use record::{Bit, Form, Leaf, Lowering, MapSig, RecordError, Recorder, Sig, Value};
pub use rnic_program_macros::program;
pub use stimuli::Stimuli;
pub use transport::{Description, Executor, Graphs, Needs, Receiver, Scheme, Start, Transport, record};
pub use value::{Map, Offset, U, Widen, u};

/// Names that programs import.
pub mod prelude {
    pub use crate::law::{
        Clock, ControlInput, ControlOutput, PathInput, PathOutput, ScheduleInput, ScheduleOutput, Span, Speed, Window,
    };
    pub use crate::{
        Actions, Id, Incoming, Law, Lowering, Map, Offset, Periodic, Rate, Ticks, Transport, U, Widen, law, program,
        transport, u,
    };
}
