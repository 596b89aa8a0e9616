//! Two engines back to back in memory, on one core: what the engine itself costs.
//!
//! * `write_8B`: work requests per second of 8-byte Writes, every one signalled and acknowledged; each is posted, sent,
//!   received, acknowledged, completed and polled;
//! * `write_64KiB`: packets per second of 4096-byte packets of large Writes; payload is not copied, only placed on
//!   paper.
//!
//! Run `cargo bench -p rnic-engine`; add `-- --quick` for a first look.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_base::{Psn, Time};
use rnic_engine::*;
use rnic_wire::Qpn;

const MTU: u32 = 4_096;

struct End {
    engine: Engine,
    cq: CqId,
    qpn: Qpn,
    key: u32,
}

impl End {
    fn new(transport: &Arc<Transport>, depth: u32, secret: u64) -> Self {
        let mut engine = Engine::new(EngineConfig { secret, ..EngineConfig::default() });
        let pd = engine.create_pd();
        let cq = engine.create_cq(4_096).expect("a legal size");
        let region = MemoryRegion { pd, addr: 0, len: 1 << 30, local: 0, access: Access::all() };
        let key = engine.register(region).expect("a legal region").0;
        let qpn = engine
            .create_qp(&QpAttributes {
                pd,
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                max_send_wr: depth,
                max_recv_wr: depth,
                max_send_sge: 1,
                max_recv_sge: 1,
                signal_all: false,
                service: Service::ReliableConnection,
                transport: Arc::clone(transport),
                number: None,
            })
            .expect("legal attributes");
        Self { engine, cq, qpn, key }
    }

    fn connect(&mut self, dest_qpn: Qpn) {
        let (psn, peer) = (Psn::new(0), PeerId(0));
        let min_rnr_timer = RnrTimer::from_code(1);
        let connection = QpConnection { peer, dest_qpn, rq_psn: psn, mtu: MTU, min_rnr_timer, max_dest_rd_atomic: 16 };
        let timing = QpTiming { sq_psn: psn, retry_count: 7, rnr_retry: None, max_rd_atomic: 16 };
        self.engine.modify_to_init(self.qpn).expect("from reset");
        self.engine.modify_to_rtr(self.qpn, &connection).expect("from init");
        self.engine.modify_to_rts(Time::ZERO, self.qpn, &timing).expect("from ready to receive");
    }
}

struct Loop {
    left: End,
    right: End,
    now: Time,
    outstanding: u32,
    depth: u32,
}

impl Loop {
    fn new(transport: &str, depth: u32) -> Self {
        let profile = rnic_transports::profile(transport).expect("a transport that exists");
        let transport = Arc::new(Transport::new(profile).expect("a sound transport"));
        let (mut left, mut right) = (End::new(&transport, depth, 1), End::new(&transport, depth, 2));
        left.connect(right.qpn);
        right.connect(left.qpn);
        Self { left, right, now: Time::ZERO, outstanding: 0, depth }
    }

    /// Posts as much as fits, lets everything flow, takes completions; answers how many there were.
    fn turn(&mut self, len: u32) -> u64 {
        let sges = [Sge { addr: 4_096, len, lkey: self.left.key }];
        let remote = RemoteMemory { addr: 8_192, rkey: self.right.key };
        let op = SendOp::Write { remote, immediate: None };
        while self.outstanding < self.depth {
            let request = SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::SIGNALED };
            self.left.engine.post_send(self.left.qpn, &request).expect("there is room");
            self.outstanding += 1;
        }
        self.now = Time::from_ps(self.now.as_ps() + 1_000_000);
        flow(&mut self.left.engine, &mut self.right.engine, self.now);
        flow(&mut self.right.engine, &mut self.left.engine, self.now);
        let mut into = [Completion::BLANK; 64];
        let mut done = 0;
        loop {
            let count = self.left.engine.poll_cq(self.left.cq, &mut into);
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

/// Carries every packet that `from` has over to `to`.
fn flow(from: &mut Engine, to: &mut Engine, now: Time) {
    let meta = RxMeta { peer: PeerId(0), congested: false };
    while let Some(transmit) = from.transmit(now) {
        to.receive(now, transmit.format, &transmit.packet, meta, &mut NoDma);
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
        // Four messages at a time: what fits under IRN's cap.
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
