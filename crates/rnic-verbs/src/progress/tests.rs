//! The three ways, with a machine that counts datagrams.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicUsize;

use super::*;

/// Counts what comes in; so that a spinning program sees it, outside of the lock.
struct Counter {
    socket: UdpSocket,
    seen: Arc<AtomicUsize>,
    due: Option<Duration>,
}

impl Machine for Counter {
    fn progress(&mut self) -> bool {
        let mut moved = false;
        let mut byte = [0; 1];
        while self.socket.recv(&mut byte).is_ok() {
            self.seen.fetch_add(1, Ordering::Release);
            moved = true;
        }
        moved
    }

    fn next_due(&self) -> Option<Duration> {
        self.due
    }

    fn may_sleep(&mut self) -> bool {
        true
    }

    fn descriptors(&self) -> Descriptors {
        [self.socket.as_raw_fd()].into_iter().collect()
    }
}

/// A driver, who can send to it, and what it has seen.
fn driver(mode: Mode) -> (Driver<Counter>, UdpSocket, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("non-blocking");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sender.connect(socket.local_addr().expect("bound")).expect("loopback");
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Counter { socket, seen: Arc::clone(&seen), due: None };
    (Driver::start(counter, mode).expect("a thread"), sender, seen)
}

fn sleep_until(done: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(200));
    }
    done()
}

#[test]
fn the_thread_serves_a_program_that_sleeps() {
    let (driver, sender, seen) = driver(Mode::Thread);
    for count in 1..=20 {
        sender.send(&[1]).expect("sent");
        assert!(sleep_until(|| seen.load(Ordering::Acquire) == count), "datagram {count} was not taken in");
    }
    drop(driver);
}

/// Panics when it is driven.
struct Broken;

impl Machine for Broken {
    fn progress(&mut self) -> bool {
        panic!("it is broken");
    }

    fn next_due(&self) -> Option<Duration> {
        None
    }

    fn may_sleep(&mut self) -> bool {
        true
    }

    fn descriptors(&self) -> Descriptors {
        Descriptors::new()
    }
}

/// A thread that died alone would leave a program that sleeps to sleep for ever.
#[test]
fn a_panic_of_the_thread_ends_the_process() {
    const INSIDE: &str = "RNIC_TEST_PANIC";
    if std::env::var_os(INSIDE).is_some() {
        let _driver = Driver::start(Broken, Mode::Thread).expect("a thread");
        std::thread::sleep(Duration::from_secs(20));
        return;
    }
    let this = std::env::current_exe().expect("a running test knows its file");
    let name = "progress::tests::a_panic_of_the_thread_ends_the_process";
    let process = std::process::Command::new(this).args(["--exact", name, "--nocapture"]).env(INSIDE, "1").output();
    let process = process.expect("it starts");
    assert_eq!(process.status.signal(), Some(libc::SIGABRT), "{process:?}");
    assert!(String::from_utf8_lossy(&process.stderr).contains("it is broken"), "{process:?}");
}

#[test]
fn inline_nobody_but_the_program_acts() {
    let (driver, sender, seen) = driver(Mode::Off);
    sender.send(&[1]).expect("sent");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(seen.load(Ordering::Acquire), 0);
    assert!(driver.lock().progress());
    assert_eq!(seen.load(Ordering::Acquire), 1);
}

#[test]
fn a_deadline_that_a_call_brings_wakes_the_thread() {
    let (driver, _sender, _seen) = driver(Mode::Thread);
    // It sleeps for long.
    assert!(
        sleep_until(|| driver.shared.sleeps_until_ns.load(Ordering::Acquire) > driver.shared.now_ns() + 50_000_000)
    );
    let before = driver.shared.sleeps_until_ns.load(Ordering::Acquire);
    driver.lock().due = Some(Duration::from_millis(2));
    assert!(sleep_until(|| {
        let until = driver.shared.sleeps_until_ns.load(Ordering::Acquire);
        until != before && until != 0
    }));
}

#[test]
fn what_is_found_locked_is_done_after_unlocking() {
    let (driver, sender, seen) = driver(Mode::Off);
    let guard = driver.lock();
    sender.send(&[1]).expect("sent");
    assert_eq!(driver.shared.try_progress(), None);
    drop(guard);
    // Inline or not, the guard settles what was left.
    driver.shared.settle();
    assert_eq!(seen.load(Ordering::Acquire), 1);
}

/// A program that spins on memory and shares its only processor with the progress thread.
#[test]
fn a_spinning_thread_is_interrupted() {
    let (driver, sender, seen) = {
        pin_to_one_processor();
        driver(Mode::Auto)
    };
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let sending = std::thread::spawn(move || {
        unpin();
        while asked.recv().is_ok() {
            // After the program has begun to spin.
            let end = Instant::now() + Duration::from_micros(20);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            sender.send(&[1]).expect("sent");
        }
    });
    let armed = (1..=4_000).any(|count| {
        drop(driver.lock());
        ask.send(()).expect("the sender lives");
        while seen.load(Ordering::Acquire) < count {
            std::hint::spin_loop();
        }
        let owner = driver.shared.armed.owner();
        owner == burn::this_thread() && driver.shared.armed.useful() > 3
    });
    assert!(armed, "no signal was of use");
    driver.shared.armed.disarm();
    assert_eq!(driver.shared.armed.owner(), 0);
    drop(driver);
    drop(ask);
    sending.join().expect("ends with its channel");
    unpin();
}

#[test]
fn the_handlers_slots_are_given_back() {
    for _ in 0..200 {
        let (driver, _sender, _seen) = driver(Mode::Auto);
        driver.shared.armed.want(burn::this_thread());
        drop(driver.lock());
        assert_eq!(driver.shared.armed.owner(), burn::this_thread());
    }
}

/// Lets signals meet the calling thread in `wait`, which must end well each time; `finish` ends it.
#[cfg(target_arch = "x86_64")]
fn meet_asleep(what: &str, mut wait: impl FnMut() -> io::Result<()>, finish: impl Fn() + Sync) {
    // Whoever is seen to sleep is left alone too, so it takes a few tries to meet one.
    let met = (0..500).any(|_| {
        let (driver, sender, seen) = driver(Mode::Auto);
        driver.shared.armed.want(burn::this_thread());
        drop(driver.lock());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(200));
                sender.send(&[1]).expect("sent");
                std::thread::sleep(Duration::from_millis(2));
                finish();
            });
            wait().unwrap_or_else(|error| panic!("{what}: {error}"));
        });
        assert!(sleep_until(|| seen.load(Ordering::Acquire) == 1), "{what}: nobody took the datagram in");
        assert!(sleep_until(|| driver.shared.armed.owner() == 0), "{what}: whoever sleeps is left alone");
        driver.shared.armed.want(burn::this_thread());
        drop(driver.lock());
        driver.shared.armed.owner() == 0
    });
    assert!(met, "{what}: no signal came in it");
}

/// What a call of C says: -1 is an error.
#[cfg(target_arch = "x86_64")]
fn checked(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_sleeping_call_that_the_signal_meets_goes_on() {
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    // With a timeout, reading does not go on by itself.
    near.set_read_timeout(Some(Duration::from_secs(5))).expect("a legal time");
    let write = || assert_eq!(io::Write::write(&mut &far, &[1]).expect("room"), 1);
    let mut byte = [0u8; 1];
    let place = byte.as_mut_ptr().cast::<libc::c_void>();
    let fd = near.as_raw_fd();
    // SAFETY: a byte of room, for each of these.
    meet_asleep("read", || checked(unsafe { libc::read(fd, place, 1) } as i64), write);
    // SAFETY: as above.
    meet_asleep("recv", || checked(unsafe { libc::recv(fd, place, 1, 0) } as i64), write);
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut wait = || {
        // SAFETY: one structure, and a byte of room.
        unsafe { checked(libc::poll(&raw mut poll, 1, 5_000).into()).and(checked(libc::read(fd, place, 1) as i64)) }
    };
    meet_asleep("poll", &mut wait, write);
    let span = libc::timespec { tv_sec: 0, tv_nsec: 3_000_000 };
    // SAFETY: a time, and no place for the rest of it.
    let sleep = || unsafe { libc::nanosleep(&raw const span, std::ptr::null_mut()) };
    meet_asleep("nanosleep", || checked(sleep().into()), || ());
    // SAFETY: makes a descriptor.
    let many = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: living descriptors, one structure.
    assert_eq!(unsafe { libc::epoll_ctl(many, libc::EPOLL_CTL_ADD, fd, &raw mut event) }, 0);
    let mut wait = || {
        // SAFETY: room for one event, and a byte of room.
        let woken = unsafe { libc::epoll_wait(many, &raw mut event, 1, 5_000) };
        // SAFETY: as above.
        checked(woken.into()).and(checked(unsafe { libc::read(fd, place, 1) } as i64))
    };
    meet_asleep("epoll_wait", &mut wait, write);
    // SAFETY: ours.
    unsafe { libc::close(many) };
}

fn pin_to_one_processor() {
    // SAFETY: plain bits; the calling thread alone is moved.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

fn unpin() {
    // SAFETY: as above; processors that are not there are left out by the system.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}
