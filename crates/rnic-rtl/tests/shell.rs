//! The header shell as a circuit: headers are decoded and built as rnic-wire does, cycle by cycle.

use rnic_base::{Psn, RandomStream, RandomStreams, Serial};
use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_wire::header::aeth::AethView;
use rnic_wire::header::bth::{self, Bth, BthView};
use rnic_wire::header::irn::{PullView, SackView, VERSION_IRN, emit_pull, emit_sack, emit_trimmed};
use rnic_wire::header::{aeth, cnp};
use rnic_wire::{Aeth, NakCode, Opcode, PacketFlags, Qpn, Syndrome};

#[path = "shell/mutants.rs"]
mod mutants;

/// Bytes of a packet that the shell decodes.
const HEADER_BYTES: usize = 28;

/// Packets in each test.
const PACKETS: usize = 100_000;

/// Report of a packet to the sender of its flow: `report_t` of `shell_pkg.sv`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Report {
    ack: bool,
    nack: bool,
    trimmed: bool,
    cnp: bool,
    sacked: bool,
    grant: Option<u32>,
    cum: u32,
    sack: u32,
}

impl Report {
    /// Returns the bits, the last field lowest.
    fn bits(self) -> u128 {
        let flags = [self.ack, self.nack, self.trimmed, self.cnp, self.sacked, self.grant.is_some()];
        let high = flags.into_iter().fold(0, |bits, flag| bits << 1 | u128::from(flag));
        let numbers = [self.cum, self.sack, self.grant.unwrap_or(0)];
        numbers.into_iter().fold(high, |bits, number| bits << 24 | u128::from(number))
    }
}

/// Result of decoding a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decoded {
    Bad,
    Other,
    Report(Report),
}

/// Decodes a packet by the views of rnic-wire.
fn decode(bytes: &[u8]) -> Decoded {
    let Ok((base, rest)) = BthView::split(bytes) else { return Decoded::Bad };
    let is_irn = base.version() == VERSION_IRN;
    if base.version() > VERSION_IRN {
        return Decoded::Bad;
    }
    const PULL: u8 = Opcode::Pull as u8;
    const CNP: u8 = Opcode::Cnp as u8;
    const ACKNOWLEDGE: u8 = Opcode::Acknowledge as u8;
    match base.opcode() {
        CNP if cnp::split_reserved(rest).is_err() => Decoded::Bad,
        CNP => Decoded::Report(Report { cnp: true, ..Report::default() }),
        PULL if is_irn => PullView::split(rest).map_or(Decoded::Bad, |(pull, _)| {
            Decoded::Report(Report { grant: Some(pull.granted().value()), ..Report::default() })
        }),
        ACKNOWLEDGE => decode_acknowledgement(base, rest, is_irn),
        _ => Decoded::Other,
    }
}

fn decode_acknowledgement(base: BthView<'_>, rest: &[u8], is_irn: bool) -> Decoded {
    let Ok((aeth, rest)) = AethView::split(rest) else { return Decoded::Bad };
    let sack = SackView::split(rest).map(|(view, _)| view);
    let Ok(syndrome) = aeth.syndrome() else { return Decoded::Bad };
    if is_irn && sack.is_err() {
        return Decoded::Bad;
    }
    let view = sack.ok().filter(|_| is_irn);
    let sack = view.and_then(SackView::sack);
    let selective = Report { sacked: sack.is_some(), sack: sack.map_or(0, Psn::value), ..Report::default() };
    match syndrome {
        Syndrome::Ack { .. } => Decoded::Report(Report { ack: true, cum: base.psn().plus(1).value(), ..selective }),
        Syndrome::Nak(NakCode::PsnSequenceError) => {
            let cum = base.psn().value();
            Decoded::Report(match view.and_then(SackView::trimmed) {
                Some(trimmed) => Report { trimmed: true, cum, sack: trimmed.value(), ..selective },
                None => Report { nack: true, ack: is_irn, cum, ..selective },
            })
        }
        _ => Decoded::Other,
    }
}

fn base_header(rng: &mut RandomStream) -> Bth {
    let opcodes = [Opcode::Acknowledge, Opcode::Acknowledge, Opcode::Pull, Opcode::Cnp, Opcode::WriteOnly];
    let mut flag = || rng.below(2) == 0;
    let flags = PacketFlags { solicited: flag(), ack_request: flag(), fecn: flag(), becn: flag() };
    let migrated = flag();
    Bth {
        opcode: if rng.below(16) == 0 { rng.bits() as u8 } else { opcodes[rng.below(5) as usize] as u8 },
        migrated,
        pad: rng.below(4) as u8,
        version: if rng.below(16) == 0 { rng.below(16) as u8 } else { rng.below(2) as u8 },
        dest_qpn: Qpn::new(if rng.below(8) == 0 { rng.bits() as u32 } else { 0x100 + rng.below(24) as u32 }),
        psn: Psn::new(if rng.below(4) == 0 { 0xff_ffff } else { rng.bits() as u32 }),
        flags,
    }
}

/// Returns a packet: usually one that rnic-wire encodes, sometimes cut or with random bytes, with a random payload.
fn packet(rng: &mut RandomStream) -> Vec<u8> {
    let header = base_header(rng);
    let mut bytes = vec![0; bth::LEN];
    header.emit((&mut bytes[..]).try_into().expect("twelve bytes"));
    if header.opcode == Opcode::Acknowledge as u8 {
        let codes = [NakCode::PsnSequenceError, NakCode::InvalidRequest, NakCode::RemoteAccessError];
        let syndrome = match rng.below(4) {
            0 => Syndrome::Ack { credits: rng.below(32) as u8 },
            1 => Syndrome::RnrNak { timer: rng.below(32) as u8 },
            2 => Syndrome::Nak(codes[rng.below(3) as usize]),
            _ => Syndrome::Nak(NakCode::PsnSequenceError),
        };
        let mut field = [0; aeth::LEN];
        let header = Aeth { syndrome, msn: Serial::new(rng.bits() as u32) };
        header.emit(&mut field).expect("five bits");
        if rng.below(16) == 0 {
            field[0] = rng.bits() as u8;
        }
        bytes.extend(field);
        let psn = Psn::new(rng.bits() as u32);
        match rng.below(3) {
            0 => emit_trimmed(psn, &mut field),
            1 => emit_sack(Some(psn), &mut field),
            _ => emit_sack(None, &mut field),
        }
        bytes.extend(field);
    } else if header.opcode == Opcode::Pull as u8 {
        let mut field = [0; 8];
        emit_pull(Serial::new(rng.bits() as u32), &mut field);
        bytes.extend(field);
    }
    let most = [0, 1, 20, 150][rng.below(4) as usize];
    let payload = rng.below(most + 1) as usize + if header.opcode == Opcode::Cnp as u8 { cnp::LEN } else { 4 };
    bytes.extend((0..payload).map(|_| rng.bits() as u8));
    if rng.below(16) == 0 {
        bytes.truncate(1 + rng.below(30) as usize);
    }
    bytes
}

/// Returns up to 512 bits as words.
fn to_words(bytes: &[u8], words: usize) -> Vec<u64> {
    let word = |at: usize| (0..8).map(|byte| u64::from(*bytes.get(8 * at + byte).unwrap_or(&0)) << (8 * byte)).sum();
    (0..words).map(word).collect()
}

fn decoder() -> Circuit {
    let inputs = [("bytes_i", 8 * HEADER_BYTES as u32), ("length_i", 5)];
    let outputs = [("bth_o", 67), ("report_o", 78), ("is_report_o", 1), ("is_bad_o", 1)];
    Circuit::written("header_decode", &["shell", "lib"], Timing::Combinational, &inputs, &outputs)
}

/// Checks how so many packets are decoded; returns the numbers of reports, of others and of bad packets.
fn check_decoder(mut model: Model, packets: usize) -> [u32; 3] {
    let mut rng = RandomStreams::new(11).stream("packets");
    let packets: Vec<Vec<u8>> = (0..packets).map(|_| packet(&mut rng)).collect();
    let records: Vec<u64> = packets
        .iter()
        .flat_map(|packet| {
            let length = packet.len().min(HEADER_BYTES);
            let mut words = to_words(&packet[..length], 4);
            words.push(length as u64);
            words
        })
        .collect();
    let answers = model.run(&records).expect("the model runs");
    let mut kinds = [0; 3];
    for (number, (packet, answer)) in packets.iter().zip(answers.chunks_exact(6)).enumerate() {
        let &[low, high, report_low, report_high, is_report, is_bad] = answer else { unreachable!("six words") };
        let expected = decode(packet);
        let report = u128::from(report_high) << 64 | u128::from(report_low);
        let found = match (is_bad, is_report) {
            (1, 0) => Decoded::Bad,
            (0, 0) => Decoded::Other,
            _ => expected,
        };
        assert_eq!(found, expected, "packet {number} of seed 11: {packet:02x?}");
        match expected {
            Decoded::Report(expected) => {
                kinds[0] += 1;
                assert_eq!((is_bad, is_report), (0, 1), "packet {number} of seed 11: {packet:02x?}");
                assert_eq!(report, expected.bits(), "packet {number} of seed 11: {packet:02x?} is {expected:?}");
            }
            Decoded::Other => kinds[1] += 1,
            Decoded::Bad => kinds[2] += 1,
        }
        if is_bad == 0 {
            let (view, _) = BthView::split(packet).expect("it is long enough");
            assert_eq!(u128::from(high) << 64 | u128::from(low), bth_bits(view), "packet {number} of seed 11");
        }
    }
    kinds
}

#[test]
fn t1_headers_are_decoded_as_by_rnic_wire() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[decoder()]).expect("the circuit compiles without warnings");
    let kinds = check_decoder(verilated.start("header_decode", 1).expect("the model starts"), PACKETS);
    assert!(kinds.iter().all(|kind| *kind > 1000), "reports, others, bad packets: {kinds:?}");
}

/// Returns the bits of `bth_t`, the last field lowest.
fn bth_bits(view: BthView<'_>) -> u128 {
    let flags = view.flags();
    let fields = [
        (8, u32::from(view.opcode())),
        (1, u32::from(flags.solicited)),
        (1, u32::from(view.migrated())),
        (2, u32::from(view.pad())),
        (4, u32::from(view.version())),
        (1, u32::from(flags.fecn)),
        (1, u32::from(flags.becn)),
        (24, view.dest_qpn().get()),
        (1, u32::from(flags.ack_request)),
        (24, view.psn().value()),
    ];
    fields.into_iter().fold(0, |bits, (width, value)| bits << width | u128::from(value))
}

/// Flows of the shell in tests.
const FLOWS: u32 = 16;

/// Number of its first queue pair.
const FIRST_QPN: u32 = 0x100;

fn shell(data_bits: u32) -> Circuit {
    let inputs = [
        ("s_axis_tdata", data_bits),
        ("s_axis_tkeep", data_bits / 8),
        ("s_axis_tlast", 1),
        ("s_axis_tvalid", 1),
        ("cfg_valid_i", 1),
        ("cfg_flow_i", 4),
        ("cfg_dest_qpn_i", 24),
        ("cfg_opcode_i", 8),
        ("addr_valid_i", 1),
        ("addr_flow_i", 4),
        ("addr_segment_i", 24),
        ("m_axis_tready", 1),
    ];
    let outputs = [
        ("s_axis_tready", 1),
        ("report_valid_o", 1),
        ("report_flow_o", 4),
        ("report_o", 78),
        ("other_valid_o", 1),
        ("dropped_o", 1),
        ("addr_ready_o", 1),
        ("m_axis_tdata", data_bits),
        ("m_axis_tkeep", data_bits / 8),
        ("m_axis_tlast", 1),
        ("m_axis_tvalid", 1),
    ];
    Circuit::written("header_shell", &["shell", "lib"], Timing::Clocked, &inputs, &outputs)
        .with("DATA_W", data_bits.into())
        .with("FLOWS", FLOWS.into())
        .called(&format!("header_shell_{data_bits}"))
}

/// Beats of a packet: data, kept bytes, last.
fn beats(packet: &[u8], data_bytes: usize) -> Vec<(Vec<u8>, bool)> {
    let chunks: Vec<&[u8]> = packet.chunks(data_bytes).collect();
    chunks.iter().enumerate().map(|(at, chunk)| (chunk.to_vec(), at + 1 == chunks.len())).collect()
}

/// Returns what the shell says of a packet: kind (0 report, 1 other, 2 dropped), flow and report.
fn outcome(packet: &[u8]) -> (u8, u64, u128) {
    let flow = BthView::split(packet).map(|(view, _)| view.dest_qpn().get().wrapping_sub(FIRST_QPN) & 0xff_ffff);
    match (decode(packet), flow) {
        (Decoded::Report(report), Ok(flow)) if flow < FLOWS => (0, flow.into(), report.bits()),
        (Decoded::Other, Ok(flow)) if flow < FLOWS => (1, 0, 0),
        _ => (2, 0, 0),
    }
}

fn collector() -> Circuit {
    let inputs = [("tdata_i", 64), ("tkeep_i", 8), ("tlast_i", 1), ("tvalid_i", 1), ("ready_i", 1)];
    let outputs = [("tready_o", 1), ("bytes_o", 8 * HEADER_BYTES as u32), ("length_o", 5), ("valid_o", 1)];
    Circuit::written("header_collect", &["shell", "lib"], Timing::Clocked, &inputs, &outputs).with("DATA_W", 64)
}

/// Checks that a beat is taken in each cycle, except while the headers before it have not been read.
fn check_collector(mut model: Model, seed: u64, packets: usize) {
    let mut rng = RandomStreams::new(seed).stream("headers");
    let packets: Vec<Vec<u8>> = (0..packets).map(|_| packet(&mut rng)).collect();
    let mut waiting = packets.iter().flat_map(|packet| beats(packet, 8));
    let (mut offered, mut taken, mut read) = (None, 0, 0);
    // Beats of the packet so far, and if the rest of the packet is dropped.
    let (mut beat, mut drops) = (0, false);
    while read < packets.len() {
        if offered.is_none() && rng.below(4) > 0 {
            offered = waiting.next();
        }
        let (data, is_last) = offered.clone().unwrap_or_else(|| (vec![rng.bits() as u8], rng.below(2) == 0));
        let reads = rng.below(2) == 0;
        let mut record = to_words(&data, 1);
        record.extend([(1 << data.len()) - 1, is_last.into(), offered.is_some().into(), reads.into()]);
        let answer = model.run(&record).expect("the model runs");
        let is_header = taken > read;
        let expected = [drops || !is_header || reads, is_header].map(u64::from);
        assert_eq!([answer[0], answer[6]], expected, "seed {seed}, packet {read}: ready, valid");
        if is_header {
            let bytes = &packets[read][..packets[read].len().min(HEADER_BYTES)];
            let kept: Vec<u8> = answer[1..5].iter().flat_map(|word| word.to_le_bytes()).take(bytes.len()).collect();
            assert_eq!((&kept[..], answer[5]), (bytes, bytes.len() as u64), "seed {seed}, packet {read}");
            read += usize::from(reads);
        }
        if answer[0] == 1 && offered.take().is_some() {
            beat = if is_last { 0 } else { beat + 1 };
            // Four beats have the headers.
            taken += usize::from(!drops && (is_last || beat == 4));
            drops = !is_last && beat >= 4;
        }
    }
}

#[test]
fn t1_headers_wait_for_their_reader() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[collector()]).expect("the circuit compiles without warnings");
    check_collector(verilated.start("header_collect", 1).expect("the model starts"), 31, PACKETS / 20);
}

/// Checks the headers of the segments of flows, whose peers have these queue pairs and opcodes.
fn check_headers(addresses: &[(u64, u64)], headers: &[Vec<u8>], peers: &[(u32, u8)], seed: u64) {
    for (number, ((flow, segment), header)) in addresses.iter().zip(headers).enumerate() {
        let (qpn, opcode) = peers[*flow as usize];
        let flags = PacketFlags { ack_request: true, ..PacketFlags::default() };
        let psn = Psn::new(*segment as u32);
        let expected = Bth { opcode, migrated: true, pad: 0, version: 0, dest_qpn: Qpn::new(qpn), psn, flags };
        let mut bytes = [0; bth::LEN];
        expected.emit(&mut bytes);
        assert_eq!(header[..], bytes, "seed {seed}, address {number}");
    }
}

/// A shell receives packets with pauses between beats, and answers are those of its packets, in order. At the same
/// time it builds the header of each address, with a sink that is not always ready. Returns the numbers of beats and
/// of addresses.
fn receive_and_send(mut model: Model, data_bits: u32, seed: u64, packets: usize) -> [usize; 2] {
    let (data_bytes, words) = (data_bits as usize / 8, data_bits as usize / 64);
    let mut rng = RandomStreams::new(seed).stream("shell");
    let peers: Vec<(u32, u8)> = (0..FLOWS).map(|_| (rng.bits() as u32 & 0xff_ffff, rng.bits() as u8)).collect();
    for (flow, (qpn, opcode)) in peers.iter().enumerate() {
        let mut record = vec![0; words + 3];
        record.extend([1, flow as u64, u64::from(*qpn), u64::from(*opcode), 0, 0, 0, 0]);
        let answer = model.run(&record).expect("the model runs");
        let valid = [answer[1], answer[5], answer[6], answer[answer.len() - 1]];
        assert_eq!(valid, [0; 4], "seed {seed}: an answer before the first packet");
    }
    let packets: Vec<Vec<u8>> = (0..packets).map(|_| packet(&mut rng)).collect();
    let mut waiting = packets.iter().flat_map(|packet| beats(packet, data_bytes)).peekable();
    let mut addresses = Vec::new();
    let (mut outcomes, mut headers, mut taken, mut cycles) = (Vec::new(), Vec::new(), 0, 0);
    let (mut address, mut is_waiting) = (None, false);
    let mut beat: Vec<u8> = Vec::new();
    let mut offered = None;
    while outcomes.len() < packets.len() || headers.len() < addresses.len() {
        assert!(cycles < 1_000 * packets.len(), "seed {seed}: the shell stopped after {} packets", outcomes.len());
        cycles += 1;
        if offered.is_none() && rng.below(4) > 0 {
            offered = waiting.next();
        }
        if address.is_none() && waiting.peek().is_some() && rng.below(2) == 0 {
            address = Some((rng.below(FLOWS.into()), rng.bits() & 0xff_ffff));
        }
        // Without a packet, data and its end are random.
        let (data, is_last) = offered.clone().unwrap_or_else(|| (vec![rng.bits() as u8], rng.below(2) == 0));
        let mut record = to_words(&data, words);
        let kept = if data.len() == 64 { u64::MAX } else { (1 << data.len()) - 1 };
        record.extend([kept, u64::from(is_last), u64::from(offered.is_some()), 0, 0, 0, 0]);
        let (flow, segment) = address.unwrap_or_default();
        let is_ready = rng.below(4) > 0;
        record.extend([u64::from(address.is_some()), flow, segment, u64::from(is_ready)]);
        let answer = model.run(&record).expect("the model runs");
        assert_eq!(answer[0], 1, "seed {seed}, cycle {cycles}: headers are not taken at the rate of the link");
        taken += usize::from(offered.take().is_some());
        match (answer[1], answer[5], answer[6]) {
            (1, 0, 0) => outcomes.push((0, answer[2], u128::from(answer[4]) << 64 | u128::from(answer[3]))),
            (0, 1, 0) => outcomes.push((1, 0, 0)),
            (0, 0, 1) => outcomes.push((2, 0, 0)),
            found => assert_eq!(found, (0, 0, 0), "seed {seed}, cycle {cycles}: two answers at once"),
        }
        if let Some(at) = outcomes.len().checked_sub(1) {
            assert_eq!(outcomes[at], outcome(&packets[at]), "seed {seed}, packet {at}: {:02x?}", packets[at]);
        }
        let &[kept, is_last, is_valid] = &answer[8 + words..] else { unreachable!("three words") };
        // An address is taken unless one waits for a header that is being sent.
        let is_sent = is_valid == 0 || (is_ready && is_last == 1);
        assert_eq!(answer[7] == 1, !is_waiting || is_sent, "seed {seed}, cycle {cycles}: ready for an address");
        if answer[7] == 1 {
            is_waiting = address.is_some();
            addresses.extend(address.take());
        }
        if is_valid == 1 && is_ready {
            let sent = answer[8..8 + words].iter().flat_map(|word| word.to_le_bytes());
            beat.extend(sent.enumerate().filter(|(at, _)| kept >> at & 1 == 1).map(|(_, byte)| byte));
            if is_last == 1 {
                headers.push(core::mem::take(&mut beat));
            }
        }
    }
    check_headers(&addresses, &headers, &peers, seed);
    [taken, addresses.len()]
}

#[test]
fn t1_a_shell_around_transport_logic_passes_headers_only() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[shell(64), shell(512)]).expect("the circuits compile without warnings");
    for (data_bits, seed) in [(64, 21), (512, 22)] {
        let model = verilated.start(&format!("header_shell_{data_bits}"), seed).expect("the model starts");
        let [beats, addresses] = receive_and_send(model, data_bits, seed.into(), PACKETS / 20);
        assert!(beats > PACKETS / 20 && addresses > 100, "{beats} beats, {addresses} addresses");
    }
}
