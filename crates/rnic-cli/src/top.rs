//! `rnic top`: what running processes do with the device.

mod http;
mod page;

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use ::console::Term;
use rnic_host::observe::{self, Snapshot};
use serde::Serialize;

use crate::args::TopArgs;
use crate::console;
use crate::failure::Failure;

/// The JSON object.
#[derive(Debug, Serialize)]
struct Listing {
    devices: Vec<Snapshot>,
}

/// Runs `rnic top`.
///
/// # Errors
/// When processes cannot be looked for, or the address for scrapers not be used.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    if let Some(bind) = args.prometheus {
        return http::serve(bind, || look().map(|snapshots| observe::exposition(&snapshots)));
    }
    if args.json {
        let devices = look()?;
        console::result(&page::totals(&devices, COLUMNS), Some(&Listing { devices }));
        return Ok(());
    }
    let interval = Duration::from_nanos(args.interval.as_ps() / 1_000);
    let clears = std::io::stdout().is_terminal() && !args.once;
    let mut before = look()?;
    loop {
        thread::sleep(interval);
        let now = look()?;
        let page = page::rates(&before, &now, args.qps, columns());
        let front = if clears { CLEAR } else { "" };
        if !console::try_print(&format!("{front}{page}")) || args.once {
            return Ok(());
        }
        before = now;
    }
}

/// Everybody there is, in order of process and device. Who ends while we look is left out.
fn look() -> Result<Vec<Snapshot>, Failure> {
    let endpoints = observe::endpoints().map_err(|error| Failure::input(format!("/proc/net/unix: {error}")))?;
    Ok(observe::fetch_all(&endpoints, PATIENCE))
}

/// How wide a line may be: somebody may change it at any time.
fn columns() -> usize {
    Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| columns.into())
}

/// To the corner, and everything below it gone: less flicker than an empty screen.
const CLEAR: &str = "\x1b[H\x1b[J";
/// Where there is no terminal.
const COLUMNS: usize = 120;
/// A process that is stopped, or a child that holds its parent's socket, does not answer.
const PATIENCE: Duration = Duration::from_millis(300);
