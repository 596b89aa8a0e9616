//! What people see while a command runs: lines and progress on standard error.

use std::io::{IsTerminal, Write};
use std::process;
use std::sync::OnceLock;
use std::time::Duration;

use indicatif::ProgressBar;

/// What shells report for a command that ended by an interrupt.
const INTERRUPTED: i32 = 130;
const TICK: Duration = Duration::from_millis(100);

/// Writes one line for people; a closed standard error is no reason to stop.
pub fn line(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Makes an interrupt end the process at once: files are written under another name first and renamed when whole, and
/// the processes that we start end when we do, so nothing has to be tidied.
pub fn end_on_interrupt() {
    let handler = || {
        line("\nrnic: interrupted");
        process::exit(INTERRUPTED);
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        line(&format!("rnic: an interrupt will end this abruptly: {error}"));
    }
}

/// A sign of life for work of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// Writes a result: for people to standard output; or, with `--json`, its one JSON object there, and what is for people
/// to standard error.
pub fn result(text: &str, json: Option<&impl serde::Serialize>) {
    match json {
        Some(value) => {
            text.lines().for_each(line);
            let json = serde_json::to_string_pretty(value).expect("our reports have string keys and finite numbers");
            print(&format!("{json}\n"));
        }
        None => print(text),
    }
}

/// Writes to standard output; answers whether somebody is still reading.
pub fn try_print(text: &str) -> bool {
    let mut out = std::io::stdout();
    write!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Writes to standard output; a reader that has seen enough (`| head`) is no failure, all else is kept for [`lost`].
pub fn print(text: &str) {
    let mut out = std::io::stdout();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error);
    }
}

/// Why a result did not get out, if one did not.
pub fn lost() -> Option<&'static std::io::Error> {
    LOST.get()
}

static LOST: OnceLock<std::io::Error> = OnceLock::new();
