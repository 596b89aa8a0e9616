//! The C structures and numbers of `<infiniband/verbs.h>`, as programs have them compiled in.
//!
//! Names are those of C. A test compiles a C file against the header, where it is installed, and compares every size,
//! offset and number.

mod consts;
mod context;
mod objects;
mod requests;

pub use consts::*;
pub use context::*;
pub use objects::*;
pub use requests::*;
