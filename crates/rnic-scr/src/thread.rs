//! A pool of one or two threads of the operating system.
//!
//! Source: SCR (NSDI'25), sections 4.3.2 and 4.3.3: threads start with their pool, run handlers to completion, share
//! nothing, and send decisions to the one writer of rates through a mailbox. The rings and the sleep of an idle thread
//! are OpenRNIC's, and as in `rnic-fae`.
//!
//! ```text
//!   owner of the engine                                     thread
//!   Threads::push  --record--> queue of (subject, kind) --> next queue with records, in cyclic order
//!                  --bit-----> set of queues with records      --> Handler::handle
//!   Threads::poll  <--------------------- mailbox <------------------ decision
//! ```
//!
//! The owner never blocks: queues fold when they are full, and commands that a thread has not taken yet wait at the
//! owner. A thread takes no record while its mailbox is full. All kinds of a flow are handled by one thread, so a
//! handler has the whole state of its flows.
//!
//! **Starting threads** is up to the driver ([`Spawn`]): a driver whose program does not expect threads blocks signals
//! in them. Simulations use [`crate::Pool`] instead, so their results never depend on a thread.
//!
//! **Processes that fork**: the child has a copy of the pool and no threads. It must not use the pool, nor drop it.
//!
//! This is the only file of the crate that starts a thread.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "simulations use the modelled pool, which has no thread"
)]

use core::fmt;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::thread::{JoinHandle, Thread};

use rnic_base::BitRate;
use rnic_policy::{MeterScale, MeterWeight};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::convergence::Convergence;
use crate::pool::Refused;
use crate::queue::{Pushed, Strategy};
use crate::signal::{Kind, Scope, Signal};
use crate::spsc;
use crate::steering::{HostThreads, PoolSizes, Steering, SteeringMode};
use crate::turns::Turns;

/// A function that starts a thread to execute the given work.
pub type Spawn = fn(Work) -> io::Result<JoinHandle<()>>;

/// The work that a thread executes.
pub type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread with default settings, for drivers that do not need other settings.
///
/// # Errors
/// Returns an error if the system cannot create the thread.
pub fn spawn(work: Work) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("rnic-scr".to_owned()).spawn(work)
}

/// Maximum number of threads: a host has few cores to spare.
pub const HOST_THREADS_MAX: usize = 2;

/// Maximum number of queues of a thread. Records that would need another queue are rejected.
pub const QUEUES_MAX: u32 = 1 << 14;

/// Maximum number of decisions in a mailbox; its thread takes no more records until some are read.
const MAILBOX: usize = 1_024;

/// Commands that a thread can have before the owner keeps them back.
const COMMANDS: usize = 256;

/// Number of unsuccessful polls for records before a thread sleeps: about 50 us in total.
const IDLE_POLLS_MAX: u32 = 1 << 14;

/// A program with its state, run by one thread.
pub trait Handler: Send + 'static {
    /// The decision for a record.
    type Answer: Copy + Send + 'static;
    /// State passed to the program with a flow that joins.
    type Flow: Send + 'static;

    /// Adds a flow, before its first record.
    fn join(&mut self, flow: u32, state: Self::Flow);

    /// Processes `record` to its end.
    fn handle(&mut self, record: &Signal) -> Self::Answer;

    /// Returns the rate that applies with `answer`, by which [`Strategy::WhileStable`] recognises a stable flow.
    fn rate(answer: &Self::Answer) -> u32;

    /// Removes the state of a flow that left.
    fn forget(&mut self, flow: u32);
}

/// A decision that a thread sent to the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<A> {
    /// The record as the handler received it.
    pub record: Signal,
    /// The handler's answer.
    pub answer: A,
}

/// A decision, and the number of the queue of its record.
#[derive(Clone, Copy)]
struct Letter<A> {
    queue: u64,
    decision: Decision<A>,
}

/// A command to a thread.
enum Command<F> {
    Join { flow: u32, state: F },
    Open { position: u32, queue: Box<Opened> },
    Close { position: u32 },
    Forget { flow: u32 },
}

/// A queue at its thread.
struct Opened {
    records: spsc::Consumer,
    /// Number of the queue, never used twice.
    number: u64,
    convergence: Option<Convergence>,
}

/// State that the owner and one thread share.
#[derive(Debug)]
struct Shared {
    /// One bit for each queue: set if it has received a record.
    ready: Box<[AtomicU64]>,
    epoch: AtomicU32,
    /// Number of records taken by the thread.
    events: AtomicU64,
    is_stopping: AtomicBool,
    is_sleeping: AtomicBool,
}

/// The owner's side of one thread.
struct Link<H: Handler> {
    commands: Producer<Command<H::Flow>>,
    /// Commands for which the ring has no free slot, oldest first: at most three per queue.
    waiting: VecDeque<Command<H::Flow>>,
    mailbox: Consumer<Letter<H::Answer>>,
    shared: Arc<Shared>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
    /// Free positions below `positions`.
    free: Vec<u32>,
    positions: u32,
}

/// The owner's end of a queue.
struct Entry {
    records: spsc::Producer,
    number: u64,
    position: u32,
}

/// The owner's side of a pool of threads.
pub struct Threads<H: Handler> {
    steering: Steering,
    strategies: [Strategy; Kind::COUNT],
    links: Vec<Link<H>>,
    /// For each kind, the queue of each subject.
    queues: [Vec<Option<Entry>>; Kind::COUNT],
    queues_opened: u64,
    next_mailbox: usize,
    refused: u64,
}

impl<H: Handler> Threads<H> {
    /// Starts a thread for each of `handlers`, one or two, with `spawn`. `strategies` are those of each kind, by
    /// [`Kind::index`]; `line_rate` is that of which [`Strategy::WhileStable`] measures shares.
    ///
    /// # Errors
    /// Returns an error if the system provides no thread.
    ///
    /// # Panics
    /// If there is no handler, or more than [`HOST_THREADS_MAX`].
    pub fn start(
        handlers: Vec<H>,
        strategies: [Strategy; Kind::COUNT],
        line_rate: BitRate,
        spawn: Spawn,
    ) -> io::Result<Self> {
        let threads = handlers.len();
        assert!((1..=HOST_THREADS_MAX).contains(&threads), "a pool of {threads} threads");
        let each = threads as u16;
        // Every pool of the model is mapped to the same threads.
        let sizes = PoolSizes { in_band: each, out_of_band: each, host: HostThreads::Shared(each) };
        let steering = Steering::new(sizes, SteeringMode::Software).map_err(io::Error::other)?;
        let scale = MeterScale::new(line_rate, MeterWeight::Time);
        let links =
            handlers.into_iter().map(|handler| Link::start(handler, scale, spawn)).collect::<io::Result<_>>()?;
        let queues = core::array::from_fn(|_| Vec::new());
        Ok(Self { steering, strategies, links, queues, queues_opened: 0, next_mailbox: 0, refused: 0 })
    }

    /// Adds a flow ([`Steering::join`]) and passes its `state` to the program.
    pub fn join(&mut self, identity: u64, state: H::Flow) -> Option<u32> {
        let flow = self.steering.join(identity)?;
        if let Some(thread) = self.thread(flow, Kind::Tx) {
            self.links[thread].command(Command::Join { flow, state });
        }
        Some(flow)
    }

    /// Removes a flow: its index is free, and no decision about it is returned any more.
    pub fn forget(&mut self, flow: u32) {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.scope() == Scope::Flow) {
            let entry = self.queues[kind.index()].get_mut(flow as usize).and_then(Option::take);
            if let (Some(entry), Some(thread)) = (entry, self.thread(flow, kind)) {
                let link = &mut self.links[thread];
                link.command(Command::Close { position: entry.position });
                link.free.push(entry.position);
            }
        }
        if let Some(thread) = self.thread(flow, Kind::Tx) {
            self.links[thread].command(Command::Forget { flow });
        }
        self.steering.leave(flow);
    }

    /// Queues `record` for its thread.
    ///
    /// # Errors
    /// Returns an error if the record's subject is unknown, or if its thread has [`QUEUES_MAX`] queues.
    pub fn push(&mut self, record: &Signal) -> Result<Pushed, Refused> {
        let (kind, subject) = (record.kind, record.subject);
        let Some(thread) = self.thread(subject, kind) else {
            self.refused += 1;
            return Err(Refused::UnknownSubject { kind, subject });
        };
        let queues = &mut self.queues[kind.index()];
        if queues.len() <= subject as usize {
            queues.resize_with(subject as usize + 1, || None);
        }
        let link = &mut self.links[thread];
        let queue = &mut queues[subject as usize];
        if queue.is_none() {
            let Some(position) = link.take_position() else {
                self.refused += 1;
                return Err(Refused::TooManyQueues { kind, subject });
            };
            self.queues_opened += 1;
            let (entry, opened) = open(self.strategies[kind.index()], self.queues_opened, position);
            link.command(Command::Open { position, queue: Box::new(opened) });
            *queue = Some(entry);
        }
        let Some(entry) = queue else { return Err(Refused::TooManyQueues { kind, subject }) };
        let pushed = entry.records.push(record);
        link.announce(entry.position);
        Ok(pushed)
    }

    /// Returns the next decision. While records are queued, the owner must call this every few microseconds, because it
    /// is not notified of decisions.
    ///
    /// # Panics
    /// If a handler has panicked. A handler that runs inline panics in the owner too.
    pub fn poll(&mut self) -> Option<Decision<H::Answer>> {
        for _ in 0..self.links.len() {
            let turn = self.next_mailbox;
            self.next_mailbox = (turn + 1) % self.links.len();
            let link = &mut self.links[turn];
            link.pass_commands();
            while let Some(letter) = link.receive() {
                if is_current(&self.queues, &letter) {
                    return Some(letter.decision);
                }
            }
        }
        None
    }

    /// Declares all rates unstable: see [`crate::Pool::restart`].
    pub fn restart(&mut self) {
        for link in &self.links {
            link.shared.epoch.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.links.len()
    }

    /// Returns the number of records taken by threads, including those that were merged while a rate was stable.
    pub fn events(&self) -> u64 {
        self.links.iter().map(|link| link.shared.events.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of records that were refused.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn thread(&self, subject: u32, kind: Kind) -> Option<usize> {
        self.steering.thread(subject, kind).map(|thread| thread % self.links.len())
    }
}

/// Returns `true` if the queue of the record still exists: its subject may have been removed, and its number may have
/// been reused.
fn is_current<A>(queues: &[Vec<Option<Entry>>; Kind::COUNT], letter: &Letter<A>) -> bool {
    let Signal { kind, subject, .. } = letter.decision.record;
    let entry = queues[kind.index()].get(subject as usize).and_then(Option::as_ref);
    entry.is_some_and(|entry| entry.number == letter.queue)
}

/// Creates both ends of queue `number`.
fn open(strategy: Strategy, number: u64, position: u32) -> (Entry, Opened) {
    let (producer, consumer) = spsc::queue(strategy);
    let convergence = (strategy == Strategy::WhileStable).then(Convergence::default);
    (Entry { records: producer, number, position }, Opened { records: consumer, number, convergence })
}

impl<H: Handler> fmt::Debug for Threads<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("threads", &self.links.len()).finish_non_exhaustive()
    }
}

impl<H: Handler> Link<H> {
    fn start(handler: H, scale: MeterScale, spawn: Spawn) -> io::Result<Self> {
        let (commands, incoming) = RingBuffer::new(COMMANDS);
        let (outgoing, mailbox) = RingBuffer::new(MAILBOX);
        let shared = Arc::new(Shared {
            ready: (0..QUEUES_MAX / 64).map(|_| AtomicU64::new(0)).collect(),
            epoch: AtomicU32::new(0),
            events: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            is_sleeping: AtomicBool::new(false),
        });
        let worker_shared = Arc::clone(&shared);
        let worker = move || {
            Worker {
                handler,
                scale,
                incoming,
                outgoing,
                shared: worker_shared,
                queues: Vec::new(),
                turns: Turns::default(),
            }
            .run();
        };
        let handle = spawn(Box::new(worker))?;
        let (thread, handle) = (handle.thread().clone(), Some(handle));
        let (waiting, free) = (VecDeque::new(), Vec::new());
        Ok(Self { commands, waiting, mailbox, shared, thread, handle, free, positions: 0 })
    }

    fn take_position(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.positions < QUEUES_MAX).then(|| {
                self.positions += 1;
                self.positions - 1
            })
        })
    }

    fn command(&mut self, command: Command<H::Flow>) {
        self.waiting.push_back(command);
        self.pass_commands();
    }

    fn pass_commands(&mut self) {
        let had_commands = !self.waiting.is_empty();
        while !self.commands.is_full()
            && let Some(command) = self.waiting.pop_front()
        {
            let pushed = self.commands.push(command);
            debug_assert!(pushed.is_ok(), "the ring has no free slot");
        }
        if had_commands {
            self.wake();
        }
    }

    /// Returns the next decision of the thread.
    fn receive(&mut self) -> Option<Letter<H::Answer>> {
        let Ok(letter) = self.mailbox.pop() else {
            let is_dead = self.handle.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!is_dead, "a thread of SCR's pool has failed");
            return None;
        };
        // The thread may be waiting for a free slot in its mailbox.
        self.wake();
        Some(letter)
    }

    /// Notifies the thread that the queue at `position` has a record.
    fn announce(&mut self, position: u32) {
        self.shared.ready[(position / 64) as usize].fetch_or(1 << (position % 64), Ordering::Release);
        self.wake();
    }

    #[inline]
    fn wake(&self) {
        // Pairs with the fence of `Worker::sleep`: either this thread sees that the worker sleeps, or the worker sees
        // the record, the command or the free slot of its mailbox.
        fence(Ordering::SeqCst);
        if self.shared.is_sleeping.load(Ordering::Relaxed) {
            self.thread.unpark();
        }
    }
}

impl<H: Handler> Drop for Link<H> {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.thread.unpark();
        if let Some(handle) = self.handle.take() {
            // A panic of the worker was already reported when it occurred; there is nothing to add while dropping.
            drop(handle.join());
        }
    }
}

struct Worker<H: Handler> {
    handler: H,
    scale: MeterScale,
    incoming: Consumer<Command<H::Flow>>,
    outgoing: Producer<Letter<H::Answer>>,
    shared: Arc<Shared>,
    queues: Vec<Option<Box<Opened>>>,
    turns: Turns,
}

impl<H: Handler> Worker<H> {
    fn run(mut self) {
        let mut idle = 0;
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            if self.handle_next() {
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

    /// Handles the next record; returns `false` if there is none, or the mailbox is full.
    fn handle_next(&mut self) -> bool {
        if self.outgoing.is_full() {
            return false;
        }
        // Bits are read before commands, so that the queue of every bit is open.
        self.collect_ready();
        self.execute_commands();
        let Some(position) = self.turns.serve() else { return false };
        let Some(opened) = self.queues.get_mut(position as usize).and_then(Option::as_mut) else {
            // It was closed after its last record, or its command waits at the owner and the bit is announced again.
            self.turns.remove(position);
            return true;
        };
        let Some(record) = opened.records.take() else {
            // If its record was being written, the owner announces the queue afterwards.
            self.turns.remove(position);
            return true;
        };
        self.shared.events.fetch_add(1, Ordering::Relaxed);
        let record = match &mut opened.convergence {
            Some(convergence) => convergence.offer(&record, self.shared.epoch.load(Ordering::Relaxed), &self.scale),
            None => Some(record),
        };
        let Some(record) = record else { return true };
        let answer = self.handler.handle(&record);
        if let Some(convergence) = &mut opened.convergence {
            convergence.on_decision(H::rate(&answer));
        }
        let letter = Letter { queue: opened.number, decision: Decision { record, answer } };
        let pushed = self.outgoing.push(letter);
        debug_assert!(pushed.is_ok(), "only this thread fills the mailbox");
        true
    }

    /// Moves the bits of open queues to the cycle. A queue that is opened later is inserted then.
    fn collect_ready(&mut self) {
        let words = self.queues.len().div_ceil(64);
        for (word, bits) in self.shared.ready[..words].iter().enumerate() {
            // A plain load first, because most words are zero and stay in the cache.
            if bits.load(Ordering::Relaxed) != 0 {
                self.turns.insert_word(word, bits.swap(0, Ordering::Acquire));
            }
        }
    }

    fn execute_commands(&mut self) {
        while let Ok(command) = self.incoming.pop() {
            match command {
                Command::Join { flow, state } => self.handler.join(flow, state),
                Command::Open { position, queue } => {
                    if self.queues.len() <= position as usize {
                        self.queues.resize_with(position as usize + 1, || None);
                    }
                    self.queues[position as usize] = Some(queue);
                    // Records may have been announced before the command was passed.
                    self.turns.insert(position);
                }
                Command::Close { position } => {
                    if let Some(queue) = self.queues.get_mut(position as usize) {
                        *queue = None;
                    }
                }
                Command::Forget { flow } => self.handler.forget(flow),
            }
        }
    }

    fn sleep(&self) {
        self.shared.is_sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let words = &self.shared.ready[..self.queues.len().div_ceil(64)];
        let has_records = !self.turns.is_empty() || words.iter().any(|bits| bits.load(Ordering::Relaxed) != 0);
        let has_work = !self.incoming.is_empty() || has_records;
        let may_work = has_work && !self.outgoing.is_full();
        if !may_work && !self.shared.is_stopping.load(Ordering::Acquire) {
            std::thread::park();
        }
        self.shared.is_sleeping.store(false, Ordering::Relaxed);
    }
}
