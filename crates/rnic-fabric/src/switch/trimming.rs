//! Trimming: a switch cuts the payload of a packet for which it has no space, and forwards the headers.
//!
//! Source: NDP (SIGCOMM'17) section 3.1. Each output has two queues. Data packets wait in the low one, which holds
//! few of them (eight by default). The high one is for packets without data (acknowledgements, NACKs, pulls,
//! notifications) and for the headers of trimmed packets; the paper gives it as many bytes as eight packets of 9 KB.
//! It is served first, but when data waits, one data packet is sent after every ten headers, so that headers alone
//! cannot take all of a link. A header that finds its queue full is dropped.
//!
//! Choices: the paper trims, with probability one half, the last packet that waits instead of the one that arrives,
//! to prevent the same senders from losing each time; here it is always the one that arrives. A header does not
//! occupy the buffers of [`super::admission`], which are for data. Depths in reports and marks are those of data.

use rnic_base::Time;
use rnic_wire::codec::{assemble, decode};
use rnic_wire::net::IpVersion;
use rnic_wire::{Headers, Packet};

use super::queues::Queues;
use crate::addresses::addresses;
use crate::entry::{Entry, Flags};
use crate::packets::{Endpoints, Packets};

/// Parameters of trimming.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrimPlan {
    /// Number of data packets that may wait for an output.
    pub packets: u32,
    /// Number of bytes of packets without data and of headers that may wait for an output.
    pub header_bytes: u64,
}

/// The high-priority queues of a switch.
#[derive(Debug)]
pub(super) struct Trimming {
    plan: TrimPlan,
    queues: Queues,
    /// For each output, the number of headers sent in succession while data waited.
    in_succession: Box<[u8]>,
    pub(super) trimmed: u64,
}

impl Trimming {
    pub(super) fn new(plan: TrimPlan, ports: usize) -> Self {
        let in_succession = vec![0; ports].into_boxed_slice();
        Self { plan, queues: Queues::new(ports, false), in_succession, trimmed: 0 }
    }

    /// Returns whether a data packet may be queued at an output port that already has `waiting` packets queued.
    pub(super) fn has_space(&self, waiting: u32) -> bool {
        waiting < self.plan.packets
    }

    pub(super) fn is_empty(&self, output: usize) -> bool {
        self.queues.is_empty(output)
    }

    /// Returns the number of bytes that wait in all queues.
    pub(super) fn bytes(&self) -> u64 {
        self.queues.bytes()
    }

    /// Returns the number of bytes that wait for `output`.
    pub(super) fn bytes_at(&self, output: usize) -> u64 {
        self.queues.output(output).bytes
    }

    /// Returns the bytes that waited for `output`, integrated over time until `now`.
    pub(super) fn waited(&self, output: usize, now: Time) -> u128 {
        self.queues.output(output).byte_time_at(now)
    }

    /// Appends `entry` to the queue of `output`; returns false when the queue is full.
    pub(super) fn push(&mut self, now: Time, output: usize, entry: Entry) -> bool {
        let waiting = self.queues.output(output).bytes;
        if waiting + u64::from(entry.frame_len) > self.plan.header_bytes {
            return false;
        }
        self.queues.push(now, output, 0, entry);
        true
    }

    /// Removes the header that `output` sends next; returns `None` if there is none, or if data waits (`has_data`) and
    /// is next, because [`HEADERS_PER_DATA_PACKET`] headers have been sent in succession.
    pub(super) fn pop(&mut self, now: Time, output: usize, has_data: bool) -> Option<Entry> {
        let in_succession = &mut self.in_succession[output];
        if self.queues.is_empty(output) || has_data && *in_succession >= HEADERS_PER_DATA_PACKET {
            *in_succession = 0;
            return None;
        }
        *in_succession = if has_data { *in_succession + 1 } else { 0 };
        Some(self.queues.pop(now, output))
    }
}

/// Number of headers that are sent for each data packet, while both wait (NDP section 3.1).
const HEADERS_PER_DATA_PACKET: u8 = 10;

/// Cuts the payload of the packet of `entry`; returns false when it has none, when its format has no trimmed packets,
/// or when it is damaged: a switch checks the packet before it computes a new checksum.
pub(super) fn trim(entry: &mut Entry, packets: &mut Packets) -> bool {
    if entry.is_for_nic() || [Flags::ACK, Flags::CORRUPT, Flags::FALCON].into_iter().any(|flag| entry.has(flag)) {
        return false;
    }
    let index = entry.packet;
    let Endpoints { src, source_port, format } = packets.ends(index);
    // When packets are encoded, the stored headers are placeholders.
    let is_encoded = matches!(packets.headers(index).headers, Headers::Cnp);
    let whole = if is_encoded { decode(packets.bytes(index)).ok().map(|decoded| decoded.packet) } else { None };
    let whole: Packet = whole.unwrap_or(*packets.headers(index));
    let Some(trimmed) = whole.trimmed(format) else { return false };
    let len = |packet: &Packet| packet.frame_len(format, IpVersion::V4);
    entry.frame_len -= (len(&whole) - len(&trimmed)) as u16;
    entry.set(Flags::TRIMMED);
    let mut bytes = packets.take_bytes(index);
    if is_encoded {
        let addresses = addresses(src, entry.dst(), source_port);
        assemble(format, &trimmed, &[], &addresses, &mut bytes).expect("a packet that was decoded can be encoded");
    } else {
        packets.replace_headers(index, &trimmed);
        bytes.clear();
    }
    packets.put_bytes(index, bytes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, frame_len: u32) -> Entry {
        Entry::new(id, 0, 0, 0, frame_len, Flags::ACK)
    }

    /// Headers are sent first, but not more than ten in succession while data waits.
    #[test]
    fn data_waits_for_ten_headers_at_most() {
        let mut trimming = Trimming::new(TrimPlan { packets: 8, header_bytes: 2_000 }, 2);
        let pushed = (0..40).filter(|id| trimming.push(Time::ZERO, 1, entry(*id, 64))).count();
        assert_eq!((pushed, trimming.bytes()), (31, 31 * 64), "31 headers of 64 bytes fit into 2000 bytes");
        let sent: Vec<_> = (0..22).map(|_| trimming.pop(Time::ZERO, 1, true).is_some()).collect();
        let expected: Vec<_> = (1..=22).map(|turn| turn % 11 != 0).collect();
        assert_eq!(sent, expected);
        let rest = (0..11).map_while(|_| trimming.pop(Time::ZERO, 1, false)).count();
        assert_eq!((rest, trimming.is_empty(1), trimming.bytes()), (11, true, 0), "without data they are not held up");
        assert!(trimming.has_space(7) && !trimming.has_space(8));
    }
}
