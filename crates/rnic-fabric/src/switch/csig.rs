//! Congestion signals in packets (CSIG): tags that a switch writes into waiting packets.
//!
//! Source: draft-ravi-ippm-csig-01, its signal max(PD); format and quantisation are [`Csig`](rnic_base::Csig)'s.
//!
//! Choices: the delay of a hop is the wait in its queue, without the time on the wire, and is predicted from the
//! queue when the packet enters it: the frames that the output still has to send, each with its preamble and the gap
//! after it, at the present rate of its link. Later pauses are not predicted. So the tag of a packet that does not
//! wait need not be read, because a delay of zero never replaces its value. Switches are numbered as in the topology.
//! Acknowledgements carry a tag, since all frames of a host do, but no switch writes into it: their delay is not that
//! of the data's path.

use rnic_base::Time;

use super::queues::Output;
use crate::entry::{Entry, Flags};
use crate::network::Network;
use crate::port::Port;

/// Length of a tag in a frame, in bytes.
pub(crate) const TAG_LEN: u32 = 4;

/// The CSIG signal of one switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    locator: u32,
}

impl Stamp {
    /// Creates the signal of switch number `locator`.
    pub(super) fn new(locator: u32) -> Self {
        Self { locator }
    }

    /// Updates the tag of the packet of `entry`, which starts to wait for `port` now, after the packets that already
    /// wait for `output`.
    pub(super) fn write(self, now: Time, entry: &Entry, output: &Output, port: &Port, network: &mut Network) {
        if entry.has(Flags::FALCON) && !entry.has(Flags::ACK) {
            let delay = port.delay_behind(now, output.packets, output.bytes);
            network.falcon_packets.ends_mut(entry.packet).stamp(delay, self.locator);
        }
    }
}
