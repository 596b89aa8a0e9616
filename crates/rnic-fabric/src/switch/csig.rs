//! Congestion signals in packets (CSIG): what a switch writes into those that wait.
//!
//! Source: draft-ravi-ippm-csig-01, its signal max(PD); format and quantisation are [`Csig`](rnic_base::Csig)'s.
//!
//! Choices: a hop's delay is the wait in its queue, without the time on the wire, and is what the queue foretells when
//! the packet enters it: the frames that the output still has to send, each with its preamble and the gap behind it,
//! at the rate that its link has at that time. A pause that the packet will meet is not foreseen. So the tag of a
//! packet that does not wait need not be read: nothing that it carries could be replaced. Switches are numbered as the
//! topology numbers them. Acknowledgements carry a tag, since all frames of a host do, and no switch writes into it:
//! what they meet says nothing about the way of the data.

use rnic_base::Time;

use super::queues::Output;
use crate::entry::{Entry, Flags};
use crate::network::Network;
use crate::port::Port;

/// Bytes of a tag in a frame.
pub(crate) const TAG_LEN: u32 = 4;

/// The signal of one switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    locator: u32,
}

impl Stamp {
    /// That of switch number `locator`.
    pub(super) fn new(locator: u32) -> Self {
        Self { locator }
    }

    /// Writes into the packet of `entry`, which begins to wait for `port` now behind what waits for `output` already.
    pub(super) fn write(self, now: Time, entry: &Entry, output: &Output, port: &Port, network: &mut Network) {
        if entry.has(Flags::FALCON) && !entry.has(Flags::ACK) {
            let delay = port.delay_behind(now, output.packets, output.bytes);
            network.falcon_packets.ends_mut(entry.packet).stamp(delay, self.locator);
        }
    }
}
