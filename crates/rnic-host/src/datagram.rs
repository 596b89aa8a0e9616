//! A datagram with its own buffer. This is the exception: most packets are sent from the shared slab.

use rnic_wire::Addresses;

use crate::ip_fields::PackedIpFields;

/// A datagram that is queued because it is delayed by the impairment, because the kernel had no buffer space for it,
/// or because it is a management message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Datagram {
    /// Addresses, from the local to the remote end.
    pub(crate) addresses: Addresses,
    /// Packet from the base transport header through the ICRC.
    pub(crate) bytes: Vec<u8>,
    /// Fields of its IP header, except for the addresses.
    pub(crate) ip_fields: PackedIpFields,
}
