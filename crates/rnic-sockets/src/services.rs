//! The services of the process, and the listening sockets for which they accept streams.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::service::Service;

/// The services of the process.
#[derive(Debug)]
pub(crate) struct Services {
    /// Services of listening sockets, by the identity of the socket; `None` if the parent process has the service.
    listeners: BTreeMap<u64, Option<Arc<Service>>>,
    /// Services by the address at which each has bound its NIC, and whether it accepts streams.
    all: BTreeMap<(SocketAddr, bool), Arc<Service>>,
}

static SERVICES: Mutex<Services> = Mutex::new(Services { listeners: BTreeMap::new(), all: BTreeMap::new() });

/// Locks the services and returns them. The lock is held briefly, and across a fork.
pub(crate) fn lock() -> MutexGuard<'static, Services> {
    SERVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the service of the listening socket with this identity, `None` within if the parent process has it.
pub(crate) fn listener_of(inode: impl FnOnce() -> Option<u64>) -> Option<Option<Arc<Service>>> {
    let services = lock();
    if services.listeners.is_empty() {
        return None;
    }
    services.listeners.get(&inode()?).cloned()
}

/// Returns all services; none if they are locked by a thread that may no longer run.
pub(crate) fn all_at_exit() -> Vec<Arc<Service>> {
    let services = rnic_host::lock_at_exit(&SERVICES);
    services.map(|services| services.all.values().cloned().collect()).unwrap_or_default()
}

impl Services {
    /// Returns the service of this process that accepts streams for a listening socket.
    pub(crate) fn listener(&self, inode: u64) -> Option<Arc<Service>> {
        self.listeners.get(&inode).cloned().flatten()
    }

    /// Makes `service` the one that accepts streams for the listening socket `inode`. Any other socket registered for
    /// the service is forgotten: that its address could be bound again shows that it has been closed.
    pub(crate) fn set_listener(&mut self, inode: u64, service: &Arc<Service>) {
        self.listeners.retain(|_, other| !other.as_ref().is_some_and(|other| Arc::ptr_eq(other, service)));
        self.listeners.insert(inode, Some(Arc::clone(service)));
    }

    /// Returns the service that is bound to `bind` and accepts streams.
    pub(crate) fn accepting(&self, bind: SocketAddr) -> Option<Arc<Service>> {
        self.all.get(&(bind, true)).cloned()
    }

    /// Returns the service that requests streams from the local address `ip`.
    pub(crate) fn requesting(&self, ip: IpAddr) -> Option<Arc<Service>> {
        self.all.get(&(SocketAddr::new(ip, 0), false)).cloned()
    }

    /// Adds a service that was started for `bind`.
    pub(crate) fn add(&mut self, bind: SocketAddr, accepts: bool, service: &Arc<Service>) {
        self.all.insert((bind, accepts), Arc::clone(service));
    }

    /// Removes the services in a child process, which belong to its parent. They are not dropped, because their
    /// descriptors are already closed.
    pub(crate) fn leave_to_parent(&mut self) {
        std::mem::forget(std::mem::take(&mut self.all));
        self.listeners.values_mut().for_each(|service| std::mem::forget(service.take()));
    }
}
