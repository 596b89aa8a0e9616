//! Falcon's mechanisms where many connections are in each other's way: F-20 (incasts), F-39 (receivers that are not
//! ready).

mod common;

use common::*;
use rnic_base::Duration;
use rnic_engine::{RecvRequest, RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcStatus};
use rnic_fabric::simulation::QueuePairSpec;

/// Microseconds in which the queue pairs of an incast begin, and after which they post no more.
fn phases(queue_pairs: u32) -> [u32; 2] {
    [queue_pairs * 6, queue_pairs * 8]
}

/// Bytes that wait for the receiver of an incast, in each half of a millisecond from one after the last has begun until
/// no more are posted; and packets that found no room, of all that were sent. `windows` is more of the transport.
fn incast(queue_pairs: u32, windows: &str) -> (Vec<f64>, u64, u64) {
    let transport = format!("{{ name = \"falcon\", {windows} }}");
    let [begun, posted] = phases(queue_pairs);
    let workload = format!(
        "{{ kind = \"closed-loop\", op = \"write\", message = \"64KB\", clients = 5, from = 1, to = 0,
            queue_pairs = {queue_pairs}, jitter = \"{begun}us\", duration = \"{posted}us\" }}",
    );
    let with = [
        ("mtu", "4096"),
        ("topology", r#"{ kind = "star", hosts = 6 }"#),
        ("links", r#"{ rate = "200Gbps", delay = "1.1us" }"#),
        ("switch", r#"{ model = "shared-buffer", buffer = "16MB" }"#),
        ("transport", transport.as_str()),
        ("workload", workload.as_str()),
        ("run", r#"{ slice = "500us", limit = "1s" }"#),
    ];
    let report = run(STAR, &with, 1);
    assert_eq!(report.flows_unfinished, 0);
    let waits = &report.slices.expect("the plan asks for them").hosts["host-0"].queue_mean_bytes;
    let steady = (begun / 500 + 2) as usize..(posted / 500) as usize;
    (waits[steady].to_vec(), report.drops.buffer, report.packets_sent)
}

fn largest(waits: &[f64]) -> f64 {
    waits.iter().copied().fold(0.0, f64::max)
}

fn mean(waits: &[f64]) -> f64 {
    waits.iter().sum::<f64>() / waits.len() as f64
}

/// F-20: windows below one packet bound the queue by time, not by the number of connections: on average by some 125 us
/// of target delay, 3.1 MB, about which it goes up and down by a third. Nothing is lost then. With a packet of each
/// under way always, the buffer is full; and with first windows of 32 packets it is until those are gone.
fn bounded(queue_pairs: u32) {
    let (paced, lost, _) = incast(queue_pairs, "initial_window = 1");
    println!("{queue_pairs} to one: {paced:.0?} bytes wait, {lost} lost");
    let is_bounded = |waits: &[f64]| mean(waits) < 3.6e6 && largest(waits) < 5e6;
    assert!(paced.len() >= 5 && is_bounded(&paced), "{queue_pairs} to one: {paced:.0?} bytes wait");
    assert_eq!(lost, 0, "{queue_pairs} to one");
    let (whole, lost_whole, sent) = incast(queue_pairs, "initial_window = 1, window_min = 1024");
    println!("with a packet each: {whole:.0?}, {lost_whole} of {sent} lost");
    let least = whole.iter().copied().fold(f64::MAX, f64::min);
    assert!(least > largest(&paced) * 1.5 && lost_whole > 0, "{queue_pairs} to one, with a packet each: {whole:.0?}");
    let (later, lost_first, sent) = incast(queue_pairs, "initial_window = 32");
    println!("behind first windows of 32: {later:.0?}, {lost_first} of {sent} lost");
    assert!(is_bounded(&later), "{queue_pairs} to one, behind larger first windows: {later:.0?} bytes wait");
}

#[test]
fn f20_the_queue_of_an_incast_is_bounded_by_time() {
    bounded(2_000);
    bounded(5_000);
}

/// Of the queue pair that loses nothing.
const WRITES: u64 = 2_000;

/// Microseconds of 2000 Writes of 16 KB, four at a time, beside so many queue pairs of the same two NICs whose receiver
/// is not ready; and how often their NIC said so.
fn beside_the_unready(storms: usize) -> (u64, u64) {
    let with = [
        ("workload", r#"{ kind = "manual" }"#),
        ("transport", r#"{ name = "falcon", ordering = "weak" }"#),
        ("mtu", "4096"),
        ("payload", "checked"),
    ];
    let mut simulation = simulation(WIRE, &with, 1);
    let spec = QueuePairSpec { sends: 8, receives: 8, sges: 1 };
    let (_, addr, lkey) = simulation.allocate(0, 1 << 16);
    let (_, remote, rkey) = simulation.allocate(1, 1 << 16);
    let sges = |len| [Sge { addr, len, lkey }];
    let stormy: Vec<_> = (0..storms).map(|_| simulation.connect_by_hand(0, 1, spec)).collect();
    for (qpn, _) in &stormy {
        let op = SendOp::Send { immediate: None };
        let request = SendRequest { wr_id: 1 << 40, op, sges: &sges(64), flags: SendFlags::SIGNALED };
        simulation.post_send(0, *qpn, &request).expect("an empty queue");
    }
    let (clean, _) = simulation.connect_by_hand(0, 1, spec);
    let quiet = simulation.now() + Duration::from_us(100);
    simulation.advance(quiet);
    let (begin, mut posted, mut done) = (simulation.now(), 0, 0);
    while done < WRITES {
        while posted < WRITES && posted < done + 4 {
            let op = SendOp::Write { remote: RemoteMemory { addr: remote, rkey }, immediate: None };
            let request = SendRequest { wr_id: posted, op, sges: &sges(16_384), flags: SendFlags::SIGNALED };
            simulation.post_send(0, clean, &request).expect("there is room");
            posted += 1;
        }
        let next = simulation.now() + Duration::from_us(1);
        simulation.advance(next);
        while let Some((_, completion)) = simulation.poll(0) {
            assert_eq!((completion.wr_id, completion.status), (done, WcStatus::Success), "only Writes end");
            done += 1;
        }
        assert!(simulation.now().since(begin) < Duration::from_ms(50), "{done} Writes are done");
    }
    let took = simulation.now().since(begin).as_ns() / 1_000;
    // The storm ends when receives are posted, and nobody has come to harm.
    let (_, into, into_key) = simulation.allocate(1, 1 << 16);
    for (_, qpn) in &stormy {
        let sges = [Sge { addr: into, len: 64, lkey: into_key }];
        simulation.post_recv(1, *qpn, &RecvRequest { wr_id: 2 << 40, sges: &sges }).expect("an empty queue");
    }
    let limit = simulation.now() + Duration::from_ms(50);
    let mut ends = [0; 2];
    while ends != [storms; 2] && simulation.now() < limit {
        let next = simulation.now() + Duration::from_us(10);
        simulation.advance(next);
        for (host, count) in ends.iter_mut().enumerate() {
            while let Some((_, completion)) = simulation.poll(host as u32) {
                assert_eq!(completion.status, WcStatus::Success);
                *count += 1;
            }
        }
    }
    assert_eq!(ends, [storms; 2], "Sends and receives that ended");
    (took, finish(simulation).falcon.expect("it is Falcon").rnr_nacks)
}

/// F-39: queue pairs whose receiver is not ready, again and again, slow no other.
#[test]
fn f39_receivers_that_are_not_ready_slow_no_other() {
    let (alone, none) = beside_the_unready(0);
    let (beside, refusals) = beside_the_unready(256);
    println!("{alone} us alone, {beside} beside receivers that were not ready {refusals} times");
    assert!(none == 0 && refusals > 500, "not ready {refusals} times, {none} without");
    assert!(beside * 100 < alone * 105, "{beside} us, {alone} alone");
}
