//! `librdmacm`: connections by IP address and port, with events.
//!
//! Source: the manual pages rdma_cm(7) and those it refers to, for the behaviour that programs rely on; InfiniBand
//! Architecture volume 1, chapter 12 and annex A11, for the messages. Messages are exchanged between the UDP ports that
//! programs specify, in the format of RoCEv2's management datagrams; the protocol is implemented by `rnic_host::cm`.
//!
//! ```text
//!   program's threads   ids, calls -----.            .---- event channels (a descriptor each)
//!                                       v            |
//!   service.rs          one lock:  identifiers, ports, connections  <---- thread "rnic-cm": sockets, timers
//!                                       |
//!   rnic_host::cm       Endpoint: messages, retransmissions, responses
//! ```
//!
//! The changes of a queue pair that follow from an event are made in the program's thread, when it fetches the event:
//! the `rnic-cm` thread calls no verb, so it neither waits for the data path nor delays it.
//!
//! **Deviations.** Between processes, TCP and UDP share one port space, because the kernel allocates the ports.
//! DISCONNECTED is reported within a second after the other process was killed, if the network reports its port as
//! closed (a firewall may suppress this report: then work requests complete with *retry exceeded*). Multicast groups
//! and sockets over RDMA are refused with `EOPNOTSUPP`.

mod abi;
mod ack;

mod address;
mod addrinfo;
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
mod transport_choice;
mod unsupported;

#[cfg(test)]
pub(crate) use channel::{rdma_create_event_channel, rdma_destroy_event_channel};
#[cfg(test)]
pub(crate) use event::rdma_get_cm_event;

#[cfg(test)]
mod tests;
