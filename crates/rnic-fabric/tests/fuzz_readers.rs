//! The fuzzer's checks of readers on a seeded stream of random and damaged inputs, in every test run. Long runs with
//! coverage are the fuzzer's (`fuzz/README.md`).
#![expect(clippy::disallowed_types, reason = "it measures the time that readers take")]

#[path = "common/traces.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod traces;

mod readers;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use readers::{TARGETS, Target};
use rnic_base::{RandomStream, RandomStreams};
use traces::{collective, computation, receive, send, trace};

/// Inputs for each target.
const INPUTS: u32 = 20_000;
const GRAPH: &str = "host a b h[0-1]\nswitch leaf[0,1] spine-[0-1] # a comment\nlink a leaf0 100Gbps 1us\n\
                     link b leaf0\n\
                     link h[0-1] leaf1 500ns\nlink leaf[0-1] spine-[0-1] 400Gbps 2us\n";
const HPCC: &str = "5 2 4\n3 4\n0 3 100Gbps 1us 0\n1 3 100Gb/s 0.001ms 0.000\n2 4 25Gbps 1000ns 0\n3 4 1Gbps 2us 0\n";
const HTSIM: &str = "Nodes 8\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\n\
                     Downlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 4\n\
                     Downlink_Latency_ns 1000\nBundle 1\nTier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\n\
                     Downlink_Latency_ns 1000\nBundle 2\n";
/// More than any input takes, on a machine that does other work too.
const TIME_MAX: Duration = Duration::from_secs(2);

#[test]
fn every_reader_holds_its_property() {
    for target in TARGETS {
        let accepted = run(&target);
        println!("{}: {accepted} of {INPUTS} accepted", target.name);
        assert!((INPUTS / 20..INPUTS).contains(&accepted), "{}: {accepted} inputs were accepted", target.name);
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

/// Runs a target on its stream; returns how many inputs its reader accepted.
fn run(target: &Target) -> u32 {
    let seeds = seeds(target.name);
    let mut random = RandomStreams::new(1).stream(target.name);
    let mut accepted = 0;
    for number in 0..INPUTS {
        let input = next_input(&seeds, &mut random);
        let start = Instant::now();
        accepted += u32::from((target.check)(&input));
        assert!(start.elapsed() < TIME_MAX, "{}: input {number} took {:?}", target.name, start.elapsed());
    }
    accepted
}

/// One input in eight is random bytes, the others are seeds with a few bytes changed, or lines of two seeds.
fn next_input(seeds: &[Vec<u8>], random: &mut RandomStream) -> Vec<u8> {
    if random.below(8) == 0 {
        let len = random.below(300);
        return (0..len).map(|_| random.bits() as u8).collect();
    }
    let mut input = seeds[random.below(seeds.len() as u64) as usize].clone();
    for _ in 0..random.below(4) {
        damage(random, &mut input);
    }
    input
}

fn damage(random: &mut RandomStream, input: &mut Vec<u8>) {
    let at = random.below(input.len() as u64 + 1) as usize;
    match random.below(6) {
        0 => input.truncate(at),
        1 => input.insert(at, random.bits() as u8),
        2 => {
            let tail = input[at..].to_vec();
            input.extend(tail);
        }
        _ if at == input.len() => {}
        3 => input[at] = b"0123456789.,-># %\n\t;\""[random.below(21) as usize],
        4 => input[at] = random.bits() as u8,
        _ => input[at] ^= 1 << random.below(8),
    }
}

/// Inputs that the target's reader accepts.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let texts: &[&str] = match name {
        "flows_list" => &["# comment\n1.5us,0,3,64KiB\n0, 1, 2, 100\n", "2ms,7,0,1\n"],
        "flows_csv" => &[
            "start_us,src,dst,size_bytes\n1.5,0,3,65536\n0,1,2,100\n",
            "\"dst\";\"bytes\";\"op\";\"start\";\"source\"\n3;1KB;read;2us;0\n",
        ],
        "flows_hpcc" => &["2\n0 1 3 100 65536 0.0000015\n1 0 3 100 100 2\n", "1\n7 0 3 100 5 0\n7 0 3 100 5 0\n"],
        "flows_htsim" => &[
            "Nodes 8\nConnections 1\n0->1 id 1 start 1500000 size 65536\n",
            "Nodes 8\nConnections 3\nTriggers 2\n0->1 id 1 start 0 size 9 send_done_trigger 1 recv_done_trigger 2\n\
             1->2 id 2 trigger 1 size 8\n2->3 id 3 trigger 2 size 7\ntrigger id 1 multishot\n\
             trigger id 2 barrier count 1\n",
        ],
        "flows_any" => {
            &["0,0,1,1KB\n", "start,src,dst,bytes\n0,0,1,1\n", "1\n0 1 3 100 5 0\n", "0->1 start 0 size 9\n"]
        }
        "sizes" => &[
            "0 0\n10000 15\n20000 20\n30000000 100\n",
            "interpolation log\n100,0\n1KB,50%\n2MB,100%\n",
            "unit 1460B\n1 1 0\n6 1 0.15\n20000 1 1\n",
            "shares each\n64 50%\n1KB 30%\n1MB 20%\n",
        ],
        "topology_graph" => &[GRAPH],
        "topology_hpcc" => &[HPCC],
        "topology_htsim" => &[HTSIM],
        "topology_any" => &[GRAPH, HPCC, HTSIM],
        _ => return vec![trace_pair(true), trace_pair(false)],
    };
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Returns traces of equal length of two ranks, one after the other.
fn trace_pair(is_short: bool) -> Vec<u8> {
    let [first, second] = [0, 1].map(|rank| {
        let mut nodes = vec![computation(1, &[], 5), collective(2, &[1], 0, 1_000)];
        if !is_short {
            let message = if rank == 0 { send(3, &[2], 1, 100) } else { receive(3, &[2], 0, 100) };
            nodes.extend([message, collective(4, &[3], 6, 64)]);
        }
        // The names of the two messages differ in length.
        nodes.iter_mut().for_each(|node| node.name = "node".to_owned());
        trace(&nodes)
    });
    assert!(first.len().abs_diff(second.len()) <= 1, "{} and {} bytes", first.len(), second.len());
    [first, second].concat()
}
