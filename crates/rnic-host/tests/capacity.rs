//! The capacity that a NIC measures for its schedulers where no link has a known rate. Its rules are tested in
//! `src/share/capacity/tests.rs`, with a machine of known speed; here is what queue pairs of one process get from it.

mod common;

use std::time::{Duration, Instant};

use common::{HALF, Side, chosen, connect_qps, new_qp_of};
use rnic_engine::{SendOp, Service, WcStatus};
use rnic_host::observe::Identity;
use rnic_host::{NicConfig, Settings, ShareConfig, TransportChoice};
use rnic_wire::Qpn;

/// Bytes of a Write, and Writes in flight of each queue pair.
const LEN: u32 = 64 << 10;
const DEPTH: u64 = 16;

/// Two NICs of this machine, connected through shared memory by two queue pairs, and driven by one thread: what the
/// other end does is a part of what the left one's processor does, so that windows close seldom.
struct Tenants {
    left: Side,
    right: Side,
    qpns: [Qpn; 2],
    /// Writes of each queue pair that were posted, and those that have completed.
    posted: [u64; 2],
    done: [u64; 2],
}

impl Tenants {
    fn open(config: &NicConfig, choice: &TransportChoice) -> Self {
        let [mut left, mut right] = [(); 2].map(|()| Side::open(config.clone()));
        let qpns = [1, 2].map(|psn| {
            let [from, to] =
                [&mut left, &mut right].map(|side| new_qp_of(side, Service::ReliableConnection, choice, 64));
            connect_qps(&mut left, &mut right, (from, to), psn);
            from
        });
        Self { left, right, qpns, posted: [0; 2], done: [0; 2] }
    }

    /// Keeps Writes of both queue pairs in flight for `span`; returns the number that have completed.
    fn write_for(&mut self, span: Duration) -> [u64; 2] {
        let (start, before) = (Instant::now(), self.done);
        while start.elapsed() < span {
            for index in [0, 1] {
                while self.posted[index] < self.done[index] + DEPTH {
                    let (sge, remote) = (self.left.sge(0, LEN), self.right.region.remote(HALF));
                    let op = SendOp::Write { remote, immediate: None };
                    self.left.post(self.qpns[index], index as u64, op, &[sge]);
                    self.posted[index] += 1;
                }
            }
            let _ = self.left.nic.progress() | self.right.nic.progress();
            for completion in self.left.completions() {
                assert_eq!(completion.status, WcStatus::Success);
                self.done[completion.wr_id as usize] += 1;
            }
        }
        [0, 1].map(|index| self.done[index] - before[index])
    }

    /// Returns the measured capacity, in Gbit/s.
    fn capacity(&self) -> Option<f64> {
        self.left.nic.snapshot(&Identity::of_process("rnic0", "test", &Settings::default())).capacity_gbps
    }
}

fn water_filling() -> TransportChoice {
    chosen("irn", &[("schedule", "water-filling")])
}

/// Without a capacity, both get half of what there is whatever their weights: each has 50 Gbit/s of a fiction of 100.
#[test]
fn s19_queue_pairs_of_one_process_share_the_measured_capacity_by_weight() {
    let mut tenants = Tenants::open(&NicConfig::shared(), &water_filling());
    tenants.left.nic.verbs().set_weight(tenants.qpns[1], 3).expect("a legal weight");
    let start = Instant::now();
    let mut rounds = Vec::new();
    // On a busy machine, the rate that is reached varies between the windows in which it is measured.
    while !rounds.iter().any(|[one, three]: &[u64; 2]| three * 2 > one * 3) {
        rounds.push(tenants.write_for(Duration::from_millis(300)));
        assert!(start.elapsed() < common::TEST_TIMEOUT, "{rounds:?}, {:?} Gbit/s", tenants.capacity());
    }
    assert!(tenants.capacity().is_some_and(|gbps| gbps > 0.1 && gbps < 99.0), "{:?}", tenants.capacity());
}

#[test]
fn s19_nothing_is_measured_where_no_scheduler_divides_a_capacity_or_a_link_has_one() {
    let link = ShareConfig {
        link_rate: Some(rnic_base::BitRate::gbps(1)),
        group: format!("capacity-{}", std::process::id()),
        ..ShareConfig::default()
    };
    let shared = NicConfig { share: Some(link), ..NicConfig::shared() };
    for (config, choice) in [(NicConfig::shared(), chosen("irn", &[])), (shared, water_filling())] {
        let mut tenants = Tenants::open(&config, &choice);
        tenants.write_for(Duration::from_millis(500));
        assert_eq!(tenants.capacity(), None);
    }
}
