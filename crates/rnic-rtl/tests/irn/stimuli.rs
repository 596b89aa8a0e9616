//! Random events for IRN's modules: legal histories, lies, and contexts drawn at random.

use rnic_base::rng::{RandomStream, RandomStreams};
use rnic_rtl::spec::irn::{Acknowledgement, Effect, ID_MASK, ReceiveContext, Ring, SendContext, later};

use super::modules::{Record, run_receive_ack, run_receive_data, run_timeout, run_tx_free};

/// After this many events, the context is drawn at random.
const RESTART: u64 = 32;

/// An event of a module, as a record.
pub type Event<const W: u32> = fn(&mut Stimuli<W>) -> Record;

/// Contexts of a sender and a receiver, and the random numbers that decide what happens to them.
pub struct Stimuli<const W: u32> {
    rng: RandomStream,
    sender: SendContext<W>,
    receiver: ReceiveContext<W>,
    cap: u32,
    events: u64,
}

impl<const W: u32> Stimuli<W> {
    pub fn new(seed: u64) -> Self {
        let rng = RandomStreams::new(seed).stream("irn");
        let (sender, receiver) = (SendContext::default(), ReceiveContext::default());
        Self { rng, sender, receiver, cap: W, events: 0 }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.rng.below(bound.into()) as u32
    }

    fn one_in(&mut self, bound: u32) -> bool {
        self.below(bound) == 0
    }

    /// Returns an id: in one half of all cases close to the wrap.
    fn id(&mut self) -> u32 {
        if self.one_in(2) { later(self.below(400), ID_MASK - 200) } else { self.below(ID_MASK + 1) }
    }

    /// Returns a map in which each bit is set with a probability that is drawn too, sometimes zero or one.
    fn map(&mut self) -> [u64; 4] {
        let (kind, thin) = (self.below(4), self.below(7));
        let limit = self.below(W);
        let below = |word: u32| match limit.saturating_sub(word * 64) {
            0 => 0,
            left if left >= 64 => u64::MAX,
            left => (1 << left) - 1,
        };
        [0, 1, 2, 3].map(|word| {
            let bits = (0..=thin).fold(u64::MAX, |bits, _| bits & self.rng.bits());
            match kind {
                0 => bits,
                1 => !bits,
                2 => u64::from(thin < 3).wrapping_neg(),
                _ => bits ^ below(word),
            }
        })
    }

    fn count(&mut self) {
        self.events += 1;
        if self.events.is_multiple_of(RESTART) {
            self.draw_contexts();
        }
    }

    /// Draws contexts in which only the bits of packets within the windows are set.
    fn draw_contexts(&mut self) {
        self.cap = if self.one_in(2) { W } else { 1 + self.below(W) };
        let (una, in_flight) = (self.id(), self.below(self.cap + 1));
        let drawn = Ring::<W>::new(self.map());
        let mut sacked = Ring::default();
        (1..in_flight).map(|steps| later(una, steps)).for_each(|id| sacked.put(id, drawn.has(id)));
        let distance_max = [W, in_flight, 3][self.below(3) as usize];
        let [again, lost, presumed, recovery] = [(); 4].map(|()| self.below(distance_max + 1));
        self.sender = SendContext {
            una,
            next: later(una, in_flight),
            again,
            lost,
            presumed,
            recovery: later(una, recovery.wrapping_sub(1) & ID_MASK),
            recovering: self.one_in(2),
            extended: self.one_in(2),
            timed_out: self.one_in(4),
            sacked,
        };
        let expected = self.id();
        let [mut high, mut low] = [self.map(), self.map()].map(Ring::new);
        high.put(expected, false);
        low.put(expected, false);
        self.receiver = ReceiveContext { expected, msn: self.id(), high, low };
    }

    /// A data packet arrives: often the expected one.
    pub fn receive_data(&mut self) -> Record {
        self.count();
        let expected = self.receiver.expected;
        let psn = match self.below(16) {
            0..6 => expected,
            6..12 => later(expected, self.below(W)),
            12 => later(expected, W - 2 + self.below(4)),
            13 => later(expected, ID_MASK - self.below(300)),
            14 => later(expected, (1 << 23) - 2 + self.below(4)),
            _ => self.id(),
        };
        let effect = [Effect::None, Effect::EndsMessage, Effect::CompletesReceive][self.below(3) as usize];
        run_receive_data(&mut self.receiver, psn, effect)
    }

    /// Does to the sender what is not recorded: the other modules are called as well.
    fn interleave(&mut self) {
        self.count();
        for _ in 0..self.below(6) {
            let cap = self.cap;
            self.sender.tx_free(true, cap);
        }
        if self.one_in(40) {
            self.sender.timeout(3);
        }
    }

    fn acknowledgement(&mut self) -> Acknowledgement {
        let (una, in_flight) = (self.sender.una, self.sender.in_flight());
        let inside = |stimuli: &mut Self| later(una, stimuli.below(in_flight + 1));
        let cumulative = match self.below(16) {
            0..6 => una,
            6..9 => later(una, self.below(3)),
            9..11 => inside(self),
            // Where a comparison of distances is exact.
            11 => later(una, [self.sender.again, self.sender.lost, self.sender.presumed][self.below(3) as usize]),
            12 => later(una, ID_MASK - self.below(300)),
            13 => later(self.sender.next, self.below(3)),
            14 => later(una, (1 << 23) - 2 + self.below(4)),
            _ => self.id(),
        };
        let selective = match self.below(8) {
            0..6 => Some(inside(self)),
            6 => Some(self.id()),
            _ => None,
        };
        Acknowledgement { is_nack: self.below(4) != 0, cumulative, selective }
    }

    pub fn receive_ack(&mut self) -> Record {
        self.interleave();
        let ack = self.acknowledgement();
        run_receive_ack(&mut self.sender, ack)
    }

    pub fn tx_free(&mut self) -> Record {
        self.interleave();
        if self.one_in(4) {
            let ack = self.acknowledgement();
            self.sender.receive_ack(ack);
        }
        let (allowed, has_new, cap) = (!self.one_in(8), !self.one_in(3), self.cap);
        run_tx_free(&mut self.sender, allowed, has_new, cap)
    }

    pub fn timeout(&mut self) -> Record {
        self.interleave();
        let ack = self.acknowledgement();
        self.sender.receive_ack(ack);
        let low_packets = [3, self.below(W + 1)][self.below(2) as usize];
        run_timeout(&mut self.sender, low_packets)
    }
}
