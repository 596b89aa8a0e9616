//! Falcon packets on sockets: their encapsulation, their source ports, and the check of their senders.
//!
//! Sources: OCP Falcon Transport Protocol, Rev 0.9, section 7.1 (PSP or ESP over UDP) and 9.2.2 (checks of a
//! receiver); Falcon (SIGCOMM'25) section 4.3 (paths). Deviations, because this is a process and not an adapter:
//!
//! - Packets are sent to the NIC's own UDP port, which is also used by packets of the RoCE family, and not to PSP's
//!   port 1000, which needs privileges and which only one process of a machine could bind. The first byte
//!   distinguishes the two: 252, PSP's next header, is an opcode that no packet of the RoCE family has, and no such
//!   packet begins with two bits of one, as the ESP security parameter indices here do.
//! - Without a secret, packets contain no key index. The last four bytes of their integrity check value are a CRC-32
//!   of all bytes before the check value, at the position of the ICRC. UDP's own checksum is too weak, and loopback
//!   does not compute it.
//! - The paths of a connection with several flows are source ports, over IPv6 too, because requesting a flow label
//!   from the kernel is as expensive as a socket. The low bits of the label are carried in the initialization vector
//!   ([`rnic_psp::Vector`]), so a network may change the ports.
//! - A packet must come from its peer's address, from any port; with a secret it must be authentic. Without one, any
//!   process at the peer's address could forge one.

mod guard;
mod loss_recovery;
mod messages;

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use rnic_base::Time;
use rnic_engine::{FalconTransmit, MemoryFault, PeerId, QpConnection, Segment, Transport};
use rnic_psp::{SecurityFormat, Vector, Vectors};
use rnic_wire::falcon::codec::{self, Decoded};
use rnic_wire::falcon::psp::{self, Header};
use rnic_wire::falcon::{self as wire, FlowLabel, HEADERS_MAX, Packet, Timestamp, esp};
use rnic_wire::{Addresses, IpVersion, Qpn};

use crate::background;
use crate::copy_crc::{self, CopyCrc};
use crate::memory::kept::KeptPayloads;
use crate::memory::{Arrived, Memory, Pieces, ProgramBytes};
use crate::number::ByNumber;
use crate::ports::PATHS_MAX;
use crate::protection::Protection;
use crate::stats::RxDrop;
use crate::sys;

use guard::Guard;
pub(crate) use loss_recovery::LossRecoveries;
pub(crate) use messages::Within;

/// State of the Falcon queue pairs of a NIC, in addition to the state in the engine.
#[derive(Debug)]
pub(crate) struct Falcon {
    protection: Option<Protection>,
    /// Guards, indexed by queue pair. Iterated only where the order does not matter.
    guards: HashMap<Qpn, Guard, ByNumber>,
    /// Connection that was last used for messages to a NIC as a whole.
    to_nics: HashMap<(PeerId, Option<u16>), (Qpn, Time)>,
    /// Values for the initialization vector field of packets that are sent unencrypted, on connections without a key.
    vectors: Vectors,
    /// Payload that has arrived out of order.
    pub(crate) kept: KeptPayloads,
    /// Number of times that a key was replaced.
    pub(crate) key_changes: u64,
}

/// An authentic datagram.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Range of its content in the datagram.
    message: Range<usize>,
    timestamp: Timestamp,
    /// Peer that has sent it.
    pub(crate) peer: PeerId,
    /// Queue pair that receives the packet, and the peer's queue pair to which it is connected.
    qpn: Qpn,
    pub(crate) dest_qpn: Qpn,
    label: u8,
    /// True when the encapsulation names the connection ([`esp`]), and not the content.
    is_named_outside: bool,
}

/// A packet that may be passed to the engine.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) packet: Packet,
    /// Range of the payload in the datagram.
    pub(crate) payload: Range<usize>,
    pub(crate) peer: PeerId,
    pub(crate) label: FlowLabel,
}

/// Returns whether a datagram can only be a Falcon packet. Its first byte is 252, PSP's next header; an ESP index may
/// begin with this byte too, but no packet of the RoCE family does.
#[inline]
pub(crate) fn is_falcon(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| esp::is_index(*first))
}

const _: () = assert!(esp::is_index(psp::NEXT_HEADER));

impl Falcon {
    pub(crate) fn new(protection: Option<Protection>) -> Self {
        let (guards, vectors, kept) = (HashMap::default(), Vectors::default(), KeptPayloads::default());
        Self { protection, guards, to_nics: HashMap::new(), vectors, kept, key_changes: 0 }
    }

    /// Adds a new queue pair if its transport is Falcon.
    pub(crate) fn add(&mut self, qpn: Qpn, transport: &Transport) {
        if let Some(shape) = transport.profile().protocol.falcon() {
            self.guards.insert(qpn, Guard::new(shape.flows > 1));
        }
    }

    /// Removes a queue pair.
    pub(crate) fn remove(&mut self, qpn: Qpn) {
        self.guards.remove(&qpn);
    }

    /// Records the peer to which a queue pair is connected, with the addresses `addresses`, and creates its keys.
    ///
    /// Each cookie comes from the system, even when the NIC has a seed: two runs with one seed have the same queue
    /// pair numbers and clock, so with the same cookie they would encrypt different plaintext with the same keys and
    /// initialization vectors. A cookie also is visible to every host on the path: it must not reveal other values
    /// that come from the seed, such as memory keys.
    pub(crate) fn connect(&mut self, qpn: Qpn, connection: &QpConnection, addresses: &Addresses) {
        let Self { protection, guards, .. } = self;
        let Some(guard) = guards.get_mut(&qpn) else { return };
        guard.connect(connection.peer, addresses.dst().ip(), connection.dest_qpn);
        let Some(protection) = protection else { return };
        let cookie = sys::random_bits();
        if let Err(error) = &cookie {
            background::print_message(format_args!(
                "the system provides no random bits for the keys of a connection: {error}"
            ));
        }
        guard.protect(protection, addresses, (qpn, connection.dest_qpn), cookie.ok());
    }

    /// Returns whether packets are protected by keys.
    #[inline]
    pub(crate) fn protects(&self) -> bool {
        self.protection.is_some()
    }

    /// Returns the number of bytes of the datagram that carries `packet`.
    #[inline]
    pub(crate) fn datagram_len(&self, packet: &Packet, ip: IpVersion) -> u32 {
        let form = match self.form() {
            None => wire::Form::Psp,
            Some(SecurityFormat::Psp) => wire::Form::PspCookie,
            Some(SecurityFormat::Esp) => wire::Form::Esp,
        };
        packet.udp_payload_len(wire::Encapsulation { ip, form })
    }

    /// Returns the encapsulation of protected packets.
    #[inline]
    fn form(&self) -> Option<SecurityFormat> {
        self.protection.as_ref().map(|protection| protection.form)
    }

    /// Returns the index of the path on which a packet is sent to the peer: path 0 uses the NIC's own port, each of
    /// the others a separate source port.
    ///
    /// On a connection with several flows, the low bits of the flow label select the path, and the lowest of these bits
    /// are the index of the flow. With two flows, each has eight paths of its own; with four flows, four paths; with
    /// eight flows, two paths. A flow that is moved changes its path, because the bit above the index changes.
    #[inline]
    pub(crate) fn path_of(&self, transmit: &FalconTransmit) -> u8 {
        let spreads = self.guards.get(&transmit.from).is_some_and(Guard::spreads);
        if spreads { 1 + transmit.label.get() as u8 % PATHS_MAX as u8 } else { 0 }
    }

    /// Returns whether a packet can be sent: if packets are protected, the key must exist.
    #[inline]
    pub(crate) fn can_write(&self, transmit: &FalconTransmit) -> bool {
        self.protection.is_none() || self.guards.get(&transmit.from).is_some_and(Guard::has_keys)
    }

    /// Writes the datagram of a packet that is sent at `now` to `out`, whose length must be that of the datagram.
    ///
    /// # Errors
    /// When its payload is unmapped; nothing has been encrypted then.
    ///
    /// # Panics
    /// When the packet cannot be sent ([`Self::can_write`]).
    pub(crate) fn write(
        &mut self,
        now: Time,
        transmit: &FalconTransmit,
        payload: &[Segment],
        memory: &Memory,
        out: &mut [u8],
    ) -> Result<(), MemoryFault> {
        let Some(form) = self.form() else {
            let mut front = [0; FRONT_MAX];
            let front = self.front_in_clear(now, transmit, &mut front);
            let pieces = payload.iter().map(|segment| memory.gather(*segment));
            return write_in_clear(front, pieces, pad_of(transmit), out);
        };
        let mut headers = [0; HEADERS_MAX];
        let len = codec::encode_headers(&transmit.packet, &mut headers).expect(PACKET_MATCHES_FORMAT);
        let guard = self.guards.get_mut(&transmit.from).expect("the caller has checked can_write");
        let start = match form {
            SecurityFormat::Psp => psp::LEN_MAX,
            SecurityFormat::Esp => esp::LEN,
        };
        let mut at = start;
        out[at..at + len].copy_from_slice(&headers[..len]);
        at += len;
        for segment in payload {
            let piece = memory.gather(*segment);
            piece.copy_to(&mut out[at..])?;
            at += piece.len();
        }
        let pad = pad_of(transmit);
        out[at..at + pad.len()].copy_from_slice(pad);
        let message = start..at + pad.len();
        self.key_changes += u64::from(guard.seal(now, transmit.label, message, out));
        Ok(())
    }

    /// Appends the datagram of a packet without a key that is sent at `now` to a buffer, without the check value.
    ///
    /// # Errors
    /// As for [`Self::write`].
    #[inline]
    pub(crate) fn write_cleartext(
        &mut self,
        now: Time,
        transmit: &FalconTransmit,
        payload: &[Segment],
        memory: &Memory,
        out: &mut impl Pieces,
    ) -> Result<(), MemoryFault> {
        let mut front = [0; FRONT_MAX];
        out.put(self.front_in_clear(now, transmit, &mut front));
        payload.iter().try_for_each(|segment| out.fetch(memory.gather(*segment)))?;
        out.put(pad_of(transmit));
        Ok(())
    }

    /// Returns the bytes before the payload of a packet without a key.
    #[inline]
    fn front_in_clear<'a>(&mut self, now: Time, transmit: &FalconTransmit, front: &'a mut [u8; FRONT_MAX]) -> &'a [u8] {
        let headers = front[psp::LEN..].first_chunk_mut().expect("there is room for both");
        let len = codec::encode_headers(&transmit.packet, headers).expect(PACKET_MATCHES_FORMAT);
        let iv = self.vectors.next(now, transmit.label).write();
        let mut psp_header = [0; psp::LEN_MAX];
        Header { iv, ..Header::default() }.emit(&mut psp_header);
        front[..psp::LEN].copy_from_slice(&psp_header[..psp::LEN]);
        &front[..psp::LEN + len]
    }

    /// Checks a datagram received from `source`, decrypts it in place, and reads its headers.
    #[inline]
    pub(crate) fn admit(&mut self, source: IpAddr, datagram: &mut [u8]) -> Result<Admitted, RxDrop> {
        self.open(source, datagram)?.read(datagram)
    }

    /// Checks a datagram received from `source`, and decrypts it in place.
    #[inline]
    pub(crate) fn open(&mut self, source: IpAddr, datagram: &mut [u8]) -> Result<Opened, RxDrop> {
        if self.form() == Some(SecurityFormat::Esp) {
            return self.open_esp(source, datagram);
        }
        let (header, layout) = psp::parse(datagram).map_err(|_| RxDrop::Malformed)?;
        let message = layout.message();
        let is_protected = self.protects();
        let (guard, qpn, peer) = self.guard_of(source, &datagram[message.clone()])?;
        let label = if is_protected {
            guard.open(&header, layout, datagram)?
        } else {
            check_in_clear(&header, datagram)?;
            Vector::read(header.iv).label
        };
        let (timestamp, dest_qpn) = (header.iv.timestamp, guard.dest_qpn());
        Ok(Opened { message, timestamp, peer, qpn, dest_qpn, label, is_named_outside: false })
    }

    /// The same as [`Self::open`] for ESP: the security parameter index identifies the connection.
    #[inline]
    fn open_esp(&mut self, source: IpAddr, datagram: &mut [u8]) -> Result<Opened, RxDrop> {
        let (header, layout) = esp::parse(datagram).map_err(|_| RxDrop::Malformed)?;
        let qpn = Qpn::new(header.spi & Qpn::MAX.get());
        let (guard, peer) = self.guard_at(source, qpn)?;
        let label = guard.open_esp(&header, layout, datagram)?;
        let message = layout.message(datagram).map_err(|_| RxDrop::Malformed)?;
        let (timestamp, dest_qpn) = (header.iv.timestamp, guard.dest_qpn());
        Ok(Opened { message, timestamp, peer, qpn, dest_qpn, label, is_named_outside: true })
    }

    /// Reads the headers of a packet that arrived through shared memory from `source`: a datagram without a key and
    /// without its check value, because shared memory does not corrupt data. Its contents may change at any time, so
    /// its headers are copied first.
    #[inline]
    pub(crate) fn admit_in_clear(&mut self, source: IpAddr, bytes: Arrived<'_>) -> Result<Admitted, RxDrop> {
        let mut front = [0; FRONT_MAX];
        let front = bytes.copy_front(&mut front);
        let len = bytes.len() + psp::ICV_LEN;
        let (header, layout) = psp::parse_front(front, len).map_err(|_| RxDrop::Malformed)?;
        if self.protects() || header.is_protected() {
            return Err(RxDrop::Protection);
        }
        let message = layout.message();
        let headers = &front[message.start..];
        let (_, _, peer) = self.guard_of(source, headers)?;
        let decoded =
            codec::decode_front(headers, message.len(), header.iv.timestamp).map_err(|_| RxDrop::Malformed)?;
        Ok(Admitted::new(decoded, message.start, peer, Vector::read(header.iv).label))
    }

    /// Returns the guard and the number of the queue pair to which `message` is addressed, and its peer, if the peer
    /// sends from `source`.
    #[inline]
    fn guard_of(&mut self, source: IpAddr, message: &[u8]) -> Result<(&mut Guard, Qpn, PeerId), RxDrop> {
        let [_, high, middle, low] = *message.first_chunk().ok_or(RxDrop::Malformed)?;
        let qpn = Qpn::new(u32::from_be_bytes([0, high, middle, low]));
        let (guard, peer) = self.guard_at(source, qpn)?;
        Ok((guard, qpn, peer))
    }

    #[inline]
    fn guard_at(&mut self, source: IpAddr, qpn: Qpn) -> Result<(&mut Guard, PeerId), RxDrop> {
        let guard = self.guards.get_mut(&qpn).ok_or(RxDrop::UnknownPeer)?;
        let peer = guard.peer_at(source).ok_or(RxDrop::UnknownPeer)?;
        Ok((guard, peer))
    }
}

impl Opened {
    /// Reads the headers of the packet in the datagram.
    #[inline]
    pub(crate) fn read(self, datagram: &[u8]) -> Result<Admitted, RxDrop> {
        let start = self.message.start;
        let decoded = codec::decode(&datagram[self.message], self.timestamp).map_err(|_| RxDrop::Malformed)?;
        // The index and the sender's connection id must identify the same connection.
        if self.is_named_outside && decoded.packet.cid.get() != self.qpn.get() {
            return Err(RxDrop::Malformed);
        }
        Ok(Admitted::new(decoded, start, self.peer, self.label))
    }
}

impl Admitted {
    /// Creates the value from decoded headers; `start` is the offset in the datagram at which they begin.
    #[inline]
    fn new(decoded: Decoded, start: usize, peer: PeerId, label: u8) -> Self {
        let payload = decoded.payload.start + start..decoded.payload.end + start;
        Self { packet: decoded.packet, payload, peer, label: FlowLabel::new(label.into()) }
    }
}

/// Returns the padding after the payload that rounds the packet up to a multiple of four bytes.
#[inline]
fn pad_of(transmit: &FalconTransmit) -> &'static [u8] {
    &[0; 3][..transmit.packet.pad_len() as usize]
}

/// Appends the check value to an unencrypted datagram that has none yet.
pub(crate) fn check(datagram: &mut Vec<u8>) {
    let crc = copy_crc::checksum(datagram).to_le_bytes();
    datagram.extend_from_slice(&[0; CRC_AT]);
    datagram.extend_from_slice(&crc);
}

/// Copies `front`, `pieces` and `pad` to `out`, followed by the CRC of these bytes.
#[inline]
fn write_in_clear(
    front: &[u8],
    mut pieces: impl Iterator<Item = ProgramBytes>,
    pad: &[u8],
    out: &mut [u8],
) -> Result<(), MemoryFault> {
    let (covered, icv) = out.split_last_chunk_mut::<{ psp::ICV_LEN }>().expect("a datagram has a check value");
    let mut copier = CopyCrc::plain();
    let first = pieces.next().unwrap_or(ProgramBytes::NOTHING);
    copier.begin(front, first, covered)?;
    let mut rest = &mut covered[front.len() + first.len()..];
    for piece in pieces.filter(|piece| piece.len() > 0) {
        copier.fetch(piece, rest)?;
        rest = &mut rest[piece.len()..];
    }
    if !pad.is_empty() {
        copier.more(pad, rest);
    }
    *icv = [0; psp::ICV_LEN];
    icv[CRC_AT..].copy_from_slice(&copier.finish());
    Ok(())
}

/// Verifies the CRC of a datagram without a key.
#[inline]
fn check_in_clear(header: &Header, datagram: &[u8]) -> Result<(), RxDrop> {
    if header.is_protected() {
        return Err(RxDrop::Protection);
    }
    let (covered, icv) = datagram.split_last_chunk::<{ psp::ICV_LEN }>().ok_or(RxDrop::Malformed)?;
    let crc = copy_crc::checksum(covered).to_le_bytes();
    if icv[..CRC_AT] == [0; CRC_AT] && icv[CRC_AT..] == crc { Ok(()) } else { Err(RxDrop::Icrc) }
}

/// Maximum number of bytes before the payload.
const FRONT_MAX: usize = psp::LEN_MAX + HEADERS_MAX;

const PACKET_MATCHES_FORMAT: &str = "the packet matches its format";

/// Offset of the CRC within the check value of an unencrypted datagram.
const CRC_AT: usize = psp::ICV_LEN - size_of::<u32>();

#[cfg(test)]
#[path = "falcon/tests.rs"]
mod tests;
