//! A datagram that has bytes of its own: the exception. Most leave from the slab that all share.

use rnic_wire::Addresses;

use crate::marking::Marking;

/// A datagram that waits: because it is impaired, or the kernel had no room for it, or it is a management message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Datagram {
    /// From us to whom.
    pub(crate) addresses: Addresses,
    /// Base transport header through ICRC.
    pub(crate) bytes: Vec<u8>,
    /// Fields of its IP header beside addresses.
    pub(crate) marking: Marking,
}
