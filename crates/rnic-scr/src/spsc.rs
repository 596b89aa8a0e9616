//! The queue of one subject and one kind of signal between two threads: one producer, one consumer, no lock.
//!
//! Source: SCR (NSDI'25), section 4.3.2. The protocol of the slots is OpenRNIC's.
//!
//! A queue has slots for records, used in a cycle: record `n` is in slot `n` modulo their number. The state of a slot
//! says which thread owns its words, and changes hands as follows:
//!
//! ```text
//!   EMPTY --producer begins a record--> WRITING --> FULL --consumer takes it--> READING --> EMPTY
//!                                          ^          |
//!                                          +----------+ producer folds into its newest record
//! ```
//!
//! The producer never waits: if its newest record is being taken, the next slot is empty, because records are taken in
//! order. The consumer never waits either: a record that is being written counts as absent. The words are atomic
//! variables, so there is no `unsafe`.
//!
//! Restrictions: as [`crate::Queue`], a full queue folds into its newest record and loses nothing. A queue that
//! coalesces has two slots, so the bound of folded bytes holds for the older record; all that follows is in the newer
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::queue::{Pushed, QUEUE_DEPTH, Strategy};
use crate::signal::{SIGNAL_WORDS, Signal};

/// The slot holds no record.
const EMPTY: u32 = 0;
/// The producer owns the slot.
const WRITING: u32 = 1;
/// The slot holds a record.
const FULL: u32 = 2;
/// The consumer owns the slot.
const READING: u32 = 3;

/// A record, and the state that determines which thread owns it, in a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    words: [AtomicU64; SIGNAL_WORDS],
    state: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    /// Passes the slot from `from` to `to`; returns `false` if it is in another state.
    #[inline]
    fn pass(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) == EMPTY
    }

    /// Reads the record; the caller owns the slot.
    #[inline]
    fn read(&self) -> Signal {
        Signal::from_words(core::array::from_fn(|word| self.words[word].load(Ordering::Relaxed)))
    }

    /// Stores `record` and makes it available; the caller owns the slot.
    #[inline]
    fn fill(&self, record: &Signal) {
        for (word, value) in self.words.iter().zip(record.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.state.store(FULL, Ordering::Release);
    }
}

/// The writing end of a queue.
#[derive(Debug)]
pub struct Producer {
    slots: Arc<[Slot]>,
    strategy: Strategy,
    /// Slot of the newest record.
    newest: usize,
}

/// The reading end of a queue.
#[derive(Debug)]
pub struct Consumer {
    slots: Arc<[Slot]>,
    /// Slot of the oldest record.
    oldest: usize,
}

/// Creates an empty queue with `strategy`.
pub fn queue(strategy: Strategy) -> (Producer, Consumer) {
    let depth = match strategy {
        Strategy::None => QUEUE_DEPTH,
        Strategy::Accumulate | Strategy::Latest | Strategy::Oldest | Strategy::WhileStable => 2,
    };
    let slots: Arc<[Slot]> = (0..depth).map(|_| Slot::default()).collect();
    // The first record is in slot 0, the slot after the last one.
    let newest = slots.len() - 1;
    (Producer { slots: Arc::clone(&slots), strategy, newest }, Consumer { slots, oldest: 0 })
}

impl Producer {
    /// Appends `record`, or merges it into the newest record.
    ///
    /// # Panics
    /// Never: while the newest record is not available, the slot after it is empty.
    #[inline]
    pub fn push(&mut self, record: &Signal) -> Pushed {
        let next = following(&self.slots, self.newest);
        let newest = &self.slots[self.newest];
        let may_append = self.slots[next].is_empty();
        if (self.strategy != Strategy::None || !may_append) && newest.pass(FULL, WRITING) {
            let mut sum = newest.read();
            if self.strategy.folds(&sum, record) || !may_append {
                sum.fold(record, self.strategy.kept_value());
                newest.fill(&sum);
                return Pushed::Folded;
            }
            newest.state.store(FULL, Ordering::Release);
        }
        let slot = &self.slots[next];
        // If the slot was not empty above, the consumer has taken the newest record since, and all records before it.
        assert!(slot.pass(EMPTY, WRITING), "a record is in the slot after the newest");
        slot.fill(record);
        self.newest = next;
        Pushed::Appended
    }
}

impl Consumer {
    /// Removes and returns the oldest record; `None` if there is none, or if it is being written.
    #[inline]
    pub fn take(&mut self) -> Option<Signal> {
        let slot = &self.slots[self.oldest];
        if !slot.pass(FULL, READING) {
            return None;
        }
        let record = slot.read();
        slot.state.store(EMPTY, Ordering::Release);
        self.oldest = following(&self.slots, self.oldest);
        Some(record)
    }
}

/// Returns the slot after `slot` in the cycle.
#[inline]
fn following(slots: &[Slot], slot: usize) -> usize {
    if slot + 1 == slots.len() { 0 } else { slot + 1 }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "queues between threads are tested with threads")]
mod tests {
    use super::*;
    use crate::signal::Kind;
    use rnic_base::{RandomStreams, Time};

    const STRATEGIES: [Strategy; 5] =
        [Strategy::None, Strategy::Accumulate, Strategy::Latest, Strategy::Oldest, Strategy::WhileStable];

    fn signal(kind: Kind, number: u64) -> Signal {
        Signal::new(kind, 5, Time::from_ps(number)).with_bytes(1 + number % 1_000).with_value(number, number as u32)
    }

    /// Checks that `record` consists of the signals from number `next` on, and returns the number after them.
    fn check(record: &Signal, kind: Kind, strategy: Strategy, next: u64) -> u64 {
        let end = next + u64::from(record.count);
        let bytes: u64 = (next..end).map(|number| signal(kind, number).bytes).sum();
        let value = if strategy == Strategy::Oldest { next } else { end - 1 };
        let expected = Signal {
            count: record.count,
            bytes,
            last: Time::from_ps(end - 1),
            ..signal(kind, next).with_value(value, value as u32)
        };
        assert_eq!(*record, expected, "{strategy:?}: the record is a sum of consecutive signals");
        end
    }

    #[test]
    fn s10_two_threads_lose_no_record_and_keep_their_order() {
        const SIGNALS: u64 = 1_000_000;
        const KINDS: [Kind; 2] = [Kind::Tx, Kind::Ack];
        for strategy in STRATEGIES {
            let (mut producers, mut consumers): (Vec<_>, Vec<_>) = KINDS.map(|_| queue(strategy)).into_iter().unzip();
            let mut random = RandomStreams::new(1).stream("spsc");
            let mut next = [0; 2];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0..SIGNALS {
                        for (producer, kind) in producers.iter_mut().zip(KINDS) {
                            producer.push(&signal(kind, number));
                        }
                    }
                });
                let mut misses = 0u32;
                while next != [SIGNALS; 2] {
                    let index = random.below(2) as usize;
                    match consumers[index].take() {
                        Some(record) => next[index] = check(&record, KINDS[index], strategy, next[index]),
                        None => misses += 1,
                    }
                    // The producer may wait for this processor.
                    if misses > 1_000 {
                        misses = 0;
                        std::thread::yield_now();
                    }
                }
            });
            assert!(consumers.iter_mut().all(|consumer| consumer.take().is_none()));
        }
    }

    #[test]
    fn s10_in_one_thread_the_queue_is_that_of_a_list() {
        for strategy in STRATEGIES {
            let mut random = RandomStreams::new(2).stream("list");
            let (mut producer, mut consumer) = queue(strategy);
            let (mut pushed, mut taken, mut records) = (0, 0, 0);
            for _ in 0..20_000 {
                if random.below(70) > 0 {
                    let effect = producer.push(&signal(Kind::Nack, pushed));
                    pushed += 1;
                    records += u64::from(effect == Pushed::Appended);
                } else {
                    while let Some(record) = consumer.take() {
                        taken = check(&record, Kind::Nack, strategy, taken);
                        records -= 1;
                    }
                    assert_eq!((taken, records), (pushed, 0));
                }
                let most = if strategy == Strategy::None { u64::from(QUEUE_DEPTH) } else { 1 };
                assert!(records <= most, "{records} records");
            }
        }
    }

    #[test]
    fn s10_the_bound_of_folded_bytes_holds_for_the_older_record() {
        let (mut producer, mut consumer) = queue(Strategy::Accumulate);
        for _ in 0..3 {
            producer.push(&Signal::new(Kind::Tx, 1, Time::ZERO).with_bytes(40_000));
        }
        assert_eq!(consumer.take().map(|record| record.bytes), Some(40_000));
        assert_eq!(consumer.take().map(|record| record.bytes), Some(80_000), "both slots were used");
        assert_eq!(consumer.take(), None);
    }

    #[test]
    fn s10_a_record_that_is_being_taken_is_not_changed() {
        let (mut producer, mut consumer) = queue(Strategy::Accumulate);
        producer.push(&signal(Kind::Ack, 0));
        assert!(producer.slots[0].pass(FULL, READING), "the consumer has begun to take it");
        assert_eq!(producer.push(&signal(Kind::Ack, 1)), Pushed::Appended);
        assert_eq!(producer.push(&signal(Kind::Ack, 2)), Pushed::Folded);
        assert_eq!(producer.slots[0].read(), signal(Kind::Ack, 0));
        producer.slots[0].state.store(FULL, Ordering::Release);
        assert_eq!(consumer.take(), Some(signal(Kind::Ack, 0)));
        assert_eq!(consumer.take().map(|record| record.count), Some(2));
    }
}
