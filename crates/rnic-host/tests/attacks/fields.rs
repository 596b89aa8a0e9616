//! A forger that knows all of a packet but one field: which bits of it must be right.
//!
//! It has what somebody off the path must guess: it sends from port 4791 and the peer's address, as only a process of
//! the same user can, makes the right check value, and knows every number. Each test changes one bit of one field at a
//! time, on a connection of its own, and counts those without which nothing happens: the bits to guess. Where any
//! number of a window will do, all numbers around it are sent and those that get in are counted. The table in
//! `docs/security.md` has the sums.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rnic_base::{Psn, Psn32, Serial};
use rnic_engine::{DropReason, QpState, SendOp, Service, WcStatus};
use rnic_wire::falcon::rdma::{self, Operation};
use rnic_wire::falcon::{Body, Cid, Timestamp, Ulp, UlpProtocol, WindowBases, psp};
use rnic_wire::net::UDP_PORT;
use rnic_wire::{
    Addresses, Aeth, Format, Headers, ICRC_LEN, NakCode, Packet, PacketFlags, Position, Qpn, Reth, Syndrome, codec,
    falcon,
};
use socket2::{Domain, Socket, Type};

use crate::common::{HALF, MEMORY, Side, connect_qps, new_qp, start};
use crate::guesses::{packet, udp};

/// Bytes that a forger wants to have in memory.
const LOOT: [u8; 16] = [0x5a; 16];

/// The number at which both ends begin. A bit that is flipped makes it larger.
const BASE: u32 = 0;

/// Bits of the base transport header: the queue pair, the sequence number.
const QPN: Range<usize> = 40..64;
const PSN: Range<usize> = 72..96;
/// Of the header behind it, of a Write or Read: address and key.
const VA: Range<usize> = 96..160;
const KEY: Range<usize> = 160..192;
/// Of a datagram's, the queue key.
const QUEUE_KEY: Range<usize> = 96..128;

/// Two NICs on one machine, and a forger between them.
struct Bed {
    left: Side,
    right: Side,
    forger: UdpSocket,
}

/// A connection to attack.
#[derive(Clone, Copy)]
pub struct Ends {
    pub from: Qpn,
    pub to: Qpn,
}

/// A test of one end after a forgery: it has worked.
type Took<'a> = &'a dyn Fn(&mut Bed, Ends) -> bool;
/// A datagram without its check value.
type Forge<'a> = &'a dyn Fn(&Bed, Ends) -> Vec<u8>;

impl Bed {
    /// `None`, and a reason, where another user has port 4791.
    fn open() -> Option<Self> {
        let forger = match forger_at(Ipv4Addr::LOCALHOST) {
            Ok(forger) => forger,
            Err(error) => {
                eprintln!("skipped: port 4791 is not to be had: {error}");
                return None;
            }
        };
        Some(Self { left: Side::open(udp()), right: Side::open(udp()), forger })
    }

    fn connect(&mut self, service: Service, transport: &str) -> Ends {
        let Self { left, right, .. } = self;
        let (from, to) = (new_qp(left, service, transport, 64), new_qp(right, service, transport, 64));
        if service == Service::UnreliableDatagram {
            for (side, qpn) in [(&mut *left, from), (&mut *right, to)] {
                side.nic.verbs().set_qkey(qpn, SECRET_QUEUE_KEY).expect("datagrams have one");
                side.nic.verbs().modify_to_rtr_unconnected(qpn, 4_096).expect("legal");
                start(side, qpn, BASE, 0);
            }
        } else {
            connect_qps(left, right, (from, to), BASE);
        }
        let sge = self.right.sge(0, 200);
        (0..4).for_each(|wr_id| self.right.post_recv(to, wr_id, &[sge]));
        Ends { from, to }
    }

    fn part(&mut self, ends: Ends) {
        for (side, qpn) in [(&mut self.left, ends.from), (&mut self.right, ends.to)] {
            side.nic.verbs().destroy_qp(qpn).expect("it is there");
            while side.nic.progress() {}
            side.completions();
        }
        self.right.nic.bytes_mut(&self.right.region).fill(0);
    }

    /// Sends `bytes` and their check value in the name of `victim`'s peer, and lets `victim` take it in.
    fn forge(&mut self, bytes: &[u8], is_left: bool) {
        let Self { left, right, forger } = self;
        let victim = if is_left { left } else { right };
        let (source, target) = (forger.local_addr().expect("bound"), SocketAddr::from((HOST, victim.nic.port())));
        let is_falcon = bytes.first() == Some(&psp::NEXT_HEADER);
        let datagram = if is_falcon { with_crc(bytes) } else { packet(bytes, source, target) };
        let (before, begun) = (victim.nic.stats().datagrams_received, Instant::now());
        forger.send_to(&datagram, target).expect("loopback");
        while victim.nic.stats().datagrams_received == before {
            victim.nic.progress();
            assert!(begun.elapsed() < Duration::from_secs(10), "loopback loses nothing");
        }
        // The victim acts on it.
        (0..4).for_each(|_| _ = victim.nic.progress());
    }

    /// Bits of `field` that must be right for `forge` to do what `took` looks for.
    fn bits(
        &mut self,
        (service, transport): (Service, &str),
        field: Range<usize>,
        is_left: bool,
        forge: Forge<'_>,
        took: Took<'_>,
    ) -> usize {
        let mut works = |flipped: Option<usize>| {
            let ends = self.connect(service, transport);
            let mut bytes = forge(self, ends);
            if let Some(bit) = flipped {
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
            }
            self.forge(&bytes, is_left);
            let worked = took(self, ends);
            self.part(ends);
            worked
        };
        assert!(works(None), "{transport}: with every bit right it works");
        field.filter(|bit| !works(Some(*bit))).count()
    }

    fn state(side: &Side, qpn: Qpn) -> QpState {
        side.nic.query_qp(qpn).expect("it is there").state
    }

    fn right_has_failed(&mut self, ends: Ends) -> bool {
        Self::state(&self.right, ends.to) == QpState::Error
    }

    /// Returns whether the right's memory, which was empty, has anything in it.
    fn is_written(&mut self, _: Ends) -> bool {
        self.right.nic.bytes(&self.right.region).iter().any(|byte| *byte != 0)
    }

    fn has_received(&mut self, _: Ends) -> bool {
        self.right.completions().iter().any(|done| done.status == WcStatus::Success)
    }

    /// The right's memory, as an honest Write would name it.
    fn granted(&self) -> Reth {
        let remote = self.right.region.remote(HALF);
        Reth { va: remote.addr, rkey: remote.rkey, dma_len: LOOT.len() as u32 }
    }
}

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SECRET_QUEUE_KEY: u32 = 0x5e3d_91c7;
/// Keys of no region.
pub const NO_GRANT: Reth = Reth { va: 0, rkey: 7, dma_len: LOOT.len() as u32 };
/// The header of a request that has none.
pub const NOTHING: Reth = Reth { va: 0, rkey: 0, dma_len: 0 };

/// A socket at port 4791 of `host`, beside those of our own user's NICs.
fn forger_at(host: Ipv4Addr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    let level = libc::SOL_SOCKET;
    // SAFETY: the option is an integer, which lives through the call.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, libc::SO_REUSEPORT, (&raw const on).cast(), len) };
    if set != 0 {
        return Err(std::io::Error::last_os_error());
    }
    socket.bind(&SocketAddr::from((host, UDP_PORT)).into())?;
    Ok(socket.into())
}

/// The bytes of a packet, without ICRC.
pub fn bytes_of(format: Format, dest_qpn: Qpn, psn: u32, headers: Headers, payload: &[u8]) -> Vec<u8> {
    let flags = PacketFlags { ack_request: true, ..PacketFlags::default() };
    let packet = Packet { dest_qpn, psn: Psn::new(psn), flags, headers, payload_len: payload.len() as u32 };
    // Whatever they are, the ICRC is made anew.
    let any = SocketAddr::from((HOST, UDP_PORT));
    let (way, mut bytes) = (Addresses::new(any, any).expect("one version"), Vec::new());
    codec::assemble(format, &packet, &[payload], &way, &mut bytes).expect("legal headers");
    bytes.truncate(bytes.len() - ICRC_LEN);
    bytes
}

pub fn write(format: Format, to: Qpn, psn: u32, reth: Reth) -> Vec<u8> {
    let headers = Headers::Write { position: Position::Only, reth: Some(reth), immediate: None, recv_sn: None };
    bytes_of(format, to, psn, headers, &LOOT[..reth.dma_len as usize])
}

pub fn format_of(transport: &str) -> Format {
    if transport == "irn" { Format::Irn } else { Format::RoceV2 }
}

const RC: Service = Service::ReliableConnection;

/// The request that is expected now, with a key of no region: refused, and both ends fail. Nothing else is: neither one
/// of another format, which a queue pair of `irn` takes RoCE's for, nor an early one, which is judged in its turn. Of
/// the queue pair's number, 10 bits are its NIC's port, or 12.
#[test]
fn to_end_a_reliable_connection_by_a_request_38_bits_must_be_right() {
    let Some(mut bed) = Bed::open() else { return };
    let elsewhere = forger_at(Ipv4Addr::new(127, 0, 0, 2)).expect("as the other");
    for transport in ["irn", "roce-gbn"] {
        let forge = |_: &Bed, ends: Ends| write(format_of(transport), ends.to, BASE, NO_GRANT);
        let bits = [QPN, PSN].map(|field| bed.bits((RC, transport), field, false, &forge, &Bed::right_has_failed));
        assert_eq!(bits, [24, 24], "{transport}");

        let ends = bed.connect(RC, transport);
        let other = if transport == "irn" { Format::RoceV2 } else { Format::Irn };
        bed.forge(&write(other, ends.to, BASE, NO_GRANT), false);
        assert_eq!(Bed::state(&bed.right, ends.to), QpState::ReadyToSend, "{transport}: another format");
        // From another host, with all of it right.
        let ours = std::mem::replace(&mut bed.forger, elsewhere.try_clone().expect("a descriptor"));
        bed.forge(&write(format_of(transport), ends.to, BASE, NO_GRANT), false);
        bed.forger = ours;
        assert_eq!(Bed::state(&bed.right, ends.to), QpState::ReadyToSend, "{transport}: another address");
        bed.part(ends);
    }
}

/// A NAK ends a connection only when it names one of the packets in flight, so one with none in flight cannot be ended.
#[test]
fn to_end_a_reliable_connection_by_a_refusal_it_must_name_a_packet_in_flight() {
    let Some(mut bed) = Bed::open() else { return };
    let refusal = |transport: &str, ends: Ends| {
        let syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
        let headers = Headers::Ack { aeth: Aeth { syndrome, msn: Serial::new(0) }, sack: None };
        bytes_of(format_of(transport), ends.from, BASE, headers, &[])
    };
    for transport in ["irn", "roce-gbn"] {
        let ends = bed.connect(RC, transport);
        bed.forge(&refusal(transport, ends), true);
        assert_eq!(Bed::state(&bed.left, ends.from), QpState::ReadyToSend, "{transport}: nothing is in flight");
        bed.part(ends);

        // The left sends 16 packets; the right takes nothing in.
        let send = std::cell::RefCell::new(|bed: &mut Bed, ends: Ends| {
            let (sge, remote) = (bed.left.sge(0, 16), bed.right.region.remote(HALF));
            (0..16).for_each(|id| bed.left.post(ends.from, id, SendOp::Write { remote, immediate: None }, &[sge]));
            (0..4).for_each(|_| _ = bed.left.nic.progress());
            let info = bed.left.nic.query_qp(ends.from).expect("it is there");
            assert_eq!(info.next.since(info.una), 16, "{transport}: all of it in flight");
        });
        let mut works = |bit: Option<usize>| {
            let ends = bed.connect(RC, transport);
            send.borrow_mut()(&mut bed, ends);
            let mut bytes = refusal(transport, ends);
            if let Some(bit) = bit {
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
            }
            bed.forge(&bytes, true);
            let failed = Bed::state(&bed.left, ends.from) == QpState::Error;
            bed.part(ends);
            failed
        };
        assert!(works(None), "{transport}");
        let [qpn, psn] = [QPN, PSN].map(|field| field.filter(|bit| !works(Some(*bit))).count());
        // Any of the 16 will do: 4 bits.
        assert_eq!((qpn, psn), (24, 20), "{transport}");
    }
}

/// Numbers around the expected one with which an empty Write, which needs no key, is taken for the peer's.
fn taken(bed: &mut Bed, transport: &str, reach: u32) -> u64 {
    let ends = bed.connect(RC, transport);
    let early = |bed: &Bed| bed.right.nic.engine_stats().packets_early;
    let before = early(bed);
    // The expected one last: it moves the window.
    for psn in (1..=reach).chain((1..=reach).map(|behind| BASE.wrapping_sub(behind))).chain([BASE]) {
        bed.forge(&write(format_of(transport), ends.to, psn, NOTHING), false);
    }
    let expected = bed.right.nic.query_qp(ends.to).expect("it is there").expected;
    let in_turn = expected.wire::<24>().value().wrapping_sub(BASE);
    let count = early(bed) - before + u64::from(in_turn > 0);
    assert_eq!(u64::from(in_turn), count, "all that were taken count as the peer's");
    bed.part(ends);
    count
}

/// A receiver that places early packets takes one of any number of its window; one that does not, a single one.
#[test]
fn to_inject_into_a_reliable_connection_a_number_of_its_window_must_be_right() {
    let Some(mut bed) = Bed::open() else { return };
    assert_eq!(taken(&mut bed, "irn", 1_024), WINDOW_IRN, "numbers of {}", 1 << 24);
    assert_eq!(taken(&mut bed, "roce-gbn", 1_024), 1);
    for transport in ["irn", "roce-gbn"] {
        let forge = |_: &Bed, ends: Ends| write(format_of(transport), ends.to, BASE, NOTHING);
        let moved = |bed: &mut Bed, ends: Ends| {
            bed.right.nic.query_qp(ends.to).is_some_and(|info| info.expected.wire::<24>().value() != BASE)
        };
        assert_eq!(bed.bits((RC, transport), QPN, false, &forge, &moved), 24, "{transport}");

        // The peer's own packet of that number counts as a copy, and its Write as done.
        let ends = bed.connect(RC, transport);
        bed.forge(&forge(&bed, ends), false);
        bed.right.nic.bytes_mut(&bed.right.region).fill(0);
        let (sge, remote) = (bed.left.sge(0, 16), bed.right.region.remote(HALF));
        bed.left.post(ends.from, 1, SendOp::Write { remote, immediate: None }, &[sge]);
        let Bed { left, right, .. } = &mut bed;
        let done = crate::common::drive(left, right, |left, _| left.completions().pop());
        assert_eq!(done.status, WcStatus::Success, "{transport}");
        assert!(!bed.is_written(ends), "{transport}: nobody has written");
        bed.part(ends);
    }
}

/// Packets that a receiver of `irn` keeps early on sockets, and the one that it expects.
const WINDOW_IRN: u64 = 256;

/// Memory needs its key whole, and an address within. A wrong key in turn ends the connection: there is one guess.
#[test]
fn to_write_into_memory_32_bits_of_a_key_and_an_address_must_be_right() {
    let Some(mut bed) = Bed::open() else { return };
    for transport in ["irn", "roce-gbn"] {
        let forge = |bed: &Bed, ends: Ends| write(format_of(transport), ends.to, BASE, bed.granted());
        let [key, address] = [KEY, VA].map(|field| bed.bits((RC, transport), field, false, &forge, &Bed::is_written));
        assert_eq!(key, 32, "{transport}");
        // A region of 2^20 bytes: the others are where in it.
        assert!(address >= 64 - MEMORY.ilog2() as usize, "{transport}: {address}");
    }
}

/// A Read is answered if everything is right, key and all: to the peer, who drops what it has not asked for.
#[test]
fn to_have_memory_read_32_bits_of_a_key_must_be_right_and_the_answer_goes_to_the_peer() {
    let Some(mut bed) = Bed::open() else { return };
    bed.forger.set_nonblocking(true).expect("a mode");
    let forge = |bed: &Bed, ends: Ends| {
        let headers = Headers::ReadRequest { reth: bed.granted(), read_sn: None, asked: None };
        bytes_of(Format::RoceV2, ends.to, BASE, headers, &[])
    };
    let answered = |bed: &mut Bed, ends: Ends| {
        while bed.left.nic.progress() {}
        !bed.right_has_failed(ends) && bed.right.nic.query_qp(ends.to).is_some_and(|info| info.msn == 1)
    };
    let before = bed.left.nic.bytes(&bed.left.region).to_vec();
    assert_eq!(bed.bits((RC, "roce-gbn"), KEY, false, &forge, &answered), 32);
    assert_eq!(bed.bits((RC, "roce-gbn"), PSN, false, &forge, &answered), 24);
    assert_eq!(bed.forger.recv(&mut [0; 64]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
    assert!(
        bed.left.nic.engine_stats().drops[DropReason::Unsolicited as usize] > 0,
        "{:?}",
        bed.left.nic.engine_stats()
    );
    assert!(bed.left.nic.bytes(&bed.left.region) == before);
}

/// Nothing is acknowledged, so any number may be next: a packet for the right queue pair is heard. Nothing ends it.
#[test]
fn to_inject_into_an_unreliable_connection_the_queue_pair_must_be_right() {
    let Some(mut bed) = Bed::open() else { return };
    let (kind, format) = ((Service::UnreliableConnection, "irn"), Format::UnreliableConnection);
    let send = |psn: u32| {
        let headers = Headers::Send { position: Position::Only, tail: rnic_wire::SendTail::Plain, placement: None };
        move |_: &Bed, ends: Ends| bytes_of(format, ends.to, psn, headers, &LOOT)
    };
    let [qpn, psn] = [QPN, PSN].map(|field| bed.bits(kind, field, false, &send(BASE), &Bed::has_received));
    assert_eq!((qpn, psn), (24, 0));
    for (behind, is_heard) in [(1, false), (1 << 16, false), ((1 << 16) + 1, true)] {
        let ends = bed.connect(kind.0, kind.1);
        let bytes = send(BASE.wrapping_sub(behind) & 0xff_ffff)(&bed, ends);
        bed.forge(&bytes, false);
        assert_eq!(bed.has_received(ends), is_heard, "{behind} numbers behind");
        bed.part(ends);
    }
    let write = |bed: &Bed, ends: Ends| write(format, ends.to, BASE, bed.granted());
    let wrong = |bed: &mut Bed, ends: Ends| {
        assert_eq!(Bed::state(&bed.right, ends.to), QpState::ReadyToSend);
        bed.is_written(ends)
    };
    assert_eq!(bed.bits(kind, KEY, false, &write, &wrong), 32);
}

#[test]
fn to_inject_a_datagram_the_queue_pair_and_32_bits_of_its_key_must_be_right() {
    let Some(mut bed) = Bed::open() else { return };
    let forge = |_: &Bed, ends: Ends| {
        let (queue_key, source_qpn) = (SECRET_QUEUE_KEY, Qpn::new(0xffff));
        let headers = Headers::Datagram { queue_key, source_qpn, immediate: None };
        bytes_of(Format::UnreliableDatagram, ends.to, 0, headers, &LOOT)
    };
    let kind = (Service::UnreliableDatagram, "irn");
    let bits = [QPN, QUEUE_KEY].map(|field| bed.bits(kind, field, false, &forge, &Bed::has_received));
    assert_eq!(bits, [24, 32]);
    assert_eq!(bed.bits(kind, PSN, false, &forge, &Bed::has_received), 0);
}

/// Bits of a Falcon datagram without a key: connection, both bases, packet, request, then those of RDMA's headers.
const CID: Range<usize> = 136..160;
const DATA_BASE: Range<usize> = 192..224;
const FALCON_PSN: Range<usize> = 256..288;
const RSN: Range<usize> = 288..320;
const RBTH_QPN: Range<usize> = 384..408;
const FALCON_KEY: Range<usize> = 512..544;

/// A Write in a Push: what a new connection expects first.
pub fn push(ends: Ends, to: Qpn, reth: Reth) -> falcon::Packet {
    let operation = Operation::Write { position: Position::Only, reth, tail: None };
    // Of upper-layer requests, the first is 1.
    let header =
        rdma::Header { dest_qpn: to, sn: Serial::new(1), solicited: false, complete_in_error: false, operation };
    let length = Ulp::Rdma(header).request_len(reth.dma_len) as u16;
    let (psn, rsn) = (Psn32::new(BASE), Psn32::new(BASE));
    falcon::Packet {
        cid: Cid::new(ends.to.get()),
        function: 0,
        protocol: UlpProtocol::Rdma,
        ack_request: true,
        bases: WindowBases::both(Psn32::new(BASE)),
        timestamp: Timestamp::default(),
        payload_len: reth.dma_len,
        body: Body::PushData { psn, rsn, length, ulp: Ulp::Rdma(header) },
    }
}

pub fn falcon_bytes(packet: &falcon::Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload = &LOOT[..packet.payload_len as usize];
    falcon::codec::assemble(&psp::Header::default(), packet, &[payload], &mut bytes).expect("legal headers");
    bytes.truncate(bytes.len() - psp::ICV_LEN);
    bytes
}

/// A datagram without a key, whole.
fn with_crc(bytes: &[u8]) -> Vec<u8> {
    let mut datagram = bytes.to_vec();
    datagram.extend_from_slice(&[0; psp::ICV_LEN - 4]);
    datagram.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    datagram
}

/// A request that is refused: its turn must have come. The window of packets is wide, and the bases do not
/// matter. Packets, requests and bases of both ends begin at one number of 24 bits: while a connection is young, a
/// forger who guesses that number has all of them.
#[test]
fn to_end_a_falcon_connection_without_a_key_its_numbers_must_be_right() {
    let Some(mut bed) = Bed::open() else { return };
    let forge = |_: &Bed, ends: Ends| falcon_bytes(&push(ends, ends.to, NO_GRANT));
    let fields = [CID, RBTH_QPN, FALCON_PSN, RSN, DATA_BASE];
    let bits = fields.map(|field| bed.bits((RC, "falcon"), field, false, &forge, &Bed::right_has_failed));
    // Packets within 512 of the expected one are kept, beyond the window too (F-10).
    assert_eq!(bits, [24, 24, 23, 32, 0]);
    let written = |bed: &Bed, ends: Ends| falcon_bytes(&push(ends, ends.to, bed.granted()));
    assert_eq!(bed.bits((RC, "falcon"), FALCON_KEY, false, &written, &Bed::is_written), 32);
}

/// An acknowledgement that the peer has not sent: Writes that have not arrived are done. It must name one of the
/// packets in flight.
#[test]
fn to_acknowledge_for_a_falcon_peer_the_base_must_be_in_flight() {
    let Some(mut bed) = Bed::open() else { return };
    const SENT: u32 = 16;
    let mut works = |base: u32, bit: Option<usize>| {
        let ends = bed.connect(RC, "falcon");
        let (sge, remote) = (bed.left.sge(0, 16), bed.right.region.remote(HALF));
        (0..SENT).for_each(|id| bed.left.post(ends.from, id.into(), SendOp::Write { remote, immediate: None }, &[sge]));
        (0..4).for_each(|_| _ = bed.left.nic.progress());
        // To the left, in a packet that is otherwise of no interest to it.
        let mut packet = push(Ends { from: ends.to, to: ends.from }, ends.from, NOTHING);
        packet.bases.data = Psn32::new(BASE.wrapping_add(base));
        let mut bytes = falcon_bytes(&packet);
        if let Some(bit) = bit {
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
        }
        bed.forge(&bytes, true);
        let is_done = bed.left.completions().iter().any(|done| done.status == WcStatus::Success);
        bed.part(ends);
        is_done
    };
    let numbers = (0..64).chain((1..64).map(u32::wrapping_neg));
    assert_eq!(numbers.filter(|base| works(*base, None)).count(), SENT as usize, "of {}", 1_u64 << 32);
    assert_eq!(CID.filter(|bit| !works(SENT, Some(*bit))).count(), 24);
}
