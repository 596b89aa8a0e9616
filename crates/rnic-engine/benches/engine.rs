//! Two engines back to back in memory, on one core: the cost of the engine itself.
//!
//! * `write_8B`: work requests per second of 8-byte Writes, every one signalled and acknowledged; each is posted,
//!   sent, received, acknowledged, completed and polled;
//! * `write_64KiB`: packets per second of 4096-byte packets of large Writes; the destination of the payload is
//!   computed, but no payload is copied.
//!
//! Run `cargo bench -p rnic-engine`; add `-- --quick` for a short run.

#[path = "common/end.rs"]
mod end;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_base::Time;
use rnic_engine::*;

use end::{End, MTU, back_to_back, carry};

struct Loop {
    left: End,
    right: End,
    now: Time,
    outstanding: u32,
    depth: u32,
}

impl Loop {
    fn new(transport: &str, depth: u32) -> Self {
        let (left, right) = back_to_back(transport, 1, depth, 16);
        Self { left, right, now: Time::ZERO, outstanding: 0, depth }
    }

    /// Posts as many requests as fit, carries all packets and polls the completions; returns the number of
    /// completions.
    fn turn(&mut self, len: u32) -> u64 {
        let sges = [Sge { addr: 4_096, len, lkey: self.left.key }];
        let remote = RemoteMemory { addr: 8_192, rkey: self.right.key };
        let op = SendOp::Write { remote, immediate: None };
        while self.outstanding < self.depth {
            let request = SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED };
            self.left.engine.post_send(self.left.qpns[0], &request).expect("the queue is not full");
            self.outstanding += 1;
        }
        self.now = Time::from_ps(self.now.as_ps() + 1_000_000);
        carry(&mut self.left.engine, &mut self.right.engine, self.now);
        carry(&mut self.right.engine, &mut self.left.engine, self.now);
        let mut into = [Completion::BLANK; 64];
        let mut done = 0;
        loop {
            let count = self.left.engine.objects_mut().poll_cq(self.left.cq, &mut into);
            black_box(&into[..count]);
            done += count as u64;
            if count < into.len() {
                break;
            }
        }
        self.outstanding -= done as u32;
        done
    }
}

fn bench(criterion: &mut Criterion) {
    for transport in ["irn", "roce-gbn"] {
        let mut group = criterion.benchmark_group(format!("engine/{transport}"));
        let mut small = Loop::new(transport, 64);
        group.throughput(Throughput::Elements(64));
        group.bench_function("write_8B", |bencher| {
            bencher.iter(|| {
                let mut done = 0;
                while done < 64 {
                    done += small.turn(8);
                }
            });
        });
        let mut large = Loop::new(transport, 4);
        // Four messages at a time: as many as IRN's cap on packets in flight allows.
        let packets = u64::from(4 * (65_536 / MTU));
        group.throughput(Throughput::Elements(packets));
        group.bench_function("write_64KiB_packets", |bencher| {
            bencher.iter(|| {
                let mut done = 0;
                while done < 4 {
                    done += large.turn(65_536);
                }
            });
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
