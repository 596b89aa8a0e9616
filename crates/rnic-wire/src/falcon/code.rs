//! Codes: what a packet is, why it is refused or replaced, how a transaction ended (OCP Falcon Transport Protocol, Rev
//! 0.9, sections 7.2, 7.6, 7.8 and 11).

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

/// An enum whose values are codes: `ALL` in their order, `code` and `from_code`, from one list. Lists are short and
/// their codes close together, so `from_code` becomes a comparison or two.
macro_rules! codes {
    (
        $(#[$of_type:meta])*
        $name:ident, $bits:literal {
            $($(#[$of_value:meta])* $value:ident = $code:literal,)*
        }
    ) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$of_value])* $value = $code,)*
        }

        impl $name {
            /// All of them, in the order of their codes.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$value),*];

            #[doc = concat!("The code, ", $bits, " bits.")]
            #[inline]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// What has that code; none for reserved codes.
            #[inline]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The kinds of packets, with their codes on the wire (section 7.2).
    PacketType, 4 {
        /// Asks for data.
        PullRequest = 0,
        /// Data that was asked for.
        PullData = 3,
        /// Data that was not asked for.
        PushData = 5,
        /// Takes the place of a packet that will not be sent again.
        Resync = 6,
        /// Refuses a packet.
        Nack = 8,
        /// Acknowledges with the bases alone: BACK.
        Ack = 9,
        /// Acknowledges with bitmaps: EACK.
        ExtendedAck = 10,
    }
}

codes! {
    /// Why a Resync takes the place of a packet.
    ResyncCode, 8 {
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
}

codes! {
    /// How a transaction ended, as its initiator's upper layer hears it (section 11; between the layers, never in a
    /// packet).
    CompletionCode, 4 {
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
}
