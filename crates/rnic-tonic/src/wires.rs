//! Inputs and outputs of the template, and the wires between its two engines (Tonic, section 3).

use crate::shape::{FlowId, SegmentId};
use crate::state::Entry;

/// The address of a segment, as it leaves the template: the payload is fetched by what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// Flow: 10 bits, 11 in templates with more than 1024 flows.
    pub flow: FlowId,
    /// Segment: 24 bits.
    pub segment: SegmentId,
    /// Number of times that the segment had been sent before, at most 3: 2 bits.
    pub times_sent: u8,
}

/// A packet of a flow's receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// Carries the cumulative acknowledgement `cum`.
    pub ack: bool,
    /// Reports a gap: `cum`, which it carries too, is missing, and a later segment has arrived.
    pub nack: bool,
    /// Reports that the segment `sack` has arrived without its payload; carries `cum` too.
    pub trimmed: bool,
    /// Is a congestion notification.
    pub cnp: bool,
    /// Reports that the segment `sack` has arrived out of order.
    pub sacked: bool,
    /// Next segment that the receiver expects.
    pub cum: SegmentId,
    /// A segment, where `sacked` or `trimmed` is set.
    pub sack: SegmentId,
    /// Number of times that the segment had been sent before, as echoed by the receiver: 2 bits.
    pub times_sent: u8,
    /// Segments that the receiver has granted since the flow was added, in total.
    pub grant: Option<SegmentId>,
}

/// Settings of a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSetup {
    /// Id of the first segment.
    pub first: SegmentId,
    /// Bytes of each segment except a short last one: 1 to 16383.
    pub segment_bytes: u16,
}

/// A command of the driver. It takes the slot of one generation, and reaches the credit engine behind the addresses
/// that were generated before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Adds a flow.
    Add(FlowSetup),
    /// Removes a flow; its addresses that have not left are dropped.
    Remove,
    /// Announces segments.
    Limit {
        /// End of the announced segments.
        limit: SegmentId,
        /// Bytes of the last one; zero when it is as long as the others.
        last_bytes: u16,
    },
    /// Changes the length of segments.
    SegmentBytes(u16),
}

/// From data delivery to credit: an address or a command for the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// A generated address.
    Address(Entry),
    /// A command.
    Command(Command),
}

/// From data delivery to credit: what a program or a packet has changed. From credit to data delivery goes only the
/// number of the flow whose address has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// The flow.
    pub flow: FlowId,
    /// New rate.
    pub rate: Option<u32>,
    /// Segments granted in total.
    pub grant: Option<SegmentId>,
    /// Further segments granted by a timeout.
    pub extra: u16,
}

impl Parameters {
    /// Returns whether the credit engine learns anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.rate.is_none() && self.grant.is_none() && self.extra == 0
    }
}
