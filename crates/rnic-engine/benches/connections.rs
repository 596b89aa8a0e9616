//! Real cost of many connections in the engine (F-R18, F-38): the table of connections is in the memory of this
//! machine, whose processor caches play the role of those of a NIC.
//!
//! Two engines back to back on one core; Reads of 8 bytes, one at a time, each on a connection that is chosen at
//! random. `falcon` is compared with `irn`, whose state is smaller. A Read is posted, sent, served, answered,
//! completed and polled, and acknowledged when its acknowledgement is due.
//!
//! The ratios in the output are relative to the time with the fewest connections.
//!
//! Run `cargo bench -p rnic-engine --bench connections`; add `-- --quick` for a short run. 100,000 connections take
//! some 2 GB.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock and its command line"
)]

#[path = "common/end.rs"]
mod end;

use std::hint::black_box;
use std::time::Instant;

use rnic_base::{RandomStream, RandomStreams, Time};
use rnic_engine::*;

use end::{End, back_to_back, carry};

const COUNTS: [usize; 4] = [100, 1_000, 10_000, 100_000];
const READS: usize = 200_000;
const READS_QUICK: usize = 50_000;

/// Simulated time between one Read and the next: longer than an acknowledgement is delayed for coalescing.
const GAP_PS: u64 = 20_000_000;

struct Pair {
    left: End,
    right: End,
    now: Time,
    choice: RandomStream,
}

impl Pair {
    fn new(transport: &str, connections: usize) -> Self {
        let (left, right) = back_to_back(transport, connections, 1, 1);
        Self { left, right, now: Time::ZERO, choice: RandomStreams::new(1).stream("bench/connections") }
    }

    /// Carries out one Read on a connection that is chosen at random.
    fn read(&mut self) {
        let connection = self.choice.below(self.left.qpns.len() as u64) as usize;
        self.read_on(connection);
    }

    fn read_on(&mut self, connection: usize) {
        let qpn = self.left.qpns[connection];
        let sges = [Sge { addr: 4_096, len: 8, lkey: self.left.key }];
        let op = SendOp::Read { remote: RemoteMemory { addr: 8_192, rkey: self.right.key } };
        let request = SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED };
        self.left.engine.post_send(qpn, &request).expect("the previous request is complete");
        while self.flow() {}
        let completion = self.left.engine.objects_mut().poll_cq_one(self.left.cq).expect("the response has arrived");
        assert_eq!(black_box(completion).status, WcStatus::Success);
        // Sends what was held back for coalescing.
        self.now = Time::from_ps(self.now.as_ps() + GAP_PS);
        self.left.engine.tick(self.now);
        self.right.engine.tick(self.now);
        while self.flow() {}
    }

    /// Carries the packets of both ends to the other end; returns `true` if there were any.
    fn flow(&mut self) -> bool {
        let (left, right, now) = (&mut self.left.engine, &mut self.right.engine, self.now);
        carry(left, right, now) | carry(right, left, now)
    }
}

/// Returns the nanoseconds per Read: the minimum of three rounds of `reads` Reads, after every connection has carried
/// one.
fn measure(transport: &str, connections: usize, reads: usize) -> f64 {
    let mut pair = Pair::new(transport, connections);
    (0..connections).for_each(|connection| pair.read_on(connection));
    let round = |_| {
        let began = Instant::now();
        (0..reads).for_each(|_| pair.read());
        began.elapsed().as_nanos() as f64 / reads as f64
    };
    (0..3).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    // `cargo test` builds and runs benches too, but without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let reads = if std::env::args().any(|arg| arg == "--quick") { READS_QUICK } else { READS };
    println!("a Read of 8 bytes on a connection chosen by chance, both ends on one core, fastest of 3: nanoseconds");
    println!("  {:>12} {:>16} {:>16}", "connections", "falcon", "irn");
    let mut first = None;
    for connections in COUNTS {
        let found = ["falcon", "irn"].map(|transport| measure(transport, connections, reads));
        let [falcon, irn] = *first.get_or_insert(found);
        let text = |ns: f64, first: f64| format!("{ns:.0} ({:.2})", ns / first);
        println!("  {connections:>12} {:>16} {:>16}", text(found[0], falcon), text(found[1], irn));
    }
}
