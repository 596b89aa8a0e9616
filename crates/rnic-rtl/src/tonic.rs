//! Tonic's circuits: the generated parts of their text, and the records with which they are simulated.
//!
//! `rtl/tonic` is written by hand around packages and wrappers that are generated from the declarations in Rust:
//!
//! | folder | contents |
//! |---|---|
//! | `rtl/gen/k64`, `k128`, `k256` | `tonic_pkg`: sizes, and the fields of a flow's state, for a window of K segments |
//! | `rtl/gen/<program>` | the two functions of a program, and `tonic_user_*`: wrappers with the same ports for each |
//! | `rtl/gen/maps` | operations on maps that functions of programs instantiate |
//!
//! A configuration of the NIC is a choice of one folder for K and one for the program.

pub mod endpoint;
pub mod generated;
pub mod nic;
