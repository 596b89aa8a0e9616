//! The engine on UDP sockets: a NIC in user space, between ordinary processes, without root, module or hardware.
//!
//! ```text
//! CRATE    rnic-host (amber: change with a test on real sockets)
//! Purpose  drives the engine on sockets: memory, connection manager, impairment, capture; perf and baselines on top
//! May use  rnic-base, rnic-wire, rnic-policy, rnic-transports, rnic-engine, rnic-psp, rnic-stream
//! Must not trust a byte of a peer; allocate per packet; lose a packet that the engine has returned
//! Add here a wire (shared memory), a socket option, a measurement
//! Not here what a transport does (rnic-engine, rnic-transports), simulated networks (rnic-fabric)
//! Tested by tests/ here on loopback, between processes and in network namespaces; hostile datagrams at a live NIC
//! ```
//!
//! # How to use it
//!
//! A [`Nic`] is driven by the thread that calls [`Nic::progress`]; no work is done between the calls. [`Nic::wait`]
//! sleeps until it has work. Queues, queue pairs, requests and registered memory are managed through [`Nic::verbs`].
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
//! # Wire format
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
//! # Streams of bytes
//!
//! [`stream`] carries streams, as sockets do, over connections of any transport: segments, flow ids and windows.
//!
//! # Path of a packet
//!
//! ```text
//!   program     post, poll, progress
//!      |                                     also driven by progress:
//!   nic/drive   main loop                      cm        connection manager, used by nic/connect
//!      |                                       credit    flow control of packets that are not acknowledged
//!   rnic-engine                                hello     exchange of connection settings with the peer
//!   |       ^                                  keepalive detection of peer processes that have exited
//!   v       |                                  observe   counters for rnic top, served by a thread
//!   |       |                                  messages  messages between NICs (SCR)
//!   |       |                                  host_load how long received packets wait for the process
//!   |       |                                  hint      what the program says of itself, in memory
//!   link/batch: headers, copy_crc (copies payload and computes the ICRC), memory (address translation)
//!   |       |   for Falcon packets: falcon (guards, psp), one datagram at a time
//!   share   |   a link that all NICs of the user share, and this NIC's share of it
//!   impair  |   configured losses, delays and rates
//!   |       |
//!   |   nic/receive -> codec, or falcon -> engine; grh is added before the payload of datagrams
//!   v       ^
//!   bypass: a ring in shared memory, between NICs of one machine
//!   link/lane -> sys: sockets; ports and peer (destination), mtu and window (limits), capture (pcap output)
//! ```
//!
//! # Use of `unsafe`
//!
//! In `memory` (bytes that belong to programs; `memory/guard` and `memory/signals` recover from faults), `sys` and
//! its submodules (system calls), `carry` (processor instructions), `bypass/ring` and `share/page` (memory that
//! processes share); and one block or two each in `nic` (registering a program's memory, which relies on the program's
//! promise), `background` (signals) and `observe/credentials` (identity of the process at the other end of a socket).
//! A comment at every `unsafe` block states the reason; `rnic-check` enforces that.
//!
//! **Not supported:** link-local IPv6 addresses (their scope is lost), ECN marks except with real RoCEv2 peers, a peer
//! that changes its address.
#![expect(unsafe_code, reason = "sockets and shared memory are reached through system calls")]

mod addresses;
mod background;
pub mod baseline;
mod bypass;
mod capture;
mod clock;
pub mod cm;
mod config;
mod connection;
mod copy_crc;
mod credit;
mod datagram;
mod defaults;
mod digest;
mod error;
mod falcon;
mod grh;
mod hello;
mod hint;
mod host_load;
mod identification;
mod impair;
mod ip_fields;
mod keepalive;
mod link;
mod memory;
mod messages;
mod mtu;
mod nic;
mod notice;
mod number;
pub mod observe;
mod offers;
mod paths;
mod peer;
pub mod perf;
mod ports;
mod presence;
pub mod probe;
mod protection;
mod secrets;
mod settings;
mod share;
mod sockets;
mod stats;
pub mod stream;
mod sys;
mod traffic_class;
pub mod transfer;
mod user;
mod window;

pub use addresses::{LocalAddress, local_addresses};
pub use background::{AbortOnPanic, lock_at_exit, print_message};
pub use cm::ConnectionId;
pub use config::NicConfig;
pub use connection::{Connection, ConnectionConfig, ConnectionEvent, ConnectionRequest, QueueConfig};
pub use defaults::{ROCE_TRANSPORT, TransportChoice, default_transports, host_defaults};
pub use error::{ConnectError, ListenError, NicError};
pub use hello::SettingsDiffer;
pub use hint::{Hint, HintLine};
pub use impair::{Impairment, ImpairmentStats, PathSet};
pub use ip_fields::PackedIpFields;
pub use memory::{Region, copy_from_program};
pub use messages::MessagesConfig;
pub use nic::{Nic, Verbs, host_delay_of, messages_of};
pub use notice::Notice;
pub use offers::{LoadError, Offers};
pub use protection::Protection;
pub use secrets::{SecretStream, Secrets};
pub use settings::{CaptureFile, Progress, Settings, SettingsError, VARIABLES, Variable};
pub use share::{ShareConfig, ShareError};
pub use stats::{CM_ERRORS, NicStats, RxDrop, WIRE_ERRORS};
pub use sys::{monotonic_ns, shorten_slices};
