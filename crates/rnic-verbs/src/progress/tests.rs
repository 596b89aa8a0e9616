//! The three modes of progress, with a machine that counts datagrams.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicUsize;

use super::*;

/// Counts received datagrams, outside of the lock, so that a program that spins can read the count.
struct Counter {
    socket: UdpSocket,
    seen: Arc<AtomicUsize>,
    due: Option<Duration>,
}

impl Machine for Counter {
    fn progress(&mut self) -> bool {
        let mut was_active = false;
        let mut byte = [0; 1];
        while self.socket.recv(&mut byte).is_ok() {
            self.seen.fetch_add(1, Ordering::Release);
            was_active = true;
        }
        was_active
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

/// Returns a driver, a socket that can send to it, and the count of received datagrams.
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
        assert!(sleep_until(|| seen.load(Ordering::Acquire) == count), "datagram {count} was not received");
    }
    drop(driver);
}

/// A machine whose `progress` panics.
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

/// A panic of the thread must end the process: if it ended only the thread, a program that waits would sleep forever.
#[test]
fn a_panic_of_the_thread_ends_the_process() {
    const IN_CHILD: &str = "RNIC_TEST_PANIC";
    if std::env::var_os(IN_CHILD).is_some() {
        let _driver = Driver::start(Broken, Mode::Thread).expect("a thread");
        std::thread::sleep(Duration::from_secs(20));
        return;
    }
    let this = std::env::current_exe().expect("a running test knows its file");
    let name = "progress::tests::a_panic_of_the_thread_ends_the_process";
    let process = std::process::Command::new(this).args(["--exact", name, "--nocapture"]).env(IN_CHILD, "1").output();
    let process = process.expect("the test process starts");
    assert_eq!(process.status.signal(), Some(libc::SIGABRT), "{process:?}");
    assert!(String::from_utf8_lossy(&process.stderr).contains("it is broken"), "{process:?}");
}

#[test]
fn in_mode_off_only_calls_of_the_program_drive_the_machine() {
    let (driver, sender, seen) = driver(Mode::Off);
    sender.send(&[1]).expect("sent");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(seen.load(Ordering::Acquire), 0);
    assert!(driver.lock().progress());
    assert_eq!(seen.load(Ordering::Acquire), 1);
}

#[test]
fn a_new_deadline_wakes_the_thread() {
    let (driver, _sender, _seen) = driver(Mode::Thread);
    // Wait until the thread sleeps for a long time.
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
fn work_found_while_locked_is_done_after_unlocking() {
    let (driver, sender, seen) = driver(Mode::Off);
    let guard = driver.lock();
    sender.send(&[1]).expect("sent");
    assert_eq!(driver.shared.try_progress(), None);
    drop(guard);
    // In `Mode::Off`, dropping the guard does not do the pending work, so it is requested explicitly.
    driver.shared.do_pending_work();
    assert_eq!(seen.load(Ordering::Acquire), 1);
}

/// A program that spins on memory and shares its only processor with the progress thread.
#[test]
fn a_spinning_thread_is_interrupted() {
    let (driver, sender, seen) = {
        pin_to_one_processor();
        driver(Mode::Auto)
    };
    let (requests, request_queue) = std::sync::mpsc::channel::<()>();
    let sender_thread = std::thread::spawn(move || {
        unpin();
        while request_queue.recv().is_ok() {
            // Send only after the program has started to spin.
            let end = Instant::now() + Duration::from_micros(20);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            sender.send(&[1]).expect("sent");
        }
    });
    let armed = (1..=4_000).any(|count| {
        drop(driver.lock());
        requests.send(()).expect("the sender thread runs");
        while seen.load(Ordering::Acquire) < count {
            std::hint::spin_loop();
        }
        let owner = driver.shared.armed.owner();
        owner == cpu_usage::this_thread() && driver.shared.armed.useful() > 3
    });
    assert!(armed, "no signal found work");
    driver.shared.armed.disarm();
    assert_eq!(driver.shared.armed.owner(), 0);
    drop(driver);
    drop(requests);
    sender_thread.join().expect("the sender thread ends with its channel");
    unpin();
}

#[test]
fn the_slots_of_the_handler_are_released() {
    for _ in 0..200 {
        let (driver, _sender, _seen) = driver(Mode::Auto);
        driver.shared.armed.want(cpu_usage::this_thread());
        drop(driver.lock());
        assert_eq!(driver.shared.armed.owner(), cpu_usage::this_thread());
    }
}

/// Sends signals to the calling thread while it is in `wait`, which must return correctly each time; `finish` ends
/// `wait`.
#[cfg(target_arch = "x86_64")]
fn interrupt_sleep(call_name: &str, mut wait: impl FnMut() -> io::Result<()>, finish: impl Fn() + Sync) {
    // The signal is disarmed when the thread is observed to sleep, so several attempts are needed to interrupt a
    // sleep.
    let was_interrupted = (0..500).any(|_| {
        let (driver, sender, seen) = driver(Mode::Auto);
        driver.shared.armed.want(cpu_usage::this_thread());
        drop(driver.lock());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(200));
                sender.send(&[1]).expect("sent");
                std::thread::sleep(Duration::from_millis(2));
                finish();
            });
            wait().unwrap_or_else(|error| panic!("{call_name}: {error}"));
        });
        assert!(sleep_until(|| seen.load(Ordering::Acquire) == 1), "{call_name}: the datagram was not received");
        assert!(sleep_until(|| driver.shared.armed.owner() == 0), "{call_name}: the signal is still armed");
        driver.shared.armed.want(cpu_usage::this_thread());
        drop(driver.lock());
        driver.shared.armed.owner() == 0
    });
    assert!(was_interrupted, "{call_name}: no signal interrupted it");
}

/// Returns the result of a C call: -1 is an error.
#[cfg(target_arch = "x86_64")]
fn checked(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_sleeping_call_continues_after_the_signal() {
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    // With a timeout, the kernel does not restart the read by itself.
    near.set_read_timeout(Some(Duration::from_secs(5))).expect("a legal time");
    let write = || assert_eq!(io::Write::write(&mut &far, &[1]).expect("the socket has buffer space"), 1);
    let mut byte = [0u8; 1];
    let buffer = byte.as_mut_ptr().cast::<libc::c_void>();
    let fd = near.as_raw_fd();
    // SAFETY: there is space for one byte, in each of these calls.
    interrupt_sleep("read", || checked(unsafe { libc::read(fd, buffer, 1) } as i64), write);
    // SAFETY: as above.
    interrupt_sleep("recv", || checked(unsafe { libc::recv(fd, buffer, 1, 0) } as i64), write);
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut wait = || {
        // SAFETY: one structure, and space for one byte.
        unsafe { checked(libc::poll(&raw mut poll, 1, 5_000).into()).and(checked(libc::read(fd, buffer, 1) as i64)) }
    };
    interrupt_sleep("poll", &mut wait, write);
    let duration = libc::timespec { tv_sec: 0, tv_nsec: 3_000_000 };
    // SAFETY: a time; the remaining time is not requested.
    let sleep = || unsafe { libc::nanosleep(&raw const duration, std::ptr::null_mut()) };
    interrupt_sleep("nanosleep", || checked(sleep().into()), || ());
    // SAFETY: creates a descriptor.
    let epoll_fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: open descriptors, one structure.
    assert_eq!(unsafe { libc::epoll_ctl(epoll_fd, libc::EPOLL_CTL_ADD, fd, &raw mut event) }, 0);
    let mut wait = || {
        // SAFETY: space for one event and for one byte.
        let woken = unsafe { libc::epoll_wait(epoll_fd, &raw mut event, 1, 5_000) };
        // SAFETY: as above.
        checked(woken.into()).and(checked(unsafe { libc::read(fd, buffer, 1) } as i64))
    };
    interrupt_sleep("epoll_wait", &mut wait, write);
    // SAFETY: the descriptor was created above.
    unsafe { libc::close(epoll_fd) };
}

fn pin_to_one_processor() {
    // SAFETY: plain data; only the calling thread is moved.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

fn unpin() {
    // SAFETY: as above; the system ignores processors that do not exist.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}
