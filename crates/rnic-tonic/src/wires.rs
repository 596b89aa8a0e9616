//! Inputs and outputs of the Tonic NIC, and the connections between its two engines (Tonic, section 3).

use crate::shape::{FlowId, SegmentId};
use crate::state::Entry;

/// The address of a segment, as output by the NIC's transport logic: later stages fetch the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// Flow number: 10 bits, or 11 with more than 1024 flows.
    pub flow: FlowId,
    /// Number of the segment: 24 bits.
    pub segment: SegmentId,
    /// Number of times that the segment has been sent before, at most 3: 2 bits.
    pub times_sent: u8,
}

/// A packet from a flow's receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// The packet carries the cumulative acknowledgement `cum`.
    pub ack: bool,
    /// The packet reports a gap: `cum`, which it also carries, is missing, and a later segment has arrived.
    pub nack: bool,
    /// The packet reports that the segment `sack` has arrived without its payload; it also carries `cum`.
    pub trimmed: bool,
    /// The packet is a congestion notification (CNP).
    pub cnp: bool,
    /// The packet reports that the segment `sack` has arrived out of order.
    pub sacked: bool,
    /// Next segment that the receiver expects.
    pub cum: SegmentId,
    /// Segment to which `sacked` or `trimmed` refers.
    pub sack: SegmentId,
    /// Number of times that the segment had been sent before, as echoed by the receiver: 2 bits.
    pub times_sent: u8,
    /// Total number of segments that the receiver has granted since the flow was added.
    pub grant: Option<SegmentId>,
}

/// Settings of a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSetup {
    /// Id of the first segment.
    pub first: SegmentId,
    /// Length in bytes of each segment except a short last one: 1 to 16383.
    pub segment_bytes: u16,
}

/// A command of the driver. It uses the slot of one generation, and reaches the credit engine after the addresses that
/// were generated before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Adds a flow.
    Add(FlowSetup),
    /// Removes a flow; its addresses that have not been passed on to the link are dropped.
    Remove,
    /// Announces segments that may be sent.
    Limit {
        /// End (exclusive) of the announced segments.
        limit: SegmentId,
        /// Length of the last segment in bytes; zero if it is as long as all other segments.
        last_bytes: u16,
    },
    /// Changes the length of segments.
    SegmentBytes(u16),
}

/// Output of data delivery to credit: an address or a command for the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// A segment that was generated for transmission.
    Address(Entry),
    /// A command of the driver.
    Command(Command),
}

/// Settings changed by a program or a packet, which the data delivery engine passes to the credit engine. In the other
/// direction only the number of the flow whose segment was passed on is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Flow whose settings change.
    pub flow: FlowId,
    /// New rate.
    pub rate: Option<u32>,
    /// Total number of segments granted by the receiver.
    pub grant: Option<SegmentId>,
    /// Number of additional segments granted by a timeout.
    pub extra: u16,
}

impl Parameters {
    /// Returns whether there is nothing to send to the credit engine.
    pub(crate) fn is_empty(&self) -> bool {
        self.rate.is_none() && self.grant.is_none() && self.extra == 0
    }
}
