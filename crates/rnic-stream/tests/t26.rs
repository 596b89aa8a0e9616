//! The stream layer over an ordered path with a delay.

use std::collections::VecDeque;

use rnic_base::{Duration, RandomStream, RandomStreams, Time};
use rnic_stream::{Flows, Place, Segment, Sender, State, StreamConfig};

/// A sender, a path in order, and what has arrived.
struct Path {
    sender: Sender,
    delay: Duration,
    now: Time,
    source: Vec<u8>,
    received: Vec<u8>,
    /// Times of arrival, then of acknowledgement one more delay later.
    data: VecDeque<(Time, Segment)>,
    acks: VecDeque<(Time, u64)>,
    arrivals: Vec<(Time, Segment)>,
    size: u32,
}

impl Path {
    fn new(config: StreamConfig, source: Vec<u8>) -> Self {
        Self {
            sender: Sender::new(config).expect("legal settings"),
            delay: Duration::from_us(20),
            now: Time::ZERO,
            source,
            received: Vec::new(),
            data: VecDeque::new(),
            acks: VecDeque::new(),
            arrivals: Vec::new(),
            size: config.segment_bytes,
        }
    }

    /// Sends what can be sent, and checks the sizes of what is outstanding.
    fn flush(&mut self) {
        while let Some(segment) = self.sender.poll(self.now) {
            assert!(segment.bytes == self.size || segment.is_sub, "{segment:?} instead of {}", self.size);
            self.data.push_back((self.now + self.delay, segment));
            let ends = self.data.iter().map(|(_, segment)| segment.bytes).rev();
            assert!(ends.skip(1).all(|bytes| bytes == self.size), "two sizes in flight before the last");
        }
    }

    fn next(&self) -> Option<Time> {
        let data = self.data.front().map(|(at, _)| *at);
        let ack = self.acks.front().map(|(at, _)| *at);
        [data, ack, self.sender.next_at()].into_iter().flatten().min()
    }

    /// Runs up to `end`.
    fn run(&mut self, end: Time) {
        self.flush();
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            while let Some((_, segment)) = self.data.pop_front_if(|(due, _)| *due <= at) {
                let from = segment.at as usize;
                self.received.extend(&self.source[from..from + segment.bytes as usize]);
                self.arrivals.push((self.now, segment));
                if segment.reports {
                    self.acks.push_back((self.now + self.delay, segment.at + u64::from(segment.bytes)));
                }
            }
            while let Some((_, to)) = self.acks.pop_front_if(|(due, _)| *due <= at) {
                self.sender.acknowledge(to).expect("it was sent");
            }
            self.flush();
        }
        self.now = end;
    }

    /// Runs until everything is delivered.
    fn finish(&mut self) {
        self.sender.finish();
        self.run(self.now + Duration::from_secs(100));
    }
}

fn bytes(random: &mut RandomStream, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.bits() as u8).collect()
}

fn settings(segment_bytes: u32, hold: Duration) -> StreamConfig {
    StreamConfig { segment_bytes, hold, ..StreamConfig::default() }
}

#[test]
fn t26_bytes_out_are_bytes_in_for_random_writes_of_every_segment_size_and_time() {
    let mut random = RandomStreams::new(26).stream("writes");
    let source = bytes(&mut random, 1_000_000);
    for segment_bytes in [128, 129, 1_000, 1_460, 4_096, 9_000] {
        for hold_us in [0, 1, 30, 1_000] {
            let hold = Duration::from_us(hold_us);
            let mut path = Path::new(settings(segment_bytes, hold), source.clone());
            let mut written = 0;
            while written < source.len() as u64 {
                let want = random.between(1, 20_000).min(source.len() as u64 - written);
                written += path.sender.send(path.now, want);
                path.run(path.now + Duration::from_ns(random.below(100_000)));
            }
            path.finish();
            assert!(path.received == source, "C {segment_bytes}, T {hold}: the bytes differ");
            // The last acknowledgement may be that of the end of the stream, which the driver sends.
            let to = path.sender.tonic_tail();
            path.sender.acknowledge(to).expect("all was sent");
            assert!(path.sender.is_delivered(), "C {segment_bytes}, T {hold}: {:?}", path.sender);
        }
    }
}

#[test]
fn t26_data_behind_a_sub_segment_waits_until_it_is_delivered() {
    let hold = Duration::from_us(50);
    let mut path = Path::new(settings(1_000, hold), vec![7; 10_000]);
    path.sender.send(path.now, 300);
    assert_eq!(path.sender.state(), State::Holding { until: Time::ZERO + hold });
    path.run(Time::from_us(55));
    assert_eq!((path.sender.state(), path.sender.sub_segments()), (State::SubSegment, 1));
    path.sender.send(path.now, 2_000);
    path.run(Time::from_us(89));
    assert_eq!(path.arrivals.len(), 1, "whole segments were sent behind a sub-segment");
    path.run(Time::from_us(200));
    let sizes: Vec<u32> = path.arrivals.iter().map(|(_, segment)| segment.bytes).collect();
    assert_eq!((sizes, path.arrivals[1].0), (vec![300, 1_000, 1_000], Time::from_us(110)));
}

#[test]
fn t26_writes_of_a_segment_make_no_sub_segment_even_without_time_to_wait() {
    let mut path = Path::new(settings(128, Duration::ZERO), vec![1; 128_000]);
    for _ in 0..1_000 {
        assert_eq!(path.sender.send(path.now, 128), 128);
        path.run(path.now + Duration::from_us(1));
    }
    path.finish();
    assert_eq!((path.sender.sub_segments(), path.arrivals.len()), (0, 1_000));
}

#[test]
fn t26_a_lone_small_write_arrives_after_the_waiting_time_and_the_path() {
    for hold_us in [0, 5, 1_000] {
        let hold = Duration::from_us(hold_us);
        let mut path = Path::new(settings(9_000, hold), vec![1; 100]);
        path.run(Time::from_us(10));
        path.sender.send(path.now, 100);
        path.run(Time::from_us(5_000));
        assert_eq!(
            path.arrivals.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            [Time::from_us(10) + hold + path.delay]
        );
    }
}

#[test]
fn t26_acknowledgements_are_forwarded_every_few_segments_and_free_the_buffer() {
    let config = StreamConfig { ack_every: 4, buffer_bytes: 8_000, ..settings(1_000, Duration::ZERO) };
    let mut path = Path::new(config, vec![1; 20_000]);
    assert_eq!(path.sender.send(path.now, 20_000), 8_000, "more is taken than the buffer has");
    path.run(Time::from_us(10));
    assert_eq!((path.sender.space(), path.sender.tonic_tail()), (0, 8_000));
    path.run(Time::from_us(100));
    assert_eq!(path.arrivals.iter().filter(|(_, segment)| segment.reports).count(), 2);
    assert_eq!((path.sender.space(), path.sender.head()), (8_000, 8_000));
    assert!(path.sender.acknowledge(8_001).is_err(), "bytes are acknowledged that were not sent");
}

#[test]
fn t26_settings_that_no_template_has_or_that_could_wait_forever_are_refused() {
    let config = settings(1_000, Duration::ZERO);
    for wrong in [
        StreamConfig { segment_bytes: 0, ..config },
        StreamConfig { segment_bytes: 16_384, ..config },
        StreamConfig { ack_every: 0, ..config },
        StreamConfig { ack_every: 4, buffer_bytes: 7_999, ..config },
    ] {
        assert!(Sender::new(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn t26_flows_beyond_the_template_work_in_software_and_are_counted() {
    let mut flows = Flows::new(1_024);
    let places: Vec<Place> = (0..1_025).map(|_| flows.assign()).collect();
    let ids: Vec<Place> = (0..1_024).map(Place::Template).collect();
    assert_eq!((&places[..1_024], places[1_024]), (&*ids, Place::Software), "not first come first served");
    assert_eq!((flows.in_template(), flows.in_software(), flows.software_total()), (1_024, 1, 1));
    // The connection in software sends like any other.
    let source: Vec<u8> = (0..=255).collect();
    let mut path = Path::new(settings(128, Duration::ZERO), source.clone());
    path.sender.send(path.now, 256);
    path.finish();
    assert_eq!(path.received, source);
    flows.release(places[7]).expect("it is in use");
    assert_eq!(flows.release(places[7]), Err(rnic_stream::NotAssigned(places[7])));
    assert_eq!(flows.assign(), Place::Template(7), "an id that is free is not used");
    flows.release(Place::Software).expect("it is in use");
    assert!(flows.release(Place::Software).is_err());
    assert_eq!((flows.in_software(), flows.software_total()), (0, 1));
}
