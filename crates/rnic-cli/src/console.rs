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
        line(&format!("rnic: cannot handle SIGINT, so Ctrl-C ends the process without the usual message: {error}"));
    }
}

/// Shows a spinner during work of unknown length.
pub fn spinner(message: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(message.to_owned());
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

/// Returns the text that `make` returns; if standard output is no terminal, with plain digits instead of separated
/// thousands.
pub fn text(make: impl FnOnce() -> String) -> String {
    if std::io::stdout().is_terminal() { make() } else { rnic_page::number::plain(make) }
}

/// Writes to standard output; returns `true` if that succeeds, which means that there still is a reader.
pub fn try_print(text: &str) -> bool {
    let mut out = std::io::stdout();
    write!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Writes to standard output. A reader that closed the pipe (`| head`) is not a failure; any other error is stored
/// for [`output_error`].
pub fn print(text: &str) {
    let mut out = std::io::stdout();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = OUTPUT_ERROR.set(error);
    }
}

/// Returns the error because of which a result could not be written, if there was one.
pub fn output_error() -> Option<&'static std::io::Error> {
    OUTPUT_ERROR.get()
}

static OUTPUT_ERROR: OnceLock<std::io::Error> = OnceLock::new();
