//! Streams of bytes between two NICs: Tonic's section 5 and appendix D over real sockets.

mod common;
#[path = "stream/harness.rs"]
mod harness;
#[path = "stream/hostile.rs"]
mod hostile;

use std::time::{Duration, Instant};

use harness::{End, Pair, TEST_TIMEOUT, transfer};
use rnic_base::Probability;
use rnic_host::Impairment;
use rnic_host::stream::{Broken, StreamConfig, StreamError};

fn lossy() -> Impairment {
    Impairment { loss: Probability::ratio(1, 100), ..Impairment::default() }
}

#[test]
fn t26_a_million_random_bytes_arrive_both_ways_at_one_percent_loss() {
    for (transport, segment_bytes) in [("tonic-new-reno", 4_096), ("tonic-new-reno", 1_024), ("tonic-irn", 128)] {
        let config = |config: StreamConfig| StreamConfig { segment_bytes, ..config };
        let mut pair = Pair::connected(transport, lossy(), config);
        assert_eq!(pair.left.streams.segment_bytes(pair.from), Some(segment_bytes), "on {transport}");
        // Of 2,500 segments one is lost in all runs but one of 10^10.
        let bytes = (2_500 * u64::from(segment_bytes)).max(1_000_000);
        transfer(&mut pair, [bytes, bytes], 7);
        for end in [&pair.left, &pair.right] {
            assert!(end.nic.engine_stats().packets_retransmitted > 0, "{transport}: no packet was lost");
            assert_eq!(end.nic.engine_stats().rnr_naks_sent, 0, "{transport}: a message found no receive");
        }
    }
}

#[test]
fn t26_either_end_can_end_its_direction_first() {
    for sizes in [[0, 300_000], [300_000, 0], [0, 0], [1, 1]] {
        let mut pair = Pair::connected("tonic-new-reno", Impairment::default(), |config| config);
        transfer(&mut pair, sizes, 3);
        assert!(pair.left.streams.is_over(pair.from) && pair.right.streams.is_over(pair.to));
        // The other end has closed the connection: that is no error after the end of both directions.
        pair.left.streams.close(&mut pair.left.nic, pair.from);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            pair.progress();
        }
        assert_eq!(pair.right.streams.broken(pair.to), None);
        pair.right.streams.close(&mut pair.right.nic, pair.to);
        assert!(pair.right.streams.is_empty());
    }
}

#[test]
fn t26_a_reader_that_waits_stops_the_writer_without_loss() {
    let mut pair = Pair::connected("tonic-new-reno", Impairment::default(), |config| config);
    let data = vec![7; 1 << 20];
    let start = Instant::now();
    let mut written = 0;
    while start.elapsed() < Duration::from_millis(100) {
        written += pair.left.streams.write(&mut pair.left.nic, pair.from, &data[written..]).expect("it is open");
        pair.progress();
    }
    // One window of receives is full, and one buffer of bytes to send.
    assert_eq!(pair.right.streams.buffered_bytes(pair.to), 256 << 10);
    assert_eq!((written, pair.left.streams.space(pair.from)), (512 << 10, 0));
    assert_eq!(pair.right.nic.engine_stats().rnr_naks_sent, 0, "a message found no receive");
    let mut read = 0;
    let mut buffer = vec![0; 10_000];
    while read < written {
        read += pair.right.streams.read(&mut pair.right.nic, pair.to, &mut buffer).expect("it is open");
        pair.progress();
        assert!(start.elapsed() < TEST_TIMEOUT, "{read} of {written} bytes arrived");
    }
}

/// The flow beyond the last id works, in software, whichever end has no id left; so does one after an id is free again.
#[test]
fn t26_flows_beyond_the_ids_of_either_end_work_in_software_and_are_counted() {
    for (ids_left, ids_right) in [(1, 8), (8, 1)] {
        let end = |flows| End::open("tonic-new-reno", Impairment::default(), |config| StreamConfig { flows, ..config });
        let mut pair = Pair::between(end(ids_left), end(ids_right));
        assert_eq!(pair.left.streams.transport(pair.from), Some("tonic-new-reno"));
        let first = (pair.from, pair.to);
        pair.connect();
        assert_eq!(pair.left.streams.transport(pair.from), Some("tcp"));
        assert_eq!(pair.right.streams.transport(pair.to), Some("tcp"));
        transfer(&mut pair, [100_000, 100_000], 5);
        for end in [&pair.left, &pair.right] {
            let stats = end.nic.stats();
            assert_eq!((stats.streams_opened, stats.streams_in_software), (2, 1));
        }
        pair.left.streams.close(&mut pair.left.nic, first.0);
        pair.right.streams.close(&mut pair.right.nic, first.1);
        pair.connect();
        assert_eq!(pair.left.streams.transport(pair.from), Some("tonic-new-reno"));
    }
}

/// The process at the other end is killed: the end that sends, and the end that only waits, see an error in bounded
/// time.
#[test]
fn t26_a_killed_peer_is_an_error_in_bounded_time() {
    for is_sending in [true, false] {
        let quick = |config| StreamConfig {
            peer_timeout: rnic_base::Duration::from_ms(500),
            probe_after: rnic_base::Duration::from_ms(200),
            ..config
        };
        let pair = Pair::connected("tonic-new-reno", Impairment::default(), quick);
        let Pair { mut left, right, from, .. } = pair;
        right.kill();
        let start = Instant::now();
        if is_sending {
            left.streams.write(&mut left.nic, from, b"data").expect("it is open");
        }
        while left.streams.broken(from).is_none() {
            left.progress();
            assert!(start.elapsed() < Duration::from_secs(10), "no error after {:?}", start.elapsed());
        }
        let broken = left.streams.broken(from).expect("it ended");
        assert!(matches!(broken, Broken::Undelivered { .. } | Broken::Reset(_)), "{broken}");
        let error = left.streams.write(&mut left.nic, from, b"more").expect_err("it has ended");
        assert!(matches!(error, StreamError::Broken(_)), "{error}");
        left.streams.close(&mut left.nic, from);
        assert!(left.streams.is_empty());
    }
}

#[test]
fn t26_a_stream_that_is_closed_before_its_end_is_an_error_at_the_other_end() {
    let mut pair = Pair::connected("tonic-new-reno", Impairment::default(), |config| config);
    pair.left.streams.close(&mut pair.left.nic, pair.from);
    let start = Instant::now();
    while pair.right.streams.broken(pair.to).is_none() {
        pair.progress();
        assert!(start.elapsed() < TEST_TIMEOUT);
    }
    let peer = pair.left.nic.local_addr();
    assert_eq!(pair.right.streams.broken(pair.to), Some(Broken::Reset(peer)));
}

/// The process at the other end exits after the end of its data: what has arrived can be read, and only a write is an
/// error.
#[test]
fn t26_a_peer_that_closes_after_its_end_is_an_error_only_for_later_writes() {
    for is_writing in [false, true] {
        let mut pair = Pair::connected("tonic-new-reno", Impairment::default(), |config| config);
        pair.left.streams.write(&mut pair.left.nic, pair.from, b"last words").expect("it is open");
        pair.left.streams.finish(&mut pair.left.nic, pair.from);
        let start = Instant::now();
        while pair.left.streams.undelivered_bytes(pair.from) > 0 || pair.right.streams.buffered_bytes(pair.to) < 10 {
            pair.progress();
            assert!(start.elapsed() < TEST_TIMEOUT);
        }
        pair.left.streams.close(&mut pair.left.nic, pair.from);
        while start.elapsed() < Duration::from_millis(50) {
            pair.progress();
        }
        let mut buffer = [0; 100];
        assert_eq!(pair.right.streams.read(&mut pair.right.nic, pair.to, &mut buffer).expect("data is left"), 10);
        assert!(pair.right.streams.is_at_end(pair.to));
        if is_writing {
            pair.right.streams.write(&mut pair.right.nic, pair.to, b"answer").expect_err("the peer is gone");
        } else {
            pair.right.streams.finish(&mut pair.right.nic, pair.to);
            assert!(pair.right.streams.is_over(pair.to));
        }
        assert_eq!(pair.right.streams.broken(pair.to).is_some(), is_writing);
    }
}
