//! Datagrams that nobody should send: noise, and legal packets with lies and wounds.

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

/// Whom datagrams are for.
pub struct Aim {
    /// From us to the port.
    pub way: Addresses,
    /// Queue pairs that live there.
    pub queue_pairs: Vec<Qpn>,
    /// Where their packets' numbers are, as far as that has leaked.
    pub sequences: Vec<Psn>,
}

/// Makes datagrams, by a seed.
pub struct Forge {
    random: RandomStream,
    /// A service that nobody offers: asking for one that is there is not hostile.
    nobody: ServiceId,
}

impl Forge {
    pub fn new(seed: u64, name: &str, nobody: ServiceId) -> Self {
        Self { random: RandomStreams::new(seed).stream(name), nobody }
    }

    /// One datagram.
    pub fn datagram(&mut self, aim: &Aim) -> Vec<u8> {
        let mut bytes = match self.below(12) {
            0 => return self.noise(),
            1 => self.management(aim),
            2 => self.own_message(aim),
            _ => self.packet(aim),
        };
        match self.below(6) {
            0 => {
                let len = self.below(bytes.len() as u64 + 1) as usize;
                bytes.truncate(len);
            }
            1 => self.wound(&mut bytes),
            2 => {
                self.wound(&mut bytes);
                seal(&mut bytes, &aim.way);
            }
            // Somebody who knows his address, but not how to count.
            3 => {
                let len = bytes.len() + self.below(5) as usize;
                bytes.resize(len, 0);
                seal(&mut bytes, &aim.way);
            }
            _ => {}
        }
        bytes
    }

    /// Several of the same length, and one that may be shorter, as the kernel takes them in one call: all bytes, and
    /// the length of each.
    pub fn train(&mut self, aim: &Aim) -> (Vec<u8>, u16) {
        let mut bytes = self.datagram(aim);
        if bytes.is_empty() {
            bytes.push(0);
        }
        let segment = bytes.len();
        for _ in 0..self.below(40).min((50_000 / segment) as u64) {
            let mut next = self.datagram(aim);
            next.resize(segment, 0);
            bytes.extend(next);
        }
        let short = self.below(segment as u64) as usize;
        bytes.truncate((bytes.len() - short).max(1));
        (bytes, segment as u16)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn bits(&mut self) -> u64 {
        self.random.bits()
    }

    fn noise(&mut self) -> Vec<u8> {
        let len = self.below(600);
        (0..len).map(|_| self.bits() as u8).collect()
    }

    fn wound(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(3) {
            // Most of what matters stands in front.
            let reach = if self.below(2) == 0 { bytes.len().min(48) } else { bytes.len() };
            if reach > 0 {
                bytes[self.below(reach as u64) as usize] ^= 1 << self.below(8);
            }
        }
    }

    /// A packet of any format and opcode that the codec can write.
    fn packet(&mut self, aim: &Aim) -> Vec<u8> {
        loop {
            // Most often what the victims speak themselves.
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
            let packet = Packet { dest_qpn: self.number(aim), psn: self.sequence(aim), flags, payload_len, headers };
            let payload = vec![self.bits() as u8; payload_len as usize];
            let mut out = Vec::new();
            if codec::assemble(format, &packet, &[&payload], &aim.way, &mut out).is_ok() {
                return out;
            }
        }
    }

    /// Most often a queue pair that is there; else one that could be on that port, or anybody.
    fn number(&mut self, aim: &Aim) -> Qpn {
        let low = self.bits() as u32;
        match (self.below(8), aim.queue_pairs.len() as u64) {
            (0, _) => Qpn::new(low),
            (1, _) | (_, 0) => Qpn::new(u32::from(aim.way.dst().port()) << 8 | low & 0x3fff),
            (_, count) => aim.queue_pairs[self.below(count) as usize],
        }
    }

    /// Most often one that is soon due, or was.
    fn sequence(&mut self, aim: &Aim) -> Psn {
        let any = Psn::new(self.bits() as u32 & 0xff_ffff);
        match aim.sequences.len() as u64 {
            0 => any,
            _ if self.below(4) == 0 => any,
            count => aim.sequences[self.below(count) as usize].plus(self.below(SEQUENCES) as u32),
        }
    }

    fn headers(&mut self, format: Format) -> Headers {
        let irn = format == Format::Irn;
        let (a, b) = (self.bits(), self.bits() as u32);
        let sn = WqeSn::new(self.small());
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
                let placement = irn.then(|| SendPlacement { recv_sn: sn, offset: Serial::new(self.small()) });
                Headers::Send { position, tail, placement }
            }
            2 | 3 => {
                let reth = (irn || position.starts()).then(|| self.reth());
                Headers::Write { position, reth, immediate, recv_sn: immediate.filter(|_| irn).map(|_| sn) }
            }
            4 => Headers::ReadRequest { reth: self.reth(), read_sn: irn.then_some(sn), asked: None },
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
                Headers::AtomicRequest { va: a, rkey: b, op, read_sn: irn.then_some(sn), expects: PackedPsn::default() }
            }
            7 => Headers::AtomicResponse { aeth: self.aeth(), original: a, sink: None },
            8 if irn => Headers::ReadAck { aeth: Aeth { msn: Serial::new(0), ..self.aeth() }, sack },
            9 if b & 3 == 0 => Headers::Cnp,
            _ => Headers::Ack { aeth: self.aeth(), sack },
        }
    }

    /// Remote memory, more of it than anybody has.
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
        Aeth { syndrome, msn: Serial::new(self.small()) }
    }

    /// A number of 24 bits, most often one near its ends.
    fn small(&mut self) -> u32 {
        let number = self.bits() as u32 & 0xff_ffff;
        match self.below(3) {
            0 => number & 0xf,
            1 => number | 0xff_fff0,
            _ => number,
        }
    }

    fn management(&mut self, aim: &Aim) -> Vec<u8> {
        let (local_comm_id, remote_comm_id) = (self.bits() as u32, self.bits() as u32);
        let service_id = self.nobody;
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
        self.general(aim, &mad)
    }

    /// A message that only NICs of ours know.
    fn own_message(&mut self, aim: &Aim) -> Vec<u8> {
        let (cookie, answer_port) = (self.bits(), self.bits() as u16);
        let mad = match self.below(4) {
            0 => Credit::Request { cookie, answer_port }.emit(),
            1 => Credit::Answer { cookie }.emit(),
            _ => self.hello(aim).emit(),
        };
        self.general(aim, &mad)
    }

    fn hello(&mut self, aim: &Aim) -> Hello {
        let transport = TransportName::new(["irn", "falcon"][self.below(2) as usize]).expect("a name");
        let terms = Terms { transport, mtu: self.bits() as u32, falcon: self.bits() as u32 };
        let to = self.number(aim);
        Hello { is_answer: self.below(2) == 0, from: self.number(aim), to, terms }
    }

    fn general(&mut self, aim: &Aim, mad: &[u8; rnic_wire::gsi::MAD_LEN]) -> Vec<u8> {
        let psn = Psn::new(self.bits() as u32 & 0xff_ffff);
        GsiPacket { source_qpn: Qpn::GSI, psn, mad }.encode(&aim.way).to_vec()
    }
}

/// Puts the right ICRC at the end.
fn seal(bytes: &mut [u8], way: &Addresses) {
    if let Some(at) = bytes.len().checked_sub(ICRC_LEN).filter(|at| *at >= 12) {
        let icrc = IcrcPrefix::new(way, bytes.len() as u32).start(&bytes[..at]).finish();
        bytes[at..].copy_from_slice(&icrc);
    }
}

/// Packets that a victim gets before we look again, about.
const SEQUENCES: u64 = 1_000;
