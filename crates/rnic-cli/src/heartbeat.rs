//! Progress of long commands whose standard error is no terminal (a log, CI): one line every ten seconds.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rnic_page::number;

use crate::console;

/// Time between lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Writes lines when they are due, for loops that call it often.
#[derive(Debug)]
pub struct Heartbeat {
    start: Instant,
    next: Option<Instant>,
}

impl Heartbeat {
    /// Starts the clock.
    pub fn start() -> Self {
        let start = Instant::now();
        Self { start, next: (!std::io::stderr().is_terminal()).then_some(start + INTERVAL) }
    }

    /// Writes the line of `make`, which receives the time since the start, if one is due.
    pub fn beat(&mut self, make: impl FnOnce(Duration) -> String) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now >= next) {
            console::line(&make(now - self.start));
            self.next = Some(now + INTERVAL);
        }
    }
}

/// A thread that writes lines, for work that is not divided into short steps. It ends when this is dropped.
#[derive(Debug)]
pub struct Ticker {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Writes the line of `make`, which receives the time since the start, every ten seconds.
    pub fn start(make: impl Fn(Duration) -> String + Send + 'static) -> Self {
        if std::io::stderr().is_terminal() {
            return Self { end: None, thread: None };
        }
        Self::every(INTERVAL, move |elapsed| console::line(&make(elapsed)))
    }

    fn every(interval: Duration, act: impl Fn(Duration) + Send + 'static) -> Self {
        let (end, ended) = channel();
        let start = Instant::now();
        let tick = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                act(start.elapsed());
            }
        };
        Self { end: Some(end), thread: Some(thread::spawn(tick)) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns how long work of which the share `done` took `elapsed` will still take: `about 20 s left`.
pub fn left(done: f64, elapsed: Duration) -> String {
    if !(done > 0.0 && done <= 1.0) {
        return "no estimate of the rest yet".to_owned();
    }
    format!("about {} left", number::seconds(elapsed.as_secs_f64() * (1.0 - done) / done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_estimated_from_the_share_that_is_done() {
        let elapsed = Duration::from_secs(30);
        assert_eq!((left(0.6, elapsed), left(0.25, elapsed)), ("about 20 s left".into(), "about 90 s left".into()));
        assert!(left(0.0, elapsed).contains("no estimate") && left(f64::NAN, elapsed).contains("no estimate"));
    }

    #[test]
    fn a_ticker_ticks_until_it_is_dropped() {
        let (ticks, ticked) = channel();
        let ticker = Ticker::every(Duration::from_millis(2), move |elapsed| ticks.send(elapsed).unwrap_or_default());
        let first = ticked.recv().expect("a tick");
        assert!(ticked.recv().expect("another") > first);
        drop(ticker);
        while ticked.try_recv().is_ok() {}
        assert!(ticked.recv().is_err(), "it goes on");
    }

    #[test]
    fn lines_are_an_interval_apart() {
        let mut heartbeat = Heartbeat { start: Instant::now(), next: Some(Instant::now()) };
        let mut lines = 0;
        for _ in 0..3 {
            heartbeat.beat(|_| {
                lines += 1;
                String::new()
            });
        }
        assert_eq!(lines, 1);
    }
}
