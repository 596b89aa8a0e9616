//! Resource costs of packets and transactions (specification Rev 0.9, the tables of section 8.2).

use super::Amount;

/// Size of one buffer in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    /// Size of a send buffer in bytes.
    pub tx: u32,
    /// Size of a receive buffer in bytes.
    pub rx: u32,
}

/// Resources needed for a request of the local upper layer (Falcon mechanism F-33).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Resources for sending the request.
    pub tx: Amount,
    /// Resources for receiving its response.
    pub rx: Amount,
}

impl Transaction {
    /// No resources.
    pub const NONE: Self = Self { tx: Amount::NONE, rx: Amount::NONE };
}

impl Units {
    /// Returns the cost of a Push of `length` bytes: sending its data and receiving a completion.
    #[inline]
    pub const fn push(self, length: u32) -> Transaction {
        Transaction { tx: Amount::packet(length.div_ceil(self.tx)), rx: Amount::packet(0) }
    }

    /// Returns the cost of a Pull Request for `length` bytes.
    #[inline]
    pub const fn pull(self, length: u32) -> Transaction {
        Transaction { tx: Amount::packet(1), rx: Amount::packet(length.div_ceil(self.rx)) }
    }

    /// Returns the cost of Pull Data of `length` bytes to be sent.
    #[inline]
    pub const fn pull_data(self, length: u32) -> Amount {
        Amount::packet(length.div_ceil(self.tx))
    }

    /// Returns the cost of received Push Data of `length` bytes.
    #[inline]
    pub const fn arrived_push(self, length: u32) -> Amount {
        Amount::packet(length.div_ceil(self.rx))
    }

    /// Returns the cost of a received Pull Request.
    #[inline]
    pub const fn arrived_pull(self) -> Amount {
        Amount::packet(1)
    }
}
