//! RDMA over Falcon: the upper layer's headers (OCP RDMA over Falcon Transport, Rev 0.9, section 8).
//!
//! Every packet is a separate transaction: a Send or Write packet is a push, a Read or atomic request a pull, and the
//! response the data of that pull.
//!
//! Deviations: XRC's header (section 8.3.9) is not supported, because the table of opcodes has no opcode for it.

use rnic_base::Serial;

use crate::packet::{AtomicOp, Position, Qpn, Reth, SendTail};

/// Packet sequence number of a connection, modulo 2^32; the first is 1. A response carries the number of its request.
pub type Sn = Serial<32>;

/// The request message sequence number, modulo 2^32; the first is 1. Messages that consume a receive are counted
/// separately from Reads and atomics.
pub type Rmsn = Serial<32>;

/// Location for the data of a response at the initiator (STETH); the target returns it unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SinkTag {
    /// Virtual address of the response's first byte.
    pub va: u64,
    /// Key of the initiator's memory.
    pub lkey: u32,
}

/// Fields of the last packet of a Write with immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WriteTail {
    /// Number of the receive work request that the message consumes.
    pub rmsn: Rmsn,
    /// Four bytes of immediate data for the completion.
    pub immediate: u32,
}

/// Operation, with its headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Data for a posted receive buffer.
    Send {
        /// Position of the packet in its message.
        position: Position,
        /// Immediate data or key; only in the last packet of the message.
        tail: SendTail,
        /// Number of the receive work request that the message consumes.
        rmsn: Rmsn,
        /// Offset of this packet in the message, in bytes.
        offset: u32,
    },
    /// Data for remote memory.
    Write {
        /// Position of the packet in its message.
        position: Position,
        /// Destination of this packet's bytes; present in every packet.
        reth: Reth,
        /// Immediate data; only in the last packet of the message.
        tail: Option<WriteTail>,
    },
    /// Request to read remote memory.
    ReadRequest {
        /// Memory to read.
        reth: Reth,
        /// Number of the entry in the target's queue of inbound requests that the request occupies.
        rmsn: Rmsn,
        /// Location for the data at the initiator.
        sink: SinkTag,
    },
    /// Data that was requested.
    ReadResponse {
        /// Position of the packet in its message.
        position: Position,
        /// Location for the data at the initiator.
        sink: SinkTag,
    },
    /// Request for an atomic operation on eight bytes.
    AtomicRequest {
        /// Address, a multiple of 8.
        va: u64,
        /// Key that grants access.
        rkey: u32,
        /// Atomic operation.
        op: AtomicOp,
        /// Number of the entry in the target's queue of inbound requests that the request occupies.
        rmsn: Rmsn,
        /// Location for the original value at the initiator.
        sink: SinkTag,
    },
    /// Response with the value from before an atomic operation.
    AtomicResponse {
        /// Value from before the operation.
        original: u64,
        /// Location for the value at the initiator.
        sink: SinkTag,
    },
    /// A message in one packet, to a queue pair with the same queue key.
    Datagram {
        /// Queue key; the receiver accepts the datagram only with its own key.
        queue_key: u32,
        /// Queue pair that sent the datagram.
        source_qpn: Qpn,
        /// Four bytes of immediate data for the receiver's completion.
        immediate: Option<u32>,
    },
}

/// Headers of one packet: RBTH and the headers of its opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Destination queue pair.
    pub dest_qpn: Qpn,
    /// Sequence number.
    pub sn: Sn,
    /// True when the message raises a solicited event, which wakes a receiver that waits for such messages only.
    pub solicited: bool,
    /// True when the message is to be completed in error; only in its last packet.
    pub complete_in_error: bool,
    /// Operation and its headers.
    pub operation: Operation,
}
