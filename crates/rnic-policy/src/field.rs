//! A field that a policy stores on a NIC, with its size in bits.

/// The object that has one instance of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Per {
    /// One for each queue pair, both directions together.
    Connection,
    /// One for each work request.
    Wqe,
    /// One for each NIC.
    Nic,
}

/// A field and its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FootprintField {
    /// Description of the field.
    pub name: &'static str,
    /// Total size in bits.
    pub bits: u64,
    /// The object that has one instance of the field.
    pub per: Per,
}

impl FootprintField {
    /// Returns a field of a connection.
    pub const fn connection(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Connection }
    }

    /// Returns a field of a work request.
    pub const fn wqe(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Wqe }
    }

    /// Returns a field that all connections share.
    pub const fn shared(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Nic }
    }
}
