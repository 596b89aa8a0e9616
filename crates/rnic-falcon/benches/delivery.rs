//! Packets per second without loss, and with one in a hundred lost: Push Data leaves one delivery layer, arrives at
//! the other, and is acknowledged. The time per packet includes the work of both ends.

#[path = "../tests/two_ends/steady.rs"]
mod steady;
#[path = "../tests/two_ends/mod.rs"]
mod two_ends;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_policy::Cwnd;
use steady::Steady;
use two_ends::config_of;

const PACKETS: u64 = 10_000;

fn delivery(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("delivery");
    group.throughput(Throughput::Elements(PACKETS));
    for (name, flows, paths, lose_every) in [
        ("in_order/1_flow", 1, "ecmp", 0),
        ("in_order/4_flows", 4, "largest-window", 0),
        ("one_in_100_lost/1_flow", 1, "ecmp", 100),
    ] {
        let mut config = config_of("rack-tlp", paths);
        (config.flows, config.accept_stale) = (flows, flows > 1);
        (config.fcwnd, config.ncwnd) = (Cwnd::packets(100), 100);
        let mut steady = Steady::new(config, lose_every);
        steady.run(PACKETS);
        group.bench_function(name, |bencher| bencher.iter(|| steady.run(PACKETS)));
    }
    group.finish();
}

criterion_group!(benches, delivery);
criterion_main!(benches);
