//! One file per header: a view over bytes that were checked for length, and how its representation is written.
//!
//! A view is made by `split`, which takes the header off the front of a slice and answers [`crate::WireError::Short`]
//! when there is too little; after that no accessor can fail or panic. Reserved bits are sent as zero and ignored when
//! received, as the InfiniBand Architecture asks everywhere.

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
