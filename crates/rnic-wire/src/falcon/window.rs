//! Sequence spaces of Falcon: one for requests, one for data.

/// One of the two sliding windows in each direction, each with its own sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Window {
    /// Pull Requests.
    Request,
    /// Push Data and Pull Data.
    Data,
}

impl Window {
    /// Both windows.
    pub const ALL: [Self; 2] = [Self::Request, Self::Data];
}
