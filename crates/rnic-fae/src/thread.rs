//! The engine on a thread of its own, behind two lock-free rings: as it runs on a core of the NIC (paper, section 5.3).
//!
//! The datapath keeps the [`Port`]; it never waits. Events enter as far as the filter and the ring let them; responses
//! come in the order of events. The thread fetches state for later events of what has come, spins for a while when
//! nothing comes, then sleeps until something does. It ends with the port.
//!
//! **More connections**: a table that grows is the thread's business. The port says how many connections there are
//! before it hands over an event of a new one, and the thread looks at that number after it has seen events: no lock,
//! and no event before its state.
//!
//! **Who starts the thread** is the body ([`Spawn`]): one whose program knows nothing of threads keeps signals from it.
//! A body that names nobody has none, and simulations are such bodies: what they decide never depends on a thread.
//!
//! **Processes that fork**: the child has a copy of the port and no thread. It shall leave the port alone, as it shall
//! the sockets of its parent's NIC (`rnic-verbs` refuses a child all of it): no answer would come, and who drops the
//! port might wait for ever.
//!
//! The only file of the core that starts a thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread::{JoinHandle, Thread};

use rtrb::{Consumer, Producer, RingBuffer};

use rnic_policy::FlowActions;

use crate::filter::{Filter, FlowGate, Refusal};
use crate::processor::{FaeError, Processor};
use crate::program::Program;
use crate::record::{CONNECTIONS_MAX, Event, EventRecord, ResponseRecord};

/// Starts a thread that does the work.
pub type Spawn = fn(Work) -> io::Result<JoinHandle<()>>;

/// What a thread is to do.
pub type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread as all others are: for whoever wants nothing of its own from it.
///
/// # Errors
/// When the system gives none.
pub fn spawn(work: Work) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("rnic-fae".to_owned()).spawn(work)
}

/// Looks for events in vain before the thread sleeps: some 50 us.
const SPINS: u32 = 1 << 14;

/// What both sides see.
#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    sleeps: AtomicBool,
    /// Connections are numbered from zero to below this.
    connections: AtomicU32,
}

/// The datapath's end.
#[derive(Debug)]
pub struct Port {
    events: Producer<EventRecord>,
    responses: Consumer<ResponseRecord>,
    filter: Filter,
    capacity: usize,
    /// Events that are not answered.
    under_way: usize,
    first: FlowActions,
    is_stateless: bool,
    shared: Arc<Shared>,
    worker: Thread,
    handle: Option<JoinHandle<()>>,
}

impl Port {
    /// Moves `processor` to a thread that `spawn` starts, with a ring of `capacity` records each way.
    ///
    /// # Errors
    /// When the system gives no thread.
    ///
    /// # Panics
    /// When `capacity` is zero.
    pub fn start<P>(processor: Processor<P>, capacity: usize, filter: Filter, spawn: Spawn) -> io::Result<Self>
    where
        P: Program + Send + 'static,
        Processor<P>: Send,
    {
        assert!(capacity > 0, "a queue holds something");
        let (events, incoming) = RingBuffer::new(capacity);
        let (outgoing, responses) = RingBuffer::new(capacity);
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let (first, is_stateless) = (*processor.first(), processor.is_stateless());
        let handle = spawn(Box::new(move || Worker { processor, incoming, outgoing, shared: seen }.run()))?;
        let worker = handle.thread().clone();
        let (under_way, handle) = (0, Some(handle));
        Ok(Self { events, responses, filter, capacity, under_way, first, is_stateless, shared, worker, handle })
    }

    /// See [`Processor::first`].
    pub const fn first(&self) -> &FlowActions {
        &self.first
    }

    /// See [`Processor::is_stateless`].
    pub const fn is_stateless(&self) -> bool {
        self.is_stateless
    }

    /// Whether there are events without an answer.
    #[inline]
    pub const fn is_owed(&self) -> bool {
        self.under_way > 0
    }

    /// See [`Processor::grow`]; the thread does it before the next event.
    ///
    /// # Errors
    /// As there.
    pub fn grow(&mut self, connections: u32) -> Result<(), FaeError> {
        if connections > CONNECTIONS_MAX {
            return Err(FaeError::TooManyConnections(connections));
        }
        // What orders this before the event is the event's own way through the ring.
        self.shared.connections.fetch_max(connections, Ordering::Relaxed);
        Ok(())
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
        self.under_way += 1;
        self.wake();
        Ok(())
    }

    /// The next response, if one has come.
    ///
    /// # Panics
    /// When the program has broken its contract, as it would have had the caller's thread run it.
    pub fn poll(&mut self) -> Option<ResponseRecord> {
        let Ok(response) = self.responses.pop() else {
            let is_dead = self.under_way > 0 && self.handle.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!is_dead, "the adaptive engine's thread has failed");
            return None;
        };
        self.under_way -= 1;
        // It may have waited for a place.
        self.wake();
        Some(response)
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
        // Behind the look at the ring: of whatever connection the events are, it was counted before.
        let connections = self.shared.connections.load(Ordering::Relaxed);
        self.processor.grow(connections).expect("the port has counted them");
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
