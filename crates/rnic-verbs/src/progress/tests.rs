//! The three ways, with a machine that counts datagrams.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
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
