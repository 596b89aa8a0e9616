//! State of the process that its threads share: the addresses of connections as programs see them, and the descriptors
//! of this library.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Addresses of a connection, as programs see them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// State of the library in this process.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Addresses by the identity of the program's socket.
    names: BTreeMap<u64, Names>,
    /// Descriptors of this library, which a child process closes.
    descriptors: BTreeSet<RawFd>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { names: BTreeMap::new(), descriptors: BTreeSet::new() });

/// Number of names, so that a lookup costs nothing in programs without streams.
static NAMES: AtomicUsize = AtomicUsize::new(0);

/// Returns the state, locked. It is held briefly, and across a fork.
pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the addresses of the program's socket with this identity.
pub(crate) fn names_of(inode: impl FnOnce() -> Option<u64>) -> Option<Names> {
    if NAMES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    lock().names.get(&inode()?).copied()
}

impl Registry {
    /// Adds a connection: the addresses that the program sees of its socket, and the library's descriptors.
    pub(crate) fn add_connection(&mut self, inode: u64, names: Names, descriptors: [RawFd; 2]) {
        self.names.insert(inode, names);
        self.descriptors.extend(descriptors);
        NAMES.store(self.names.len(), Ordering::Relaxed);
    }

    /// Removes a connection, whose descriptors are closed next.
    pub(crate) fn remove_connection(&mut self, inode: u64, descriptors: [RawFd; 2]) {
        self.names.remove(&inode);
        self.descriptors.retain(|fd| !descriptors.contains(fd));
        NAMES.store(self.names.len(), Ordering::Relaxed);
    }

    /// Adds a descriptor of this library, which stays open.
    pub(crate) fn add_descriptor(&mut self, fd: RawFd) {
        self.descriptors.insert(fd);
    }

    /// Removes and returns the descriptors of this library.
    pub(crate) fn take_descriptors(&mut self) -> BTreeSet<RawFd> {
        std::mem::take(&mut self.descriptors)
    }
}
