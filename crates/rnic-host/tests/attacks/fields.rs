//! A forger that knows all fields of a packet but one: how many bits of that field must be right.
//!
//! The forger is given everything that an off-path attacker would have to guess: it sends from port 4791 and the
//! peer's address, as only a process of the same user can, computes the right check value, and knows every number.
//! Each test flips one bit of one field at a time, on a new connection each, and counts the bits without which the
//! packet has no effect: these are the bits to guess. If any number within a window is accepted, the test sends all
//! numbers around it and counts those that are accepted. The table in `docs/security.md` has the totals.
#![expect(unsafe_code, reason = "one option of a socket needs a system call")]

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
const PAYLOAD: [u8; 16] = [0x5a; 16];

/// The first sequence number of both ends. As it is zero, flipping a bit makes it larger.
const FIRST_PSN: u32 = 0;

/// Bits of the base transport header: the queue pair, the sequence number.
const QPN: Range<usize> = 40..64;
const PSN: Range<usize> = 72..96;
/// Bits of the header after it in a Write or Read: address and key.
const VA: Range<usize> = 96..160;
const KEY: Range<usize> = 160..192;
/// Bits of the queue key in a datagram's header.
const QUEUE_KEY: Range<usize> = 96..128;

/// Two NICs on one machine, and a forger between them.
struct Bench {
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

/// Returns `true` if the forgery has had its effect on an end.
type HasEffect<'a> = &'a dyn Fn(&mut Bench, Ends) -> bool;
/// A datagram without its check value.
type Forge<'a> = &'a dyn Fn(&Bench, Ends) -> Vec<u8>;

impl Bench {
    /// Returns `None`, and prints a reason, if another user has port 4791.
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
                side.nic.verbs().set_qkey(qpn, SECRET_QUEUE_KEY).expect("datagram queue pairs have a queue key");
                side.nic.verbs().modify_to_rtr_unconnected(qpn, 4_096).expect("valid");
                start(side, qpn, FIRST_PSN, 0);
            }
        } else {
            connect_qps(left, right, (from, to), FIRST_PSN);
        }
        let sge = self.right.sge(0, 200);
        (0..4).for_each(|wr_id| self.right.post_recv(to, wr_id, &[sge]));
        Ends { from, to }
    }

    fn disconnect(&mut self, ends: Ends) {
        for (side, qpn) in [(&mut self.left, ends.from), (&mut self.right, ends.to)] {
            side.nic.verbs().destroy_qp(qpn).expect("the queue pair exists");
            while side.nic.progress() {}
            side.completions();
        }
        self.right.nic.bytes_mut(&self.right.region).fill(0);
    }

    /// Appends the ICRC to `bytes`, sends them to one end (the left one if `is_left`) with its peer's address as the
    /// source, and lets that end receive them.
    fn forge(&mut self, bytes: &[u8], is_left: bool) {
        let Self { left, right, forger } = self;
        let victim = if is_left { left } else { right };
        let (source, target) = (forger.local_addr().expect("it is bound"), SocketAddr::from((HOST, victim.nic.port())));
        let is_falcon = bytes.first() == Some(&psp::NEXT_HEADER);
        let datagram = if is_falcon { with_crc(bytes) } else { packet(bytes, source, target) };
        let (before, begun) = (victim.nic.stats().datagrams_received, Instant::now());
        forger.send_to(&datagram, target).expect("loopback");
        while victim.nic.stats().datagrams_received == before {
            victim.nic.progress();
            assert!(begun.elapsed() < Duration::from_secs(10), "the forged datagram did not arrive");
        }
        // Lets the victim process it.
        (0..4).for_each(|_| _ = victim.nic.progress());
    }

    /// Returns how many bits of `field` must be right for the packet of `forge` to have the effect that `has_effect`
    /// checks for.
    fn bits(
        &mut self,
        (service, transport): (Service, &str),
        field: Range<usize>,
        is_left: bool,
        forge: Forge<'_>,
        has_effect: HasEffect<'_>,
    ) -> usize {
        let mut takes_effect = |flipped: Option<usize>| {
            let ends = self.connect(service, transport);
            let mut bytes = forge(self, ends);
            if let Some(bit) = flipped {
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
            }
            self.forge(&bytes, is_left);
            let took_effect = has_effect(self, ends);
            self.disconnect(ends);
            took_effect
        };
        assert!(takes_effect(None), "{transport}: no effect although every bit is right");
        field.filter(|bit| !takes_effect(Some(*bit))).count()
    }

    fn state(side: &Side, qpn: Qpn) -> QpState {
        side.nic.query_qp(qpn).expect("the queue pair exists").state
    }

    fn right_has_failed(&mut self, ends: Ends) -> bool {
        Self::state(&self.right, ends.to) == QpState::Error
    }

    /// Returns `true` if something has been written to the right side's memory, which was zero before.
    fn is_written(&mut self, _: Ends) -> bool {
        self.right.nic.bytes(&self.right.region).iter().any(|byte| *byte != 0)
    }

    fn has_received(&mut self, _: Ends) -> bool {
        self.right.completions().iter().any(|done| done.status == WcStatus::Success)
    }

    /// Returns the address and key of the right side's memory, as an honest Write would carry them.
    fn granted(&self) -> Reth {
        let remote = self.right.region.remote(HALF);
        Reth { va: remote.addr, rkey: remote.rkey, dma_len: PAYLOAD.len() as u32 }
    }
}

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SECRET_QUEUE_KEY: u32 = 0x5e3d_91c7;
/// A key that belongs to no region.
pub const NO_GRANT: Reth = Reth { va: 0, rkey: 7, dma_len: PAYLOAD.len() as u32 };
/// The header of a Write of zero bytes, which needs no key.
pub const NOTHING: Reth = Reth { va: 0, rkey: 0, dma_len: 0 };

/// Binds a socket to port 4791 of `host`, which the NICs of the same user share.
fn forger_at(host: Ipv4Addr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    let level = libc::SOL_SOCKET;
    // SAFETY: the option is an integer that outlives the call.
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
    // The addresses do not matter: the ICRC is computed again later.
    let any = SocketAddr::from((HOST, UDP_PORT));
    let (addresses, mut bytes) = (Addresses::new(any, any).expect("one version"), Vec::new());
    codec::assemble(format, &packet, &[payload], &addresses, &mut bytes).expect("legal headers");
    bytes.truncate(bytes.len() - ICRC_LEN);
    bytes
}

pub fn write(format: Format, to: Qpn, psn: u32, reth: Reth) -> Vec<u8> {
    let headers = Headers::Write { position: Position::Only, reth: Some(reth), immediate: None, recv_sn: None };
    bytes_of(format, to, psn, headers, &PAYLOAD[..reth.dma_len as usize])
}

pub fn format_of(transport: &str) -> Format {
    if transport == "irn" { Format::Irn } else { Format::RoceV2 }
}

const RC: Service = Service::ReliableConnection;

/// The next expected request, with a key that belongs to no region, is refused, and both ends fail. No other packet
/// has this effect: neither one of the other wire format (a queue pair of `irn` does not accept RoCE's), nor an early
/// one, which is checked only when its turn comes. 10 or 12 of the bits of the queue pair number are the port of its
/// NIC.
#[test]
fn ending_a_reliable_connection_by_a_request_requires_38_correct_bits() {
    let Some(mut bench) = Bench::open() else { return };
    let other_address = forger_at(Ipv4Addr::new(127, 0, 0, 2)).expect("the address can be bound");
    for transport in ["irn", "roce-gbn"] {
        let forge = |_: &Bench, ends: Ends| write(format_of(transport), ends.to, FIRST_PSN, NO_GRANT);
        let bits = [QPN, PSN].map(|field| bench.bits((RC, transport), field, false, &forge, &Bench::right_has_failed));
        assert_eq!(bits, [24, 24], "{transport}");

        let ends = bench.connect(RC, transport);
        let other = if transport == "irn" { Format::RoceV2 } else { Format::Irn };
        bench.forge(&write(other, ends.to, FIRST_PSN, NO_GRANT), false);
        assert_eq!(Bench::state(&bench.right, ends.to), QpState::ReadyToSend, "{transport}: wrong format accepted");
        // From another host, with all fields right.
        let ours = std::mem::replace(&mut bench.forger, other_address.try_clone().expect("a descriptor"));
        bench.forge(&write(format_of(transport), ends.to, FIRST_PSN, NO_GRANT), false);
        bench.forger = ours;
        assert_eq!(Bench::state(&bench.right, ends.to), QpState::ReadyToSend, "{transport}: wrong source accepted");
        bench.disconnect(ends);
    }
}

/// A NAK ends a connection only if it names one of the packets in flight, so a connection with none in flight cannot
/// be ended this way.
#[test]
fn ending_a_reliable_connection_by_a_nak_requires_a_psn_in_flight() {
    let Some(mut bench) = Bench::open() else { return };
    let refusal = |transport: &str, ends: Ends| {
        let syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
        let headers = Headers::Ack { aeth: Aeth { syndrome, msn: Serial::new(0) }, sack: None };
        bytes_of(format_of(transport), ends.from, FIRST_PSN, headers, &[])
    };
    for transport in ["irn", "roce-gbn"] {
        let ends = bench.connect(RC, transport);
        bench.forge(&refusal(transport, ends), true);
        assert_eq!(Bench::state(&bench.left, ends.from), QpState::ReadyToSend, "{transport}: stale NAK accepted");
        bench.disconnect(ends);

        // The left side sends 16 packets; the right side does not process them.
        let send = std::cell::RefCell::new(|bench: &mut Bench, ends: Ends| {
            let (sge, remote) = (bench.left.sge(0, 16), bench.right.region.remote(HALF));
            (0..16).for_each(|id| bench.left.post(ends.from, id, SendOp::Write { remote, immediate: None }, &[sge]));
            (0..4).for_each(|_| _ = bench.left.nic.progress());
            let info = bench.left.nic.query_qp(ends.from).expect("the queue pair exists");
            assert_eq!(info.next.since(info.una), 16, "{transport}: not all packets are in flight");
        });
        let mut takes_effect = |bit: Option<usize>| {
            let ends = bench.connect(RC, transport);
            send.borrow_mut()(&mut bench, ends);
            let mut bytes = refusal(transport, ends);
            if let Some(bit) = bit {
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
            }
            bench.forge(&bytes, true);
            let failed = Bench::state(&bench.left, ends.from) == QpState::Error;
            bench.disconnect(ends);
            failed
        };
        assert!(takes_effect(None), "{transport}");
        let [qpn, psn] = [QPN, PSN].map(|field| field.filter(|bit| !takes_effect(Some(*bit))).count());
        // Any of the 16 packets will do: 4 bits less.
        assert_eq!((qpn, psn), (24, 20), "{transport}");
    }
}

/// Returns how many sequence numbers around the expected one are accepted for an empty Write, which needs no key.
fn taken(bench: &mut Bench, transport: &str, reach: u32) -> u64 {
    let ends = bench.connect(RC, transport);
    let early = |bench: &Bench| bench.right.nic.engine_stats().packets_out_of_order;
    let before = early(bench);
    // The expected number is sent last, since it moves the window.
    for psn in (1..=reach).chain((1..=reach).map(|behind| FIRST_PSN.wrapping_sub(behind))).chain([FIRST_PSN]) {
        bench.forge(&write(format_of(transport), ends.to, psn, NOTHING), false);
    }
    let expected = bench.right.nic.query_qp(ends.to).expect("the queue pair exists").expected;
    let accepted_in_order = expected.wire::<24>().value().wrapping_sub(FIRST_PSN);
    let count = early(bench) - before + u64::from(accepted_in_order > 0);
    assert_eq!(u64::from(accepted_in_order), count, "an accepted packet does not count as the peer's");
    bench.disconnect(ends);
    count
}

/// A receiver that places out-of-order packets accepts any number in its window; one that does not accepts a single
/// number.
#[test]
fn injecting_into_a_reliable_connection_requires_a_psn_in_its_window() {
    let Some(mut bench) = Bench::open() else { return };
    assert_eq!(taken(&mut bench, "irn", 1_024), WINDOW_IRN, "numbers of {}", 1 << 24);
    assert_eq!(taken(&mut bench, "roce-gbn", 1_024), 1);
    for transport in ["irn", "roce-gbn"] {
        let forge = |_: &Bench, ends: Ends| write(format_of(transport), ends.to, FIRST_PSN, NOTHING);
        let moved = |bench: &mut Bench, ends: Ends| {
            bench.right.nic.query_qp(ends.to).is_some_and(|info| info.expected.wire::<24>().value() != FIRST_PSN)
        };
        assert_eq!(bench.bits((RC, transport), QPN, false, &forge, &moved), 24, "{transport}");

        // The peer's own packet with that number counts as a duplicate, and the peer's Write as complete.
        let ends = bench.connect(RC, transport);
        bench.forge(&forge(&bench, ends), false);
        bench.right.nic.bytes_mut(&bench.right.region).fill(0);
        let (sge, remote) = (bench.left.sge(0, 16), bench.right.region.remote(HALF));
        bench.left.post(ends.from, 1, SendOp::Write { remote, immediate: None }, &[sge]);
        let Bench { left, right, .. } = &mut bench;
        let done = crate::common::drive(left, right, |left, _| left.completions().pop());
        assert_eq!(done.status, WcStatus::Success, "{transport}");
        assert!(!bench.is_written(ends), "{transport}: data were written");
        bench.disconnect(ends);
    }
}

/// Number of sequence numbers that a receiver of `irn` accepts on sockets: the expected one, and those of
/// out-of-order packets.
const WINDOW_IRN: u64 = 256;

/// Writing into memory needs all bits of the key, and an address within the region. A wrong key in the expected
/// packet ends the connection: there is only one guess.
#[test]
fn writing_memory_requires_32_bits_of_a_key_and_an_address() {
    let Some(mut bench) = Bench::open() else { return };
    for transport in ["irn", "roce-gbn"] {
        let forge = |bench: &Bench, ends: Ends| write(format_of(transport), ends.to, FIRST_PSN, bench.granted());
        let [key, address] =
            [KEY, VA].map(|field| bench.bits((RC, transport), field, false, &forge, &Bench::is_written));
        assert_eq!(key, 32, "{transport}");
        // A region of 2^20 bytes: the remaining bits select a position in it.
        assert!(address >= 64 - MEMORY.ilog2() as usize, "{transport}: {address}");
    }
}

/// A forged Read is answered if all fields including the key are right, but the response goes to the peer, which
/// drops it as unsolicited.
#[test]
fn reading_memory_requires_32_bits_of_a_key_and_the_response_goes_to_the_peer() {
    let Some(mut bench) = Bench::open() else { return };
    bench.forger.set_nonblocking(true).expect("a mode");
    let forge = |bench: &Bench, ends: Ends| {
        let headers = Headers::ReadRequest { reth: bench.granted(), read_sn: None, fasr: None };
        bytes_of(Format::RoceV2, ends.to, FIRST_PSN, headers, &[])
    };
    let answered = |bench: &mut Bench, ends: Ends| {
        while bench.left.nic.progress() {}
        !bench.right_has_failed(ends) && bench.right.nic.query_qp(ends.to).is_some_and(|info| info.msn == 1)
    };
    let before = bench.left.nic.bytes(&bench.left.region).to_vec();
    assert_eq!(bench.bits((RC, "roce-gbn"), KEY, false, &forge, &answered), 32);
    assert_eq!(bench.bits((RC, "roce-gbn"), PSN, false, &forge, &answered), 24);
    assert_eq!(bench.forger.recv(&mut [0; 64]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
    assert!(
        bench.left.nic.engine_stats().drops[DropReason::Unsolicited as usize] > 0,
        "{:?}",
        bench.left.nic.engine_stats()
    );
    assert!(bench.left.nic.bytes(&bench.left.region) == before);
}

/// Packets are not acknowledged, so any sequence number may be next: a packet for the right queue pair is accepted.
/// No packet ends the connection.
#[test]
fn injecting_into_an_unreliable_connection_requires_the_queue_pair_number() {
    let Some(mut bench) = Bench::open() else { return };
    let (kind, format) = ((Service::UnreliableConnection, "irn"), Format::UnreliableConnection);
    let send = |psn: u32| {
        let headers = Headers::Send { position: Position::Only, tail: rnic_wire::SendTail::Plain, placement: None };
        move |_: &Bench, ends: Ends| bytes_of(format, ends.to, psn, headers, &PAYLOAD)
    };
    let [qpn, psn] = [QPN, PSN].map(|field| bench.bits(kind, field, false, &send(FIRST_PSN), &Bench::has_received));
    assert_eq!((qpn, psn), (24, 0));
    for (behind, has_received) in [(1, false), (1 << 16, false), ((1 << 16) + 1, true)] {
        let ends = bench.connect(kind.0, kind.1);
        let bytes = send(FIRST_PSN.wrapping_sub(behind) & 0xff_ffff)(&bench, ends);
        bench.forge(&bytes, false);
        assert_eq!(bench.has_received(ends), has_received, "{behind} numbers behind");
        bench.disconnect(ends);
    }
    let write = |bench: &Bench, ends: Ends| write(format, ends.to, FIRST_PSN, bench.granted());
    let wrong = |bench: &mut Bench, ends: Ends| {
        assert_eq!(Bench::state(&bench.right, ends.to), QpState::ReadyToSend);
        bench.is_written(ends)
    };
    assert_eq!(bench.bits(kind, KEY, false, &write, &wrong), 32);
}

#[test]
fn injecting_a_datagram_requires_the_queue_pair_number_and_32_bits_of_its_key() {
    let Some(mut bench) = Bench::open() else { return };
    let forge = |_: &Bench, ends: Ends| {
        let (queue_key, source_qpn) = (SECRET_QUEUE_KEY, Qpn::new(0xffff));
        let headers = Headers::Datagram { queue_key, source_qpn, immediate: None };
        bytes_of(Format::UnreliableDatagram, ends.to, 0, headers, &PAYLOAD)
    };
    let kind = (Service::UnreliableDatagram, "irn");
    let bits = [QPN, QUEUE_KEY].map(|field| bench.bits(kind, field, false, &forge, &Bench::has_received));
    assert_eq!(bits, [24, 32]);
    assert_eq!(bench.bits(kind, PSN, false, &forge, &Bench::has_received), 0);
}

/// Bit positions in a Falcon datagram without a key: connection id, base, packet and request sequence numbers, then
/// fields of RDMA's headers.
const CID: Range<usize> = 136..160;
const DATA_BASE: Range<usize> = 192..224;
const FALCON_PSN: Range<usize> = 256..288;
const RSN: Range<usize> = 288..320;
const RBTH_QPN: Range<usize> = 384..408;
const FALCON_KEY: Range<usize> = 512..544;

/// A Write in a Push with the numbers that a new connection expects first.
pub fn push(ends: Ends, to: Qpn, reth: Reth) -> falcon::Packet {
    let operation = Operation::Write { position: Position::Only, reth, tail: None };
    // The sequence numbers of upper-layer requests begin with 1.
    let header =
        rdma::Header { dest_qpn: to, sn: Serial::new(1), solicited: false, complete_in_error: false, operation };
    let length = Ulp::Rdma(header).request_len(reth.dma_len) as u16;
    let (psn, rsn) = (Psn32::new(FIRST_PSN), Psn32::new(FIRST_PSN));
    falcon::Packet {
        cid: Cid::new(ends.to.get()),
        function: 0,
        protocol: UlpProtocol::Rdma,
        ack_request: true,
        bases: WindowBases::both(Psn32::new(FIRST_PSN)),
        timestamp: Timestamp::default(),
        payload_len: reth.dma_len,
        body: Body::PushData { psn, rsn, length, ulp: Ulp::Rdma(header) },
    }
}

pub fn falcon_bytes(packet: &falcon::Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload = &PAYLOAD[..packet.payload_len as usize];
    falcon::codec::assemble(&psp::Header::default(), packet, &[payload], &mut bytes).expect("legal headers");
    bytes.truncate(bytes.len() - psp::ICV_LEN);
    bytes
}

/// Returns a complete datagram without a key, with its CRC.
fn with_crc(bytes: &[u8]) -> Vec<u8> {
    let mut datagram = bytes.to_vec();
    datagram.extend_from_slice(&[0; psp::ICV_LEN - 4]);
    datagram.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    datagram
}

/// A request that is refused ends the connection only when its turn comes. The window of packet numbers is wide, and
/// the bases do not matter. Packets, requests and bases of both ends begin with the same 24-bit number: on a young
/// connection, a forger who guesses that number knows all of them.
#[test]
fn ending_a_falcon_connection_without_a_key_requires_its_numbers() {
    let Some(mut bench) = Bench::open() else { return };
    let forge = |_: &Bench, ends: Ends| falcon_bytes(&push(ends, ends.to, NO_GRANT));
    let fields = [CID, RBTH_QPN, FALCON_PSN, RSN, DATA_BASE];
    let bits = fields.map(|field| bench.bits((RC, "falcon"), field, false, &forge, &Bench::right_has_failed));
    // Packets within 512 of the expected one are kept, also beyond the window (F-10).
    assert_eq!(bits, [24, 24, 23, 32, 0]);
    let written = |bench: &Bench, ends: Ends| falcon_bytes(&push(ends, ends.to, bench.granted()));
    assert_eq!(bench.bits((RC, "falcon"), FALCON_KEY, false, &written, &Bench::is_written), 32);
}

/// A forged acknowledgement completes Writes that have not arrived. It must name one of the packets in flight.
#[test]
fn forging_a_falcon_acknowledgement_requires_a_base_in_flight() {
    let Some(mut bench) = Bench::open() else { return };
    const SENT: u32 = 16;
    let mut takes_effect = |base: u32, bit: Option<usize>| {
        let ends = bench.connect(RC, "falcon");
        let (sge, remote) = (bench.left.sge(0, 16), bench.right.region.remote(HALF));
        let write = SendOp::Write { remote, immediate: None };
        (0..SENT).for_each(|id| bench.left.post(ends.from, id.into(), write, &[sge]));
        (0..4).for_each(|_| _ = bench.left.nic.progress());
        // Sent to the left side, in a packet that has no other effect on it.
        let mut packet = push(Ends { from: ends.to, to: ends.from }, ends.from, NOTHING);
        packet.bases.data = Psn32::new(FIRST_PSN.wrapping_add(base));
        let mut bytes = falcon_bytes(&packet);
        if let Some(bit) = bit {
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
        }
        bench.forge(&bytes, true);
        let is_done = bench.left.completions().iter().any(|done| done.status == WcStatus::Success);
        bench.disconnect(ends);
        is_done
    };
    let numbers = (0..64).chain((1..64).map(u32::wrapping_neg));
    assert_eq!(numbers.filter(|base| takes_effect(*base, None)).count(), SENT as usize, "of {}", 1_u64 << 32);
    assert_eq!(CID.filter(|bit| !takes_effect(SENT, Some(*bit))).count(), 24);
}
