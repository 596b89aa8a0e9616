//! A field that a policy keeps on a NIC, in bits.

/// What there is one of for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Per {
    /// Queue pair, both directions together.
    Connection,
    /// Work request.
    Wqe,
    /// NIC.
    Nic,
}

/// One field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FootprintField {
    /// What it is.
    pub name: &'static str,
    /// How large all of it is.
    pub bits: u64,
    /// What it is there for.
    pub per: Per,
}

impl FootprintField {
    /// A field of a connection.
    pub const fn connection(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Connection }
    }

    /// A field of a work request.
    pub const fn wqe(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Wqe }
    }

    /// A field that all connections share.
    pub const fn shared(name: &'static str, bits: u64) -> Self {
        Self { name, bits, per: Per::Nic }
    }
}
