//! Many queue pairs, little buffer space: the receive window depends on the socket buffer, so many queue pairs
//! together do not overrun a peer.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rnic_base::Duration;
use rnic_host::perf::{Length, Op, PerfConfig, PerfReport, ServeConfig, measure, serve};
use rnic_host::{Nic, NicConfig};

const ALL: [&str; 3] = ["irn", "roce-gbn", "falcon"];
const QPS: u32 = 64;
/// Operations of each queue pair.
const OPS: u64 = 12;

fn open(name: &str, receive_buffer_bytes: usize) -> Nic {
    let bind = "127.0.0.1:0".parse().expect("an address");
    let config = NicConfig { name: name.to_owned(), receive_buffer_bytes, ..NicConfig::at(bind) };
    Nic::open(config).expect("a free port")
}

/// A serving NIC with a receive buffer of its own size, on a thread of its own.
fn start_server(receive_buffer_bytes: usize) -> (SocketAddr, Arc<AtomicBool>, JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = std::sync::mpsc::channel();
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut nic = open("server", receive_buffer_bytes);
        sender.send(nic.local_addr()).expect("the test waits");
        serve(&mut nic, &ServeConfig::default(), || !stopped.load(Ordering::Relaxed), |_| {}).expect("it can listen");
    });
    (receiver.recv().expect("it has opened its NIC"), stop, thread)
}

fn crowd(transport: &str, op: Op, receive_buffer_bytes: usize) -> PerfReport {
    let (address, stop, thread) = start_server(receive_buffer_bytes);
    let config = PerfConfig {
        transport: transport.to_owned(),
        op,
        size_bytes: 20_000,
        qps: QPS,
        depth: 4,
        length: Length::Count(OPS),
        verify: true,
        timeout: Duration::from_secs(20),
        ..PerfConfig::default()
    };
    let report = measure(&mut open("client", receive_buffer_bytes), address, &config).expect("the server serves");
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("the thread has not panicked");
    report
}

/// 64 queue pairs have 256 operations of 5 packets in flight at the same time, which is thirty times the capacity of
/// the smaller buffer. If the window did not depend on the buffer, most packets would be dropped and retransmitted
/// (half to three quarters would be repeats); as it does, only packets that a busy machine delays are.
#[test]
fn sixty_four_queue_pairs_share_a_small_buffer_without_collapse() {
    for receive_buffer_bytes in [64 << 10, 212_992] {
        for transport in ALL {
            for op in [Op::Write, Op::Send, Op::Read] {
                let report = crowd(transport, op, receive_buffer_bytes);
                assert!(report.verified, "{receive_buffer_bytes} bytes: {report:?}");
                assert_eq!(report.ops, u64::from(QPS) * OPS);
                assert!(
                    report.packets_retransmitted * 3 <= report.packets_sent,
                    "{transport} {op:?} with {receive_buffer_bytes} bytes collapses: {} of {} packets are repeats",
                    report.packets_retransmitted,
                    report.packets_sent
                );
            }
        }
    }
}

#[test]
fn the_receive_window_follows_the_granted_buffer() {
    let window = |bytes| open("nic", bytes).receive_window(4_096);
    let (small, usual, large) = (window(64 << 10), window(212_992), window(2 << 20));
    assert!(small < usual, "{small}, {usual}");
    // Many machines grant no more than the default size, and then the window is the default one too.
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").expect("the kernel has the setting");
    let grants_more = most.trim().parse::<usize>().expect("a number") > 212_992;
    assert!(if grants_more { usual < large } else { usual == large }, "{usual}, {large}, rmem_max {most}");
    // Linux doubles the requested size, and accounts for a packet of 4 KB with more than 8 KB.
    assert!((30..=45).contains(&usual), "{usual}");
}
