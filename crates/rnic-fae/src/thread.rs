//! The engine on a thread of its own, behind two lock-free rings: like the engine that runs on a core of the NIC
//! (paper, section 5.3).
//!
//! The datapath keeps the [`Port`]; it never blocks. Events are accepted as far as the filter and the ring allow;
//! responses are returned in the order of events. The thread prefetches state for later events that have arrived, spins
//! for a while when there are none, then sleeps until one arrives. It exits when the port is dropped.
//!
//! **More connections**: the thread grows the table. The port publishes the number of connections before it passes an
//! event of a new one, and the thread reads that number after it has seen events: no lock is needed, and no event is
//! handled before its state exists.
//!
//! **Starting the thread** is up to the driver ([`Spawn`]): a driver whose program is not prepared for threads keeps
//! signals from it. A driver that provides no such function has no thread; simulations are such drivers, so their
//! decisions never depend on a thread.
//!
//! **Processes that fork**: the child has a copy of the port and no thread. It must not use the port, as it must not
//! use the sockets of its parent's NIC (`rnic-verbs` refuses both to a child): no response would arrive, and dropping
//! the port might wait indefinitely.
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

/// A function that starts a thread for the given work.
pub type Spawn = fn(Work) -> io::Result<JoinHandle<()>>;

/// The work of a thread.
pub type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread with default settings, for drivers that need no settings of their own.
///
/// # Errors
/// When the system provides no thread.
pub fn spawn(work: Work) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("rnic-fae".to_owned()).spawn(work)
}

/// Number of unsuccessful polls for events before the thread sleeps: about 50 us.
const SPINS: u32 = 1 << 14;

/// State shared by both sides.
#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    sleeps: AtomicBool,
    /// Number of connections; they are numbered from zero to below this.
    connections: AtomicU32,
}

/// The datapath's end of the rings.
#[derive(Debug)]
pub struct Port {
    events: Producer<EventRecord>,
    responses: Consumer<ResponseRecord>,
    filter: Filter,
    capacity: usize,
    /// Number of events without a response.
    under_way: usize,
    first: FlowActions,
    is_stateless: bool,
    shared: Arc<Shared>,
    worker: Thread,
    handle: Option<JoinHandle<()>>,
}

impl Port {
    /// Moves `processor` to a thread that `spawn` starts, with a ring of `capacity` records in each direction.
    ///
    /// # Errors
    /// When the system provides no thread.
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

    /// Returns whether there are events without a response.
    #[inline]
    pub const fn is_owed(&self) -> bool {
        self.under_way > 0
    }

    /// See [`Processor::grow`]; the thread does it before the next event.
    ///
    /// # Errors
    /// As for [`Processor::grow`].
    pub fn grow(&mut self, connections: u32) -> Result<(), FaeError> {
        if connections > CONNECTIONS_MAX {
            return Err(FaeError::TooManyConnections(connections));
        }
        // Relaxed is sufficient: the event's transfer through the ring orders this store before the event.
        self.shared.connections.fetch_max(connections, Ordering::Relaxed);
        Ok(())
    }

    /// Submits `event` of the flow with `gate`, if it is admitted.
    ///
    /// # Errors
    /// See [`Filter::admit`].
    ///
    /// # Panics
    /// Never: a ring with a free slot accepts a record.
    pub fn offer(&mut self, gate: &mut FlowGate, event: &Event) -> Result<(), Refusal> {
        let occupancy = self.capacity - self.events.slots();
        let entering = self.filter.admit(gate, event, occupancy, self.capacity)?;
        // The filter has checked that a slot is free, and this is the only producer.
        let pushed = self.events.push(EventRecord::pack(&entering, false));
        assert!(pushed.is_ok(), "a ring with a free slot takes a record");
        self.under_way += 1;
        self.wake();
        Ok(())
    }

    /// Returns the next response, if one has arrived.
    ///
    /// # Panics
    /// When the program has violated its contract, as it would have on the caller's thread.
    pub fn poll(&mut self) -> Option<ResponseRecord> {
        let Ok(response) = self.responses.pop() else {
            let is_dead = self.under_way > 0 && self.handle.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!is_dead, "the adaptive engine's thread has failed");
            return None;
        };
        self.under_way -= 1;
        // The worker may have waited for a free slot.
        self.wake();
        Some(response)
    }

    #[inline]
    fn wake(&self) {
        // Pairs with the fence of `Worker::sleep`: either this side sees that the worker sleeps, or the worker sees the
        // new event or free slot.
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
            // A worker that panicked has already reported it; nothing can be added while dropping.
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

    /// Handles the events that have arrived, as far as there are free slots for responses; returns the number of events
    /// handled.
    fn turn(&mut self) -> usize {
        let count = self.incoming.slots().min(self.outgoing.slots());
        if count == 0 {
            return 0;
        }
        // Read after the ring, so that the connection of every event seen there is already counted.
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
