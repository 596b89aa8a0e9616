//! The fuzzer's checks on a seeded stream of random and damaged inputs, in every test run.
//!
//! Another seed each run would find more over the years, but a failure must be everybody's: the seed is fixed. Long
//! runs with coverage are the fuzzer's (`fuzz/README.md`).

mod common;
mod parsers;

use std::fs;
use std::path::Path;

use common::{falcon, golden, messages, scr};
use parsers::{TARGETS, Target};
use rnic_base::{RandomStream, RandomStreams};
use rnic_wire::credit::Credit;
use rnic_wire::falcon::{Timestamp, esp, psp};
use rnic_wire::hello::{Hello, Terms, TransportName};
use rnic_wire::pcap::write_frame;
use rnic_wire::{Format, IpFields, Qpn, codec};

/// Inputs for each target.
const INPUTS: u32 = 200_000;

#[test]
fn every_target_holds_its_property() {
    for target in TARGETS {
        let accepted = run(&target, INPUTS);
        println!("{}: {accepted} of {INPUTS} accepted", target.name);
        assert!(accepted > INPUTS / 20, "{}: only {accepted} inputs were accepted", target.name);
        assert!(accepted < INPUTS || never_refuses(target.name), "{}: nothing was refused", target.name);
    }
}

/// Gives the fuzzer the seeds that this file uses, in a folder for each target: `scripts/fuzz` starts with it.
#[test]
#[ignore = "writes the fuzzer's starting corpus, which is not kept"]
#[expect(clippy::disallowed_methods, reason = "it writes files")]
fn write_corpus() {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
        fs::create_dir_all(&folder).expect("a folder");
        for (index, seed) in seeds(target.name).iter().enumerate() {
            fs::write(folder.join(format!("seed-{index}")), seed).expect("a file");
        }
    }
}

/// Returns `true` for messages that have no field with an invalid value.
fn never_refuses(name: &str) -> bool {
    name.starts_with("cm_") && name != "cm_reject" && name != "cm_ip_request"
}

/// Runs a target on its stream; returns how many inputs its parser accepted.
fn run(target: &Target, inputs: u32) -> u32 {
    let seeds = seeds(target.name);
    let mut random = RandomStreams::new(1).stream(target.name);
    let mut input = Vec::new();
    let mut accepted = 0;
    for _ in 0..inputs {
        next_input(&seeds, &mut random, &mut input);
        accepted += u32::from((target.check)(&input));
    }
    accepted
}

/// One input in eight is random bytes, the others are seeds with a few bytes changed.
fn next_input(seeds: &[Vec<u8>], random: &mut RandomStream, input: &mut Vec<u8>) {
    input.clear();
    if random.below(8) == 0 {
        let len = random.below(300);
        input.extend((0..len).map(|_| random.bits() as u8));
        return;
    }
    input.extend_from_slice(&seeds[random.below(seeds.len() as u64) as usize]);
    for _ in 0..random.below(4) {
        damage(random, input);
    }
}

fn damage(random: &mut RandomStream, input: &mut Vec<u8>) {
    let at = random.below(input.len() as u64 + 1) as usize;
    match random.below(5) {
        0 => input.truncate(at),
        1 => input.resize(at + random.below(9) as usize, random.bits() as u8),
        2 => input.insert(at, random.bits() as u8),
        _ if at == input.len() => {}
        3 => input[at] = random.bits() as u8,
        _ => input[at] ^= 1 << random.below(8),
    }
}

/// Inputs that the target's parser accepts.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let [four, six] = common::paths();
    let datagrams = |format| -> Vec<Vec<u8>> {
        let short = golden::of_format(format).into_iter().filter(|golden| golden.packet.payload_len < 256);
        let assemble = |golden: golden::Golden| {
            let mut out = Vec::new();
            let payload = common::payload(golden.packet.payload_len);
            codec::assemble(format, &golden.packet, &[&payload], &four, &mut out).expect("a legal packet");
            out
        };
        short.map(assemble).collect()
    };
    match name {
        // One wire version, three services.
        "roce" => [Format::RoceV2, Format::UnreliableConnection, Format::UnreliableDatagram]
            .into_iter()
            .flat_map(datagrams)
            .collect(),
        "irn" => datagrams(Format::Irn),
        "fasr" => datagrams(Format::Fasr),
        "falcon" => falcon_datagrams().into_iter().map(|(layout, bytes)| bytes[layout.message()].to_vec()).collect(),
        "falcon_datagram" => falcon_datagrams().into_iter().map(|(_, bytes)| bytes).collect(),
        "falcon_esp" => {
            falcon_datagrams().into_iter().map(|(layout, bytes)| within_esp(&bytes[layout.message()])).collect()
        }
        "icrc" => datagrams(Format::Irn)
            .into_iter()
            .enumerate()
            .map(|(index, datagram)| [&[index as u8; 40][..], &datagram].concat())
            .collect(),
        "ip_packet" => [four, six].into_iter().flat_map(ip_packets).collect(),
        "gsi" => management_datagrams(),
        "credit" => {
            let request = Credit::Request { cookie: 0x0123_4567_89ab_cdef, response_port: 4_791 };
            [request, Credit::Response { cookie: 7 }].map(|message| message.emit().to_vec()).to_vec()
        }
        "hello" => {
            let transport = TransportName::new("roce-gbn").expect("a name");
            let terms = Terms { transport, mtu: 4_096, falcon: 0x3001_0000 };
            let question =
                Hello { is_response: false, from: Qpn::new(0x12_3456), to: Qpn::new(0x65_4321), terms, messages: 1 };
            [question, Hello { is_response: true, ..question }].map(|message| message.emit().to_vec()).to_vec()
        }
        "scr" => scr::all().into_iter().map(|golden| [&golden.bytes[..], &[0; 4]].concat()).collect(),
        "cm_ip_request" => messages::all().iter().take(1).map(|golden| golden.bytes[24 + 140..].to_vec()).collect(),
        _ => messages::all().iter().map(|golden| golden.bytes[24..].to_vec()).collect(),
    }
}

/// Golden packets with short payloads, and around each both PSP headers.
fn falcon_datagrams() -> Vec<(psp::Layout, Vec<u8>)> {
    let short = falcon::all().into_iter().filter(|golden| golden.packet.payload_len < 256);
    let assemble = |golden: falcon::Golden| {
        falcon::around().map(|header| {
            let mut out = Vec::new();
            let payload = common::payload(golden.packet.payload_len);
            let layout = rnic_wire::falcon::codec::assemble(&header, &golden.packet, &[&payload], &mut out);
            (layout.expect("a legal packet"), out)
        })
    };
    short.flat_map(assemble).collect()
}

/// Returns a message in ESP encapsulation, unencrypted.
fn within_esp(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0; esp::encapsulation_len(message.len()) + message.len()];
    let iv = psp::Iv { salt: 3, timestamp: Timestamp::new(7) };
    esp::Header { spi: esp::SPI_MARK | 5, sequence: 9, iv }.emit(out.first_chunk_mut().expect("the header fits"));
    out[esp::LEN..esp::LEN + message.len()].copy_from_slice(message);
    esp::Layout::new(out.len()).close(&mut out, esp::trailer_len(message.len()));
    out
}

fn ip_packets(path: rnic_wire::Addresses) -> Vec<Vec<u8>> {
    let packet = |golden: golden::Golden| {
        let (mut datagram, mut frame) = (Vec::new(), Vec::new());
        let payload = common::payload(golden.packet.payload_len);
        codec::assemble(golden.format, &golden.packet, &[&payload], &path, &mut datagram).expect("a legal packet");
        write_frame(&path, IpFields::default(), &datagram, &mut frame);
        frame.split_off(14)
    };
    golden::all().into_iter().map(packet).collect()
}

fn management_datagrams() -> Vec<Vec<u8>> {
    let [path, _] = common::paths();
    let datagram = |golden: messages::Golden| {
        let (source_qpn, psn) = (rnic_wire::Qpn::GSI, rnic_base::Psn::new(3));
        rnic_wire::gsi::GsiPacket { source_qpn, psn, mad: &golden.bytes }.encode(&path).to_vec()
    };
    messages::all().into_iter().map(datagram).collect()
}
