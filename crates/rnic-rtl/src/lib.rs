//! Circuits: SystemVerilog of programs, simulated beside native code and proved equal to other circuits.
//!
//! ```text
//! CRATE    rnic-rtl (amber: what it compares is decided elsewhere)
//! Purpose  runs Verilator's models of circuits in lock-step with Rust, and proofs by yosys
//! May use  rnic-base, rnic-wire, rnic-program, rnic-tonic, rnic-policy, rnic-transports, rnic-engine
//! Must not decide anything that a circuit or a program decides; contain unsafe code: models run as child processes
//! Add here a kind of circuit to simulate, a proof, a report of a synthesis
//! Not here emission of a program's text (rnic-program), circuits written by hand (rtl/)
//! Tested by tests/: a million events for each function and module, faults that must be detected, proofs
//! ```
//!
//! A model is a process: it reads events as words from its standard input, and writes the outputs of the circuit for
//! each. Therefore a comparison needs Verilator and a C++ compiler, but nothing of either is linked.

#![forbid(unsafe_code)]

pub mod circuit;
mod shim;

pub mod lockstep;
pub mod mutants;
pub mod proof;
pub mod spec;
pub mod tonic;
pub mod tools;
pub mod verilated;
pub mod waves;
