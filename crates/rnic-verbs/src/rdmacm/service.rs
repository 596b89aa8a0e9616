//! Connection state of the process: identifiers, ports, and the thread that serves them.
//!
//! All state is protected by one lock, which is never held while waiting or calling a verb. The thread sleeps in
//! `poll` on the ports' sockets; it receives and retransmits messages, and puts events into channels. The changes of
//! a queue pair that follow from an event are made when the program fetches it (`event.rs`), as with the kernel's
//! connection manager.

pub(super) mod entry;
pub(super) mod pending;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rnic_base::{Duration, Time};
use rnic_host::cm::{Binding, ConnectionId, Endpoint, GsiItem, GsiPort, Inbox};
use rnic_host::{AbortOnPanic, SecretStream, Secrets};
use rnic_wire::cm::ServiceId;

use crate::cancel::CancellationGuard;
use crate::errno::{Errno, Result};
use crate::fork::{self, Process};
use crate::heap::Busy;
use entry::Entry;
use pending::Events;

/// Key of an identifier or a port. Never reused.
pub(super) type Key = u64;

/// The complete state of the connection manager.
pub(super) struct Cm {
    pub(super) ids: BTreeMap<Key, Entry>,
    pub(super) ports: BTreeMap<Key, Port>,
    /// Owner of each connection.
    pub(super) owners: BTreeMap<(Key, ConnectionId), Owner>,
    /// Identifiers whose connections are over, with the time after which none of their packets is in flight.
    pub(super) waits: BinaryHeap<Reverse<(Time, Key)>>,
    /// Generator of initial packet sequence numbers.
    pub(super) psns: SecretStream,
    /// With real RoCEv2 peers: the port through which messages are exchanged, and the endpoint that responds to
    /// messages that belong to no port.
    gsi: Option<(Arc<GsiPort>, Endpoint)>,
    next_key: Key,
    probe_at: Time,
    wake: OwnedFd,
    process: Process,
}

/// A UDP port of this process.
pub(super) struct Port {
    pub(super) endpoint: Endpoint,
    binding: SocketAddr,
    /// Identifiers that have bound the port, each with its port space and whether it permits sharing.
    pub(super) binders: Vec<(Key, u32, bool)>,
    /// Number of identifiers whose connections use the port, including those that have bound it.
    pub(super) users: usize,
    /// Listening identifier of each service.
    pub(super) listeners: BTreeMap<ServiceId, Key>,
    /// True when the port was opened for an identifier that requested no particular port.
    is_anonymous: bool,
}

/// Owner of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Id(Key),
    /// A request that the program has not fetched yet; contains the key of the listening identifier.
    Arrival(Key),
}

static CM: Mutex<Option<Cm>> = Mutex::new(None);

/// Signalled when an event has been acknowledged.
pub(super) static ACKNOWLEDGED: Condvar = Condvar::new();

/// Holds the lock of the connection manager. Messages queued meanwhile are sent when the guard is dropped.
pub(super) struct Guard {
    cm: Option<MutexGuard<'static, Option<Cm>>>,
    is_thread: bool,
    /// Disables cancellation of the thread until the queued messages have been sent.
    _cancellation_guard: CancellationGuard,
}

impl Deref for Guard {
    type Target = Cm;

    fn deref(&self) -> &Cm {
        self.cm.as_ref().and_then(|cm| cm.as_ref()).expect("the connection manager exists while a guard does")
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Cm {
        self.cm.as_mut().and_then(|cm| cm.as_mut()).expect("the connection manager exists while a guard does")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.cm.is_some() {
            self.flush_and_wake();
        }
    }
}

impl Guard {
    /// Sends queued messages, and wakes the thread so that it sees new sockets and deadlines.
    fn flush_and_wake(&mut self) {
        self.flush();
        if !self.is_thread {
            let one = 1u64;
            // SAFETY: writes eight bytes of a local variable.
            unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
        }
    }

    /// Releases the lock, waits until an event is acknowledged, and takes the lock again.
    pub(super) fn wait(mut self) -> Self {
        self.flush_and_wake();
        let cm = self.cm.take().expect("a guard holds the lock");
        self.cm = Some(ACKNOWLEDGED.wait(cm).unwrap_or_else(PoisonError::into_inner));
        self
    }
}

/// Returns the time since the first call.
pub(super) fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed_ns = u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX);
    Time::from_ps(elapsed_ns.saturating_mul(1_000))
}

impl Cm {
    /// Takes the lock; the first call in a process starts the thread.
    pub(super) fn lock() -> Result<Guard> {
        let cancellation_guard = CancellationGuard::begin();
        let mut cm = CM.lock().unwrap_or_else(PoisonError::into_inner);
        if cm.as_ref().is_none_or(|cm| !cm.process.is_current()) {
            // State inherited by a child belongs to the parent: the child's copies of the sockets are closed, and no
            // message is sent.
            *cm = Some(Self::new()?);
            spawn()?;
        }
        Ok(Guard { cm: Some(cm), is_thread: false, _cancellation_guard: cancellation_guard })
    }

    /// Ensures that the thread is running.
    pub(super) fn start() -> Result<()> {
        Self::lock().map(drop)
    }

    fn new() -> Result<Self> {
        fork::watch();
        let secrets = Secrets::draw().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
        // SAFETY: creates a new descriptor.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        Ok(Self {
            ids: BTreeMap::new(),
            ports: BTreeMap::new(),
            owners: BTreeMap::new(),
            waits: BinaryHeap::new(),
            psns: secrets.stream("first sequence numbers"),
            gsi: None,
            next_key: 1,
            probe_at: now(),
            wake,
            process: Process::current(),
        })
    }

    fn flush(&mut self) {
        let fallback_endpoint = self.gsi.iter_mut().map(|(_, fallback_endpoint)| fallback_endpoint);
        self.ports.values_mut().map(|port| &mut port.endpoint).chain(fallback_endpoint).for_each(Endpoint::flush);
    }

    /// Makes all messages use the general services interface `gsi` from now on, as real RoCEv2 peers require.
    pub(super) fn manage(&mut self, gsi: &Arc<GsiPort>) -> Result<()> {
        if self.gsi.is_none() {
            let fallback_endpoint = Endpoint::without_port(Arc::clone(gsi));
            let fallback_endpoint =
                fallback_endpoint.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
            gsi.manage();
            self.gsi = Some((Arc::clone(gsi), fallback_endpoint));
        }
        Ok(())
    }

    /// Processes messages received at the general services interface: passes each one to the port that it belongs to.
    fn receive_gsi(&mut self, now: Time) {
        let Self { gsi: Some((gsi, fallback_endpoint)), ports, .. } = self else { return };
        for item in gsi.take() {
            match item {
                GsiItem::Message(path, mad) => {
                    let known =
                        ports.values_mut().map(|port| &mut port.endpoint).find(|place| place.handles(&path, &mad));
                    known.unwrap_or(fallback_endpoint).receive_message(now, &path, *mad);
                }
                GsiItem::Unreachable(address, errno, quoted) => {
                    let endpoints = ports.values_mut().map(|port| &mut port.endpoint);
                    endpoints.for_each(|place| place.note_unreachable(now, address, errno, &quoted));
                }
            }
        }
    }

    pub(super) fn new_key(&mut self) -> Key {
        self.next_key += 1;
        self.next_key
    }

    /// Returns the state of an identifier of the program.
    pub(super) fn entry(&mut self, key: Key) -> Result<&mut Entry> {
        self.ids.get_mut(&key).ok_or(Errno::INVALID)
    }

    /// Returns the port that an identifier uses.
    pub(super) fn port_of(&mut self, key: Key) -> Result<(Key, &mut Port)> {
        let port = self.entry(key)?.port.ok_or(Errno::INVALID)?;
        let found = self.ports.get_mut(&port).ok_or(Errno::INVALID)?;
        Ok((port, found))
    }

    /// Binds `address` for an identifier. A port that this process already has open is shared when all identifiers in
    /// the same port space permit it.
    pub(super) fn bind(&mut self, key: Key, address: SocketAddr) -> Result<SocketAddr> {
        let entry = self.entry(key)?;
        let (space, shares, only_v6) = (entry.space, entry.options.shares_address, entry.options.only_v6);
        let known = self.ports.iter().find(|(_, port)| port.binding == address && address.port() != 0);
        let port = match known.map(|(port, _)| *port) {
            Some(port) => {
                let binders = &self.ports[&port].binders;
                if binders.iter().any(|(_, other, other_shares)| *other == space && !(shares && *other_shares)) {
                    return Err(Errno(libc::EADDRINUSE));
                }
                port
            }
            None => self.open(&Binding { address, only_v6 }, false)?,
        };
        let place = self.use_port(key, port)?;
        place.binders.push((key, space, shares));
        Ok(place.endpoint.local_addr())
    }

    /// Selects a port for an identifier that has bound none: a new one, or an existing one when the process has
    /// `ANONYMOUS_PORTS_MAX` such ports.
    pub(super) fn bind_anonymously(&mut self, key: Key, source: SocketAddr) -> Result<SocketAddr> {
        let mut anonymous = self.ports.iter().filter(|(_, port)| port.is_anonymous);
        let port = if anonymous.clone().count() < ANONYMOUS_PORTS_MAX {
            self.open(&Binding { address: source, only_v6: true }, true)?
        } else {
            let same_ip = anonymous.clone().filter(|(_, port)| port.binding.ip() == source.ip());
            let shared = same_ip.min_by_key(|(_, port)| port.users).or_else(|| anonymous.next());
            shared.map(|(port, _)| *port).ok_or(Errno(libc::EADDRNOTAVAIL))?
        };
        Ok(self.use_port(key, port)?.endpoint.local_addr())
    }

    fn open(&mut self, binding: &Binding, is_anonymous: bool) -> Result<Key> {
        let endpoint = Endpoint::bind(binding, self.gsi.as_ref().map(|(gsi, _)| Arc::clone(gsi)))
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EADDRINUSE)))?;
        let key = self.new_key();
        let binding = SocketAddr::new(binding.address.ip(), endpoint.local_addr().port());
        let port = Port { endpoint, binding, binders: Vec::new(), users: 0, listeners: BTreeMap::new(), is_anonymous };
        self.ports.insert(key, port);
        Ok(key)
    }

    /// Records that an identifier uses a port.
    pub(super) fn use_port(&mut self, key: Key, port: Key) -> Result<&mut Port> {
        self.entry(key)?.port = Some(port);
        let port = self.ports.get_mut(&port).ok_or(Errno::INVALID)?;
        port.users += 1;
        Ok(port)
    }

    /// Removes an identifier from the users, binders and listeners of its port.
    pub(super) fn release_port(&mut self, key: Key, port: Key) {
        let Some(place) = self.ports.get_mut(&port) else { return };
        place.users -= 1;
        place.binders.retain(|(binder, ..)| *binder != key);
        let services: Vec<ServiceId> =
            place.listeners.iter().filter(|(_, listener)| **listener == key).map(|(service, _)| *service).collect();
        for service in services {
            place.listeners.remove(&service);
            place.endpoint.unlisten(service);
        }
    }

    /// Processes messages received on the `ready` ports, and expired timers.
    fn serve(&mut self, inbox: &mut Inbox, ready: &[Key]) {
        let now = now();
        let is_probe_due = self.probe_at <= now;
        if is_probe_due {
            self.probe_at = now + PROBE_INTERVAL;
        }
        self.receive_gsi(now);
        for (key, port) in &mut self.ports {
            if ready.contains(key) {
                port.endpoint.receive(now, inbox);
            }
            if port.endpoint.next_timeout().is_some_and(|due| due <= now) {
                port.endpoint.tick(now);
            }
            if is_probe_due {
                port.endpoint.probe();
            }
        }
        let keys: Vec<Key> = self.ports.keys().copied().collect();
        for key in keys {
            while let Some(cm_event) = self.ports.get_mut(&key).and_then(|port| port.endpoint.poll_cm_event()) {
                self.process(key, cm_event);
            }
        }
        self.end_time_waits(now);
        // Ports without users are closed once the final messages of their closed connections have been sent.
        self.ports.retain(|_, port| port.users > 0 || port.endpoint.has_connections());
    }

    /// Returns the time of the thread's next timer.
    fn next_due(&self) -> Option<Time> {
        let ports = self.ports.values().filter_map(|port| port.endpoint.next_timeout());
        let wait = self.waits.peek().map(|Reverse((at, _))| *at);
        let has_connections = self.ports.values().any(|port| port.endpoint.has_connections());
        ports.chain(wait).chain(has_connections.then_some(self.probe_at)).min()
    }

    /// Returns the event queue of an identifier's channel.
    pub(super) fn events_of(&self, key: Key) -> Option<Arc<Events>> {
        self.ids.get(&key).map(|entry| Arc::clone(&entry.events))
    }
}

/// Starts the thread, with all signals blocked, because signals must be handled by the program's own threads.
fn spawn() -> Result<()> {
    // SAFETY: registers a function without arguments that exists until the process exits.
    static AT_EXIT: std::sync::Once = std::sync::Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the function exists until the process exits, because the shared object is never unloaded.
        unsafe { libc::atexit(disconnect_all) };
    });
    let (mut all, mut before) = (no_signals(), no_signals());
    // SAFETY: both sets are local variables; the mask is that of the calling thread, and is restored below.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let thread = std::thread::Builder::new().name("rnic-cm".to_owned()).spawn(run);
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    thread.map(drop).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: all zeros is a set without a signal.
    unsafe { std::mem::zeroed() }
}

/// Main loop of the thread.
fn run() {
    let _abort_on_panic = AbortOnPanic::begin();
    let mut inbox = Inbox::default();
    let mut polls: Vec<libc::pollfd> = Vec::new();
    let mut ports: Vec<Key> = Vec::new();
    loop {
        let timeout = {
            let Some(cm) = lock_as_thread() else { return };
            polls.clear();
            ports.clear();
            let poll = |fd: c_int| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            polls.push(poll(cm.wake.as_raw_fd()));
            if let Some((gsi, _)) = &cm.gsi {
                polls.push(poll(gsi.raw_fd()));
                ports.push(NO_PORT);
            }
            for (key, port) in &cm.ports {
                for fd in port.endpoint.raw_fds() {
                    polls.push(poll(fd));
                    ports.push(*key);
                }
            }
            match cm.next_due() {
                None => -1,
                Some(due) => {
                    let left_ms = due.as_ps().saturating_sub(now().as_ps()) / PS_IN_MS;
                    c_int::try_from(left_ms + 1).unwrap_or(c_int::MAX)
                }
            }
        };
        // SAFETY: the passed length is that of the array, which outlives the call.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
        let Some(mut cm) = lock_as_thread() else { return };
        let mut count = 0u64;
        // SAFETY: reads eight bytes into a local variable; the descriptor does not block.
        unsafe { libc::read(cm.wake.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        let ready = polls.iter().skip(1).zip(&ports).filter(|(poll, _)| poll.revents != 0);
        let ready: Vec<Key> = ready.map(|(_, port)| *port).collect();
        cm.serve(&mut inbox, &ready);
    }
}

fn lock_as_thread() -> Option<Guard> {
    let cancellation_guard = CancellationGuard::begin();
    let cm = CM.lock().unwrap_or_else(PoisonError::into_inner);
    cm.is_some().then_some(Guard { cm: Some(cm), is_thread: true, _cancellation_guard: cancellation_guard })
}

/// Notifies the remote ends of all connections that this process exits. A process that is killed cannot do so; that
/// case is detected through the network, see `Endpoint::probe`.
extern "C" fn disconnect_all() {
    // The signal handler must not start any work on a thread that is exiting.
    let _busy = Busy::begin();
    let Some(mut cm) = rnic_host::lock_at_exit(&CM) else { return };
    let Some(cm) = cm.as_mut().filter(|cm| cm.process.is_current()) else { return };
    let connections: Vec<(Key, ConnectionId)> = cm.owners.keys().copied().collect();
    for (port, connection) in connections {
        cm.close_connection(port, connection);
    }
    cm.flush();
}

/// Key that is used by no port.
const NO_PORT: Key = 0;

/// Maximum number of ports for identifiers that requested no particular port: each is a file descriptor of the process,
/// of which there are 1024 by default. Beyond this number, identifiers share ports.
const ANONYMOUS_PORTS_MAX: usize = 256;

/// Interval at which the remote ends of connections are probed: a killed process is detected within this time.
const PROBE_INTERVAL: Duration = Duration::from_ms(500);

const PS_IN_MS: u64 = 1_000_000_000;
