//! Prints events a second on one core: connections x bytes of state x form. What is measured, and how, says
//! [`rnic_reproduce::trial::fae`]; the paper's rows, with bands, are judged by `rnic reproduce falcon/fae`.
//!
//! Run `taskset -c 3 cargo bench -p rnic-reproduce`; add `-- --quick` for a first look, numbers of connections for
//! those rows alone.

use rnic_reproduce::trial::fae::{Call, Load, STATE_BYTES, Subject};

const FORMS: [Subject; 3] = [Subject::Stateless, Subject::Table, Subject::Prefetching];

fn rate(load: Load) -> f64 {
    load.rate(SEED).expect("it can be measured")
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, batches) = if quick { (3, 64) } else { (7, 256) };
    let load = Load { subject: Subject::Table, connections: 1, state: 64, program: Call::Type, rounds, batches };
    let requested: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let all = [1, 1_000, 10_000, 32_000, 128_000, 500_000, 1_000_000];
    let sizes = if requested.is_empty() { all.as_slice() } else { &requested };
    println!("million events a second; 64 bytes of state; program by name, then by type");
    println!(
        "{:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "connections", "stateless", "table", "prefetch", "stateless", "table", "prefetch"
    );
    for connections in sizes.iter().copied() {
        let rates = |program| FORMS.map(|subject| rate(Load { subject, connections, program, ..load }));
        let row: Vec<String> =
            rates(Call::Name).iter().chain(&rates(Call::Type)).map(|rate| format!("{rate:10.2}")).collect();
        println!("{connections:>12} {}", row.join(" "));
    }
    if requested.is_empty() {
        sizes_of_state(load);
    }
}

/// Prints rates by bytes of state.
fn sizes_of_state(load: Load) {
    println!("bytes of state; program by type; table, then prefetch, then memory alone, per number of connections");
    println!("{:>12} {}", "bytes", COMPARED_CONNECTIONS.map(|size| format!("{size:>10} {:>21}", "")).join(" "));
    for state in STATE_BYTES {
        let row = COMPARED_CONNECTIONS.map(|connections| {
            let subjects = [Subject::Table, Subject::Prefetching, Subject::Memory];
            subjects.map(|subject| format!("{:10.2}", rate(Load { subject, connections, state, ..load }))).join(" ")
        });
        println!("{state:>12} {}", row.join(" "));
    }
}

/// Connections for which sizes of state are compared.
const COMPARED_CONNECTIONS: [u32; 3] = [1_000, 128_000, 1_000_000];
/// Of the connections that events name.
const SEED: u64 = 1;
