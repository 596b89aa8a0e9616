//! Senders and receivers that are not engines: a caller puts them behind the link of a host in place of its engine, for
//! comparisons with implementations that share no code with it.
//!
//! An endpoint is driven like an engine: packets are passed in when they arrive, its own events are due at times that
//! it names, and it is asked for a packet whenever the link can take one. Between two calls of the caller
//! ([`Simulation::endpoint`](crate::Simulation::endpoint)) its concrete type can be read.

use core::any::Any;

use rnic_base::Time;
use rnic_wire::net::{ETHERNET_LEN, FCS_LEN, FRAME_MIN_LEN, IPV4_LEN};
use rnic_wire::{Format, Packet};

/// A TCP segment: the fields of its header that a simulation needs (RFC 9293 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpSegment {
    /// Number of the connection: it stands for both ports.
    pub connection: u32,
    /// Sequence number of the first byte of data.
    pub sequence: u32,
    /// Next byte that the sender of this segment expects.
    pub acknowledgement: u32,
    /// Bytes that the sender of this segment can receive beyond `acknowledgement`, after window scaling.
    pub window: u32,
    /// Bytes of data; zero in a pure acknowledgement.
    pub len: u16,
}

impl TcpSegment {
    /// Returns the length of its Ethernet frame in bytes: IPv4 and a TCP header without options.
    pub fn frame_len(&self) -> u32 {
        (ETHERNET_LEN + IPV4_LEN + TCP_HEADER_LEN + FCS_LEN + u32::from(self.len)).max(FRAME_MIN_LEN)
    }
}

/// Length of a TCP header without options.
const TCP_HEADER_LEN: u32 = 20;

/// A packet to or from an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram {
    /// A packet of the RoCE family, as engines send and receive.
    Roce(Format, Packet),
    /// A TCP segment.
    Tcp(TcpSegment),
}

/// A datagram to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Host to which the datagram is sent.
    pub to: u32,
    /// The datagram.
    pub datagram: Datagram,
}

/// A datagram that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Host that has sent the datagram.
    pub from: u32,
    /// The datagram.
    pub datagram: Datagram,
    /// True if a switch has marked the packet (ECN CE).
    pub is_marked: bool,
}

/// The end of a link, in place of an engine.
pub trait Endpoint: Any + Send + core::fmt::Debug {
    /// Returns the time of the endpoint's next event; `None` if it has none until a packet arrives.
    fn next_event(&self) -> Option<Time>;

    /// Processes the events that are due at `now`.
    fn advance(&mut self, now: Time);

    /// Processes a datagram.
    fn receive(&mut self, now: Time, incoming: &Incoming);

    /// Returns the next datagram to be sent: the link is free.
    fn transmit(&mut self, now: Time) -> Option<Outgoing>;
}
