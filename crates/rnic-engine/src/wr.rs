//! Work requests: the operations that a program posts.

use bitflags::bitflags;
use rnic_wire::Qpn;

use crate::PeerId;
use crate::mr::windows::Binding;

/// A segment of registered local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Local key of the region that contains it.
    pub lkey: u32,
}

/// Remote memory and the key that grants access to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteMemory {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Key of the remote memory (R_Key).
    pub rkey: u32,
}

/// Destination of a datagram, and the queue key that the destination requires.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatagramAddress {
    /// Network address of the peer.
    pub peer: PeerId,
    /// The queue pair at the peer.
    pub qpn: Qpn,
    /// Queue key of that queue pair. When the high bit is set, the sending queue pair's own key is sent instead (IBA
    /// 10.2.5): such keys are reserved for programs that may set them.
    pub qkey: u32,
    /// Further information about the packet for the driver, passed on in [`crate::Transmit::mark`].
    pub mark: u64,
}

/// Operation of a send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// Writes local data to remote memory.
    Write {
        /// Remote memory to write to.
        remote: RemoteMemory,
        /// Four bytes of immediate data that complete a receive request at the remote end.
        immediate: Option<u32>,
    },
    /// Delivers local data into the next posted receive request of the remote end.
    Send {
        /// Four bytes of immediate data for its completion.
        immediate: Option<u32>,
    },
    /// Like `Send`, and invalidates a key of the remote end.
    SendInvalidate {
        /// The key to invalidate.
        rkey: u32,
    },
    /// Reads remote memory into local memory.
    Read {
        /// Remote memory to read from.
        remote: RemoteMemory,
    },
    /// Compare and swap on eight remote bytes: stores `swap` if the bytes equal `compare`; returns the previous value
    /// in either case.
    CompareSwap {
        /// Address of the bytes; 8-byte aligned.
        remote: RemoteMemory,
        /// Value with which the remote bytes are compared.
        compare: u64,
        /// Value that is stored if the comparison succeeds.
        swap: u64,
    },
    /// Fetch and add on eight remote bytes: adds `add` with wrap-around; returns the previous value.
    FetchAdd {
        /// Address of the bytes; 8-byte aligned.
        remote: RemoteMemory,
        /// Value to add.
        add: u64,
    },
    /// Stores eight bytes in remote memory, atomically and after all earlier requests of this queue pair (IBA annex
    /// A19).
    AtomicWrite {
        /// Remote memory to write to; 8-byte aligned.
        remote: RemoteMemory,
        /// The bytes, in memory order.
        value: [u8; 8],
    },
    /// Completes when all earlier writes of this queue pair are globally visible, or persistent (IBA annex A19).
    Flush {
        /// Start of the range.
        remote: RemoteMemory,
        /// Length in bytes.
        len: u32,
        /// Same encoding as in [`rnic_wire::PlacementOp::Flush`].
        placement: u8,
        /// Same encoding as in [`rnic_wire::PlacementOp::Flush`].
        selectivity: u8,
    },
    /// Makes a memory window grant access to part of a region of this queue pair's protection domain. The window is
    /// bound for later requests of this queue pair, and for requests posted to other queue pairs after the
    /// completion.
    Bind(Binding),
    /// Invalidates a memory window of type 2 that this queue pair has bound.
    LocalInvalidate {
        /// Key of the window.
        rkey: u32,
    },
    /// Sends local data, at most one packet, to a queue pair of the service [`crate::Service::UnreliableDatagram`].
    /// This is the only operation of that service, and no other service supports it.
    Datagram {
        /// Destination of the datagram.
        to: DatagramAddress,
        /// Four bytes of immediate data for the receiver's completion.
        immediate: Option<u32>,
    },
}

bitflags! {
    /// Modifiers of a send request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u8 {
        /// Generate a completion even when the request succeeds.
        const SIGNALED = 1;
        /// Raise a solicited event at the receiver.
        const SOLICITED = 2;
        /// Wait for all earlier reads and atomics of this queue pair to complete.
        const FENCE = 4;
    }
}

/// One entry for a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Identifier returned in the completion.
    pub wr_id: u64,
    /// Operation to execute.
    pub op: SendOp,
    /// Local memory: data to send, or the destination of responses.
    pub sges: &'a [Sge],
    /// Modifiers of the request.
    pub flags: SendFlags,
}

/// One entry for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Identifier returned in the completion.
    pub wr_id: u64,
    /// Memory for the received data, filled in order.
    pub sges: &'a [Sge],
}
