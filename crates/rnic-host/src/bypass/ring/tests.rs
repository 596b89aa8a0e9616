//! A ring between two ends of one process, and a writer or reader that lies.

use std::mem::ManuallyDrop;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use rnic_base::RandomStreams;

/// Far longer than a bell takes to be heard.
const PATIENCE: Duration = Duration::from_secs(20);

fn ring() -> (Producer, Consumer) {
    let producer = Producer::create().expect("memory");
    let consumer = Consumer::attach(producer.file()).expect("our own memory");
    assert_eq!(producer.state(), State::Attached);
    (producer, consumer)
}

/// The same for Miri too, which knows neither `memfd` nor two mappings of one piece of memory: both ends have one
/// mapping, and never give it back.
fn ring_anywhere() -> (ManuallyDrop<Producer>, ManuallyDrop<Consumer>) {
    if !cfg!(miri) {
        let (producer, consumer) = ring();
        return (ManuallyDrop::new(producer), ManuallyDrop::new(consumer));
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping touches nothing that exists.
    let start = unsafe { libc::mmap(ptr::null_mut(), FILE_BYTES, protection, flags, -1, 0) };
    let start = NonNull::new(start.cast::<u8>()).expect("memory");
    let file = std::fs::File::open("/dev/null").expect("it is there").into();
    let producer = Producer { shared: Shared(start), file, head: 0, published: 0, tail: 0 };
    let consumer = Consumer { shared: Shared(start), tail: 0, released: 0, head: 0 };
    (ManuallyDrop::new(producer), ManuallyDrop::new(consumer))
}

fn packet(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

fn push(producer: &mut Producer, bytes: &[u8]) -> bool {
    match producer.begin(bytes.len(), Kind::default()).expect("the reader is honest") {
        Some(mut writer) => {
            let (first, second) = bytes.split_at(bytes.len() / 3);
            writer.put(first);
            writer.put(second);
            true
        }
        None => false,
    }
}

#[test]
fn packets_of_all_lengths_come_out_as_they_went_in() {
    let (mut producer, mut consumer) = ring();
    let mut random = RandomStreams::new(3).stream("lengths");
    let (mut sent, mut received) = (0, 0);
    let mut lengths = std::collections::VecDeque::new();
    while received < 3_000 {
        let len = if random.below(10) == 0 { random.below(65_000) } else { random.below(300) } as usize;
        if random.below(3) > 0 && push(&mut producer, &packet(sent, len)) {
            lengths.push_back(len);
            sent += 1;
            continue;
        }
        producer.publish();
        for _ in 0..random.below(8) {
            let Some(record) = consumer.next().expect("the writer is honest") else { break };
            let len = lengths.pop_front().expect("no more than went in");
            assert_eq!(record.kind, Kind::default());
            assert!(record.bytes.to_vec() == packet(received, len), "packet {received} of {len} bytes");
            received += 1;
        }
        consumer.release();
    }
    assert!(sent >= received);
}

#[test]
fn what_is_said_of_a_packet_comes_out_with_it() {
    let (mut producer, mut consumer) = ring();
    let markings = [Marking::NONE, Marking::new(0xff, 255, 0xf_ffff), Marking::new(1, 65, 1)];
    let kinds = [false, true].into_iter().flat_map(|is_sealed| markings.map(|marking| Kind { is_sealed, marking }));
    for kind in kinds {
        producer.begin(3, kind).expect("the reader is honest").expect("room").put(b"abc");
        producer.publish();
        let record = consumer.next().expect("the writer is honest").expect("a record");
        assert_eq!((record.kind, &record.bytes.to_vec()[..]), (kind, &b"abc"[..]));
    }
}

#[test]
fn a_full_ring_takes_no_more_until_something_is_released() {
    let (mut producer, mut consumer) = ring();
    let bytes = packet(1, 8_000);
    let mut pushed = 0;
    while push(&mut producer, &bytes) {
        pushed += 1;
    }
    assert_eq!(pushed, DATA_BYTES / record_bytes(8_000));
    assert!(consumer.next().expect("honest").is_none(), "nothing has been published");
    producer.publish();
    assert!(consumer.next().expect("honest").is_some());
    assert!(!push(&mut producer, &bytes), "read, but not released");
    consumer.release();
    // What is left at the end is too short, so the record begins anew at the front, which one release makes room for.
    let _ = consumer.next().expect("honest");
    consumer.release();
    assert!(push(&mut producer, &bytes));
}

#[test]
fn a_reader_that_sleeps_is_woken_once() {
    let (mut producer, consumer) = ring();
    assert!(!producer.must_wake());
    consumer.set_sleeping(true);
    assert!(consumer.is_empty());
    push(&mut producer, &[1, 2, 3]);
    producer.publish();
    assert!(!consumer.is_empty());
    assert!(producer.must_wake());
    assert!(!producer.must_wake());
    drop(consumer);
    assert_eq!(producer.state(), State::Closed);
}

/// A reader and a writer on two threads: the reader sleeps whenever there is nothing, as `Bypass::fall_asleep` does.
/// Under Miri (`make sanitize`), which lets each thread see old values as long as the memory model allows it, a fence
/// or an ordering too few is a race, a wrong byte, or a reader that sleeps for ever.
#[test]
fn a_reader_on_another_thread_gets_every_byte_and_misses_no_bell() {
    let (count, len) = if cfg!(miri) { (24, 60_000) } else { (50_000, 6_000) };
    let (mut producer, mut consumer) = ring_anywhere();
    let reader = thread::spawn(move || {
        let mut slept = 0;
        for number in 0..count {
            loop {
                if let Some(record) = consumer.next().expect("the writer is honest") {
                    assert!(record.bytes.to_vec() == vec![number as u8; len], "packet {number}");
                    consumer.release();
                    break;
                }
                consumer.set_sleeping(true);
                fence(Ordering::SeqCst);
                if consumer.is_empty() {
                    let start = Instant::now();
                    thread::park_timeout(PATIENCE);
                    assert!(start.elapsed() < PATIENCE, "packet {number} was there, and no bell rang");
                    slept += 1;
                }
            }
        }
        (consumer, slept)
    });
    for number in 0..count {
        while !push(&mut producer, &vec![number as u8; len]) {
            thread::yield_now();
        }
        producer.publish();
        if !cfg!(miri) && number % 10_000 == 0 {
            // Now the reader goes to sleep, and was told of everything.
            thread::sleep(Duration::from_millis(1));
        }
        if producer.must_wake() {
            reader.thread().unpark();
        }
    }
    let (consumer, slept) = reader.join().expect("every packet was right");
    assert!(cfg!(miri) || slept > 0, "the reader has never slept");
    assert!(producer.is_drained());
    if !cfg!(miri) {
        drop((ManuallyDrop::into_inner(producer), ManuallyDrop::into_inner(consumer)));
    }
}

#[test]
fn a_writer_that_lies_is_found_out() {
    let lies: [(&str, u64, u64); 8] = [
        ("a head behind the tail", u64::MAX - 63, 8),
        ("more than the ring holds", DATA_BYTES as u64 + 64, 8),
        ("a head that is no record's end", 65, 8),
        ("a record longer than what is there", 64, 60),
        ("a record longer than any packet", 1 << 19, PACKET_BYTES_MAX as u64 + 1),
        ("a record as long as can be said", 64, LEN_MASK),
        ("a record of an unknown kind", 64, 1 << 22 | 8),
        ("a skip beyond what is there", 64, SKIP),
    ];
    for (lie, head, header) in lies {
        let (producer, mut consumer) = ring();
        producer.shared.word64(DATA_AT).store(header, Ordering::Relaxed);
        producer.shared.word64(HEAD_AT).store(head, Ordering::Release);
        assert!(consumer.next().is_err(), "{lie}");
    }
}

#[test]
fn a_reader_that_lies_is_found_out() {
    for tail in [64_u64, u64::MAX, DATA_BYTES as u64] {
        let (mut producer, consumer) = ring();
        // Published: one short record. Everything else is not read by any honest reader.
        push(&mut producer, &[7; 8]);
        producer.publish();
        while producer.begin(60_000, Kind::default()).is_ok_and(|writer| writer.is_some()) {}
        consumer.shared.word64(TAIL_AT).store(tail.wrapping_add(64), Ordering::Release);
        assert_eq!(
            producer.begin(60_000, Kind::default()).map(|writer| writer.is_some()),
            Err(Broken),
            "tail {tail:#x}"
        );
    }
}

#[test]
fn noise_in_the_ring_never_leads_out_of_it() {
    let mut random = RandomStreams::new(9).stream("noise");
    for _ in 0..200 {
        let (producer, mut consumer) = ring();
        for at in (0..DATA_BYTES).step_by(CACHE_LINE) {
            // Mostly short and legal, so that the reader gets around.
            let header = match random.below(20) {
                0 => random.bits(),
                1 => SKIP,
                2 => random.below(70_000) | SEALED,
                _ => random.below(500),
            };
            producer.shared.word64(DATA_AT + at).store(header, Ordering::Relaxed);
        }
        producer.shared.word64(HEAD_AT).store(random.below(DATA_BYTES as u64) & !63, Ordering::Release);
        let mut read = 0;
        while let Ok(Some(record)) = consumer.next() {
            assert!(record.bytes.len() <= PACKET_BYTES_MAX);
            let _ = record.bytes.to_vec();
            read += 1;
        }
        assert!(read <= DATA_BYTES / CACHE_LINE);
    }
}

#[test]
fn only_sealed_memory_of_the_right_size_is_read() {
    let small = unix::sealed_memory(c"small", 4_096).expect("memory");
    assert!(Consumer::attach(small.as_fd()).is_err());
    let file = std::fs::File::open("/dev/null").expect("it is there");
    assert!(Consumer::attach(file.as_fd()).is_err());
    let right = unix::sealed_memory(c"right", FILE_BYTES).expect("memory");
    assert!(Consumer::attach(right.as_fd()).is_ok());
    let right = std::fs::File::from(right);
    assert!(right.set_len(0).is_err(), "nobody can shrink it under us");
}
