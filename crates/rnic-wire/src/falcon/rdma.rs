//! RDMA over Falcon: the upper layer's headers (OCP RDMA over Falcon Transport, Rev 0.9, section 8).
//!
//! Every packet is a transaction of its own: a Send or Write packet a push, a Read or atomic request a pull, its
//! response the pull's data.
//!
//! Deviations: XRC's header (8.3.9) is left out, as the table of opcodes gives it none.

use rnic_base::Serial;

use crate::packet::{AtomicOp, Position, Qpn, Reth, SendTail};

/// Counts the packets of a connection, modulo 2^32; the first is 1. A response has its request's.
pub type Sn = Serial<32>;

/// The request message sequence number, modulo 2^32; the first is 1. Messages that consume a receive are counted apart
/// from Reads and atomics.
pub type Rmsn = Serial<32>;

/// Where the initiator wants the data of a response (STETH); the target sends it back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SinkTag {
    /// Virtual address of the response's first byte.
    pub va: u64,
    /// The key of the initiator's memory.
    pub lkey: u32,
}

/// What ends a Write with immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WriteTail {
    /// Which receive it consumes.
    pub rmsn: Rmsn,
    /// Four bytes for the completion.
    pub immediate: u32,
}

/// What is to be done, with the headers for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Data for a posted receive.
    Send {
        /// Place in the message.
        position: Position,
        /// Immediate or key; only where the message ends.
        tail: SendTail,
        /// Which receive it consumes.
        rmsn: Rmsn,
        /// Bytes of the message before this packet.
        offset: u32,
    },
    /// Data for remote memory.
    Write {
        /// Place in the message.
        position: Position,
        /// Where this packet's bytes go, in every packet.
        reth: Reth,
        /// Only where the message ends.
        tail: Option<WriteTail>,
    },
    /// Asks for remote memory.
    ReadRequest {
        /// What to read.
        reth: Reth,
        /// Which entry of the target's queue of inbound requests it takes.
        rmsn: Rmsn,
        /// Where the data shall go.
        sink: SinkTag,
    },
    /// Data that was asked for.
    ReadResponse {
        /// Place in the message.
        position: Position,
        /// Where the data goes.
        sink: SinkTag,
    },
    /// Asks for an atomic operation on eight bytes.
    AtomicRequest {
        /// Address, a multiple of 8.
        va: u64,
        /// The key that grants access.
        rkey: u32,
        /// What to do.
        op: AtomicOp,
        /// Which entry of the target's queue of inbound requests it takes.
        rmsn: Rmsn,
        /// Where the original value shall go.
        sink: SinkTag,
    },
    /// The value from before an atomic operation.
    AtomicResponse {
        /// What was there before.
        original: u64,
        /// Where it goes.
        sink: SinkTag,
    },
    /// A message in one packet for whoever has the queue key.
    Datagram {
        /// The key that lets it in.
        queue_key: u32,
        /// The queue pair that it comes from.
        source_qpn: Qpn,
        /// Four bytes for the receiver's completion.
        immediate: Option<u32>,
    },
}

/// The headers of one packet: RBTH and what its opcode brings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The queue pair that it is for.
    pub dest_qpn: Qpn,
    /// Its number.
    pub sn: Sn,
    /// Wakes a receiver that asked to be woken for such messages only.
    pub solicited: bool,
    /// The message is to be completed in error; only where it ends.
    pub complete_in_error: bool,
    /// The rest.
    pub operation: Operation,
}
