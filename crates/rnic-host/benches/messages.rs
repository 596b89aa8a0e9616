//! Messages between NICs on this machine's sockets, and the time to reach memory of different kinds (S-R3): `cargo
//! bench -p rnic-host --bench messages [-- ROUNDS]`.
//!
//! Each thread sends messages of 128 bytes to a socket of its own and receives them there: with headers and checksum as
//! NICs exchange them, and as bytes that are not read, which is the floor. The paper's threads send and receive packets
//! of 100 bytes. Beside them: a read of memory that is in the nearest cache; half of the time in which two threads
//! answer each other through memory that both use; and the same through sockets. Each number of a round is the median
//! of many short parts, and messages and bytes take turns, so that other programs disturb both alike or neither; each
//! result is the median over rounds.

#[path = "common/figures.rs"]
mod figures;

use std::hint::{black_box, spin_loop};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rnic_base::Psn32;
use rnic_host::baseline::{self, OnProcessor};
use rnic_wire::Qpn;
use rnic_wire::net::Addresses;
use rnic_wire::scr::{Body, Cookie, MESSAGE_LEN, Message, ProbePath, is_message};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const RUN_TIME: Duration = Duration::from_millis(500);
/// Messages that are sent before they are received; a socket's buffer has space for more.
const BATCH: u32 = 32;
/// Parts of a measurement of memory.
const PARTS: usize = 50;

fn main() {
    let Some(rounds) = figures::rounds(5) else { return };
    let mut figures = figures::Figures::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        run_round(&mut figures);
    }
    figures.print();
}

fn run_round(figures: &mut figures::Figures) {
    for threads in [1, 2] {
        let [floor, ours] = rates(threads);
        let of = if threads == 1 { "1 thread" } else { "2 threads" };
        figures.add(&format!("{of}: bytes, million/s a thread"), floor / f64::from(threads) / 1e6);
        figures.add(&format!("{of}: messages, million/s a thread"), ours / f64::from(threads) / 1e6);
        figures.add(&format!("{of}: messages / bytes"), ours / floor);
    }
    let (cache, memory) = (cache_ns(), shared_memory_ns());
    let socket = baseline::udp_ping_pong(LOOPBACK, MESSAGE_LEN, 50_000).expect("loopback works");
    let socket = socket.value_at_quantile(0.5) as f64;
    figures.add("read of the nearest cache, ns", cache);
    figures.add("shared memory, one way, ns", memory);
    figures.add("socket, one way, ns", socket);
    figures.add("shared memory / cache", memory / cache);
    figures.add("socket / shared memory", socket / memory);
}

/// Returns the messages per second of `threads` together: without headers and checksums, and with them.
fn rates(threads: u32) -> [f64; 2] {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || Exchange::new(number).rates())).collect();
        let rates = threads.into_iter().map(|thread| thread.join().expect("the thread has not panicked"));
        rates.fold([0.0; 2], |sum, rates| [sum[0] + rates[0], sum[1] + rates[1]])
    })
}

/// A thread's two sockets, on a processor of its own.
struct Exchange {
    from: UdpSocket,
    to: UdpSocket,
    addresses: Addresses,
    message: Message,
    _stays: OnProcessor,
}

impl Exchange {
    fn new(number: u32) -> Self {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind((LOOPBACK, 0)).expect("a free port"));
        from.connect(to.local_addr().expect("it is bound")).expect("loopback");
        let [source, destination] = [&from, &to].map(|socket| socket.local_addr().expect("it is bound"));
        let message = Message {
            dest_qpn: Qpn::new(17),
            source_qpn: Qpn::new(18),
            cookie: Cookie::new(0x0123_4567_89ab_cdef),
            announced: None,
            answer_wanted: true,
            is_last: false,
            sequence: Psn32::new(0),
            time: 0,
            body: Body::Probe(ProbePath { index: 0, label: 0xc001 }),
        };
        let addresses = Addresses::new(source, destination).expect("one family");
        Self { from, to, addresses, message, _stays: OnProcessor::nth(number as usize) }
    }

    /// Returns the messages per second without headers and checksums, and with them.
    fn rates(&mut self) -> [f64; 2] {
        let (started, mut seconds) = (Instant::now(), [Vec::new(), Vec::new()]);
        while started.elapsed() < RUN_TIME {
            for (seconds, encoded) in seconds.iter_mut().zip([false, true]) {
                let batch = Instant::now();
                self.batch(encoded);
                seconds.push(batch.elapsed().as_secs_f64());
            }
        }
        seconds.map(|seconds| f64::from(BATCH) / median(seconds))
    }

    /// Sends and receives some messages.
    fn batch(&mut self, encoded: bool) {
        let (mut bytes, mut received) = ([0u8; MESSAGE_LEN], [0u8; 2 * MESSAGE_LEN]);
        for _ in 0..BATCH {
            if encoded {
                self.message.sequence = self.message.sequence.plus(1);
                self.message.time += 1;
                bytes = self.message.encode(&self.addresses).expect("a legal message");
            }
            self.from.send(&bytes).expect("loopback");
        }
        for _ in 0..BATCH {
            let len = self.to.recv(&mut received).expect("loopback loses no datagram");
            if encoded {
                assert!(is_message(&received[..len]));
                black_box(Message::parse_verified(&received[..len], &self.addresses).expect("a message was sent"));
            }
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the nanoseconds of a read that depends on the one before, in 16 KiB.
fn cache_ns() -> f64 {
    const WORDS: usize = (16 << 10) / size_of::<usize>();
    const READS: u32 = 200_000;
    // 73 words are another cache line each time, and all words are visited.
    let next: Vec<usize> = (0..WORDS).map(|index| (index + 73) % WORDS).collect();
    let _stays = OnProcessor::nth(0);
    let mut at = 0;
    let part = |_| {
        let started = Instant::now();
        for _ in 0..READS {
            at = next[at];
        }
        black_box(at);
        started.elapsed().as_secs_f64() * 1e9 / f64::from(READS)
    };
    median((0..PARTS).map(part).collect())
}

/// Returns half of the nanoseconds in which two threads on two processors answer each other through a word of memory.
fn shared_memory_ns() -> f64 {
    const TURNS: u64 = 2_000;
    let word = AtomicU64::new(0);
    let wait = |value: u64| {
        while word.load(Ordering::Acquire) != value {
            spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stays = OnProcessor::nth(1);
            for turn in 0..TURNS * PARTS as u64 {
                wait(2 * turn + 1);
                word.store(2 * turn + 2, Ordering::Release);
            }
        });
        let _stays = OnProcessor::nth(0);
        let part = |part: u64| {
            let started = Instant::now();
            for turn in part * TURNS..(part + 1) * TURNS {
                word.store(2 * turn + 1, Ordering::Release);
                wait(2 * turn + 2);
            }
            started.elapsed().as_secs_f64() * 1e9 / (2 * TURNS) as f64
        };
        median((0..PARTS as u64).map(part).collect())
    })
}
