//! A library that is loaded into unmodified socket programs (`LD_PRELOAD`, set by `rnic run --sockets`): their TCP
//! connections become streams of this project's NIC.
//!
//! ```text
//! CRATE    rnic-sockets (amber: change with a test that runs a program)
//! Purpose  connect, listen, accept, getpeername and getsockname of programs; a thread that forwards bytes
//! May use  rnic-base, rnic-host
//! Must not trust a byte of a peer; change the behaviour of other sockets; keep a program from its TCP connection
//! Add here a call of programs that must be intercepted
//! Not here how bytes become segments and messages (rnic-host, rnic-stream)
//! Tested by tests/programs.rs: a client and a server in Python, with and without the library at either end
//! ```
//!
//! # How a connection is made
//!
//! ```text
//!   program -- loopback TCP -- library's thread == stream over UDP == library's thread -- loopback TCP -- program
//!                                     \________ kernel's TCP connection, the shadow ________/
//! ```
//!
//! * `listen` also opens a NIC at the UDP port of the same number, on which the library accepts streams.
//! * `connect` requests a stream from that port. The private data name the local TCP port of another connection, the
//!   shadow, which is then made to the address that the program named, and a random number (token), which is sent on
//!   it.
//! * `accept` returns connections of the kernel. If a stream has named the remote port of one, the program gets one end
//!   of a new loopback connection instead; the library's thread compares the token, and carries the bytes between the
//!   other end and the stream.
//!
//! So all calls except the five that are intercepted act on sockets of the kernel, and need no code here: send, recv,
//! poll, epoll, sendfile, shutdown, close, non-blocking mode. A program's connecting socket is connected to the
//! library instead of replaced by `dup2`, because it then keeps its flags, options and registrations with epoll.
//!
//! The shadow shows when the process at the other end has ended, however it has ended, and provides the addresses that
//! programs see. If the other end does not have this library, the connection is a plain TCP connection.
//!
//! # Use of `unsafe`
//!
//! In `calls` (the C interface), `kernel` (the C library's own functions, system calls) and `fork`. A comment at every
//! `unsafe` block states the reason; `rnic-check` enforces that.
#![expect(unsafe_code, reason = "functions of the C library are replaced, and called")]

mod accepted;
mod bridge;
mod calls;
mod fork;
mod kernel;
mod registry;
mod report;
mod service;
mod services;
