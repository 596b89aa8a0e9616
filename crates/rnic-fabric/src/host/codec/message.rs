//! Representation of messages between NICs.

use rnic_base::Time;
use rnic_engine::MessageTransmit;
use rnic_wire::Format;
use rnic_wire::net::{IpFields, IpVersion, frame_len};
use rnic_wire::scr::{MESSAGE_LEN, Message};

use super::{Captured, PacketCodec, addresses, source_port};
use crate::entry::{Entry, Flags};
use crate::packets::{Endpoints, Messages, OtherPacket};
use crate::route::flow_hash;

impl PacketCodec {
    /// Stores a message for transmission and returns its network entry.
    #[cold]
    pub(crate) fn store_message(&mut self, now: Time, transmit: &MessageTransmit, messages: &mut Messages) -> Entry {
        let MessageTransmit { nic, label, message } = transmit;
        let (dst, port) = (nic.peer.0, source_port(*label));
        let index = messages.insert(
            &OtherPacket::Message(*message),
            Endpoints { src: self.host, source_port: port, format: Format::RoceV2 },
        );
        if self.wants_bytes() {
            let addresses = addresses(self.host, dst, port);
            let datagram = message.encode(&addresses).expect("the engine makes messages that can be encoded");
            if let Some(captured) = &mut self.captured {
                let fields = IpFields::default();
                captured.push(Captured { at: now, addresses, fields, datagram: datagram.to_vec() });
            }
            let mut bytes = messages.take_bytes(index);
            bytes.clear();
            if self.encoded {
                bytes.extend_from_slice(&datagram);
                messages.forget_headers(index);
            }
            messages.put_bytes(index, bytes);
        }
        let identity = identity(self.host, dst, message);
        let frame_len = frame_len(IpVersion::V4, MESSAGE_LEN as u32);
        Entry::new(identity, flow_hash(self.host, dst, port), index, dst, frame_len, Flags::SENT_MESSAGE)
    }

    /// Returns a received message; `None` when it is damaged, or a segment of another protocol.
    pub(crate) fn decode_message(&self, entry: &Entry, messages: &Messages) -> Option<Message> {
        if !self.encoded {
            let OtherPacket::Message(message) = *messages.headers(entry.packet) else { return None };
            return (!entry.has(Flags::CORRUPT)).then_some(message);
        }
        let Endpoints { src, source_port, .. } = messages.ends(entry.packet);
        Message::parse_verified(messages.bytes(entry.packet), &addresses(src, self.host, source_port)).ok()
    }
}

/// Returns the identity of a message, from both hosts, queue pair, sequence number and type.
fn identity(src: u32, dst: u32, message: &Message) -> u64 {
    let ends = u64::from(src) << 32 | u64::from(dst);
    let numbers = u64::from(message.dest_qpn.get()) << 40 ^ u64::from(message.sequence.value()) << 8;
    let mixed = ends.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ numbers.rotate_left(8) ^ message.body.kind() as u64;
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 29
}
