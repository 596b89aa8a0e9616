//! The C structures and numbers of `<infiniband/verbs.h>`, with the layout and values that are compiled into programs.
//!
//! Names are those of C. If the header is installed, a test compiles a C file against it, and compares every size,
//! offset and number.

mod consts;
mod structures;

pub(crate) use consts::*;
pub(crate) use structures::*;

#[cfg(test)]
#[path = "abi/tests.rs"]
mod tests;
