//! The engine on UDP sockets: a NIC in user space, between ordinary processes, without root, module or hardware.
//!
//! ```text
//! CRATE    rnic-host (amber: change with a test on real sockets)
//! Purpose  drives the engine on sockets: memory, connection manager, impairment, capture; perf and baselines on top
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-transports, rnic-engine, rnic-psp
//! Must not trust a byte of a peer; allocate per packet; lose a packet that the engine has returned
//! Add here a wire (shared memory), a socket option, a measurement
//! Not here what a transport does (rnic-engine, rnic-transports), simulated networks (rnic-fabric)
//! Proved by tests/ here on loopback, between processes and in network namespaces; hostile datagrams at a live NIC
//! ```
//!
//! # How to use it
//!
//! A [`Nic`] is driven by the thread that calls [`Nic::progress`]; no work is done between the calls. [`Nic::wait`]
//! sleeps until there is something to do. Queues, queue pairs, requests and registered memory are managed through
//! [`Nic::verbs`].
//!
//! ```no_run
//! use rnic_engine::{Access, SendFlags, SendOp, SendRequest};
//! use rnic_host::{ConnectionConfig, Nic, NicConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut nic = Nic::open(NicConfig::at("192.0.2.1:4791".parse()?))?;
//! let pd = nic.verbs().create_pd()?;
//! let cq = nic.verbs().create_cq(256)?;
//! let buffer = nic.verbs().register(pd, 4096, Access::LOCAL_WRITE)?;
//! nic.bytes_mut(&buffer)[..5].copy_from_slice(b"hello");
//! let config = ConnectionConfig::new(pd, cq);
//! let connection = nic.connect("192.0.2.2:4791".parse()?, 7471, &config)?;
//! let op = SendOp::Send { immediate: None };
//! let sges = [buffer.sge(0, 5)];
//! nic.verbs().post_send(connection.qpn, &SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED })?;
//! while nic.verbs().poll_cq_one(cq).is_none() {
//!     nic.progress();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is on the wire
//!
//! RoCEv2 on UDP, with ICRC: connection management messages of the InfiniBand specification on queue pair 1, then the
//! packets of the transport that both ends have agreed on. Port 4791 needs no privileges; two NICs on one machine use
//! two addresses (127.0.0.1, 127.0.0.2), or other ports.
//!
//! A NIC that shares its machine ([`NicConfig::shared()`]) has its own port instead, which its queue pair numbers
//! encode; peers are hosts ([`Nic::acquire_host`]), which negotiate nothing: both ends derive wire MTU and window from
//! the path and their own receive buffer, and afterwards exchange their settings to detect differences (`hello`).
//! Between NICs of one user on one machine packets go through shared memory
//! ([`NicConfig::bypass`](NicConfig#structfield.bypass)). Such a NIC has at most 4096 queue pairs.
//!
//! # Path of a packet
//!
//! ```text
//!   program     post, poll, progress
//!      |                                     aside, driven by the same progress:
//!   nic/drive   drives all of this             cm        connection manager, connections of nic/connect
//!      |                                       credit    asks whether unacknowledged packets have been read
//!   rnic-engine                                hello     says what a connection goes by, and hears it of the peer
//!   |       ^                                  keepalive  asks whether a peer's process still lives
//!   v       |                                  observe   answers rnic top, from a thread
//!   link/batch: headers, carry (payload copied with its ICRC), memory (what addresses stand for)
//!   |       |   Falcon: falcon (guards, psp) instead, datagrams by datagram
//!   impair  |   losses, delays and rates that somebody asked for
//!   |       |
//!   |   nic/receive -> codec, or falcon -> engine; grh in front of datagrams for programs
//!   v       ^
//!   bypass: a ring of shared memory, within one machine
//!   link/lane -> sys: sockets; ports (which), peer (whom), mtu and window (how much), capture (what it was)
//! ```
//!
//! # Where `unsafe` is
//!
//! In `memory` (bytes that belong to programs; `memory/guard` and `memory/signals` recover from faults), `sys` and its
//! submodules (system calls), `carry` (processor instructions) and `bypass/ring` (memory that two processes share); and
//! one block or two each in `nic` (adopting a program's memory, on the program's promise), `background` (signals) and
//! `observe/credentials` (identity of the process at the other end of a socket). Every `unsafe` block has its reason
//! beside it; `rnic-check` enforces that.
//!
//! **Not supported:** link-local IPv6 addresses (their scope is lost), ECN marks except with real RoCEv2 peers, a peer
//! that changes its address.

mod addresses;
mod background;
mod bypass;
mod capture;
mod carry;
mod clock;
pub mod cm;
mod config;
mod connection;
mod credit;
mod datagram;
mod defaults;
mod digest;
mod error;
mod falcon;
pub mod floor;
mod grh;
mod hello;
mod identification;
mod impair;
mod keepalive;
mod link;
mod marking;
mod memory;
mod mtu;
mod nic;
mod notice;
mod number;
pub mod observe;
mod peer;
pub mod perf;
mod ports;
mod presence;
pub mod probe;
mod protection;
mod secrets;
mod settings;
mod sockets;
mod stats;
mod sys;
pub mod transfer;
mod user;
mod window;

pub use addresses::{LocalAddress, local_addresses};
pub use background::{PanicEnds, complain, lock_at_exit};
pub use cm::ConnectionId;
pub use config::NicConfig;
pub use connection::{Connection, ConnectionConfig, ConnectionEvent, ConnectionRequest, QueueConfig};
pub use defaults::{ROCE_TRANSPORT, TransportChoice, default_transports, host_defaults};
pub use error::{ConnectError, ListenError, NicError};
pub use hello::Differs;
pub use impair::{Impairment, ImpairmentStats};
pub use marking::Marking;
pub use memory::{Region, copy_from_program};
pub use nic::{Nic, Verbs};
pub use notice::Notice;
pub use protection::Protection;
pub use secrets::{SecretStream, Secrets};
pub use settings::{CaptureFile, Progress, Settings, SettingsError, VARIABLES, Variable};
pub use stats::{CM_ERRORS, NicStats, RxDrop, WIRE_ERRORS};
pub use sys::shorten_slices;
