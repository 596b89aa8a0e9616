//! What packets and transactions cost (specification Rev 0.9, the tables of section 8.2).

use super::Amount;

/// Bytes that one buffer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    /// Of those to send from.
    pub tx: u32,
    /// Of those to receive into.
    pub rx: u32,
}

/// What a request of our own upper layer needs (F-33).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// To send it.
    pub tx: Amount,
    /// To receive what it brings.
    pub rx: Amount,
}

impl Transaction {
    /// Nothing.
    pub const NONE: Self = Self { tx: Amount::NONE, rx: Amount::NONE };
}

impl Units {
    /// A Push of `length` bytes: its data here, a completion back.
    #[inline]
    pub const fn push(self, length: u32) -> Transaction {
        Transaction { tx: Amount::packet(length.div_ceil(self.tx)), rx: Amount::packet(0) }
    }

    /// A Pull Request for `length` bytes.
    #[inline]
    pub const fn pull(self, length: u32) -> Transaction {
        Transaction { tx: Amount::packet(1), rx: Amount::packet(length.div_ceil(self.rx)) }
    }

    /// Pull Data of `length` bytes, to be sent.
    #[inline]
    pub const fn pull_data(self, length: u32) -> Amount {
        Amount::packet(length.div_ceil(self.tx))
    }

    /// Push Data of `length` bytes that has arrived.
    #[inline]
    pub const fn arrived_push(self, length: u32) -> Amount {
        Amount::packet(length.div_ceil(self.rx))
    }

    /// A Pull Request that has arrived.
    #[inline]
    pub const fn arrived_pull(self) -> Amount {
        Amount::packet(1)
    }
}
