//! Hostile datagrams: random bytes, and legal packets with false information or damage.

use rnic_base::{Psn, RandomStream, RandomStreams, Serial};
use rnic_wire::cm::{
    self, DisconnectReply, DisconnectRequest, LookupReply, LookupRequest, Mad, Message, ReadyToUse, Reject, Reply,
    Request, ServiceId,
};
use rnic_wire::credit::Credit;
use rnic_wire::gsi::GsiPacket;
use rnic_wire::hello::{Hello, Terms, TransportName};
use rnic_wire::{
    Addresses, Aeth, AtomicOp, Format, Headers, ICRC_LEN, IcrcPrefix, NakCode, PackedPsn, Packet, PacketFlags,
    Position, Qpn, Reth, SendPlacement, SendTail, Syndrome, WqeSn, codec,
};

/// The target of datagrams.
pub struct Target {
    /// Addresses from the attacker to the port.
    pub path: Addresses,
    /// Queue pairs of the target.
    pub queue_pairs: Vec<Qpn>,
    /// Current sequence numbers of their packets, as far as the attacker knows them.
    pub sequences: Vec<Psn>,
}

/// Generates datagrams from a seed.
pub struct PacketGenerator {
    random: RandomStream,
    /// A service that no program offers: a request for an existing one would not be hostile.
    unused_service: ServiceId,
}

impl PacketGenerator {
    pub fn new(seed: u64, name: &str, unused_service: ServiceId) -> Self {
        Self { random: RandomStreams::new(seed).stream(name), unused_service }
    }

    /// One datagram.
    pub fn datagram(&mut self, target: &Target) -> Vec<u8> {
        let mut bytes = match self.below(12) {
            0 => return self.random_bytes(),
            1 => self.management(target),
            2 => self.own_message(target),
            _ => self.packet(target),
        };
        match self.below(6) {
            0 => {
                let len = self.below(bytes.len() as u64 + 1) as usize;
                bytes.truncate(len);
            }
            1 => self.flip_bits(&mut bytes),
            2 => {
                self.flip_bits(&mut bytes);
                seal(&mut bytes, &target.path);
            }
            // Right addresses, but a wrong length.
            3 => {
                let len = bytes.len() + self.below(5) as usize;
                bytes.resize(len, 0);
                seal(&mut bytes, &target.path);
            }
            _ => {}
        }
        bytes
    }

    /// Returns several datagrams of the same length, the last possibly shorter, as the kernel accepts them in one
    /// call: all bytes, and the length of each.
    pub fn train(&mut self, target: &Target) -> (Vec<u8>, u16) {
        let mut bytes = self.datagram(target);
        if bytes.is_empty() {
            bytes.push(0);
        }
        let segment = bytes.len();
        for _ in 0..self.below(40).min((50_000 / segment) as u64) {
            let mut next = self.datagram(target);
            next.resize(segment, 0);
            bytes.extend(next);
        }
        let missing_len = self.below(segment as u64) as usize;
        bytes.truncate((bytes.len() - missing_len).max(1));
        (bytes, segment as u16)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn bits(&mut self) -> u64 {
        self.random.bits()
    }

    fn random_bytes(&mut self) -> Vec<u8> {
        let len = self.below(600);
        (0..len).map(|_| self.bits() as u8).collect()
    }

    fn flip_bits(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(3) {
            // Most of the important fields are at the beginning.
            let flippable_len = if self.below(2) == 0 { bytes.len().min(48) } else { bytes.len() };
            if flippable_len > 0 {
                bytes[self.below(flippable_len as u64) as usize] ^= 1 << self.below(8);
            }
        }
    }

    /// A packet of any format and opcode that the codec can write.
    fn packet(&mut self, target: &Target) -> Vec<u8> {
        loop {
            // Half of the time the format that the victims use.
            let format = if self.below(2) == 0 { Format::Irn } else { Format::ALL[self.below(4) as usize] };
            let headers = self.headers(format);
            let flags = self.bits();
            let flag = |bit: u32| flags >> bit & 1 == 1;
            let flags = PacketFlags { solicited: flag(0), ack_request: flag(1), fecn: flag(2), becn: flag(3) };
            let payload_len = match self.below(4) {
                0 => 0,
                1 => 256,
                2 => 1_024,
                _ => self.below(1_500) as u32,
            };
            let packet =
                Packet { dest_qpn: self.number(target), psn: self.sequence(target), flags, payload_len, headers };
            let payload = vec![self.bits() as u8; payload_len as usize];
            let mut out = Vec::new();
            if codec::assemble(format, &packet, &[&payload], &target.path, &mut out).is_ok() {
                return out;
            }
        }
    }

    /// Returns a queue pair number: mostly of an existing one, otherwise one that may belong to that port, or an
    /// arbitrary one.
    fn number(&mut self, target: &Target) -> Qpn {
        let low = self.bits() as u32;
        match (self.below(8), target.queue_pairs.len() as u64) {
            (0, _) => Qpn::new(low),
            (1, _) | (_, 0) => Qpn::new(u32::from(target.path.dst().port()) << 8 | low & 0x3fff),
            (_, count) => target.queue_pairs[self.below(count) as usize],
        }
    }

    /// Returns a sequence number: mostly one close to those in use.
    fn sequence(&mut self, target: &Target) -> Psn {
        let any = Psn::new(self.bits() as u32 & 0xff_ffff);
        match target.sequences.len() as u64 {
            0 => any,
            _ if self.below(4) == 0 => any,
            count => target.sequences[self.below(count) as usize].plus(self.below(PSN_SPREAD) as u32),
        }
    }

    fn headers(&mut self, format: Format) -> Headers {
        let irn = format == Format::Irn;
        let (a, b) = (self.bits(), self.bits() as u32);
        let sn = WqeSn::new(self.near_limit());
        let position = [Position::First, Position::Middle, Position::Last, Position::Only][self.below(4) as usize];
        let immediate = (self.below(2) == 0).then_some(b);
        let sack = (irn && self.below(2) == 0).then(|| Psn::new(b & 0xff_ffff));
        match self.below(10) {
            _ if format == Format::UnreliableDatagram => {
                let queue_key = if b & 1 == 0 { 0x1111_1111 } else { b };
                Headers::Datagram { queue_key, source_qpn: Qpn::new(b), immediate }
            }
            0 | 1 => {
                let tail = [SendTail::Plain, SendTail::Immediate(b), SendTail::Invalidate(b)][self.below(3) as usize];
                let placement = irn.then(|| SendPlacement { recv_sn: sn, offset: Serial::new(self.near_limit()) });
                Headers::Send { position, tail, placement }
            }
            2 | 3 => {
                let reth = (irn || position.starts()).then(|| self.reth());
                Headers::Write { position, reth, immediate, recv_sn: immediate.filter(|_| irn).map(|_| sn) }
            }
            4 => Headers::ReadRequest { reth: self.reth(), read_sn: irn.then_some(sn), fasr: None },
            5 => Headers::ReadResponse {
                position,
                aeth: (position != Position::Middle).then(|| self.aeth()),
                sink: None,
            },
            6 => {
                let op = if b & 1 == 0 {
                    AtomicOp::FetchAdd { add: a }
                } else {
                    AtomicOp::CompareSwap { compare: a, swap: a }
                };
                Headers::AtomicRequest {
                    va: a,
                    rkey: b,
                    op,
                    read_sn: irn.then_some(sn),
                    expected_psn: PackedPsn::default(),
                }
            }
            7 => Headers::AtomicResponse { aeth: self.aeth(), original: a, sink: None },
            8 if irn => Headers::ReadAck { aeth: Aeth { msn: Serial::new(0), ..self.aeth() }, sack },
            9 if b & 3 == 0 => Headers::Cnp,
            9 if irn && b & 3 == 1 => Headers::Pull { granted: Serial::new(b >> 2) },
            9 if irn && b & 3 == 2 => {
                let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequenceError), ..self.aeth() };
                Headers::TrimNack { aeth, trimmed: Psn::new(b >> 3), of_response: b & 4 != 0 }
            }
            _ => Headers::Ack { aeth: self.aeth(), sack },
        }
    }

    /// Returns an address, key and length of remote memory, often beyond every region.
    fn reth(&mut self) -> Reth {
        let dma_len = match self.below(4) {
            0 => u32::MAX,
            1 => 1 << 31,
            2 => self.below(4_096) as u32,
            _ => self.bits() as u32,
        };
        let va = if self.below(4) == 0 { u64::MAX - self.below(4_096) } else { self.bits() };
        Reth { va, rkey: self.bits() as u32, dma_len }
    }

    fn aeth(&mut self) -> Aeth {
        let code = self.below(32) as u8;
        let syndrome = match self.below(6) {
            0 => Syndrome::ACK,
            1 => Syndrome::Ack { credits: code },
            2 => Syndrome::RnrNak { timer: code },
            3 => Syndrome::Nak(NakCode::PsnSequenceError),
            4 => Syndrome::Nak(NakCode::RemoteAccessError),
            _ => Syndrome::Nak(NakCode::InvalidRequest),
        };
        Aeth { syndrome, msn: Serial::new(self.near_limit()) }
    }

    /// Returns a 24-bit number, mostly close to the limits.
    fn near_limit(&mut self) -> u32 {
        let number = self.bits() as u32 & 0xff_ffff;
        match self.below(3) {
            0 => number & 0xf,
            1 => number | 0xff_fff0,
            _ => number,
        }
    }

    fn management(&mut self, target: &Target) -> Vec<u8> {
        let (local_comm_id, remote_comm_id) = (self.bits() as u32, self.bits() as u32);
        let service_id = self.unused_service;
        let message = match self.below(8) {
            0 => Message::Request(Request { local_comm_id, service_id, ..Request::default() }),
            1 => Message::Reply(Reply { local_comm_id, remote_comm_id, ..Reply::default() }),
            2 => Message::ReadyToUse(ReadyToUse { local_comm_id, remote_comm_id, ..ReadyToUse::default() }),
            3 => Message::Reject(Reject { local_comm_id, remote_comm_id, ..Reject::default() }),
            4 => Message::DisconnectRequest(DisconnectRequest {
                local_comm_id,
                remote_comm_id,
                ..DisconnectRequest::default()
            }),
            5 => Message::DisconnectReply(DisconnectReply {
                local_comm_id,
                remote_comm_id,
                ..DisconnectReply::default()
            }),
            6 => Message::LookupRequest(LookupRequest {
                request_id: local_comm_id,
                service_id,
                ..LookupRequest::default()
            }),
            _ => Message::LookupReply(LookupReply { request_id: local_comm_id, service_id, ..LookupReply::default() }),
        };
        let mad = cm::emit(&Mad { transaction_id: self.bits(), message });
        self.gsi_datagram(target, &mad)
    }

    /// Returns a message of a kind that only NICs of this project use.
    fn own_message(&mut self, target: &Target) -> Vec<u8> {
        let (cookie, response_port) = (self.bits(), self.bits() as u16);
        let mad = match self.below(4) {
            0 => Credit::Request { cookie, response_port }.emit(),
            1 => Credit::Response { cookie }.emit(),
            _ => self.hello(target).emit(),
        };
        self.gsi_datagram(target, &mad)
    }

    fn hello(&mut self, target: &Target) -> Hello {
        let transport = TransportName::new(["irn", "falcon"][self.below(2) as usize]).expect("a name");
        let terms = Terms { transport, mtu: self.bits() as u32, falcon: self.bits() as u32 };
        let to = self.number(target);
        Hello { is_response: self.below(2) == 0, from: self.number(target), to, terms, messages: self.bits() as u8 }
    }

    fn gsi_datagram(&mut self, target: &Target, mad: &[u8; rnic_wire::gsi::MAD_LEN]) -> Vec<u8> {
        let psn = Psn::new(self.bits() as u32 & 0xff_ffff);
        GsiPacket { source_qpn: Qpn::GSI, psn, mad }.encode(&target.path).to_vec()
    }
}

/// Replaces the last bytes with the right ICRC.
fn seal(bytes: &mut [u8], path: &Addresses) {
    if let Some(at) = bytes.len().checked_sub(ICRC_LEN).filter(|at| *at >= 12) {
        let icrc = IcrcPrefix::new(path, bytes.len() as u32).start(&bytes[..at]).finish();
        bytes[at..].copy_from_slice(&icrc);
    }
}

/// Approximate number of packets that a victim receives between two searches for targets.
const PSN_SPREAD: u64 = 1_000;
