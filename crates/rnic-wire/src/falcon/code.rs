//! Codes: packet types, reasons for rejecting or replacing a packet, results of transactions (OCP Falcon Transport
//! Protocol, Rev 0.9, sections 7.2, 7.6, 7.8 and 11).

use crate::rnr::RnrTimer;

/// Reason why a packet is rejected, with the information that the sender needs to process it. On the wire, the wait
/// time and the upper layer's code are separate fields, which are zero for reasons that do not use them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NackCode {
    /// 1: the receiver has no resources for the packet.
    Resource,
    /// 2, RNR: the receiver's upper layer is not ready.
    NotReady {
        /// Time that the sender must wait.
        timeout: RnrTimer,
    },
    /// 4: dropped because of an xLR, which the specification leaves undefined.
    Xlr,
    /// 6, CIE: the upper layer completes the transaction in error.
    CompleteInError {
        /// Upper layer's own error code.
        ulp: u8,
    },
    /// 7, NRE: the upper layer has failed permanently.
    NonRecoverable {
        /// Upper layer's own error code.
        ulp: u8,
    },
    /// 8: the upper layer does not expect this connection at this receiver.
    InvalidCid,
}

impl NackCode {
    /// Returns the code on the wire, 8 bits.
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

    /// Returns the reason with that code; `None` for reserved codes. `timeout` and `ulp` are used only where they have
    /// a meaning.
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

/// Generates an enum whose values are codes: `ALL` in their order, `code` and `from_code`, from one list. Lists are
/// short and their codes close together, so `from_code` compiles to one or two comparisons.
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
            /// All values, in the order of their codes.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$value),*];

            #[doc = concat!("The code, ", $bits, " bits.")]
            #[inline]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// Returns the value with that code; `None` for reserved codes.
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
    /// Packet types, with their codes on the wire (section 7.2).
    PacketType, 4 {
        /// Requests data from the target of the transaction.
        PullRequest = 0,
        /// Data that was requested.
        PullData = 3,
        /// Data that was not requested.
        PushData = 5,
        /// Replaces a packet that will not be retransmitted.
        Resync = 6,
        /// Rejects a packet.
        Nack = 8,
        /// BACK: acknowledges with the window bases alone.
        Ack = 9,
        /// EACK: acknowledges with bitmaps.
        ExtendedAck = 10,
    }
}

codes! {
    /// Reason why a Resync replaces a packet.
    ResyncCode, 8 {
        /// The target's upper layer has completed the transaction in error.
        TargetCompleteInError = 1,
        /// An xLR at the local end.
        LocalXlr = 2,
        /// The packet has been transmitted the maximum number of times.
        RetransmissionExhausted = 3,
        /// The transaction of the packet has timed out.
        TransactionTimeout = 4,
        /// An xLR at the remote end.
        RemoteXlr = 5,
        /// The target's upper layer has failed permanently.
        TargetNonRecoverable = 6,
        /// The target's upper layer does not expect this connection.
        TargetInvalidCid = 7,
    }
}

codes! {
    /// Result of a transaction, as reported to its initiator's upper layer (section 11; used between the layers, never
    /// in a packet).
    CompletionCode, 4 {
        /// The transaction has succeeded.
        Ack = 0,
        /// The target's upper layer has completed the transaction in error.
        TargetCompleteInError = 1,
        /// The target's upper layer has failed permanently.
        TargetNonRecoverable = 3,
        /// The target's upper layer does not expect this connection.
        TargetInvalidCid = 4,
        /// The transaction has timed out.
        LocalTimeout = 8,
        /// Requests and data do not match.
        OperationError = 9,
        /// The connection has failed and cannot be used any more.
        DeadConnection = 0xa,
        /// The local end has no resources.
        LocalResource = 0xb,
        /// The upper layer has exceeded its credits.
        UlpCreditError = 0xc,
        /// The remote end has failed.
        RemoteError = 0xd,
        /// An xLR at the local end.
        LocalXlr = 0xf,
    }
}
