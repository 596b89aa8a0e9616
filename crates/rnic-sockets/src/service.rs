//! The thread that drives a NIC, its streams, and the bridges to the program.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rnic_host::observe::{self, Identity, Observer, Snapshot};
use rnic_host::stream::{Offer, StreamEvent, StreamId, Streams};
use rnic_host::{AbortOnPanic, ConnectionEvent, ConnectionRequest, Nic, NicConfig};

use crate::accepted::{Accepted, Waiting};
use crate::bridge::{Bridge, Progress};
use crate::{kernel, registry, report};

/// A request of the program's threads.
enum Command {
    /// Requests a stream from the service `port` at `to`; local TCP port and token are those of the shadow.
    Connect { to: SocketAddr, shadow: (u16, u64), reply: mpsc::Sender<Result<StreamId, String>> },
    /// Connects a stream to the program.
    Attach { id: StreamId, bridge: Box<Bridge> },
    /// Closes a stream without delivering the rest of its data.
    Close { id: StreamId },
    /// The process exits: delivers what the program has written.
    Drain { done: mpsc::Sender<()> },
    /// Returns the state of the NIC.
    Inspect { reply: mpsc::Sender<Snapshot> },
}

/// A NIC with its thread.
#[derive(Debug)]
pub(crate) struct Service {
    commands: Mutex<Vec<Command>>,
    event: OwnedFd,
    accepted: Mutex<Accepted>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Starts a thread with a NIC at `bind`; with `accepts`, it accepts streams for the port of this address.
    ///
    /// # Errors
    /// The reason that the NIC cannot be opened, as text.
    pub(crate) fn start(bind: SocketAddr, accepts: bool) -> Result<Arc<Self>, String> {
        let event = kernel::event().map_err(|error| error.to_string())?;
        registry::lock().add_descriptor(event.as_raw_fd());
        let service = Arc::new(Self { commands: Mutex::default(), event, accepted: Mutex::default() });
        let (opened, result) = mpsc::channel();
        let of_thread = Arc::clone(&service);
        let started = kernel::spawn("rnic-sockets", move || {
            let _abort_on_panic = AbortOnPanic::begin();
            let worker = Worker::open(&of_thread, bind, accepts);
            let _ = opened.send(worker.as_ref().map(drop).map_err(Clone::clone));
            if let Ok(mut worker) = worker {
                worker.run();
            }
        });
        started.map_err(|error| error.to_string())?;
        result.recv().map_err(|error| error.to_string())??;
        Ok(service)
    }

    fn send(&self, command: Command) {
        lock(&self.commands).push(command);
        kernel::signal(&self.event);
    }

    /// Requests a stream to `to`, and waits until the other end has confirmed it.
    ///
    /// # Errors
    /// A description of why the stream could not be established.
    pub(crate) fn connect(&self, to: SocketAddr, shadow: (u16, u64)) -> Result<StreamId, String> {
        let (reply, result) = mpsc::channel();
        self.send(Command::Connect { to, shadow, reply });
        result.recv().unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Connects a stream to the program.
    pub(crate) fn attach(&self, id: StreamId, bridge: Bridge) {
        self.send(Command::Attach { id, bridge: Box::new(bridge) });
    }

    /// Closes a stream without delivering the rest of its data.
    pub(crate) fn close(&self, id: StreamId) {
        self.send(Command::Close { id });
    }

    /// Returns the stream to which an accepted TCP connection from this address belongs.
    pub(crate) fn take_accepted(&self, from: SocketAddr) -> Option<Waiting> {
        lock(&self.accepted).take(from)
    }

    /// Delivers what the program has written; the returned channel reports the end of that.
    pub(crate) fn drain(&self) -> mpsc::Receiver<()> {
        let (done, result) = mpsc::channel();
        self.send(Command::Drain { done });
        result
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let (reply, result) = mpsc::channel();
        self.send(Command::Inspect { reply });
        result.recv_timeout(SNAPSHOT_TIMEOUT).ok()
    }
}

/// The thread of a service.
struct Worker {
    service: Arc<Service>,
    nic: Nic,
    streams: Streams,
    bridges: BTreeMap<StreamId, Bridge>,
    /// Streams that this end has requested, until the other end has confirmed them.
    requested: BTreeMap<StreamId, mpsc::Sender<Result<StreamId, String>>>,
    /// Requests of peers that are accepted and not established yet.
    offers: BTreeMap<StreamId, (SocketAddr, u64)>,
    draining: Option<(mpsc::Sender<()>, Instant)>,
    identity: Identity,
    /// Serves `rnic top` while it lives.
    _observer: Option<Observer>,
}

impl Worker {
    fn open(service: &Arc<Service>, bind: SocketAddr, accepts: bool) -> Result<Self, String> {
        let settings = report::settings().ok_or("the settings are invalid")?;
        let mut nic = Nic::open(settings.to_nic_config(NicConfig::at(bind))).map_err(|error| error.to_string())?;
        let streams = report::stream_config(settings)
            .and_then(|config| Streams::new(&mut nic, config).map_err(|error| error.to_string()))?;
        if accepts {
            nic.listen(bind.port(), BACKLOG).map_err(|error| error.to_string())?;
        }
        nic.raw_fds().into_iter().for_each(|fd| registry::lock().add_descriptor(fd));
        let of_observer = Arc::downgrade(service);
        let observer = observe::serve(move || of_observer.upgrade()?.snapshot()).ok();
        Ok(Self {
            service: Arc::clone(service),
            nic,
            streams,
            bridges: BTreeMap::new(),
            requested: BTreeMap::new(),
            offers: BTreeMap::new(),
            draining: None,
            identity: Identity::of_process("rnic-sockets", "udp", settings),
            _observer: observer,
        })
    }

    fn run(&mut self) {
        loop {
            self.take_commands();
            let mut moved = self.nic.progress();
            while let Some(event) = self.nic.poll_connection_event() {
                moved = true;
                self.take_event(event);
            }
            moved |= self.streams.progress(&mut self.nic);
            self.confirm();
            moved |= self.serve_bridges();
            self.check_drained();
            if !moved {
                self.sleep();
            }
        }
    }

    fn take_commands(&mut self) {
        let commands = std::mem::take(&mut *lock(&self.service.commands));
        for command in commands {
            match command {
                Command::Connect { to, shadow, reply } => {
                    match self.streams.connect(&mut self.nic, to, to.port(), shadow) {
                        Ok(id) => {
                            self.requested.insert(id, reply);
                        }
                        // If the program no longer waits, it has given up the connection.
                        Err(error) => drop(reply.send(Err(error.to_string()))),
                    }
                }
                Command::Attach { id, bridge } => {
                    self.bridges.insert(id, *bridge);
                }
                Command::Close { id } => self.streams.close(&mut self.nic, id),
                Command::Drain { done } => {
                    for (id, bridge) in &mut self.bridges {
                        bridge.drain(&mut self.nic, &mut self.streams, *id);
                    }
                    self.draining = Some((done, Instant::now()));
                }
                Command::Inspect { reply } => drop(reply.send(self.nic.snapshot(&self.identity))),
            }
        }
    }

    fn take_event(&mut self, event: ConnectionEvent) {
        if let ConnectionEvent::Requested(request) = &event {
            return self.accept(request);
        }
        match self.streams.process(&mut self.nic, event) {
            Some(StreamEvent::Established(id)) => {
                if let Some((from, token)) = self.offers.remove(&id)
                    && !lock(&self.service.accepted).insert(from, Waiting { id, token })
                {
                    self.streams.close(&mut self.nic, id);
                }
            }
            Some(StreamEvent::Failed(id, error)) => {
                self.offers.remove(&id);
                if let Some(reply) = self.requested.remove(&id) {
                    let _ = reply.send(Err(error.to_string()));
                }
            }
            None => {}
        }
    }

    fn accept(&mut self, request: &ConnectionRequest) {
        if self.streams.len() >= STREAMS_MAX {
            // The client uses TCP. If the request is no longer pending, there is nothing to reject.
            let _ = self.nic.reject(request.id, "this process has reached its maximum number of streams");
            return;
        }
        // A request that does not describe a stream is rejected there.
        if let Ok(id) = self.streams.accept(&mut self.nic, request)
            && let Some(offer) = Offer::parse(&request.private_data)
        {
            self.offers.insert(id, (SocketAddr::new(request.from.ip(), offer.port), offer.token));
        }
    }

    /// Reports streams that the other end has confirmed, and requested or waiting ones that have failed.
    fn confirm(&mut self) {
        let Self { streams, requested, nic, service, bridges, .. } = self;
        requested.retain(|id, reply| {
            let result = match streams.broken(*id) {
                Some(broken) => Err(broken.to_string()),
                None if streams.is_confirmed(*id) => Ok(*id),
                None => return true,
            };
            let is_broken = result.is_err();
            // If the program no longer waits, the stream is of no use.
            if reply.send(result).is_err() || is_broken {
                streams.close(nic, *id);
            }
            false
        });
        let mut failed = Vec::new();
        lock(&service.accepted).each(|id| {
            if streams.broken(id).is_some() {
                failed.push(id);
            }
        });
        for id in failed {
            lock(&service.accepted).remove(id);
            if !bridges.contains_key(&id) {
                streams.close(nic, id);
            }
        }
    }

    fn serve_bridges(&mut self) -> bool {
        let Self { bridges, nic, streams, .. } = self;
        let mut moved = false;
        let mut ended = Vec::new();
        for (id, bridge) in bridges.iter_mut() {
            match bridge.serve(nic, streams, *id) {
                Progress::Idle => {}
                Progress::Moved => moved = true,
                end => ended.push((*id, end)),
            }
        }
        for (id, end) in ended {
            let Some(bridge) = bridges.remove(&id) else { continue };
            streams.close(nic, id);
            registry::lock().remove_connection(bridge.inode, bridge.descriptors());
            if let Progress::Failed(why) = &end {
                report::note(why);
            }
            if end != Progress::Over {
                bridge.reset();
            }
            moved = true;
        }
        moved
    }

    fn check_drained(&mut self) {
        let Some((done, since)) = &self.draining else { return };
        let is_delivered = |id: &StreamId| self.streams.undelivered_bytes(*id) == 0;
        let is_done = |(id, bridge): (&StreamId, &Bridge)| {
            bridge.is_program_done() && is_delivered(id) && (self.streams.is_over(*id) || since.elapsed() > LINGER)
        };
        if self.bridges.iter().all(is_done) || since.elapsed() > DRAIN_MAX {
            let _ = done.send(());
            self.draining = None;
        } else if self.bridges.values().any(|bridge| !bridge.is_program_done()) {
            for (id, bridge) in &mut self.bridges {
                bridge.drain(&mut self.nic, &mut self.streams, *id);
            }
        }
    }

    /// Sleeps until there is work.
    fn sleep(&mut self) {
        if self.nic.wants_progress() {
            return;
        }
        let mut wanted: Vec<libc::pollfd> = Vec::with_capacity(3 + 2 * self.bridges.len());
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        wanted.push(readable(self.service.event.as_raw_fd()));
        wanted.extend(self.nic.raw_fds().into_iter().map(readable));
        let first_bridge = wanted.len();
        self.bridges.iter().for_each(|(id, bridge)| bridge.wanted(&self.streams, *id, &mut wanted));
        let to_std = |time: rnic_base::Duration| Duration::from_nanos(time.as_ps().div_ceil(1_000));
        let now = self.nic.now();
        let deadlines = [
            self.nic.next_deadline().map(to_std),
            self.streams.next_at().map(|at| to_std(at.since(now))),
            self.bridges.values().filter_map(Bridge::next_in).min(),
            self.draining.as_ref().map(|_| DRAIN_POLL),
        ];
        let timeout = deadlines.into_iter().flatten().min();
        if timeout == Some(Duration::ZERO) || kernel::wait(&mut wanted, timeout).is_err() {
            return;
        }
        if wanted[0].revents != 0 {
            kernel::clear(&self.service.event);
        }
        for (bridge, found) in self.bridges.values_mut().zip(wanted[first_bridge..].chunks_exact(2)) {
            bridge.note(&found[0], &found[1]);
        }
    }
}

/// Requests of peers that may wait for a decision of the library, which is immediate.
const BACKLOG: usize = 128;

/// Maximum number of streams of a service, each with the memory of its windows. Further connections use TCP.
const STREAMS_MAX: usize = 4_096;

/// Time limit for answering `rnic top`.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which the exit of the process waits until its data is delivered.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Additional time to wait until the other end has ended its direction.
const LINGER: Duration = Duration::from_millis(50);

/// Interval between checks of whether all connections have been drained.
const DRAIN_POLL: Duration = Duration::from_millis(5);
