//! Tests: a ring whose ends are in one process, and writers or readers that violate the protocol.

use std::mem::ManuallyDrop;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use rnic_base::RandomStreams;

/// Time after which a wake-up is considered lost: much longer than one takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn ring() -> (Producer, Consumer) {
    let producer = Producer::create().expect("memory");
    let consumer = Consumer::attach(producer.file()).expect("NIC memory is mapped");
    assert_eq!(producer.state(), State::Attached);
    (producer, consumer)
}

/// Same as `ring`, but also works under Miri, which supports neither `memfd` nor two mappings of the same memory:
/// there, both ends use one mapping, which is never unmapped.
fn ring_anywhere() -> (ManuallyDrop<Producer>, ManuallyDrop<Consumer>) {
    if !cfg!(miri) {
        let (producer, consumer) = ring();
        return (ManuallyDrop::new(producer), ManuallyDrop::new(consumer));
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping does not affect any existing memory.
    let start = unsafe { libc::mmap(ptr::null_mut(), FILE_BYTES, protection, flags, -1, 0) };
    let start = NonNull::new(start.cast::<u8>()).expect("memory");
    let file = std::fs::File::open("/dev/null").expect("/dev/null exists").into();
    let producer = Producer { shared: Shared(start), file, head: 0, published: 0, tail: 0, stamps: false };
    let consumer = Consumer { shared: Shared(start), tail: 0, released: 0, head: 0 };
    (ManuallyDrop::new(producer), ManuallyDrop::new(consumer))
}

fn packet(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

fn push(producer: &mut Producer, bytes: &[u8]) -> bool {
    match producer.begin(bytes.len(), RecordKind::default()).expect("the reader's values are valid") {
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
fn packets_of_all_lengths_pass_unchanged() {
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
            let Some(record) = consumer.next().expect("the writer's values are valid") else { break };
            let len = lengths.pop_front().expect("the output is not longer than the input");
            assert_eq!(record.kind, RecordKind::default());
            assert!(record.bytes.to_vec() == packet(received, len), "packet {received} of {len} bytes");
            received += 1;
        }
        consumer.release();
    }
    assert!(sent >= received);
}

#[test]
fn the_kind_of_a_packet_is_preserved() {
    let (mut producer, mut consumer) = ring();
    let ip_fields = [PackedIpFields::NONE, PackedIpFields::new(0xff, 255, 0xf_ffff), PackedIpFields::new(1, 65, 1)];
    let kinds =
        [false, true].into_iter().flat_map(|is_sealed| ip_fields.map(|ip_fields| RecordKind { is_sealed, ip_fields }));
    for kind in kinds {
        producer.begin(3, kind).expect("the reader's values are valid").expect("the ring has space").put(b"abc");
        producer.publish();
        let record = consumer.next().expect("the writer's values are valid").expect("a record");
        assert_eq!((record.kind, &record.bytes.to_vec()[..]), (kind, &b"abc"[..]));
    }
}

#[test]
fn a_full_ring_rejects_packets_until_space_is_released() {
    let (mut producer, mut consumer) = ring();
    let bytes = packet(1, 8_000);
    let mut pushed = 0;
    while push(&mut producer, &bytes) {
        pushed += 1;
    }
    assert_eq!(pushed, DATA_BYTES / record_bytes(8_000));
    assert!(consumer.next().expect("the ring is valid").is_none(), "an unpublished record was read");
    producer.publish();
    assert!(consumer.next().expect("the ring is valid").is_some());
    assert!(!push(&mut producer, &bytes), "space was reused before its release");
    consumer.release();
    // The remaining space before the end is too short, so the record needs the front of the ring, which is free after
    // one release.
    let _ = consumer.next().expect("the ring is valid");
    consumer.release();
    assert!(push(&mut producer, &bytes));
}

#[test]
fn a_sleeping_reader_is_woken_once() {
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

/// A reader and a writer on two threads: the reader sleeps whenever the ring is empty, in the same way as
/// `Bypass::announce_sleep`. Under Miri (`make sanitize`), which lets each thread read old values as long as the memory
/// model allows it, a missing fence or too weak an ordering would show as a data race, a wrong byte, or a reader that
/// never wakes up.
#[test]
fn a_reader_on_another_thread_gets_every_byte_and_every_wake_up() {
    let (count, len) = if cfg!(miri) { (24, 60_000) } else { (50_000, 6_000) };
    let (mut producer, mut consumer) = ring_anywhere();
    let reader = thread::spawn(move || {
        let mut slept = 0;
        for number in 0..count {
            loop {
                if let Some(record) = consumer.next().expect("the writer's values are valid") {
                    assert!(record.bytes.to_vec() == vec![number as u8; len], "packet {number}");
                    consumer.release();
                    break;
                }
                consumer.set_sleeping(true);
                fence(Ordering::SeqCst);
                if consumer.is_empty() {
                    let start = Instant::now();
                    thread::park_timeout(TEST_TIMEOUT);
                    assert!(start.elapsed() < TEST_TIMEOUT, "packet {number} caused no wake-up");
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
            // Gives the reader time to read all packets and go to sleep.
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
fn invalid_values_of_the_writer_are_detected() {
    let cases: [(&str, u64, u64); 8] = [
        ("a head behind the tail", u64::MAX - 63, 8),
        ("more than the ring holds", DATA_BYTES as u64 + 64, 8),
        ("a head that is no record's end", 65, 8),
        ("a record longer than what is there", 64, 60),
        ("a record longer than any packet", 1 << 19, PACKET_BYTES_MAX as u64 + 1),
        ("a record as long as can be said", 64, LEN_MASK),
        ("a record of an unknown kind", 64, 1 << 22 | 8),
        ("a skip beyond what is there", 64, SKIP),
    ];
    for (case, head, header) in cases {
        let (producer, mut consumer) = ring();
        producer.shared.word64(DATA_AT).store(header, Ordering::Relaxed);
        producer.shared.word64(HEAD_AT).store(head, Ordering::Release);
        assert!(consumer.next().is_err(), "{case}");
    }
}

#[test]
fn invalid_values_of_the_reader_are_detected() {
    for tail in [64_u64, u64::MAX, DATA_BYTES as u64] {
        let (mut producer, consumer) = ring();
        // Only one short record is published; a correct reader reads no further.
        push(&mut producer, &[7; 8]);
        producer.publish();
        while producer.begin(60_000, RecordKind::default()).is_ok_and(|writer| writer.is_some()) {}
        consumer.shared.word64(TAIL_AT).store(tail.wrapping_add(64), Ordering::Release);
        assert_eq!(
            producer.begin(60_000, RecordKind::default()).map(|writer| writer.is_some()),
            Err(Broken),
            "tail {tail:#x}"
        );
    }
}

#[test]
fn random_ring_contents_never_cause_access_outside_the_ring() {
    let mut random = RandomStreams::new(9).stream("noise");
    for _ in 0..200 {
        let (producer, mut consumer) = ring();
        for at in (0..DATA_BYTES).step_by(CACHE_LINE) {
            // Most records are short and valid, so that the reader advances through the ring.
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
fn only_sealed_memory_of_the_right_size_is_attached() {
    let small = unix::sealed_memory(c"small", 4_096).expect("memory");
    assert!(Consumer::attach(small.as_fd()).is_err());
    let file = std::fs::File::open("/dev/null").expect("/dev/null exists");
    assert!(Consumer::attach(file.as_fd()).is_err());
    let right = unix::sealed_memory(c"right", FILE_BYTES).expect("memory");
    assert!(Consumer::attach(right.as_fd()).is_ok());
    let right = std::fs::File::from(right);
    assert!(right.set_len(0).is_err(), "the sealed memory can be shrunk");
}

/// Returns a ring whose records are stamped.
fn stamped_ring() -> (Producer, Consumer) {
    let (mut producer, consumer) = ring();
    producer.stamp_records();
    (producer, consumer)
}

fn publish(producer: &mut Producer, number: u64) {
    assert!(push(producer, &packet(number, 100)));
    producer.publish();
}

#[test]
fn s9_a_stamp_is_the_time_at_which_its_record_was_published() {
    let (mut producer, mut consumer) = stamped_ring();
    assert_eq!(consumer.take_stamp(true), None, "nothing has been published");
    let before = sys::monotonic_ns();
    publish(&mut producer, 1);
    let after = sys::monotonic_ns();
    publish(&mut producer, 2);
    assert_eq!(consumer.take_stamp(false), None, "the record has not been read");
    let stamp = consumer.take_stamp(true).expect("it is next");
    assert!((before..=after).contains(&stamp), "{before} {stamp} {after}");
    assert_eq!(consumer.take_stamp(true), None, "each stamp is returned once");
    // The second record was published while a stamp waited; the third one is stamped.
    let before = sys::monotonic_ns();
    publish(&mut producer, 3);
    for _ in 0..2 {
        assert_eq!(consumer.take_stamp(true), None, "the third record is not next");
        assert!(consumer.next().expect("valid").is_some());
    }
    assert_eq!(consumer.take_stamp(false), None);
    assert!(consumer.next().expect("valid").is_some());
    assert!(consumer.take_stamp(false).is_some_and(|stamp| stamp >= before), "it has been read");
}

#[test]
fn s9_rings_are_not_stamped_unless_requested() {
    let (mut producer, mut consumer) = ring();
    publish(&mut producer, 1);
    assert!(consumer.next().expect("valid").is_some());
    assert_eq!((consumer.take_stamp(true), producer.shared.word64(STAMP_AT).load(Ordering::Relaxed)), (None, 0));
}

/// The other process writes what it likes: a stamp of a record that never comes is never taken.
#[test]
fn s9_a_stamp_with_a_wrong_position_is_no_measurement() {
    let (mut producer, mut consumer) = stamped_ring();
    producer.shared.word64(STAMP_AT).store(u64::MAX, Ordering::Relaxed);
    producer.shared.word64(STAMPED_AT).store(u64::MAX, Ordering::Relaxed);
    for number in 0..10 {
        publish(&mut producer, number);
        assert!(consumer.next().expect("valid").is_some());
        assert_eq!(consumer.take_stamp(true), None);
    }
}
