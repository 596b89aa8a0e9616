//! The queue of the shared link: rates, waits, reserves, lateness, and nonsense in the page.

use super::*;
use std::time::Instant;

use crate::sys::monotonic_ns;

/// One byte takes 4 ns.
const RATE: BitRate = BitRate::gbps(2);
const START: u64 = 5_000_000_000;
const MS: u64 = 1_000_000;

fn page() -> Page {
    Page::create().expect("memory")
}

/// Adds packets until the link is full; returns their bytes.
fn fill(link: &mut SharedLink, page: &Page, now: u64) -> u64 {
    let mut bytes = 0;
    while !link.is_full() {
        link.enqueue(page, now, 4_000);
        bytes += 4_000;
    }
    bytes
}

#[test]
fn packets_leave_one_after_the_other_at_the_rate() {
    let page = page();
    let [mut a, mut b] = [RATE; 2].map(SharedLink::new);
    assert_eq!(a.enqueue(&page, START, 1_000), START + 4_000);
    assert_eq!(b.enqueue(&page, START, 500), START + 6_000, "another NIC's packet did not queue behind it");
    assert_eq!(a.enqueue(&page, START + 50_000, 1_000), START + 54_000, "idle time was kept");
    let mut slow = SharedLink::new(BitRate::bps(3_000_000_000));
    let page = self::page();
    let last = (0..3_000).map(|_| slow.enqueue(&page, START, 1)).last();
    // A byte takes 8/3 ns, rounded up to a picosecond.
    assert_eq!(last, Some(START + 8_001), "fractions of a nanosecond were lost");
}

#[test]
fn a_full_queue_stops_a_nic_until_a_quarter_is_free() {
    let page = page();
    let mut link = SharedLink::new(RATE);
    let bytes = fill(&mut link, &page, START);
    assert!((262_000..=266_200).contains(&bytes), "{bytes}");
    let until = link.full_until_ns().expect("full");
    assert!(until - START < MS / 2, "{}", until - START);
    link.resume(&page, until - 1);
    assert!(link.is_full());
    link.resume(&page, until);
    assert!(!link.is_full());
    assert_eq!(link.counters(), (1, bytes));
}

#[test]
fn a_nic_with_little_to_send_is_never_stopped() {
    let page = page();
    let [mut bulk, mut small] = [RATE; 2].map(SharedLink::new);
    let (mut now, mut worst) = (START, 0);
    for _ in 0..1_000 {
        bulk.resume(&page, now);
        fill(&mut bulk, &page, now);
        let leaves = small.enqueue(&page, now, 300);
        assert!(!small.is_full(), "a NIC with one packet in the queue was stopped");
        worst = worst.max(leaves - now);
        now = leaves;
    }
    assert!(worst < 2 * MS, "a packet waited {worst} ns");
}

#[test]
fn a_late_nic_makes_up_for_time_that_no_other_nic_has_used() {
    let page = page();
    let [mut late, mut other] = [RATE; 2].map(SharedLink::new);
    let queued = fill(&mut late, &page, START);
    let now = START + 11 * MS;
    late.resume(&page, now);
    let caught_up = fill(&mut late, &page, now);
    // In 11 ms the link carries 2.75 MB, and the queue is full again.
    assert!((3_000_000..3_030_000).contains(&(queued + caught_up)), "{}", queued + caught_up);
    // Time that the other has used, and time before the last 20 ms, is lost.
    let now = now + 10 * MS;
    fill(&mut other, &page, now);
    late.resume(&page, now);
    assert!(fill(&mut late, &page, now) < 300_000);
    let now = now + 1_000 * MS;
    late.resume(&page, now);
    assert!((5_000_000..5_300_000).contains(&fill(&mut late, &page, now)));
    late.note_idle();
    let now = now + 10 * MS;
    late.resume(&page, now);
    late.note_idle();
    assert!(fill(&mut late, &page, now) < 300_000, "idle time was made up for");
}

#[test]
fn a_time_far_ahead_does_not_stop_the_link() {
    let page = page();
    let mut link = SharedLink::new(RATE);
    for forged in [u64::MAX, START + 60_000 * MS] {
        page.paid_until_ns().store(forged, Ordering::Release);
        let leaves = link.enqueue(&page, START, 1_000);
        assert!(leaves < START + 10 * MS, "a packet waits {} ms", (leaves - START) / MS);
    }
    fill(&mut link, &page, START);
    page.paid_until_ns().store(u64::MAX, Ordering::Release);
    link.resume(&page, START + 10 * MS);
    assert!(!link.is_full());
    page.paid_until_ns().store(0, Ordering::Release);
    assert!(link.enqueue(&page, START + 10 * MS, 1_000) <= START + 10 * MS + 4_000);
}

#[test]
fn the_queue_is_at_least_one_and_at_most_four_milliseconds_long() {
    assert_eq!(backlog_ns(BitRate::gbps(2)), 1_048_576);
    assert_eq!(backlog_ns(BitRate::gbps(100)), MS);
    assert_eq!(backlog_ns(BitRate::bps(1_000_000)), 4 * MS);
    let page = page();
    let mut slow = SharedLink::new(BitRate::bps(1_000_000));
    assert_eq!(slow.enqueue(&page, START, 9_000), START + 72 * MS);
    assert!(slow.is_full(), "a NIC may add a second packet to a long queue");
}

#[test]
fn a_wait_is_counted_once_however_often_the_nic_tries_again() {
    let page = page();
    let [mut held, mut other] = [RATE; 2].map(SharedLink::new);
    fill(&mut held, &page, START);
    let mut tries = 0;
    while let Some(until) = held.full_until_ns() {
        assert_eq!(held.counters().0, 1, "after {tries} tries");
        // An acknowledgement is sent nevertheless.
        held.enqueue(&page, until, 100);
        other.resume(&page, until);
        fill(&mut other, &page, until);
        held.resume(&page, until);
        tries += 1;
    }
    assert!(tries > 1, "the other NIC has not kept the queue full");
    fill(&mut held, &page, START + 100 * MS);
    assert_eq!(held.counters().0, 2);
}

#[test]
fn the_reserve_of_a_nic_takes_at_most_a_millisecond_or_one_packet() {
    let reserve = |bps| reserve_bytes(BitRate::bps(bps));
    assert_eq!([reserve(1_000_000), reserve(50_000_000), reserve(2_000_000_000)], [125, 6_250, 16 << 10]);
    let page = page();
    let slow = BitRate::bps(10_000_000);
    let [mut bulk, mut other] = [slow; 2].map(SharedLink::new);
    fill(&mut bulk, &page, START);
    let mut packets = 0;
    while !other.is_full() {
        other.enqueue(&page, START, 1_500);
        packets += 1;
    }
    assert_eq!(packets, 1, "1500 bytes take 1.2 ms");
}

#[test]
fn the_longest_queue_is_limited_whatever_the_page_says() {
    let page = page();
    for bps in [1_000_000, 10_000_000, 2_000_000_000] {
        let link = SharedLink::new(BitRate::bps(bps));
        page.forge_lines_used(0);
        let few = link.longest_ns(&page);
        assert!(few >= 2 * link.backlog_ns, "{few}");
        page.forge_lines_used(u64::MAX);
        let most = link.longest_ns(&page);
        assert!(few <= most && most <= LONGEST_NS_MAX, "{most}");
    }
    page.paid_until_ns().store(START + 2_000 * MS, Ordering::Release);
    let leaves = SharedLink::new(RATE).enqueue(&page, START, 1_000);
    assert!(leaves < START + 100 * MS, "with 4096 NICs a packet waits for {} ms", (leaves - START) / MS);
}

/// Two NICs in two threads: one sends without pause, the other a small packet each time that its last has left.
#[test]
fn two_threads_share_the_rate_and_neither_starves() {
    let page = page();
    let time = std::time::Duration::from_millis(300);
    // Both send in the same time, however late a thread is started.
    let start = Instant::now();
    let sender = |size: u32, wants_all: bool| {
        let (mut link, mut sent, mut packets) = (SharedLink::new(RATE), 0u64, 0u64);
        let mut leaves = 0;
        while start.elapsed() < time {
            let now = monotonic_ns();
            link.resume(&page, now);
            if !link.is_full() && (wants_all || now >= leaves) {
                leaves = link.enqueue(&page, now, size);
                (sent, packets) = (sent + u64::from(size), packets + 1);
            } else {
                std::thread::yield_now();
            }
        }
        (sent, packets)
    };
    let ((bulk, _), (small, packets)) = std::thread::scope(|scope| {
        let small = scope.spawn(|| sender(300, false));
        (sender(4_000, true), small.join().expect("no panic"))
    });
    let most = RATE.bytes_in(Duration::from_ms(300 + 21 + 2));
    assert!(bulk + small <= most, "{bulk} and {small} bytes are more than {most}");
    // At most 1.1 ms of queue per packet, and the scheduling delays of a busy machine.
    assert!(packets >= 3, "the small sender sent {packets} packets in 300 ms");
}
