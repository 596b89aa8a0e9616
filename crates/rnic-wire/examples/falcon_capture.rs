//! Writes a small Falcon exchange as a capture, to look at with `tools/wireshark/falcon.lua` (docs/captures.md).
//!
//! ```text
//! cargo run -p rnic-wire --example falcon_capture -- OUT.pcap
//! ```
//!
//! The exchange: a Write of four packets on four flows, of which the second is lost; the target reports it, it is
//! retransmitted, and all are acknowledged. Then a Read; a Send for which no receive is posted; one that the target
//! completes in error, with the Resync that follows. All packets are built by this program, without a transport.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it writes the capture to the named file")]

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

use rnic_base::{Psn32, Time};
use rnic_wire::falcon::rdma::{Header, Operation, Rmsn, SinkTag, Sn};
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Body, Cid, FlowLabel, Nack, NackCode, Packet, PacketType, ResyncCode, RnrTimer, Rsn,
    Timestamp, Ulp, UlpProtocol, Window, WindowBases, codec, psp,
};
use rnic_wire::pcap::Capture;
use rnic_wire::{Addresses, IpFields, Position, Qpn, Reth, SendTail};

const PAYLOAD_LEN: u32 = 256;
/// The connection by its target's number, and by its initiator's.
const TARGET: Cid = Cid::new(0x42);
const INITIATOR: Cid = Cid::new(0x24);
const VA: u64 = 0x7f00_0000_0000;
const FLOW_BITS: u32 = 2;
const ONE_WAY_NS: u64 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the name of the capture to write")?;
    let mut writer = CaptureWriter::new(Capture::new(BufWriter::new(File::create(&path)?))?)?;
    write_with_a_lost_packet(&mut writer)?;
    read(&mut writer)?;
    send_with_rnr_nack(&mut writer)?;
    send_in_error(&mut writer)?;
    writer.capture.into_inner().flush()?;
    println!("{path}: {} packets", writer.packets);
    Ok(())
}

/// Packets 0 to 3, of which 1 is lost.
fn write_with_a_lost_packet<W: Write>(writer: &mut CaptureWriter<W>) -> Result<(), Box<dyn Error>> {
    let positions = [Position::First, Position::Middle, Position::Middle, Position::Last];
    let packet = |at: u32| {
        let reth = Reth { va: VA + u64::from(at * PAYLOAD_LEN), rkey: 7, dma_len: 4 * PAYLOAD_LEN };
        push(at, at, PAYLOAD_LEN, Operation::Write { position: positions[at as usize], reth, tail: None })
    };
    for at in 0..4 {
        writer.request(at as u8, Packet { ack_request: at == 3, ..packet(at) })?;
    }
    let bitmaps = Bitmaps { data_acked: 0b110, data_received: 0b110, request_received: 0 };
    let ack = writer.acknowledgement();
    writer.response(3, acknowledgement(1, 0, Body::ExtendedAck(ack, bitmaps)))?;
    writer.request(1, Packet { ack_request: true, ..packet(1) })?;
    let ack = writer.acknowledgement();
    writer.response(1, acknowledgement(4, 0, Body::Ack(ack)))
}

/// A request in the request window, its data in the target's data window.
fn read<W: Write>(writer: &mut CaptureWriter<W>) -> Result<(), Box<dyn Error>> {
    let (rsn, psn) = (Rsn::new(4), Psn32::new(0));
    let sink = SinkTag { va: VA, lkey: 9 };
    let reth = Reth { va: VA, rkey: 7, dma_len: PAYLOAD_LEN };
    let ulp = Ulp::Rdma(header(5, Operation::ReadRequest { reth, rmsn: Rmsn::new(1), sink }));
    let response = Ulp::Rdma(header(5, Operation::ReadResponse { position: Position::Only, sink }));
    let length = response.request_len(PAYLOAD_LEN) as u16;
    writer.request(0, packet(0, Body::PullRequest { psn, rsn, length, ulp }))?;
    let data = packet(PAYLOAD_LEN, Body::PullData { psn, rsn, ulp: response });
    let bases = WindowBases { data: Psn32::new(4), request: Psn32::new(1) };
    writer.response(0, Packet { bases, ack_request: true, ..data })?;
    writer.data_base = 1;
    let ack = writer.acknowledgement();
    writer.request(0, acknowledgement(1, 0, Body::Ack(ack)))
}

/// Packet 4 finds no receive posted, and is retransmitted.
fn send_with_rnr_nack<W: Write>(writer: &mut CaptureWriter<W>) -> Result<(), Box<dyn Error>> {
    let operation =
        Operation::Send { position: Position::Only, tail: SendTail::Immediate(1), rmsn: Rmsn::new(1), offset: 0 };
    let packet = push(4, 5, 5, operation);
    writer.request(2, packet)?;
    writer.send_nack(2, 4, NackCode::NotReady { timeout: RnrTimer::from_code(2) })?;
    writer.now_ns += RnrTimer::from_code(2).wait().as_ns();
    writer.request(2, packet)?;
    let ack = writer.acknowledgement();
    writer.response(2, acknowledgement(5, 1, Body::Ack(ack)))
}

/// Packet 5 is completed in error; a Resync takes its place.
fn send_in_error<W: Write>(writer: &mut CaptureWriter<W>) -> Result<(), Box<dyn Error>> {
    let operation = Operation::Send { position: Position::Only, tail: SendTail::Plain, rmsn: Rmsn::new(2), offset: 0 };
    writer.request(1, push(5, 6, 64, operation))?;
    writer.send_nack(1, 5, NackCode::CompleteInError { ulp: 1 })?;
    let code = ResyncCode::TargetCompleteInError;
    let resync = Body::Resync { psn: Psn32::new(5), rsn: Rsn::new(6), code, of: PacketType::PushData, vendor: 0 };
    writer.request(1, Packet { ack_request: true, ..packet(0, resync) })?;
    let ack = writer.acknowledgement();
    writer.response(1, acknowledgement(6, 1, Body::Ack(ack)))
}

/// The capture, as taken at the switch between the two ends, and the time there.
struct CaptureWriter<W: Write> {
    capture: Capture<W>,
    addresses: Addresses,
    now_ns: u64,
    /// Base of the initiator's data window.
    data_base: u32,
    packets: u32,
    datagram: Vec<u8>,
}

impl<W: Write> CaptureWriter<W> {
    fn new(capture: Capture<W>) -> Result<Self, Box<dyn Error>> {
        let addresses = Addresses::new("[fd00::1]:50001".parse()?, "[fd00::2]:1000".parse()?)?;
        Ok(Self { capture, addresses, now_ns: 10_000, data_base: 0, packets: 0, datagram: Vec::new() })
    }

    fn request(&mut self, flow: u8, packet: Packet) -> Result<(), Box<dyn Error>> {
        let bases = WindowBases { data: Psn32::new(self.data_base), request: Psn32::new(0) };
        self.write(flow, self.addresses, Packet { cid: TARGET, bases, ..packet })
    }

    fn response(&mut self, flow: u8, packet: Packet) -> Result<(), Box<dyn Error>> {
        let addresses = Addresses::new("[fd00::2]:50002".parse()?, "[fd00::1]:1000".parse()?)?;
        self.now_ns += 2 * ONE_WAY_NS;
        self.write(flow, addresses, Packet { cid: INITIATOR, ..packet })
    }

    /// Returns the measurements of the receiver of the last packet.
    fn acknowledgement(&self) -> Acknowledgement {
        let (t1, t2) = (self.now_ns - ONE_WAY_NS / 2, self.now_ns + ONE_WAY_NS / 2);
        Acknowledgement { t1: units(t1), t2: units(t2), hops: 1, rx_level: 3, ..Acknowledgement::default() }
    }

    fn send_nack(&mut self, flow: u8, psn: u32, code: NackCode) -> Result<(), Box<dyn Error>> {
        let Acknowledgement { t1, t2, hops, rx_level, ecn, metadata, .. } = self.acknowledgement();
        let (window, refused) = (Window::Data, Psn32::new(psn));
        let nack = Nack { t1, t2, hops, rx_level, ecn, metadata, psn: refused, window, code };
        self.response(flow, acknowledgement(psn, 1, Body::Nack(nack)))
    }

    fn write(&mut self, flow: u8, addresses: Addresses, packet: Packet) -> Result<(), Box<dyn Error>> {
        self.now_ns += 100;
        let packet = Packet { timestamp: units(self.now_ns - ONE_WAY_NS / 2), ..packet };
        let psp_header = psp::Header { cipher: psp::Cipher::Gmac128, ..psp::Header::default() };
        let payload: Vec<u8> = (0..packet.payload_len).map(|at| at as u8).collect();
        codec::assemble(&psp_header, &packet, &[&payload], &mut self.datagram)?;
        let flow_label = FlowLabel::of_flow(flow, FLOW_BITS, 0x1_2345 + u32::from(flow)).get();
        let fields = IpFields { flow_label, ..IpFields::default() };
        self.capture.write_with(Time::from_ns(self.now_ns), &addresses, fields, &self.datagram)?;
        self.packets += 1;
        Ok(())
    }
}

fn units(ns: u64) -> Timestamp {
    Timestamp::at(Time::from_ns(ns))
}

fn packet(payload_len: u32, body: Body) -> Packet {
    Packet {
        cid: TARGET,
        function: 1,
        protocol: UlpProtocol::Rdma,
        ack_request: false,
        bases: WindowBases::default(),
        timestamp: Timestamp::default(),
        payload_len,
        body,
    }
}

fn push(psn: u32, rsn: u32, payload_len: u32, operation: Operation) -> Packet {
    let ulp = Ulp::Rdma(header(rsn + 1, operation));
    let length = ulp.request_len(payload_len) as u16;
    packet(payload_len, Body::PushData { psn: Psn32::new(psn), rsn: Rsn::new(rsn), length, ulp })
}

fn header(sn: u32, operation: Operation) -> Header {
    Header { dest_qpn: Qpn::new(0x11), sn: Sn::new(sn), solicited: false, complete_in_error: false, operation }
}

fn acknowledgement(data: u32, request: u32, body: Body) -> Packet {
    let bases = WindowBases { data: Psn32::new(data), request: Psn32::new(request) };
    Packet { function: 0, protocol: UlpProtocol::None, bases, ..packet(0, body) }
}
