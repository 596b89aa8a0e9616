//! Sequence spaces.

/// One of the two sliding windows that each direction has, each with sequence numbers of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Window {
    /// Pull Requests.
    Request,
    /// Push Data and Pull Data.
    Data,
}

impl Window {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Request, Self::Data];
}
