//! Completions, with the codes of the verbs specification.

use bitflags::bitflags;
use rnic_wire::{NakCode, Qpn};

/// Status with which a work request completed: `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcStatus {
    /// The request completed as posted.
    Success,
    /// A message did not fit into the receive request, or exceeded the maximum message length.
    LocalLength,
    /// The queue pair detected an internal inconsistency.
    LocalQpOperation,
    /// A local key, range or access right does not cover the request.
    LocalProtection,
    /// A memory window could not be bound as requested.
    WindowBind,
    /// The request was never executed, or was aborted, because the queue pair is in the error state.
    WrFlushed,
    /// The responder's response was invalid.
    BadResponse,
    /// The responder rejected the request as malformed.
    RemoteInvalidRequest,
    /// The responder's keys, ranges or access rights do not cover the request.
    RemoteAccess,
    /// The responder failed because of a local error.
    RemoteOperational,
    /// All retries were exhausted without an acknowledgement.
    RetryExceeded,
    /// All retries were exhausted while the responder had no receive request posted.
    RnrRetryExceeded,
}

impl WcStatus {
    /// Returns the status of a request that the responder has rejected with `code`.
    pub(crate) const fn refused(code: NakCode) -> Self {
        match code {
            NakCode::InvalidRequest => Self::RemoteInvalidRequest,
            NakCode::RemoteAccessError => Self::RemoteAccess,
            NakCode::RemoteOperationalError | NakCode::PsnSequenceError => Self::RemoteOperational,
        }
    }
}

/// Operation that was completed: `ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcOpcode {
    /// A Write, with or without immediate data.
    RdmaWrite,
    /// A Send of any type.
    Send,
    /// RDMA Read.
    RdmaRead,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// A memory window was bound.
    BindWindow,
    /// A memory window was invalidated.
    LocalInvalidate,
    /// An atomic write.
    AtomicWrite,
    /// Flush operation.
    Flush,
    /// A receive request, filled by a Send.
    Recv,
    /// A receive request, consumed by a Write with immediate data.
    RecvRdmaWithImm,
}

bitflags! {
    /// Flags that define the meaning of `Completion::word`, and further properties of the message.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct WcFlags: u8 {
        /// `word` is immediate data.
        const WITH_IMM = 1;
        /// `word` is the key that the sender had invalidated.
        const WITH_INV = 2;
        /// The sender requested a solicited event.
        const SOLICITED = 4;
        /// The message is a datagram: the first [`crate::GRH_LEN`] bytes received are its global route header, and
        /// `source` is set.
        const GRH = 8;
        /// The global route header is an IPv4 header, in its last 20 bytes.
        const IPV4 = 16;
        /// `word` encodes how an NVMe command failed: [`Completion::nvme_failure`].
        const NVME = 32;
    }
}

/// One entry of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Work request identifier, as posted.
    pub wr_id: u64,
    /// The queue pair that the request was posted to, or, for a shared receive queue, that consumed it.
    pub qpn: Qpn,
    /// Status with which the request completed.
    pub status: WcStatus,
    /// Operation type. Unlike in verbs, it is also valid when `status` is an error.
    pub opcode: WcOpcode,
    /// Bytes transferred, for receives and reads. For datagrams this includes the global route header.
    pub byte_len: u32,
    /// Immediate data or invalidated key, see `flags`.
    pub word: u32,
    /// Flags, including those that define the meaning of `word`.
    pub flags: WcFlags,
    /// Source queue pair of a datagram; otherwise 0.
    pub source: Qpn,
}

impl Completion {
    /// Placeholder for entries that contain no completion yet.
    pub const BLANK: Self = Self {
        wr_id: 0,
        qpn: Qpn::new(0),
        status: WcStatus::Success,
        opcode: WcOpcode::Send,
        byte_len: 0,
        word: 0,
        flags: WcFlags::empty(),
        source: Qpn::new(0),
    };

    /// Returns how an NVMe command failed; `None` when it did not fail or the request was not an NVMe command.
    pub fn nvme_failure(&self) -> Option<rnic_nvme::initiator::Failure> {
        let failure = rnic_nvme::initiator::Failure::from_word(self.word);
        failure.filter(|_| self.flags.contains(WcFlags::NVME))
    }

    /// Returns the completion of a receive request that has received no data.
    pub(crate) fn failed_receive(qpn: Qpn, wr_id: u64, status: WcStatus) -> Self {
        Self { wr_id, qpn, status, opcode: WcOpcode::Recv, ..Self::BLANK }
    }
}
