//! Completions, with the codes of the verbs specification.

use bitflags::bitflags;
use rnic_wire::{NakCode, Qpn};

/// How a work request ended: `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcStatus {
    /// As asked.
    Success,
    /// A message did not fit into the receive request, or was longer than a message may be.
    LocalLength,
    /// The queue pair met an inconsistency of its own.
    LocalQpOperation,
    /// A local key, range or right does not cover the request.
    LocalProtection,
    /// A memory window could not be bound as asked.
    WindowBind,
    /// Never tried, or cut short: the queue pair is in the error state.
    WrFlushed,
    /// The responder's answer made no sense.
    BadResponse,
    /// The responder called the request malformed.
    RemoteInvalidRequest,
    /// The responder's keys, ranges or rights do not cover the request.
    RemoteAccess,
    /// The responder failed on its own.
    RemoteOperational,
    /// No acknowledgement within all retries.
    RetryExceeded,
    /// The responder had no receive request posted within all retries.
    RnrRetryExceeded,
}

impl WcStatus {
    /// Of a request that the responder has refused with `code`.
    pub(crate) const fn refused(code: NakCode) -> Self {
        match code {
            NakCode::InvalidRequest => Self::RemoteInvalidRequest,
            NakCode::RemoteAccessError => Self::RemoteAccess,
            NakCode::RemoteOperationalError | NakCode::PsnSequenceError => Self::RemoteOperational,
        }
    }
}

/// What was completed: `ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcOpcode {
    /// A Write, with or without immediate.
    RdmaWrite,
    /// A Send of any kind.
    Send,
    /// A Read.
    RdmaRead,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// A memory window was bound.
    BindWindow,
    /// A memory window was taken back.
    LocalInvalidate,
    /// An atomic write.
    AtomicWrite,
    /// A flush.
    Flush,
    /// A receive request, filled by a Send.
    Recv,
    /// A receive request, consumed by a Write with immediate.
    RecvRdmaWithImm,
}

bitflags! {
    /// What `Completion::word` means, and how it was asked for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct WcFlags: u8 {
        /// `word` is immediate data.
        const WITH_IMM = 1;
        /// `word` is the key that the sender had invalidated.
        const WITH_INV = 2;
        /// The sender asked for a solicited event.
        const SOLICITED = 4;
        /// A datagram: the first [`crate::GRH_LEN`] bytes received are its global route header, and `source` is set.
        const GRH = 8;
        /// That header is IPv4's, in its last 20 bytes.
        const IPV4 = 16;
        /// `word` says how a command of NVMe failed: [`Completion::nvme_failure`].
        const NVME = 32;
    }
}

/// One entry of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As posted.
    pub wr_id: u64,
    /// The queue pair it was posted to (or, for a shared receive queue, that consumed it).
    pub qpn: Qpn,
    /// How it ended.
    pub status: WcStatus,
    /// What it was. Meaningful also on errors, unlike in verbs.
    pub opcode: WcOpcode,
    /// For receives and reads: bytes transferred. For datagrams the global route header counts.
    pub byte_len: u32,
    /// Immediate data or invalidated key, see `flags`.
    pub word: u32,
    /// What `word` means.
    pub flags: WcFlags,
    /// The queue pair that a datagram comes from; else 0.
    pub source: Qpn,
}

impl Completion {
    /// What lies where no completion has been put yet.
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

    /// Returns how a command of NVMe failed; none where it did not, or was none.
    pub fn nvme_failure(&self) -> Option<rnic_nvme::initiator::Failure> {
        let failure = rnic_nvme::initiator::Failure::from_word(self.word);
        failure.filter(|_| self.flags.contains(WcFlags::NVME))
    }

    /// A receive request that has received nothing.
    pub(crate) fn failed_receive(qpn: Qpn, wr_id: u64, status: WcStatus) -> Self {
        Self { wr_id, qpn, status, opcode: WcOpcode::Recv, ..Self::BLANK }
    }
}
