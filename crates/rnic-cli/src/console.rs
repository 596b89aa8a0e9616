//! Output for users while a command runs: lines and progress on standard error.

use std::io::{IsTerminal, Write};
use std::process;
use std::sync::OnceLock;
use std::time::Duration;

use indicatif::ProgressBar;

/// Exit code that shells report for a command that was interrupted.
const INTERRUPTED: i32 = 130;
const TICK: Duration = Duration::from_millis(100);

/// Writes one line for users; a closed standard error does not stop the command.
pub fn line(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Makes an interrupt end the process immediately. No cleanup is needed: files are written under a temporary name first
/// and renamed when complete, and the child processes exit when this process does.
pub fn end_on_interrupt() {
    let handler = || {
        line("\nrnic: interrupted");
        process::exit(INTERRUPTED);
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        line(&format!("rnic: an interrupt will end this abruptly: {error}"));
    }
}

/// Shows a spinner during work of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// Writes a result: text for users to standard output; or, with `--json`, one JSON object to standard output and the
/// text for users to standard error.
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

/// Writes to standard output; returns whether it is still being read.
pub fn try_print(text: &str) -> bool {
    let mut out = std::io::stdout();
    write!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Writes to standard output. A reader that closed the pipe (`| head`) is no failure; any other error is kept for
/// [`lost`].
pub fn print(text: &str) {
    let mut out = std::io::stdout();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error);
    }
}

/// Returns the error that kept a result from being written, if there was one.
pub fn lost() -> Option<&'static std::io::Error> {
    LOST.get()
}

static LOST: OnceLock<std::io::Error> = OnceLock::new();
