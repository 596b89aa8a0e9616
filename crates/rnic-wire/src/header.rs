//! Header layouts, one file per header: a view over bytes that were checked for length, and the encoder of its
//! representation.
//!
//! A view is made by `split`, which splits the header off the front of a slice and returns [`crate::WireError::Short`]
//! when the slice is too short; after that no accessor can fail or panic. Reserved bits are sent as zero and ignored
//! when received, as the InfiniBand Architecture generally requires.

pub mod aeth;
pub mod atomic_ack_eth;
pub mod atomic_eth;
pub mod bth;
pub mod cnp;
pub mod deth;
pub mod fasr;
pub mod ieth;
pub mod immdt;
pub mod irn;
pub mod placement;
pub mod reth;
pub mod xrceth;
