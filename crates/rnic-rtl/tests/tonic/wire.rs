//! The NIC between two AXI-Streams of RoCEv2 packets: `tonic_nic`, with bytes of rnic-wire on both sides.

use std::collections::{BTreeMap, VecDeque};

use rnic_base::{Psn, RandomStream, RandomStreams, Serial};
use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::tonic::generated::{folder, parameter_bits};
use rnic_rtl::tonic::nic::command_word;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_tonic::{
    Address, Arrival, FlowId, FlowSetup, Input, Installed, Packet, Receiver, ReceiverKind, ReceiverSizes, SegmentId,
    Sizes, Tonic,
};
use rnic_transports::programs::find;
use rnic_wire::header::bth::{self, Bth, BthView};
use rnic_wire::header::irn::{VERSION_IRN, emit_pull, emit_sack, emit_trimmed};
use rnic_wire::header::{aeth, cnp};
use rnic_wire::{Aeth, NakCode, Opcode, PacketFlags, Qpn, Syndrome};

use crate::bench::{Case, SHORT_TIMEOUTS};
use crate::network::LINK;

const FLOWS: u16 = 16;
const FIRST_QPN: u32 = 0x100;
/// Bytes of a packet that the shell decodes.
const HEADER_BYTES: usize = 28;
/// Segments of a flow.
const SEGMENTS: u32 = 300;
/// Bytes of a segment.
const SEGMENT_BYTES: u16 = 1_024;

/// A program, its receiver, and the width of both streams.
#[derive(Clone, Copy)]
struct Link {
    program: &'static str,
    kind: ReceiverKind,
    data_bits: u32,
}

const LINKS: [Link; 4] = [
    Link { program: "new-reno", kind: ReceiverKind::Cumulative { delay: 0 }, data_bits: 64 },
    Link { program: "irn", kind: ReceiverKind::SelectiveNack, data_bits: 512 },
    Link { program: "ndp", kind: ReceiverKind::Trimmed, data_bits: 512 },
    Link { program: "dcqcn", kind: ReceiverKind::GoBackN, data_bits: 64 },
];

impl Link {
    fn case(&self) -> Case {
        let program = find(self.program).expect("the program is registered");
        Case { program, flows: FLOWS, window: 128, values: SHORT_TIMEOUTS }
    }

    fn words(&self) -> usize {
        self.data_bits as usize / 64
    }

    fn circuit(&self) -> Circuit {
        let description = self.case().program.description();
        let (data, flow) = (self.data_bits, u32::from(FLOWS).ilog2());
        let inputs = [
            ("config_i", parameter_bits(&description)),
            ("link_rate_i", 23),
            ("command_valid_i", 1),
            ("command_flow_i", flow),
            ("command_i", 40),
            ("peer_valid_i", 1),
            ("peer_flow_i", flow),
            ("peer_qpn_i", 24),
            ("peer_opcode_i", 8),
            ("s_axis_tdata", data),
            ("s_axis_tkeep", data / 8),
            ("s_axis_tlast", 1),
            ("s_axis_tvalid", 1),
            ("m_axis_tready", 1),
        ];
        let outputs = [
            ("s_axis_tready", 1),
            ("other_valid_o", 1),
            ("dropped_o", 1),
            ("m_axis_tdata", data),
            ("m_axis_tkeep", data / 8),
            ("m_axis_tlast", 1),
            ("m_axis_tvalid", 1),
        ];
        let program = format!("gen/{}", folder(&description));
        let folders = ["nic", "shell", "tonic", "lib", "gen/maps", "gen/k128", &program];
        Circuit::written("tonic_nic", &folders, Timing::Clocked, &inputs, &outputs)
            .with("DATA_W", data.into())
            .with("FLOWS", FLOWS.into())
            .called(&self.name())
    }

    fn name(&self) -> String {
        format!("nic_{}", self.program.replace('-', "_"))
    }

    /// Returns the model of the transport logic.
    fn tonic(&self) -> Tonic {
        let case = self.case();
        let installed = Installed::new(case.program, case.parameters(), LINK).expect("the program is well formed");
        let sizes = Sizes { flows: FLOWS, window: case.window, ..Sizes::default() };
        Tonic::new(sizes, installed).expect("the sizes are possible")
    }
}

/// The first segment of a flow: numbers wrap.
fn first(flow: FlowId) -> SegmentId {
    SegmentId::new(0xFF_FF80 + 16 * u32::from(flow))
}

/// The queue pair of a flow's peer.
fn peer(flow: FlowId) -> u32 {
    0xAB_0000 + 37 * u32::from(flow)
}

/// The packets that carry what a receiver reports: RoCEv2 sends grants and notifications in packets of their own, and
/// does not echo how often a segment was sent.
fn parts(packet: &Packet) -> Vec<Packet> {
    let mut parts = Vec::new();
    if packet.ack || packet.nack || packet.trimmed {
        parts.push(Packet { cnp: false, grant: None, times_sent: 0, ..*packet });
    }
    if packet.grant.is_some() {
        parts.push(Packet { grant: packet.grant, ..Packet::default() });
    }
    if packet.cnp {
        parts.push(Packet { cnp: true, ..Packet::default() });
    }
    parts
}

/// Encodes one of these by rnic-wire, with four bytes in place of the ICRC.
fn encode(flow: FlowId, packet: &Packet, kind: ReceiverKind) -> Vec<u8> {
    let is_irn = !matches!(kind, ReceiverKind::Cumulative { .. } | ReceiverKind::GoBackN);
    let is_gap = packet.nack || packet.trimmed;
    let psn = Psn::new(if is_gap { packet.cum.value() } else { packet.cum.plus(0xFF_FFFF).value() });
    let opcode = match (packet.cnp, packet.grant) {
        (true, _) => Opcode::Cnp,
        (_, Some(_)) => Opcode::Pull,
        _ => Opcode::Acknowledge,
    };
    let header = Bth {
        opcode: opcode as u8,
        migrated: true,
        pad: 0,
        version: if is_irn { VERSION_IRN } else { 0 },
        dest_qpn: Qpn::new(FIRST_QPN + u32::from(flow)),
        psn,
        flags: PacketFlags { becn: packet.cnp, ..PacketFlags::default() },
    };
    let mut bytes = vec![0; bth::LEN];
    header.emit((&mut bytes[..]).try_into().expect("twelve bytes"));
    match opcode {
        Opcode::Cnp => bytes.extend([0; cnp::LEN]),
        Opcode::Pull => {
            let mut field = [0; 8];
            emit_pull(Serial::new(packet.grant.unwrap_or_default().value()), &mut field);
            bytes.extend(field);
        }
        _ => {
            let syndrome =
                if is_gap { Syndrome::Nak(NakCode::PsnSequenceError) } else { Syndrome::Ack { credits: 31 } };
            let mut field = [0; aeth::LEN];
            Aeth { syndrome, msn: Serial::new(7) }.emit(&mut field).expect("five bits");
            bytes.extend(field);
            let sack = Psn::new(packet.sack.value());
            match (packet.trimmed, packet.sacked) {
                (true, _) => emit_trimmed(sack, &mut field),
                (_, is_sacked) => emit_sack(is_sacked.then_some(sack), &mut field),
            }
            if is_irn {
                bytes.extend(field);
            }
        }
    }
    bytes.extend([0xDE, 0xAD, 0xBE, 0xEF]);
    bytes
}

/// The two registers of the shell between an address and its header.
#[derive(Default)]
struct Registers {
    pending: Option<Address>,
    header: Option<Address>,
    beat: usize,
}

/// A packet in the stream into the circuit, whose beats become a report.
struct Incoming {
    bytes: Vec<u8>,
    report: (FlowId, Packet),
}

/// A circuit with a stream on either side, and the model that predicts it.
struct Wire<'a> {
    link: &'a Link,
    model: Model,
    tonic: Tonic,
    random: RandomStream,
    registers: Registers,
    config: Vec<u64>,
    /// Packets to the circuit, and the beat of the first one that is next.
    incoming: VecDeque<Incoming>,
    beat: usize,
    /// The report that the transport logic gets in this cycle.
    report: Option<(FlowId, Packet)>,
    /// Bytes of a header that is not complete.
    partial: Vec<u8>,
    cycle: u64,
    /// Shares of 16 of the cycles in which the sink is ready, and in which the source has a beat.
    shares: (u64, u64),
}

impl<'a> Wire<'a> {
    /// Starts both, with the peers of all flows, and adds `flows` flows with so many segments each.
    fn start(link: &'a Link, verilated: &Verilated, seed: u32, flows: u16, segments: u32) -> Self {
        let mut wire = Self {
            model: verilated.start(&link.name(), seed).expect("the model starts"),
            config: link.case().nic().config_words(),
            random: RandomStreams::new(seed.into()).stream("wire"),
            registers: Registers::default(),
            incoming: VecDeque::new(),
            partial: Vec::new(),
            report: None,
            beat: 0,
            cycle: 0,
            shares: (12, 14),
            tonic: link.tonic(),
            link,
        };
        for flow in 0..FLOWS {
            let entry = [1, u64::from(flow), u64::from(peer(flow)), Opcode::WriteOnly as u64];
            wire.run([0; 3], entry, None, false, &Input::default());
        }
        for flow in 0..flows {
            let setup = FlowSetup { first: first(flow), segment_bytes: SEGMENT_BYTES };
            wire.tonic.add_flow(flow, setup).expect("the flow is free");
            wire.tonic.set_limit(flow, first(flow).plus(segments), 0).expect("the flow exists");
        }
        wire
    }

    /// Runs a cycle of circuit and model; returns the words of the circuit's outputs, and the address in the model's
    /// output register.
    fn run(
        &mut self,
        command: [u64; 3],
        entry: [u64; 4],
        beat: Option<(&[u8], bool)>,
        is_ready: bool,
        input: &Input,
    ) -> (Vec<u64>, Option<Address>) {
        let (data, is_last) = beat.unwrap_or_default();
        let mut record = self.config.clone();
        record.push(LINK.into());
        record.extend(command);
        record.extend(entry);
        let word = |at: usize| (0..8).map(|byte| u64::from(*data.get(8 * at + byte).unwrap_or(&0)) << (8 * byte)).sum();
        record.extend((0..self.link.words()).map(word).collect::<Vec<u64>>());
        let kept = if data.len() == 64 { u64::MAX } else { (1 << data.len()) - 1 };
        record.extend([kept, is_last.into(), beat.is_some().into(), is_ready.into()]);
        let answer = self.model.run(&record).unwrap_or_else(|error| panic!("{}: {error}", self.link.program));
        (answer, self.tonic.step(input))
    }

    /// Runs a cycle; returns the header that has left.
    fn step(&mut self) -> Option<Vec<u8>> {
        let (data_bytes, words) = (8 * self.link.words(), self.link.words());
        let at = format!("{}, cycle {}", self.link.program, self.cycle);
        self.cycle += 1;
        let is_ready = self.random.below(16) < self.shares.0;
        let beats = bth::LEN.div_ceil(data_bytes);
        let is_taken = self.registers.header.is_none() || (is_ready && self.registers.beat == beats - 1);
        let is_open = self.registers.pending.is_none() || is_taken;
        let input = Input { packet: self.report.take(), is_blocked: !is_open };
        let command = self.tonic.next_command();
        let command = command.map_or([0; 3], |(flow, command)| [1, flow.into(), command_word(&command)]);
        let offered = (self.random.below(16) < self.shares.1).then(|| self.incoming.pop_front()).flatten();
        let beat = offered.as_ref().map(|Incoming { bytes, .. }| {
            let chunk = bytes.chunks(data_bytes).nth(self.beat).expect("there are beats left");
            (chunk.to_vec(), (self.beat + 1) * data_bytes >= bytes.len())
        });
        let (answer, address) =
            self.run(command, [0; 4], beat.as_ref().map(|(chunk, is_last)| (&chunk[..], *is_last)), is_ready, &input);
        assert_eq!(answer[..3], [1, 0, 0], "{at}: packets are taken, and all are reports");
        if let Some((incoming, (_, is_last))) = offered.zip(beat) {
            let complete = incoming.bytes.len().min(HEADER_BYTES).div_ceil(data_bytes) - 1;
            if self.beat == complete {
                self.report = Some(incoming.report);
            }
            self.beat = if is_last { 0 } else { self.beat + 1 };
            if !is_last {
                self.incoming.push_front(incoming);
            }
        }
        let &[kept, is_last, is_valid] = &answer[3 + words..] else { unreachable!("three words") };
        assert_eq!(is_valid == 1, self.registers.header.is_some(), "{at}: a header");
        let mut left = None;
        if let Some(address) = self.registers.header.filter(|_| is_ready) {
            let sent = answer[3..3 + words].iter().flat_map(|word| word.to_le_bytes());
            self.partial.extend(sent.enumerate().filter(|(at, _)| kept >> at & 1 == 1).map(|(_, byte)| byte));
            assert_eq!(is_last == 1, self.registers.beat == beats - 1, "{at}: the last beat");
            self.registers.beat = (self.registers.beat + 1) % beats;
            if is_last == 1 {
                let header = core::mem::take(&mut self.partial);
                assert_eq!(header, expected(address), "{at}: {address:?}");
                left = Some(header);
            }
        }
        if is_taken {
            self.registers.header = self.registers.pending.take();
        }
        if is_open {
            self.registers.pending = address;
        }
        left
    }

    fn send(&mut self, flow: FlowId, packet: Packet) {
        let bytes = encode(flow, &packet, self.link.kind);
        self.incoming.push_back(Incoming { bytes, report: (flow, packet) });
    }
}

/// The header of an address, by rnic-wire.
fn expected(address: Address) -> Vec<u8> {
    let header = Bth {
        opcode: Opcode::WriteOnly as u8,
        migrated: true,
        pad: 0,
        version: 0,
        dest_qpn: Qpn::new(peer(address.flow)),
        psn: Psn::new(address.segment.value()),
        flags: PacketFlags { ack_request: true, ..PacketFlags::default() },
    };
    let mut bytes = [0; bth::LEN];
    header.emit(&mut bytes);
    bytes.to_vec()
}

/// Decodes a header that has left: its flow and its segment.
fn decode(header: &[u8]) -> (FlowId, SegmentId) {
    let (view, rest) = BthView::split(header).expect("a header has twelve bytes");
    assert!(rest.is_empty() && view.opcode() == Opcode::WriteOnly as u8, "{header:02x?}");
    let flow = (0..FLOWS).find(|flow| peer(*flow) == view.dest_qpn().get()).expect("it is for a peer");
    (flow, SegmentId::new(view.psn().value()))
}

/// Runs flows through a network that loses packets, until all segments have arrived.
fn run_to_end(link: &Link, verilated: &Verilated, seed: u32) {
    let sizes = ReceiverSizes { flows: FLOWS, window: 128, kind: link.kind, cnp_interval: 20 };
    let mut receiver = Receiver::new(sizes).expect("the sizes are possible");
    (0..FLOWS).for_each(|flow| receiver.add_flow(flow, first(flow)));
    let mut wire = Wire::start(link, verilated, seed, FLOWS, SEGMENTS);
    let mut arrivals: BTreeMap<u64, Arrival> = BTreeMap::new();
    let (mut sent, mut lost, mut cnps) = (0, 0, 0);
    let is_done =
        |receiver: &Receiver| (0..FLOWS).all(|flow| receiver.expected(flow) == Some(first(flow).plus(SEGMENTS)));
    while !is_done(&receiver) {
        assert!(wire.cycle < 400_000, "{}, seed {seed}: not all segments have arrived", link.program);
        if let Some((flow, segment)) = wire.step().map(|header| decode(&header)) {
            sent += 1;
            if wire.random.below(24) == 0 {
                lost += 1;
            } else {
                let is_trimmed = link.kind == ReceiverKind::Trimmed && wire.random.below(16) == 0;
                let is_marked = link.kind == ReceiverKind::GoBackN && wire.random.below(400) == 0;
                let mut at = wire.cycle + 60 + wire.random.below(8);
                while arrivals.contains_key(&at) {
                    at += 1;
                }
                arrivals.insert(at, Arrival { flow, segment, times_sent: 0, is_trimmed, is_marked });
            }
        }
        let arrival = arrivals.remove(&wire.cycle);
        let response = receiver.step(arrival.as_ref());
        if let Some((flow, packet)) = response.filter(|_| wire.random.below(24) > 0) {
            for part in parts(&packet) {
                cnps += u64::from(part.cnp);
                wire.send(flow, part);
            }
        }
    }
    let (delivery, _) = wire.tonic.counters();
    println!(
        "{}: {sent} headers in {} cycles, {lost} lost, {cnps} notifications, {delivery:?}",
        link.program, wire.cycle
    );
    assert!(lost > 100 && delivery.repeats >= lost, "{}, seed {seed}: {lost} lost, {delivery:?}", link.program);
    assert!(link.kind != ReceiverKind::GoBackN || cnps > 3, "{cnps} notifications");
}

/// Acknowledgements of a window in which a segment is missing: that one is sent again, though the sink stops for a
/// while.
fn repair_a_gap(link: &Link, verilated: &Verilated) {
    let mut wire = Wire::start(link, verilated, 5, 1, 6);
    wire.shares = (16, 16);
    let start = first(0);
    let mut sent: Vec<u32> = Vec::new();
    let run = |wire: &mut Wire<'_>, cycles: u32, sent: &mut Vec<u32>| {
        let headers = (0..cycles).filter_map(|_| wire.step());
        sent.extend(headers.map(|header| start.distance_to(decode(&header).1) as u32));
    };
    run(&mut wire, 100, &mut sent);
    assert_eq!(sent, [0, 1, 2, 3, 4, 5], "all are new");
    let ack = |cum: u32| Packet { ack: true, cum: start.plus(cum), ..Packet::default() };
    wire.send(0, ack(1));
    wire.send(0, ack(2));
    wire.send(0, Packet { nack: true, sacked: true, sack: start.plus(3), ..ack(2) });
    wire.shares.0 = 0;
    run(&mut wire, 100, &mut sent);
    assert_eq!(sent.len(), 6, "the sink takes nothing");
    wire.shares.0 = 16;
    run(&mut wire, 100, &mut sent);
    assert_eq!(sent[6..], [2], "the missing one");
    wire.send(0, ack(6));
    run(&mut wire, 2_000, &mut sent);
    assert_eq!(sent.len(), 7, "nothing is left to send");
}

#[test]
fn t1_a_nic_between_streams_sends_what_rocev2_packets_ask_for() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let circuits: Vec<Circuit> = LINKS.iter().map(Link::circuit).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    repair_a_gap(&LINKS[1], &verilated);
    for (seed, link) in (1..).zip(&LINKS) {
        run_to_end(link, &verilated, seed);
    }
}
