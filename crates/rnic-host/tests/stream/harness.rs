//! Two ends with streams, driven by one thread.

use std::time::{Duration, Instant};

use rnic_base::{RandomStream, RandomStreams};
use rnic_host::stream::{StreamConfig, StreamEvent, StreamId, Streams};
use rnic_host::{ConnectionEvent, Impairment, Nic, NicConfig, TransportChoice};

/// Time limit for every wait in a test.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Service of the right end.
pub const SERVICE: u16 = 80;

pub struct End {
    pub nic: Nic,
    pub streams: Streams,
    pub events: Vec<StreamEvent>,
    pub accepted: Vec<Result<StreamId, String>>,
}

impl End {
    pub fn open(transport: &str, impairment: Impairment, adjust: impl FnOnce(StreamConfig) -> StreamConfig) -> Self {
        let bind = "127.0.0.1:0".parse().expect("an address");
        let mut nic = Nic::open(NicConfig { impairment, ..NicConfig::at(bind) }).expect("a free port");
        let choice = TransportChoice::named(transport, &[]).expect("a transport that exists");
        let streams = Streams::new(&mut nic, adjust(StreamConfig::over(choice))).expect("valid settings");
        Self { nic, streams, events: Vec::new(), accepted: Vec::new() }
    }

    pub fn progress(&mut self) {
        self.nic.progress();
        while let Some(event) = self.nic.poll_connection_event() {
            if let ConnectionEvent::Requested(request) = &event {
                let accepted = self.streams.accept(&mut self.nic, request);
                self.accepted.push(accepted.map_err(|error| error.to_string()));
            } else {
                self.events.extend(self.streams.process(&mut self.nic, event));
            }
        }
        self.streams.progress(&mut self.nic);
    }

    fn take_established(&mut self) -> Option<StreamId> {
        let event = (!self.events.is_empty()).then(|| self.events.remove(0))?;
        match event {
            StreamEvent::Established(id) => Some(id),
            StreamEvent::Failed(id, error) => panic!("{id:?}: {error}"),
        }
    }

    /// Ends without notifying the peer, as a process that is killed.
    pub fn kill(mut self) {
        // Packets that the NIC sends when it is dropped are lost.
        self.nic
            .set_impairment(Impairment { loss: rnic_base::Probability::ratio(999, 1_000), ..Impairment::default() });
    }
}

pub struct Pair {
    pub left: End,
    pub right: End,
    pub from: StreamId,
    pub to: StreamId,
}

impl Pair {
    pub fn connected(transport: &str, impairment: Impairment, adjust: impl Fn(StreamConfig) -> StreamConfig) -> Self {
        let end = || End::open(transport, impairment, &adjust);
        Self::between(end(), end())
    }

    pub fn between(mut left: End, mut right: End) -> Self {
        right.nic.listen(SERVICE, 16).expect("a free service");
        let (from, to) = connect(&mut left, &mut right);
        Self { left, right, from, to }
    }

    /// Makes another stream, which replaces the pair's.
    pub fn connect(&mut self) {
        (self.from, self.to) = connect(&mut self.left, &mut self.right);
    }

    pub fn progress(&mut self) {
        self.left.progress();
        self.right.progress();
    }
}

fn connect(left: &mut End, right: &mut End) -> (StreamId, StreamId) {
    left.streams.connect(&mut left.nic, right.nic.local_addr(), SERVICE, (0, 0)).expect("there is a route");
    let (mut from, mut to) = (None, None);
    let start = Instant::now();
    while from.is_none() || to.is_none() {
        left.progress();
        right.progress();
        from = from.or_else(|| left.take_established());
        to = to.or_else(|| right.take_established());
        assert!(start.elapsed() < TEST_TIMEOUT, "no connection: {:?}", right.accepted);
    }
    (from.expect("established"), to.expect("established"))
}

/// One direction of a transfer: random bytes in writes of random sizes, read in pieces of random sizes.
struct Way {
    source: RandomStream,
    expected: RandomStream,
    sizes: RandomStream,
    bytes: u64,
    pending: Vec<u8>,
    sent: u64,
    received: u64,
    is_finished: bool,
}

impl Way {
    fn new(seed: u64, name: &str, bytes: u64) -> Self {
        let streams = RandomStreams::new(seed);
        let stream = |purpose: &str| streams.stream(&format!("{name} {purpose}"));
        Self {
            source: stream("bytes"),
            expected: stream("bytes"),
            sizes: stream("sizes"),
            bytes,
            pending: Vec::new(),
            sent: 0,
            received: 0,
            is_finished: false,
        }
    }

    fn move_on(&mut self, from: &mut End, id: StreamId, to: &mut End, peer_id: StreamId) {
        if self.pending.is_empty() && self.sent < self.bytes {
            let len = (1 + self.sizes.below(20_000)).min(self.bytes - self.sent);
            self.sent += len;
            self.pending = (0..len).map(|_| self.source.bits() as u8).collect();
        }
        let taken = from.streams.write(&mut from.nic, id, &self.pending).expect("it is open");
        self.pending.drain(..taken);
        if self.pending.is_empty() && self.sent == self.bytes && !self.is_finished {
            self.is_finished = true;
            from.streams.finish(&mut from.nic, id);
        }
        let mut buffer = vec![0; 1 + self.sizes.below(20_000) as usize];
        let len = to.streams.read(&mut to.nic, peer_id, &mut buffer).expect("it is open");
        for (index, byte) in buffer[..len].iter().enumerate() {
            assert_eq!(*byte, self.expected.bits() as u8, "byte {}", self.received + index as u64);
        }
        self.received += len as u64;
    }
}

/// Sends this many random bytes from left to right and from right to left, and ends both directions.
pub fn transfer(pair: &mut Pair, bytes: [u64; 2], seed: u64) {
    let mut right_way = Way::new(seed, "right", bytes[0]);
    let mut left_way = Way::new(seed, "left", bytes[1]);
    let start = Instant::now();
    let (from, to) = (pair.from, pair.to);
    let is_over = |end: &End, id| end.streams.is_over(id) && end.streams.is_at_end(id);
    while !(is_over(&pair.left, from) && is_over(&pair.right, to)) {
        right_way.move_on(&mut pair.left, from, &mut pair.right, to);
        left_way.move_on(&mut pair.right, to, &mut pair.left, from);
        pair.progress();
        let received = [right_way.received, left_way.received];
        assert!(start.elapsed() < TEST_TIMEOUT, "{received:?} of {bytes:?} bytes after {TEST_TIMEOUT:?}");
    }
    assert_eq!([right_way.received, left_way.received], bytes);
}
