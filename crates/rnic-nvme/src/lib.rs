//! NVMe over Falcon: reads and writes of blocks as Falcon transactions, each of one unit of 4 KiB.
//!
//! ```text
//! ROOM     rnic-nvme (amber: an upper layer; what it holds is bounded by what both ends have agreed)
//! Purpose  commands into units, tags, translation of block addresses, a target, an emulated block device
//! May use  rnic-base, rnic-wire, rnic-falcon
//! Must not know a PSN or a verb, read a clock, touch payload, allocate per unit, compute in floating point
//! Add here another command; another model of a device; what a target does before a command reaches its device
//! Not here packet formats (rnic-wire), delivery and order of transactions (rnic-falcon), where bytes lie (the caller)
//! Proved by packet traces per command, data compared with a model over a bad network, and a hostile peer
//! ```
//!
//! Sources: "OCP NVMe over Falcon Transport, Rev 0.9" sections 6 to 8; Falcon (SIGCOMM'25) table 2. Mechanism F-2.
//!
//! ```text
//!   Read    initiator -- Read Request (Push) ------> target        one of each per unit
//!                     <- Read Response (Push) ------
//!   Write   initiator -- Write Request (Push) -----> target
//!                     <- Write Data Request (Pull) -
//!                     -- Write Data (Pull Data) ---> target
//!                     <- Write Completion (Push) ---
//! ```
//!
//! Paper and specification disagree about Reads. The paper's table has "Read: Pull; Write: Push and Pull"; in the
//! specification a Read is a Push there and a Push back. An initiator chooses ([`Reads`]); a target answers either as
//! it is asked. Two Pushes are the default: a Pull holds resources at the initiator, and a transaction of the target's,
//! for as long as the device takes. Writes are the same in both: pushed request, data pulled by the target.
//!
//! Choices where the sources are silent:
//!
//! - The units of a command are cut from the first block of each of its parts ([`layout`]), so none crosses a stripe's
//!   edge; the last of a part may be short. In a split command's packets first block and number of blocks are the
//!   part's, number and count of units the whole command's; from these a target knows which blocks are meant.
//! - Both ends agree on how many units are under way on a connection. An initiator stays below; a target refuses what
//!   is above. It must not say "not ready" instead: requests that come again and again would fill the window that
//!   Write Data needs.
//! - A request that makes no sense is completed in error (CIE, F-8), with the number of a [`PeerError`]. What a
//!   namespace or device cannot do is an NVMe status in an ordinary answer ([`status`]). A Pull cannot be refused: its
//!   answer says that the data is invalid, a Read's that a field is.
//! - The data of a Write is on the medium before the device is asked to write it: when the device says that it is
//!   written decides when the command is complete, and not when others see it.
//! - A unit ends at the target when its answer is handed to the transaction layer, at the initiator when that arrives:
//!   a tag is free at the target before the initiator can use its own anew.
//! - An answer that was sent as often as it may is given anew, once the initiator has taken the Resync in its place: a
//!   Resync names no unit. An initiator counts an answer or a Pull for a unit that has ended as late, and refuses
//!   nothing: the target may not have heard. A unit whose *request* was sent as often as it may has failed.
//!
//! Whoever drives an end keeps the bytes, and is told where they belong ([`HostMemory`], [`Media`]).

pub mod device;
pub mod drive;
pub mod initiator;
pub mod layout;
pub mod peer;
pub mod tags;
pub mod target;

mod unit;

use rnic_wire::falcon::Rsn;

pub use device::{Device, DeviceConfig};
pub use drive::Drive;
pub use initiator::{Initiator, InitiatorConfig, Reads};
pub use layout::Layout;
pub use peer::{PeerError, PeerErrors, status};
pub use target::{Target, TargetConfig};
pub use unit::{UNIT, UNITS_MAX, answer_of_none};

/// Which way blocks go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// Bytes of a command, at its initiator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// What came with the command.
    pub cookie: u64,
    /// Bytes from the command's first.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

/// Blocks of a target's device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// The first.
    pub first_block: u64,
    /// How many.
    pub blocks: u32,
}

/// Memory or a medium that cannot be read or written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

/// The transaction that takes a unit's data to the initiator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Moved {
    /// In a Push of ours with this number.
    Push(Rsn),
    /// In our answer to the peer's Pull with this number.
    Answer(Rsn),
}

/// Memory of an initiator.
pub trait HostMemory {
    /// Puts the payload of the packet at hand there.
    ///
    /// # Errors
    /// When it cannot be written: the command fails.
    fn place(&mut self, connection: usize, to: Span) -> Result<(), Fault>;

    /// Says that the data that answers the peer's Pull `rsn` comes from there. It may leave more than once, even when
    /// the command is complete: whoever sends keeps it until its packet is acknowledged.
    ///
    /// # Errors
    /// When it cannot be read: the answer says so, and the command fails.
    fn gather(&mut self, connection: usize, rsn: Rsn, from: Span) -> Result<(), Fault>;
}

/// Medium of a target.
pub trait Media {
    /// Says that the payload of `moved`, which has been handed to the transaction layer, comes from there.
    fn read(&mut self, moved: Moved, from: Extent);

    /// Puts the payload of the packet at hand there: before the device is asked to write it.
    ///
    /// # Errors
    /// When it cannot be written: the unit ends with [`status::WRITE_FAULT`].
    fn write(&mut self, to: Extent) -> Result<(), Fault>;
}

/// An end of a connection together with where its bytes lie, put together for the time of a call: an
/// [`rnic_falcon::transaction::UpperLayer`].
#[derive(Debug)]
pub struct Attached<'a, E, M> {
    /// An [`Initiator`] or a [`Target`].
    pub end: &'a mut E,
    /// The initiator's connection; unused by a target.
    pub connection: usize,
    /// The bytes.
    pub memory: &'a mut M,
}

/// Counts a wait, unless that has been done since what waits came to the front.
fn count_once(counted: &mut bool, waits: &mut u64) {
    *waits += u64::from(!core::mem::replace(counted, true));
}
