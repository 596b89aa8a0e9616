//! The engine on a thread of its own, behind two lock-free rings: as it runs on a core of the NIC (paper, section 5.3).
//!
//! The datapath keeps the [`Port`]; it never waits. Events enter as far as the filter and the ring let them; responses
//! come in the order of events. The thread fetches state for later events of what has come, spins for a while when
//! nothing comes, then sleeps until something does. It ends with the port.
//!
//! The only file of the core that starts a thread. What a simulation decides never depends on it: there the engine runs
//! inline or behind a latency.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{JoinHandle, Thread};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::filter::{Filter, FlowGate, Refusal};
use crate::processor::Processor;
use crate::program::Program;
use crate::record::{Event, EventRecord, ResponseRecord};

/// Looks for events in vain before the thread sleeps: some 50 us.
const SPINS: u32 = 1 << 14;

/// What both sides see.
#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    sleeps: AtomicBool,
}

/// The datapath's end.
#[derive(Debug)]
pub struct Port {
    events: Producer<EventRecord>,
    responses: Consumer<ResponseRecord>,
    filter: Filter,
    capacity: usize,
    shared: Arc<Shared>,
    worker: Thread,
    handle: Option<JoinHandle<()>>,
}

impl Port {
    /// Moves `processor` to a thread, with a ring of `capacity` records each way.
    ///
    /// # Errors
    /// When the system gives no thread.
    ///
    /// # Panics
    /// When `capacity` is zero.
    pub fn start<P>(processor: Processor<P>, capacity: usize, filter: Filter) -> std::io::Result<Self>
    where
        P: Program + Send + 'static,
        Processor<P>: Send,
    {
        assert!(capacity > 0, "a queue holds something");
        let (events, incoming) = RingBuffer::new(capacity);
        let (outgoing, responses) = RingBuffer::new(capacity);
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let work = move || Worker { processor, incoming, outgoing, shared: seen }.run();
        let handle = std::thread::Builder::new().name("rnic-fae".to_owned()).spawn(work)?;
        let worker = handle.thread().clone();
        Ok(Self { events, responses, filter, capacity, shared, worker, handle: Some(handle) })
    }

    /// Hands over `event` of the flow with `gate`, if it enters.
    ///
    /// # Errors
    /// See [`Filter::admit`].
    ///
    /// # Panics
    /// Never: a ring with a free slot takes a record.
    pub fn offer(&mut self, gate: &mut FlowGate, event: &Event) -> Result<(), Refusal> {
        let occupancy = self.capacity - self.events.slots();
        let entering = self.filter.admit(gate, event, occupancy, self.capacity)?;
        // The filter has seen a free slot, and nobody else fills it.
        let pushed = self.events.push(EventRecord::pack(&entering, false));
        assert!(pushed.is_ok(), "a ring with a free slot takes a record");
        self.wake();
        Ok(())
    }

    /// The next response, if one has come.
    pub fn poll(&mut self) -> Option<ResponseRecord> {
        let response = self.responses.pop().ok();
        if response.is_some() {
            // It may have waited for a place.
            self.wake();
        }
        response
    }

    #[inline]
    fn wake(&self) {
        // Pairs with the fence of `Worker::sleep`: either we see that it sleeps, or it sees what we did.
        fence(Ordering::SeqCst);
        if self.shared.sleeps.load(Ordering::Relaxed) {
            self.worker.unpark();
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.worker.unpark();
        if let Some(handle) = self.handle.take() {
            // A worker that panicked has said so; there is nothing to add while dropping.
            drop(handle.join());
        }
    }
}

struct Worker<P: Program> {
    processor: Processor<P>,
    incoming: Consumer<EventRecord>,
    outgoing: Producer<ResponseRecord>,
    shared: Arc<Shared>,
}

impl<P: Program> Worker<P> {
    fn run(mut self) {
        let mut idle = 0;
        while !self.shared.ends.load(Ordering::Acquire) {
            if self.turn() > 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < SPINS {
                core::hint::spin_loop();
            } else {
                self.sleep();
                idle = 0;
            }
        }
    }

    /// Handles what has come, as far as responses have a place; answers how many events that were.
    fn turn(&mut self) -> usize {
        let count = self.incoming.slots().min(self.outgoing.slots());
        if count == 0 {
            return 0;
        }
        let Ok(chunk) = self.incoming.read_chunk(count) else { return 0 };
        let (older, newer) = chunk.as_slices();
        for events in [older, newer] {
            let outgoing = &mut self.outgoing;
            self.processor.handle_all(events, |response| {
                let pushed = outgoing.push(response);
                assert!(pushed.is_ok(), "there was a place for every response");
            });
        }
        chunk.commit_all();
        count
    }

    fn sleep(&self) {
        self.shared.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let has_work = !self.incoming.is_empty() && !self.outgoing.is_full();
        if !has_work && !self.shared.ends.load(Ordering::Acquire) {
            std::thread::park();
        }
        self.shared.sleeps.store(false, Ordering::Relaxed);
    }
}
