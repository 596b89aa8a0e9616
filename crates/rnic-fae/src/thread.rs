//! The engine on a separate thread, connected by two lock-free rings: comparable to the engine on a processor core of
//! the NIC (paper, section 5.3).
//!
//! The datapath uses the [`Port`], which never blocks. Events are accepted if the filter admits them and the ring has
//! a free slot; responses are returned in the order of events. The thread prefetches state for later events that have
//! arrived, polls for a while when there are none, then sleeps until one arrives. It exits when the port is dropped.
//!
//! **More connections**: the thread grows the table. The port publishes the number of connections before it passes an
//! event of a new connection, and the thread reads that number after it has read events from the ring: no lock is
//! needed, and no event is handled before its state exists.
//!
//! **Starting the thread** is up to the driver ([`Spawn`]): a driver whose program does not expect threads blocks
//! signals in it. Without such a function there is no thread. Simulations provide none, so their results never depend
//! on a thread.
//!
//! **Processes that fork**: the child has a copy of the port and no thread. It must not use the port, as it must not
//! use the sockets of its parent's NIC (`rnic-verbs` refuses both to a child): no response would arrive, and dropping
//! the port might wait indefinitely.
//!
//! This is the only file of the core that starts a thread.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "simulations run the adaptive engine inline or behind a latency instead"
)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread::{JoinHandle, Thread};

use rtrb::{Consumer, Producer, RingBuffer};

use rnic_policy::FlowActions;

use crate::filter::{Filter, FlowAdmission, Refusal};
use crate::processor::{FaeError, Processor};
use crate::program::Program;
use crate::record::{CONNECTIONS_MAX, Event, EventRecord, ResponseRecord};

/// A function that starts a thread to execute the given work.
pub type Spawn = fn(Work) -> io::Result<JoinHandle<()>>;

/// The work that a thread executes.
pub type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread with default settings, for drivers that need no settings of their own.
///
/// # Errors
/// Returns an error if the system provides no thread.
pub fn spawn(work: Work) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("rnic-fae".to_owned()).spawn(work)
}

/// Number of unsuccessful polls for events before the thread sleeps: about 50 us in total.
const IDLE_POLLS_MAX: u32 = 1 << 14;

/// State shared by the port and the worker thread.
#[derive(Debug, Default)]
struct Shared {
    is_stopping: AtomicBool,
    is_sleeping: AtomicBool,
    /// Number of connections; connection numbers range from zero to one less than this.
    connections: AtomicU32,
}

/// The datapath's side of the rings.
#[derive(Debug)]
pub struct Port {
    events: Producer<EventRecord>,
    responses: Consumer<ResponseRecord>,
    filter: Filter,
    capacity: usize,
    /// Number of events whose response was not returned yet.
    outstanding: usize,
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
    /// Returns an error if the system provides no thread.
    ///
    /// # Panics
    /// If `capacity` is zero.
    pub fn start<P>(processor: Processor<P>, capacity: usize, filter: Filter, spawn: Spawn) -> io::Result<Self>
    where
        P: Program + Send + 'static,
        Processor<P>: Send,
    {
        assert!(capacity > 0, "the capacity is zero");
        let (events, incoming) = RingBuffer::new(capacity);
        let (outgoing, responses) = RingBuffer::new(capacity);
        let shared = Arc::new(Shared::default());
        let worker_shared = Arc::clone(&shared);
        let (first, is_stateless) = (*processor.first(), processor.is_stateless());
        let handle = spawn(Box::new(move || Worker { processor, incoming, outgoing, shared: worker_shared }.run()))?;
        let worker = handle.thread().clone();
        let (outstanding, handle) = (0, Some(handle));
        Ok(Self { events, responses, filter, capacity, outstanding, first, is_stateless, shared, worker, handle })
    }

    /// See [`Processor::first`].
    pub const fn first(&self) -> &FlowActions {
        &self.first
    }

    /// See [`Processor::is_stateless`].
    pub const fn is_stateless(&self) -> bool {
        self.is_stateless
    }

    /// Returns `true` if there are events without a response.
    #[inline]
    pub const fn has_outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// See [`Processor::grow`]; the thread grows the table before it handles the next event.
    ///
    /// # Errors
    /// See [`Processor::grow`].
    pub fn grow(&mut self, connections: u32) -> Result<(), FaeError> {
        if connections > CONNECTIONS_MAX {
            return Err(FaeError::TooManyConnections(connections));
        }
        // Relaxed is sufficient: the event's transfer through the ring orders this store before the event.
        self.shared.connections.fetch_max(connections, Ordering::Relaxed);
        Ok(())
    }

    /// Submits `event` of the flow that `admission` belongs to, if it is admitted.
    ///
    /// # Errors
    /// See [`Filter::admit`].
    ///
    /// # Panics
    /// Never: a ring with a free slot accepts a record.
    pub fn offer(&mut self, admission: &mut FlowAdmission, event: &Event) -> Result<(), Refusal> {
        let occupancy = self.capacity - self.events.slots();
        let admitted = self.filter.admit(admission, event, occupancy, self.capacity)?;
        // The filter has checked that a slot is free, and this is the only producer.
        let pushed = self.events.push(EventRecord::pack(&admitted, false));
        assert!(pushed.is_ok(), "the ring has no free slot");
        self.outstanding += 1;
        self.wake();
        Ok(())
    }

    /// Returns the next response, if one has arrived.
    ///
    /// # Panics
    /// If the program has violated its contract. An inline engine panics in this case too.
    pub fn poll(&mut self) -> Option<ResponseRecord> {
        let Ok(response) = self.responses.pop() else {
            let is_dead = self.outstanding > 0 && self.handle.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!is_dead, "the adaptive engine's thread has failed");
            return None;
        };
        self.outstanding -= 1;
        // The worker may be waiting for a free slot in the response ring.
        self.wake();
        Some(response)
    }

    #[inline]
    fn wake(&self) {
        // Pairs with the fence of `Worker::sleep`: either this thread sees that the worker sleeps, or the worker sees
        // the new event or free slot.
        fence(Ordering::SeqCst);
        if self.shared.is_sleeping.load(Ordering::Relaxed) {
            self.worker.unpark();
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.worker.unpark();
        if let Some(handle) = self.handle.take() {
            // A panic of the worker was already reported when it occurred; there is nothing to add while dropping.
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
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            if self.handle_arrived() > 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < IDLE_POLLS_MAX {
                core::hint::spin_loop();
            } else {
                self.sleep();
                idle = 0;
            }
        }
    }

    /// Handles the events that have arrived, as long as there are free slots for responses; returns their number.
    fn handle_arrived(&mut self) -> usize {
        let count = self.incoming.slots().min(self.outgoing.slots());
        if count == 0 {
            return 0;
        }
        // The number is read after the ring, so it includes the connection of every event found in the ring.
        let connections = self.shared.connections.load(Ordering::Relaxed);
        self.processor.grow(connections).expect("the port has checked the number of connections");
        let Ok(chunk) = self.incoming.read_chunk(count) else { return 0 };
        let (older, newer) = chunk.as_slices();
        for events in [older, newer] {
            let outgoing = &mut self.outgoing;
            self.processor.handle_all(events, |response| {
                let pushed = outgoing.push(response);
                assert!(pushed.is_ok(), "the response ring has no free slot");
            });
        }
        chunk.commit_all();
        count
    }

    fn sleep(&self) {
        self.shared.is_sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let has_work = !self.incoming.is_empty() && !self.outgoing.is_full();
        if !has_work && !self.shared.is_stopping.load(Ordering::Acquire) {
            std::thread::park();
        }
        self.shared.is_sleeping.store(false, Ordering::Relaxed);
    }
}
