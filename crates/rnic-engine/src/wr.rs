//! Work requests: what a program asks for.

use bitflags::bitflags;
use rnic_wire::Qpn;

use crate::PeerId;
use crate::mr::windows::Binding;

/// A piece of registered local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The key of the region that contains it.
    pub lkey: u32,
}

/// Remote memory and the key that grants access to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteMemory {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}

/// Whom a datagram is for, and the key that lets it in there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatagramAddress {
    /// The peer.
    pub peer: PeerId,
    /// The queue pair there.
    pub qpn: Qpn,
    /// Its queue key. When the high bit is set, the sending queue pair's own key travels instead (IBA 10.2.5): such
    /// keys are for those who may set them.
    pub qkey: u32,
    /// Whatever else the body is to know of the packet: [`crate::Transmit::mark`] says it again.
    pub mark: u64,
}

/// What a send request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// Write local data to remote memory.
    Write {
        /// Where to.
        remote: RemoteMemory,
        /// Four bytes that complete a receive request at the far end.
        immediate: Option<u32>,
    },
    /// Deliver local data into the next posted receive request of the far end.
    Send {
        /// Four bytes for its completion.
        immediate: Option<u32>,
    },
    /// Like `Send`, and take back the far end's key.
    SendInvalidate {
        /// The key.
        rkey: u32,
    },
    /// Read remote memory into local memory.
    Read {
        /// Where from.
        remote: RemoteMemory,
    },
    /// On eight remote bytes: if they equal `compare`, store `swap`; either way return what was there.
    CompareSwap {
        /// Which bytes; 8-byte aligned.
        remote: RemoteMemory,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// On eight remote bytes: add `add`, wrapping; return what was there.
    FetchAdd {
        /// Which bytes; 8-byte aligned.
        remote: RemoteMemory,
        /// Summand.
        add: u64,
    },
    /// Store eight bytes in remote memory, all at once and behind everything before (IBA annex A19).
    AtomicWrite {
        /// Where to; 8-byte aligned.
        remote: RemoteMemory,
        /// The bytes, in the order in which they lie in memory.
        value: [u8; 8],
    },
    /// Complete when what this queue pair has written before is visible to everybody, or persistent (IBA annex A19).
    Flush {
        /// The beginning of the range.
        remote: RemoteMemory,
        /// Bytes.
        len: u32,
        /// As [`rnic_wire::PlacementOp::Flush`] has it.
        placement: u8,
        /// As [`rnic_wire::PlacementOp::Flush`] has it.
        selectivity: u8,
    },
    /// Make a memory window grant part of a region of this queue pair's protection domain. Requests behind it, of this
    /// queue pair and by completion of others, find it bound.
    Bind(Binding),
    /// Take back what a memory window of type 2 grants, which this queue pair has bound.
    LocalInvalidate {
        /// The window's key.
        rkey: u32,
    },
    /// Send local data, one packet of it at most, to a queue pair of the service
    /// [`crate::Service::UnreliableDatagram`]. The only operation there is for that service, and for no other.
    Datagram {
        /// Whom to.
        to: DatagramAddress,
        /// Four bytes for the receiver's completion.
        immediate: Option<u32>,
    },
}

bitflags! {
    /// Modifiers of a send request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u8 {
        /// Leave a completion even when it succeeds.
        const SIGNALED = 1;
        /// Raise a solicited event at the receiver.
        const SOLICITED = 2;
        /// Wait for all earlier reads and atomics of this queue pair.
        const FENCE = 4;
    }
}

/// One entry for a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Local memory: data to send, or where answers go.
    pub sges: &'a [Sge],
    /// Modifiers.
    pub flags: SendFlags,
}

/// One entry for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where data goes, in order.
    pub sges: &'a [Sge],
}
