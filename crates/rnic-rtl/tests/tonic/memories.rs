//! Memories of several ports, and both forms of the memories of data delivery.

use rnic_base::RandomStreams;
use rnic_program::Transport;
use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::Verilated;
use rnic_transports::programs::find;

use crate::bench::{Case, SHORT_TIMEOUTS, run_hostile, run_network};
use crate::nic::{cycles, emit};
use crate::wild;

#[test]
fn t22_four_ports_read_and_four_write_in_each_cycle() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    const DEPTH: u64 = 32;
    let inputs = [("we_i", 4), ("waddr_i", 20), ("wdata_i", 160), ("raddr_i", 20)];
    // The module has no reset: its inputs do not matter before the first record.
    let circuit = |module: &str| {
        Circuit::written(module, &["lib"], Timing::Clocked, &inputs, &[("rdata_o", 160)])
            .with("WIDTH", 40)
            .with("DEPTH", DEPTH)
    };
    let circuits = [circuit("ram_4w4r"), circuit("ram_mwnr").with("WRITES", 4).with("READS", 4)];
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for name in ["ram_4w4r", "ram_mwnr"] {
        let mut model = verilated.start(name, 22).expect("the model starts");
        let mut random = RandomStreams::new(22).stream("ports");
        let mut memory = [None; DEPTH as usize];
        let (mut records, mut expected) = (Vec::new(), vec![[None; 4]]);
        for _ in 0..50_000 {
            let (mut enables, mut writes, mut data) = (0, 0, [0_u64; 3]);
            let mut taken = 0_u32;
            for port in 0..4_u32 {
                let (address, value) = (random.below(DEPTH), random.bits() & ((1 << 40) - 1));
                // Half of all addresses are among four, so that reads meet writes.
                let address = if random.below(2) == 0 { address & 3 } else { address };
                if taken >> address & 1 == 0 && random.below(4) > 0 {
                    taken |= 1 << address;
                    enables |= 1 << port;
                    memory[address as usize] = Some(value);
                }
                writes |= address << (5 * port);
                let (word, shift) = ((40 * port / 64) as usize, 40 * port % 64);
                data[word] |= value << shift;
                if shift > 24 {
                    data[word + 1] |= value >> (64 - shift);
                }
            }
            let reads: [u64; 4] =
                core::array::from_fn(|_| if random.below(2) == 0 { random.below(4) } else { random.below(DEPTH) });
            let addresses = reads.iter().rev().fold(0, |all, address| all << 5 | address);
            records.extend([enables, writes, data[0], data[1], data[2], addresses]);
            // In the next cycle each port shows the memory after this cycle's writes.
            expected.push(reads.map(|address| memory[address as usize]));
        }
        let answers = model.run(&records).expect("no assertion fails");
        let mut compared = 0;
        for (cycle, (answer, expected)) in answers.chunks_exact(3).zip(&expected).enumerate() {
            for (port, value) in (0..4_u32).zip(expected) {
                let (word, shift) = ((40 * port / 64) as usize, 40 * port % 64);
                let high = if shift > 24 { answer[word + 1] << (64 - shift) } else { 0 };
                let found = (answer[word] >> shift | high) & ((1 << 40) - 1);
                assert!(
                    value.is_none_or(|value| value == found),
                    "{name}, cycle {cycle}, port {port}: {value:x?} {found:x}"
                );
                compared += u32::from(value.is_some());
            }
        }
        assert!(compared > 150_000, "{name}: {compared} reads compared");
    }
}

#[test]
fn t22_data_delivery_runs_equally_with_the_papers_memories() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let wild: &'static dyn Transport = &wild::token::Wild;
    let program = find("dcqcn").expect("the program is registered");
    let cases = [
        Case { program: wild, flows: 8, window: 64, values: &[] },
        Case { program, flows: 16, window: 128, values: SHORT_TIMEOUTS },
    ];
    let at = [Some(emit(wild, folder.path())), None];
    let circuit =
        |(case, at): (&Case, Option<String>)| case.nic().circuit(&case.name(), at.as_deref()).with("WHOLE_GROUPS", 1);
    let circuits: Vec<Circuit> = cases.iter().zip(at).map(circuit).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    let mut bench = cases[0].bench(&verilated, 1);
    let left = run_hostile(&mut bench, &cases[0], 2, 22, cycles());
    let mut bench = cases[1].bench(&verilated, 1);
    let more = run_network(&mut bench, &cases[1], 22, cycles());
    assert!(left > 1_000 && more > 1_000, "{left} and {more} addresses left");
}
