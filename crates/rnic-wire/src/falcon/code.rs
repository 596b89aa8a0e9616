//! Codes: why a packet is refused or replaced, how long to wait, how a transaction ended (OCP Falcon Transport
//! Protocol, Rev 0.9, sections 7.6, 7.8 and 11).

use crate::rnr::RnrTimer;

/// Why a packet is refused, with what the sender must know for it. On the wire, the wait and the upper layer's code
/// have places of their own; they are zero where they mean nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NackCode {
    /// 1: the receiver has no resources for it.
    Resource,
    /// 2, RNR: its upper layer is not ready.
    NotReady {
        /// How long to wait.
        timeout: RnrTimer,
    },
    /// 4: dropped for the sake of an xLR, which the specification leaves undefined.
    Xlr,
    /// 6, CIE: the upper layer completes the transaction in error.
    CompleteInError {
        /// The upper layer's own reason.
        ulp: u8,
    },
    /// 7, NRE: the upper layer has failed for good.
    NonRecoverable {
        /// The upper layer's own reason.
        ulp: u8,
    },
    /// 8: the upper layer does not expect this connection here.
    InvalidCid,
}

impl NackCode {
    /// The code on the wire, 8 bits.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Self::Resource => 1,
            Self::NotReady { .. } => 2,
            Self::Xlr => 4,
            Self::CompleteInError { .. } => 6,
            Self::NonRecoverable { .. } => 7,
            Self::InvalidCid => 8,
        }
    }

    /// The reason with that code; none for reserved codes. `timeout` and `ulp` are taken where they mean something.
    #[inline]
    pub const fn from_code(code: u8, timeout: RnrTimer, ulp: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Resource,
            2 => Self::NotReady { timeout },
            4 => Self::Xlr,
            6 => Self::CompleteInError { ulp },
            7 => Self::NonRecoverable { ulp },
            8 => Self::InvalidCid,
            _ => return None,
        })
    }
}

/// Why a Resync takes the place of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ResyncCode {
    /// The target's upper layer completed it in error.
    TargetCompleteInError = 1,
    /// An xLR here.
    LocalXlr = 2,
    /// It was sent as often as it may.
    RetransmissionExhausted = 3,
    /// Its transaction took too long.
    TransactionTimeout = 4,
    /// An xLR there.
    RemoteXlr = 5,
    /// The target's upper layer has failed for good.
    TargetNonRecoverable = 6,
    /// The target's upper layer does not expect this connection.
    TargetInvalidCid = 7,
}

impl ResyncCode {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::TargetCompleteInError,
        Self::LocalXlr,
        Self::RetransmissionExhausted,
        Self::TransactionTimeout,
        Self::RemoteXlr,
        Self::TargetNonRecoverable,
        Self::TargetInvalidCid,
    ];

    /// The code on the wire, 8 bits.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason with that code; none for reserved codes.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1..=7 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }
}

/// How a transaction ended, as its initiator's upper layer hears it (section 11; 4 bits between the layers, never in a
/// packet).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum CompletionCode {
    /// Well.
    Ack = 0,
    /// The target's upper layer completed it in error.
    TargetCompleteInError = 1,
    /// The target's upper layer has failed for good.
    TargetNonRecoverable = 3,
    /// The target's upper layer does not expect this connection.
    TargetInvalidCid = 4,
    /// It took too long.
    LocalTimeout = 8,
    /// Requests and data do not fit together.
    OperationError = 9,
    /// The connection is dead.
    DeadConnection = 0xa,
    /// No resources here.
    LocalResource = 0xb,
    /// The upper layer has used more than its credits.
    UlpCreditError = 0xc,
    /// The other side failed.
    RemoteError = 0xd,
    /// An xLR here.
    LocalXlr = 0xf,
}

impl CompletionCode {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Ack,
        Self::TargetCompleteInError,
        Self::TargetNonRecoverable,
        Self::TargetInvalidCid,
        Self::LocalTimeout,
        Self::OperationError,
        Self::DeadConnection,
        Self::LocalResource,
        Self::UlpCreditError,
        Self::RemoteError,
        Self::LocalXlr,
    ];

    /// The code, 4 bits.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The ending with that code; none for reserved codes.
    pub const fn from_code(code: u8) -> Option<Self> {
        let mut index = 0;
        while index < Self::ALL.len() {
            if Self::ALL[index] as u8 == code {
                return Some(Self::ALL[index]);
            }
            index += 1;
        }
        None
    }
}
