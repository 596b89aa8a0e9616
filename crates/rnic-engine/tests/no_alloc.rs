//! Checks that the engine does not allocate per packet.
//!
//! Two engines back to back in memory run on a thread whose allocations are counted. After a warm-up, in which queues
//! grow to the size that the load needs, 100,000 packets of each kind of load must cause no allocation. With loss the
//! same holds once every queue pair has been through a recovery, because bitmaps are allocated when they are first
//! needed.

#[path = "common/back_to_back.rs"]
mod back_to_back;
#[path = "common/heap.rs"]
mod heap;

use back_to_back::{BackToBack, Shape};
use rnic_base::Probability;
use rnic_engine::*;

/// Packets that must be carried without an allocation.
const PACKETS: u64 = 100_000;
/// Queue pairs on each side.
const QUEUE_PAIRS: usize = 4;
/// Requests in flight on each queue pair.
const DEPTH: u64 = 16;

/// Kind of the requests of a run.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Writes of this many bytes.
    Write(u32),
    /// Sends of this many bytes.
    Send(u32),
    /// Reads of this many bytes.
    Read(u32),
    /// Datagrams of this many bytes.
    Datagram(u32),
    /// Fetch-and-add.
    Atomic,
    /// All of them in turn.
    Mixed,
}

const LOADS: [Load; 6] =
    [Load::Write(8), Load::Write(65_536), Load::Send(3_000), Load::Read(20_000), Load::Atomic, Load::Mixed];

/// An endless load on a pair of engines.
struct Bench {
    pair: BackToBack<NoDma>,
    load: Load,
    turn: usize,
    /// Requests that each queue pair has posted and not completed.
    under_way: [u64; QUEUE_PAIRS],
}

impl Bench {
    fn new(transport: &str, options: &[(&str, &str)], load: Load) -> Self {
        Self::with(Shape::new(transport, options), load)
    }

    fn with(mut shape: Shape, load: Load) -> Self {
        shape.queue_pairs = QUEUE_PAIRS;
        // Marks are for transports with congestion control.
        shape.marked = Probability::ratio(1, 500);
        let mut pair = BackToBack::new(&shape, NoDma);
        for qpn in pair.right.numbers.clone() {
            (0..2 * DEPTH).for_each(|_| pair.right.post_recv(qpn, 0, 1 << 16));
        }
        Self { pair, load, turn: 0, under_way: [0; QUEUE_PAIRS] }
    }

    fn post(&mut self, qp: usize) {
        self.turn += 1;
        let load = match self.load {
            Load::Mixed => LOADS[self.turn % 5],
            load => load,
        };
        let remote = self.pair.right.remote(1 << 18);
        let to = DatagramAddress { peer: PeerId(1), qpn: self.pair.right.numbers[qp], qkey: 0, mark: 0 };
        let (op, len) = match load {
            Load::Write(len) => (SendOp::Write { remote, immediate: None }, len),
            Load::Send(len) => (SendOp::Send { immediate: None }, len),
            Load::Read(len) => (SendOp::Read { remote }, len),
            Load::Datagram(len) => (SendOp::Datagram { to, immediate: Some(1) }, len),
            Load::Atomic | Load::Mixed => (SendOp::FetchAdd { remote, add: 1 }, 8),
        };
        self.pair.left.post(qp, qp as u64, op, len);
        self.under_way[qp] += 1;
    }

    /// Without loss all queues reach their largest size. With much loss, every window of every queue pair goes
    /// through its first recovery. The last part is as long as the run, because the queue of responses to a peer, of at
    /// most `2 * max_dest_rd_atomic`, grows late where a controller paces them.
    fn warm_up(&mut self, lossy: bool) {
        let loss = |percent| if lossy { Probability::ratio(percent, 100) } else { Probability::NEVER };
        for (percent, packets) in [(0, PACKETS / 4), (10, PACKETS / 4), (1, PACKETS)] {
            self.pair.loss = loss(percent);
            self.run(packets);
        }
    }

    fn allocations_of_a_run(&mut self) -> u64 {
        let before = heap::allocations();
        self.run(PACKETS);
        heap::allocations() - before
    }

    fn run(&mut self, packets: u64) {
        let goal = self.pair.packets + packets;
        while self.pair.packets < goal {
            for qp in 0..QUEUE_PAIRS {
                while self.under_way[qp] < DEPTH {
                    self.post(qp);
                }
            }
            self.pair.round();
            while let Some(completion) = self.pair.left.completion() {
                self.under_way[completion.wr_id as usize] -= 1;
            }
            while let Some(completion) = self.pair.right.completion() {
                self.pair.right.post_recv(completion.qpn, 0, 1 << 16);
            }
        }
    }
}

fn allocations_of(transport: &str, options: &[(&str, &str)], load: Load, lossy: bool) -> u64 {
    allocations(Bench::new(transport, options, load), lossy)
}

fn allocations(mut bench: Bench, lossy: bool) -> u64 {
    bench.warm_up(lossy);
    bench.allocations_of_a_run()
}

/// Checks the counter itself: creating a queue pair allocates.
#[test]
fn the_allocation_counter_counts_allocations() {
    let before = heap::allocations();
    let bench = Bench::new("irn", &[], Load::Mixed);
    assert!(heap::allocations() - before > 10);
    assert!(heap::live_bytes() > 1_000);
    drop(bench);
}

#[test]
fn nothing_is_allocated_without_loss() {
    for transport in ["roce-gbn", "irn"] {
        for load in LOADS {
            assert_eq!(allocations_of(transport, &[], load, false), 0, "{transport}, {load:?}");
        }
    }
}

#[test]
fn nothing_is_allocated_with_loss() {
    for transport in ["roce-gbn", "irn"] {
        for load in LOADS {
            let allocations = allocations_of(transport, &[], load, true);
            assert_eq!(allocations, 0, "{transport}, {load:?}");
        }
    }
}

/// Name and value of each option of a transport.
type Options = &'static [(&'static str, &'static str)];

const FALCON_LOADS: [Load; 5] =
    [Load::Write(8), Load::Write(65_536), Load::Send(1_000), Load::Read(20_000), Load::Atomic];

/// Falcon, with each ordering: transactions, windows, payload that is held, reports to the adaptive engine and its
/// responses.
#[test]
fn nothing_is_allocated_by_falcon() {
    let variants: [Options; 6] = [
        &[],
        &[("fae_form", "stateless")],
        &[("fae_form", "stateless"), ("flows", "4"), ("fae_work", "66ns"), ("tx_window", "64")],
        // From here on, windows that soon reach their full size; for the others see below.
        &[("flows", "4"), ("fae_interface", "234ns"), ("fae_work", "66ns"), ("tx_window", "64")],
        &[
            ("ordering", "weak"),
            ("recovery", "ooo-distance"),
            ("resources", "3"),
            ("tx_window", "32"),
            ("outstanding", "16"),
        ],
        &[("ordering", "unordered"), ("errors", "complete-in-error"), ("isolation", "static"), ("tx_window", "32")],
    ];
    for options in variants {
        for load in FALCON_LOADS {
            for lossy in [false, true] {
                let allocations = allocations_of("falcon", options, load, lossy);
                assert_eq!(allocations, 0, "{options:?}, {load:?}, with loss: {lossy}");
            }
        }
    }
}

/// Windows of the default width, and the widest: their rings, and the memory for out-of-order packets, double when
/// more packets are in flight than ever before. Without loss that ends with the warm-up. With loss it depends on
/// chance and may happen late, but not forever, because rings have a maximum size.
#[test]
fn nothing_is_allocated_by_falcons_wide_windows_after_warm_up() {
    /// After this many runs the rings no longer grow, whereas code that allocates per packet would still allocate.
    const RUNS_MAX: u32 = 10;
    let variants: [Options; 4] = [
        &[("flows", "4"), ("fae_interface", "234ns"), ("fae_work", "66ns")],
        &[("ordering", "weak"), ("recovery", "ooo-distance"), ("resources", "3")],
        &[("ordering", "unordered"), ("errors", "complete-in-error"), ("isolation", "static")],
        &[("flows", "8"), ("request_window", "512"), ("data_window", "512"), ("outstanding", "1024")],
    ];
    for options in variants {
        for load in FALCON_LOADS {
            assert_eq!(allocations_of("falcon", options, load, false), 0, "{options:?}, {load:?}");
            let mut bench = Bench::new("falcon", options, load);
            bench.warm_up(true);
            let rests = (0..RUNS_MAX).any(|_| bench.allocations_of_a_run() == 0);
            assert!(rests, "{options:?}, {load:?}: allocates in each of {RUNS_MAX} runs of {PACKETS} packets");
        }
    }
}

#[test]
fn nothing_is_allocated_by_unreliable_services() {
    let (connection, datagram) = (Service::UnreliableConnection, Service::UnreliableDatagram);
    let loads = [
        (connection, Load::Write(8)),
        (connection, Load::Write(65_536)),
        (connection, Load::Send(3_000)),
        (datagram, Load::Datagram(1_000)),
    ];
    for (service, load) in loads {
        for lossy in [false, true] {
            let bench = Bench::with(Shape { service, ..Shape::new("irn", &[]) }, load);
            assert_eq!(allocations(bench, lossy), 0, "{service:?}, {load:?}");
        }
    }
}

/// Policies with more state: pacing and its timers, round-trip times, other bitmaps.
#[test]
fn nothing_is_allocated_by_other_policies() {
    type Variant = (&'static str, &'static [(&'static str, &'static str)]);
    let variants: [Variant; 6] = [
        ("irn", &[("recovery", "go-back-n")]),
        ("irn", &[("dynamic_rto", "true"), ("sack_bitmap", "false")]),
        ("irn", &[("cap_packets", "0")]),
        ("irn", &[("paths", "spray"), ("nack_threshold", "4")]),
        ("irn", &[("control", "dcqcn")]),
        ("roce-gbn", &[("control", "dcqcn"), ("cap_packets", "20")]),
    ];
    for (transport, options) in variants {
        let allocations = allocations_of(transport, options, Load::Mixed, true);
        assert_eq!(allocations, 0, "{transport}, {options:?}");
    }
}
