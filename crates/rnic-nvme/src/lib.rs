//! NVMe over Falcon: reads and writes of blocks as Falcon transactions, each of one unit of 4 KiB.
//!
//! ```text
//! CRATE    rnic-nvme (amber: an upper layer; its state is bounded by what both ends have agreed)
//! Purpose  division of commands into units, tags, translation of block addresses, a target, an emulated block device
//! May use  rnic-base, rnic-wire, rnic-falcon
//! Must not depend on PSNs or verbs, read a clock, touch payload, allocate per unit, compute in floating point
//! Add here another command; another model of a device; target work before a command reaches its device
//! Not here packet formats (rnic-wire), delivery and order of transactions (rnic-falcon), memory (the caller)
//! Tested by packet traces per command, data compared with a model over a bad network, and a hostile peer
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
//! Paper and specification disagree about Reads. The paper's table lists "Read: Pull; Write: Push and Pull"; in the
//! specification a Read is a Push for the request and a Push for the response. An initiator selects one ([`Reads`]);
//! a target supports both. Two Pushes are the default: a Pull holds resources at the initiator, and a transaction at
//! the target, until the device has completed the request. Writes are the same in both: the initiator pushes the
//! request, and the target pulls the data.
//!
//! Choices where the sources are silent:
//!
//! - The units of a command are divided from the first block of each of its parts ([`layout`]), so none crosses a
//!   stripe's edge; the last unit of a part may be shorter. In the packets of a split command, the first block and
//!   the number of blocks refer to the part, and the number of the unit and the number of units to the complete
//!   command; from these a target computes the blocks of a unit.
//! - Both ends agree on the maximum number of units in flight on a connection. An initiator does not exceed it; a
//!   target refuses units beyond it. It must not report "not ready" instead: repeatedly retransmitted requests would
//!   fill the window that Write Data needs.
//! - An invalid request is completed in error (CIE, Falcon mechanism F-8), with the number of a [`PeerError`]. An
//!   operation that a
//!   namespace or device cannot perform results in an NVMe status in an ordinary response ([`status`]). A Pull cannot
//!   be refused: instead the response indicates that the data is invalid, or, if the Pull is a Read, that a field is
//!   invalid.
//! - The data of a Write is stored on the medium before the device is requested to write it: the device's completion
//!   time determines when the command is complete, and not when other readers see the data.
//! - A unit ends at the target when its response is submitted to the transaction layer, at the initiator when that
//!   response arrives: a tag is free at the target before the initiator can reuse its own.
//! - A response that has reached its maximum number of transmissions is submitted again, once the initiator has
//!   accepted the Resync that replaces it, because a Resync does not identify a unit. An initiator counts a response
//!   or a Pull for a unit that has ended as late, but does not refuse it, because the target may not know that the
//!   unit has ended. A unit whose *request* has reached its maximum number of transmissions has failed.
//!
//! The driver of an end stores the data; this crate informs it of their locations ([`HostMemory`], [`Media`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

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
pub use unit::{UNIT, UNITS_MAX, no_nvme_response};

/// Direction in which blocks are moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Transfer from the device to the host.
    Read,
    /// Transfer from the host to the device.
    Write,
}

/// Range of bytes of the data of a command, at its initiator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// Identifier that the caller has given to the command.
    pub cookie: u64,
    /// Offset from the command's first byte, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub length: u32,
}

/// Range of blocks of a target's device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// First block.
    pub first_block: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// Error: a location of the memory or medium cannot be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

/// Falcon transaction that moves a unit (4 KiB part of a command's data) to the initiator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnitTransaction {
    /// A local Push with this RSN.
    Push(Rsn),
    /// The local response to the peer's Pull with this RSN.
    Response(Rsn),
}

/// Access to the memory of an initiator, from or into which commands transfer data.
pub trait HostMemory {
    /// Stores the payload of the current packet at `to`.
    ///
    /// # Errors
    /// When the payload cannot be written: the command fails.
    fn place(&mut self, connection: usize, to: Span) -> Result<(), Fault>;

    /// Sets `from` as the source of the data in the response to the peer's Pull `rsn`. The data may be sent more than
    /// once, even after the command has completed: the driver must keep the data until the packet with it is
    /// acknowledged.
    ///
    /// # Errors
    /// When the data cannot be read: the response reports it, and the command fails.
    fn gather(&mut self, connection: usize, rsn: Rsn, from: Span) -> Result<(), Fault>;
}

/// Storage medium of a target.
pub trait Media {
    /// Sets `from` as the source of the payload of `moved`, which was submitted to the transaction layer.
    fn read(&mut self, moved: UnitTransaction, from: Extent);

    /// Stores the payload of the current packet at `to`, before the device is requested to write it.
    ///
    /// # Errors
    /// When the payload cannot be written: the unit ends with [`status::WRITE_FAULT`].
    fn write(&mut self, to: Extent) -> Result<(), Fault>;
}

/// An end of a connection together with its memory, combined for the duration of a call: an
/// [`rnic_falcon::transaction::UpperLayer`].
#[derive(Debug)]
pub struct Attached<'a, E, M> {
    /// An [`Initiator`] or a [`Target`].
    pub end: &'a mut E,
    /// Index of the initiator's connection; unused by a target.
    pub connection: usize,
    /// Memory or medium with the data.
    pub memory: &'a mut M,
}

/// Counts a wait, unless it has already been counted for the item that is at the front of the queue.
fn count_once(counted: &mut bool, waits: &mut u64) {
    *waits += u64::from(!core::mem::replace(counted, true));
}
