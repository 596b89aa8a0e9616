//! `libibverbs.so.1` and `librdmacm.so.1` without hardware: the libraries that an unmodified RDMA program is linked
//! against.
//!
//! ```text
//! CRATE    rnic-verbs (amber: change with a program that shows the difference)
//! Purpose  C structures, objects, errno values, events; progress; the shared object under its two names
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-transports, rnic-engine, rnic-host
//! Must not panic across the boundary; block with the lock held; report success for what it does not do
//! Add here a verb, a query, a version node (symbols.txt)
//! Not here what a queue pair does (rnic-engine), sockets (rnic-host), settings (rnic-host), the launcher (rnic-cli)
//! Tested by tests: header layout, the system library's symbols, calls through C, Debian's programs and hostile packets
//! ```
//!
//! A program holds pointers to C structures. Each C structure is the first part of a larger structure of this library
//! (`object.rs`), whose `handle` is the index of the remaining state in the context's tables (`core.rs`), which are
//! protected by the context's single lock (`context.rs`). The verbs calls are implemented on top of that; the
//! function table of a context (`operations.rs`) points to them.
#![expect(unsafe_code, reason = "it is called from C")]

#[allow(dead_code, non_camel_case_types, non_snake_case, reason = "it has what the C header has, under the same names")]
mod abi;

mod ah;
mod cancel;
mod channel;
mod context;
mod convert;
mod core;
mod cq;
mod device;
mod domain;
mod errno;
mod event;
mod file;
mod fork;
mod heap;
mod hint;
mod import;
mod mr;
mod mw;
mod newer_calls;
mod notice;
mod object;
mod odp;
mod open;
mod opened;
mod operations;
mod paths;
mod poll;
mod post;
mod progress;
mod qp;
mod query;
mod rdmacm;
mod request;
mod srq;
mod strings;
mod sysfs;
mod tree;
mod watch;
mod wire;
mod wr;
mod xrc;

#[cfg(feature = "shared-object")]
#[global_allocator]
static ALLOCATOR: heap::Heap = heap::Heap;

#[cfg(test)]
mod tests;
