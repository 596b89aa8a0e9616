//! What only the ends understand of a packet: headers, and bytes when there are any.
//!
//! A slab that is written when a packet leaves its host and read when it reaches the other one. Slots are used again,
//! last freed first, so that few packets under way touch little memory. Where a packet lies decides nothing.

use rnic_base::Psn;
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

/// A packet under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// Headers; not to be looked at when the packet travels as bytes.
    pub(crate) packet: Packet,
    /// How they are written.
    pub(crate) format: Format,
    /// The host it comes from: its IP source address.
    pub(crate) src: u32,
    /// Its UDP source port.
    pub(crate) source_port: u16,
}

/// Every packet under way.
#[derive(Debug)]
pub(crate) struct Packets {
    slots: Vec<InFlight>,
    free: Vec<u32>,
    /// Payload, or the whole datagram when packets are encoded; beside `slots`, and empty when neither is carried.
    bytes: Vec<Vec<u8>>,
    with_bytes: bool,
    most: usize,
}

impl Packets {
    /// A slab; `with_bytes` when packets have payload or travel encoded.
    pub(crate) fn new(with_bytes: bool) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), bytes: Vec::new(), with_bytes, most: 0 }
    }

    /// Takes a packet in; its bytes are what the slot's last user left, until they are written.
    #[inline]
    pub(crate) fn insert(&mut self, packet: InFlight) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = packet;
            return index;
        }
        self.append(packet)
    }

    #[cold]
    fn append(&mut self, packet: InFlight) -> u32 {
        let index = self.slots.len() as u32;
        assert!(index < PACKETS_MAX, "more than {PACKETS_MAX} packets under way");
        self.slots.push(packet);
        if self.with_bytes {
            self.bytes.push(Vec::new());
        }
        self.most = self.slots.len();
        index
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &InFlight {
        &self.slots[index as usize]
    }

    /// The bytes that travel with a packet.
    pub(crate) fn bytes(&self, index: u32) -> &[u8] {
        self.bytes.get(index as usize).map_or(&[], Vec::as_slice)
    }

    /// The same, for writing.
    pub(crate) fn bytes_mut(&mut self, index: u32) -> &mut [u8] {
        self.bytes.get_mut(index as usize).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Lends the bytes of a packet out; [`Packets::put_bytes`] brings them back.
    pub(crate) fn take_bytes(&mut self, index: u32) -> Vec<u8> {
        self.bytes.get_mut(index as usize).map(core::mem::take).unwrap_or_default()
    }

    /// Ends a loan.
    pub(crate) fn put_bytes(&mut self, index: u32, bytes: Vec<u8>) {
        if let Some(place) = self.bytes.get_mut(index as usize) {
            *place = bytes;
        }
    }

    /// Leaves nothing of a packet's headers but their bytes.
    pub(crate) fn forget_headers(&mut self, index: u32) {
        let flags = PacketFlags::default();
        let nothing = Packet { dest_qpn: Qpn::new(0), psn: Psn::new(0), flags, payload_len: 0, headers: Headers::Cnp };
        self.slots[index as usize].packet = nothing;
    }

    /// A second packet like the one at `index`.
    pub(crate) fn duplicate(&mut self, index: u32) -> u32 {
        let copy = self.insert(*self.get(index));
        if self.with_bytes {
            let bytes = core::mem::take(&mut self.bytes[index as usize]);
            self.bytes[copy as usize].clone_from(&bytes);
            self.bytes[index as usize] = bytes;
        }
        copy
    }

    /// The packet at `index` is no more.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        debug_assert!((index as usize) < self.slots.len());
        self.free.push(index);
    }

    /// Packets under way now.
    pub(crate) fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Packets under way at once, at most, so far.
    pub(crate) fn most(&self) -> usize {
        self.most
    }
}

/// Packets under way at once: 2^28 of 88 bytes would be 23 GB; whoever needs more has a runaway sender.
const PACKETS_MAX: u32 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(psn: u32) -> InFlight {
        let flags = PacketFlags::default();
        let packet = Packet { dest_qpn: Qpn::new(5), psn: Psn::new(psn), flags, payload_len: 0, headers: Headers::Cnp };
        InFlight { packet, format: Format::Irn, src: 3, source_port: 0xc000 }
    }

    #[test]
    fn slots_are_used_again_and_copies_are_apart() {
        let mut packets = Packets::new(true);
        let first = packets.insert(packet(1));
        packets.put_bytes(first, vec![1, 2, 3]);
        let copy = packets.duplicate(first);
        packets.bytes_mut(first)[0] = 9;
        assert_eq!((packets.bytes(first), packets.bytes(copy)), (&[9, 2, 3][..], &[1, 2, 3][..]));
        assert_eq!(packets.live(), 2);
        packets.remove(first);
        assert_eq!(packets.insert(packet(2)), first);
        packets.remove(first);
        packets.remove(copy);
        assert_eq!((packets.live(), packets.most()), (0, 2));
    }
}
