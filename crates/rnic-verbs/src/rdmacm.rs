//! `librdmacm`: connections by IP address and port, with events.
//!
//! Source: the manual pages rdma_cm(7) and those it names, for what programs rely on; InfiniBand Architecture volume 1,
//! chapter 12 and annex A11, for what travels. Messages go from and to the UDP ports that programs name, in the form of
//! RoCEv2's management datagrams; the protocol is `rnic_host::cm`'s.
//!
//! ```text
//!   program's threads   ids, calls -----.            .---- event channels (a descriptor each)
//!                                       v            |
//!   service.rs          one lock:  identifiers, ports, connections  <---- thread "rnic-cm": sockets, timers
//!                                       |
//!   rnic_host::cm       Endpoint: messages, retransmission, who answers what
//! ```
//!
//! What an event does to a queue pair happens in the program's thread, where it fetches the event: the thread here
//! calls no verb, so it never waits for the data path nor holds it up.
//!
//! **Deviations.** TCP's and UDP's port spaces are one between processes, because the kernel keeps the ports.
//! DISCONNECTED comes within a second after the other process was killed, where the network says that its port is
//! closed (which a firewall may keep from us: then work requests end with *retry exceeded*). Multicast groups and
//! sockets over RDMA are refused with `EOPNOTSUPP`.

mod abi;
mod ack;

mod address;
mod addrinfo;
mod agreement;
mod calls;
mod channel;
mod connect;
mod devices;
mod ep;
mod event;
mod id;
mod qp;
mod resolve;
mod service;
mod unsupported;

#[cfg(test)]
pub(crate) use channel::{rdma_create_event_channel, rdma_destroy_event_channel};
#[cfg(test)]
pub(crate) use event::rdma_get_cm_event;

#[cfg(test)]
mod tests;
