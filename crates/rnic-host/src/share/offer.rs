//! Passes the page from one process to another, and keeps it offered.
//!
//! The page is offered on an abstract datagram socket, whose name contains the user's ID, by the NIC that binds the
//! name first. A NIC that opens asks for it and receives the memory's file descriptor. The kernel attests the user of
//! both messages (`SCM_CREDENTIALS`); those of other users are ignored. A name may belong to another user, or to a
//! process that does not answer (it is stopped, or a forked child that inherited the socket), so there are a few
//! names, which are tried in order.
//!
//! When the process that offers the page ends, the others keep their mappings, and the first of them that notices
//! offers the same memory. In between, a new process may have created a second page, or a name may be bound while its
//! owner did not answer. So each NIC asks again from time to time: it moves to the page that the first answering name
//! offers, and ceases to offer its own. Two pages therefore exist at most for [`RECHECK_INTERVAL`] and the time of an
//! answer, unless a process is stopped for longer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::ShareError;
use super::page::Page;
use crate::background;
use crate::sys::{self, event, unix};
use crate::user::is_own_user;

/// Names of the sockets on which a page is offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Names(String);

impl Names {
    /// Returns the names for the pages called `domain` of this user; the page of all processes has an empty name.
    pub(super) fn of_user(domain: &str) -> Self {
        let separator = if domain.is_empty() { "" } else { "-" };
        Self(format!("rnic-share-{}{separator}{domain}", unix::own_uid()))
    }

    fn all(&self) -> impl Iterator<Item = Vec<u8>> {
        (0..NAMES).map(|number| match number {
            0 => self.0.clone().into_bytes(),
            _ => format!("{}.{number}", self.0).into_bytes(),
        })
    }
}

/// Answer of the process that owns a name.
#[derive(Debug)]
enum Answer {
    Page(Page),
    /// No socket has the name.
    Unbound,
    /// The owner of the page belongs to another user, or does not respond in time.
    Silent,
    /// A process of this user has offered a file that is not such a page.
    NotAPage,
}

/// Requests the page from the owner of `name`.
///
/// # Errors
/// The kernel's error, when this process cannot open a socket.
fn ask(name: &[u8], patience: Duration) -> io::Result<Answer> {
    let nonce = sys::random_bits()?.to_be_bytes();
    let own = format!("rnic-share-ask-{:016x}", sys::random_bits()?);
    let socket = unix::bind_control_socket(own.as_bytes())?;
    let request = [REQUEST.as_slice(), &nonce].concat();
    let until = Instant::now() + patience;
    while let Err(error) = unix::send_control_message(&socket, name, &request) {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => return Ok(Answer::Unbound),
            // The queue of the socket is full (the kernel's default is ten messages): many NICs open at once.
            io::ErrorKind::WouldBlock if Instant::now() < until => std::thread::sleep(FULL_DELAY),
            _ => return Ok(Answer::Silent),
        }
    }
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Answer::Silent);
        }
        sys::wait(&[socket.as_raw_fd()], Some(nanoseconds(left)), false)?;
        let mut bytes = [0; MESSAGE_BYTES + 1];
        let Some(message) = unix::receive_control_message(&socket, &mut bytes) else { continue };
        // Only the owner of the name knows the nonce.
        let is_answer = bytes[..message.len] == *[REPLY.as_slice(), &nonce].concat();
        if is_answer && !message.uid.is_some_and(is_own_user) {
            return Ok(Answer::Silent);
        }
        if is_answer {
            let page = message.file.map(Page::attach);
            return Ok(page.and_then(Result::ok).map_or(Answer::NotAPage, Answer::Page));
        }
    }
}

/// A page; and, if this process offers it, the socket for that and the number of the socket's name.
#[derive(Debug)]
struct Joined {
    page: Page,
    offer: Option<(usize, UnixDatagram)>,
}

/// Returns the page that a process offers under one of the `names`, or a new one, which this process offers.
fn join(names: &Names) -> Result<Joined, ShareError> {
    for _ in 0..JOIN_TRIES {
        let mut free = None;
        for (number, name) in names.all().enumerate() {
            match ask(&name, OPEN_PATIENCE).map_err(ShareError::System)? {
                Answer::Page(page) if page.has_other_clock() => return Err(ShareError::OtherClock),
                Answer::Page(page) => return Ok(Joined { page, offer: None }),
                Answer::Unbound => free = free.or(Some((number, name))),
                Answer::Silent => {}
                Answer::NotAPage => return Err(ShareError::NotAPage(printable(&name))),
            }
        }
        let Some((number, name)) = free else { return Err(ShareError::NamesTaken(names.0.clone())) };
        match unix::bind_control_socket(&name) {
            Ok(socket) => {
                let page = Page::create().map_err(ShareError::System)?;
                return Ok(Joined { page, offer: Some((number, socket)) });
            }
            // Another process has been faster, and offers its page now.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(ShareError::System(error)),
        }
    }
    Err(ShareError::NamesTaken(names.0.clone()))
}

/// Thread that offers a page to other processes, or monitors that another process offers it, until this value is
/// dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

/// State that the thread and the NIC use.
#[derive(Debug)]
struct Shared {
    /// The page in use.
    page: Mutex<Arc<Page>>,
    /// True when `page` has been replaced since the NIC last read it.
    is_replaced: AtomicBool,
    is_stopping: AtomicBool,
    wake: OwnedFd,
}

impl Keeper {
    /// Joins the page that is offered under `names`, or creates it, and starts the thread.
    ///
    /// # Errors
    /// When no page can be joined or created, or there is no thread.
    pub(super) fn start(names: &Names) -> Result<(Self, Arc<Page>), ShareError> {
        let Joined { page, offer } = join(names)?;
        let page = Arc::new(page);
        let shared = Arc::new(Shared {
            page: Mutex::new(Arc::clone(&page)),
            is_replaced: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            wake: event::new().map_err(ShareError::System)?,
        });
        let (watched, names) = (Arc::clone(&shared), names.clone());
        let thread = background::spawn("rnic-share", move || keep(&watched, &names, offer));
        let thread = Some(thread.map_err(ShareError::System)?);
        Ok((Self { shared, thread, pid: std::process::id() }, page))
    }

    /// Returns the page to use from now on, if it has changed since the last call.
    #[inline]
    pub(super) fn take_replaced(&self) -> Option<Arc<Page>> {
        self.shared.is_replaced.swap(false, Ordering::AcqRel).then(|| self.shared.page())
    }
}

impl Shared {
    fn page(&self) -> Arc<Page> {
        Arc::clone(&self.page.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, page: Page) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(page);
        self.is_replaced.store(true, Ordering::Release);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // A forked child has no such thread.
        if self.pid == std::process::id()
            && let Some(thread) = self.thread.take()
        {
            self.shared.is_stopping.store(true, Ordering::Release);
            event::raise(self.shared.wake.as_fd());
            // A panic of the thread, if there was one, has already been reported.
            let _ = thread.join();
        }
    }
}

/// Answers requests, if this process offers the page, and checks at intervals which process offers it.
fn keep(shared: &Shared, names: &Names, mut offer: Option<(usize, UnixDatagram)>) {
    let mut checked_at = Instant::now();
    while !shared.is_stopping.load(Ordering::Acquire) {
        let left = RECHECK_INTERVAL.saturating_sub(checked_at.elapsed());
        let wake = shared.wake.as_raw_fd();
        let waited = match &offer {
            Some((_, socket)) => sys::wait(&[wake, socket.as_raw_fd()], Some(nanoseconds(left)), false),
            None => sys::wait(&[wake], Some(nanoseconds(left)), false),
        };
        if waited.is_err() {
            std::thread::sleep(RETRY_DELAY);
        }
        if let Some((_, socket)) = &offer {
            answer(socket, &shared.page());
        }
        if checked_at.elapsed() >= RECHECK_INTERVAL && !shared.is_stopping.load(Ordering::Acquire) {
            recheck(shared, names, &mut offer);
            checked_at = Instant::now();
        }
    }
}

/// Sends the page to the processes of this user that have requested it.
fn answer(socket: &UnixDatagram, page: &Page) {
    for _ in 0..ANSWERS_PER_CALL {
        let mut bytes = [0; MESSAGE_BYTES + 1];
        let Some(message) = unix::receive_control_message(socket, &mut bytes) else { return };
        let request = &bytes[..message.len];
        let Some(nonce) = request.strip_prefix(REQUEST).filter(|nonce| nonce.len() == NONCE_BYTES) else { continue };
        let (true, Some(from)) = (message.uid.is_some_and(is_own_user), &message.from) else { continue };
        let reply = [REPLY.as_slice(), nonce].concat();
        // Errors are ignored: the asking process may have given up, and will ask again.
        let _ = unix::connect_control_socket(from).and_then(|to| unix::send_file(&to, &reply, page.file()));
    }
}

/// Changes to the page of the first name that answers, or offers the current page if none does. If this process offers
/// a page, only the names before its own are checked.
fn recheck(shared: &Shared, names: &Names, offer: &mut Option<(usize, UnixDatagram)>) {
    let before = offer.as_ref().map_or(NAMES, |(number, _)| *number);
    let mut free = None;
    for (number, name) in names.all().enumerate().take(before) {
        match ask(&name, RECHECK_PATIENCE) {
            Ok(Answer::Page(page)) if !page.has_other_clock() => {
                if !page.is_same(&shared.page()) {
                    shared.replace(page);
                    *offer = None;
                }
                return;
            }
            Ok(Answer::Unbound) => free = free.or(Some((number, name))),
            // An invalid page is reported to those who open; this NIC has one that works.
            Ok(Answer::Page(_) | Answer::Silent | Answer::NotAPage) | Err(_) => {}
        }
    }
    if offer.is_none()
        && let Some((number, name)) = free
        && let Ok(socket) = unix::bind_control_socket(&name)
    {
        *offer = Some((number, socket));
    }
}

fn printable(name: &[u8]) -> String {
    format!("@{}", String::from_utf8_lossy(name))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Number of candidate names of a socket: if another process has bound a name, the next one is tried.
const NAMES: usize = 4;

/// Number of attempts to join a page that another process creates at the same moment.
const JOIN_TRIES: usize = 4;

/// Time for which a NIC that opens waits for an answer: the scheduling delay of a thread on a busy machine.
const OPEN_PATIENCE: Duration = Duration::from_millis(300);

/// Pause before a request is repeated to a socket whose queue was full.
const FULL_DELAY: Duration = Duration::from_millis(1);

/// Time for which a thread that checks the offer waits; it delays the end of the thread.
const RECHECK_PATIENCE: Duration = Duration::from_millis(100);

/// Interval between two checks of who offers the page; each costs some ten system calls.
pub(super) const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Pause after an error of a wait, so that the thread does not spin.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Maximum number of requests that are answered before the thread checks whether to stop.
const ANSWERS_PER_CALL: usize = 16;

const REQUEST: &[u8; 8] = b"rnicshQ1";
const REPLY: &[u8; 8] = b"rnicshA1";
const NONCE_BYTES: usize = 8;
const MESSAGE_BYTES: usize = REQUEST.len() + NONCE_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_whose_queue_is_full_is_asked_again() {
        let name = format!("rnic-share-{}-full-{}", unix::own_uid(), std::process::id()).into_bytes();
        let page = Page::create().expect("memory");
        let owner = unix::bind_control_socket(&name).expect("a name");
        let other = unix::bind_control_socket(&[&name[..], b"-other"].concat()).expect("a name");
        while unix::send_control_message(&other, &name, b"no request").is_ok() {}
        assert!(matches!(ask(&name, Duration::from_millis(20)), Ok(Answer::Silent)), "it answers");
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                while !is_done.load(Ordering::Acquire) {
                    answer(&owner, &page);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let asked = ask(&name, Duration::from_secs(10));
            is_done.store(true, Ordering::Release);
            assert!(matches!(&asked, Ok(Answer::Page(found)) if found.is_same(&page)), "{asked:?}");
        });
    }
}
