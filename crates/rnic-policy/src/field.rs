//! A field that a policy stores on a NIC, with its size in bits.

/// Kind of object to which a field belongs; each object of this kind has its own instance of the field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Per {
    /// A queue pair (both directions together).
    Connection,
    /// A work queue entry.
    Wqe,
    /// A NIC, shared by its queue pairs.
    Nic,
}

/// A field and its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FootprintField {
    /// Name and meaning of the field.
    pub name: &'static str,
    /// Total size of the field in bits.
    pub bits: u64,
    /// The object that the field is stored for.
    pub per: Per,
}

impl FootprintField {
    /// Returns a field stored for each connection.
    pub const fn connection(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Connection }
    }

    /// Returns a field stored for each work request.
    pub const fn wqe(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Wqe }
    }

    /// Returns a field that all connections of a NIC share.
    pub const fn shared(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Nic }
    }
}
