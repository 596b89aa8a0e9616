//! `rnic top`: shows how running processes use the device.

mod http;
mod page;
mod screen;
mod shares;

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ::console::Term;
use rnic_host::observe::{self, Snapshot};
use serde::Serialize;

use crate::args::TopArgs;
use crate::console;
use crate::failure::Failure;
use crate::output::Folder;

/// The JSON object that `rnic top --json` prints.
#[derive(Debug, Serialize)]
struct Listing {
    devices: Vec<Snapshot>,
}

/// Runs `rnic top`.
///
/// # Errors
/// When processes cannot be searched for, or the address for scrapers cannot be used.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    if let Some(bind) = args.prometheus {
        return http::serve(bind, || fetch_snapshots().map(|snapshots| observe::exposition(&snapshots)));
    }
    let interval = Duration::from_nanos(args.interval.as_ps() / 1_000);
    if let Some(path) = &args.textfile {
        return write_metrics(path, interval);
    }
    if args.json {
        let devices = fetch_snapshots()?;
        console::result(&console::text(|| page::totals(&devices, COLUMNS)), Some(&Listing { devices }));
        return Ok(());
    }
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !args.once {
        return screen::run(interval, fetch_snapshots);
    }
    let mut before = fetch_snapshots()?;
    loop {
        thread::sleep(interval);
        let now = fetch_snapshots()?;
        let columns = columns();
        let rates = || page::rates(&before, &now, args.qps, columns) + &shares::tables(&before, &now, columns);
        if !console::try_print(&console::text(rates)) || args.once {
            return Ok(());
        }
        before = now;
    }
}

/// Writes all metrics to the file at `path` in every interval; the file is complete at any time.
///
/// # Errors
/// When the file cannot be written.
fn write_metrics(path: &Path, interval: Duration) -> Result<(), Failure> {
    let name = path.file_name().and_then(OsStr::to_str);
    let name = name.filter(|name| Path::new(name).extension().is_some_and(|end| end == "prom"));
    let name =
        name.ok_or_else(|| Failure::file(path, "the name must end in .prom, or node exporter does not read it"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(Failure::file(folder, "there is no such folder"));
    }
    let folder = Folder::make(folder)?;
    loop {
        folder.write_text(name, &observe::exposition(&fetch_snapshots()?))?;
        thread::sleep(interval);
    }
}

/// Returns the snapshots of all processes with a device, in order of process and device. A process that exits in the
/// meantime is omitted.
fn fetch_snapshots() -> Result<Vec<Snapshot>, Failure> {
    let endpoints =
        observe::endpoints().map_err(|error| Failure::input(format!("cannot read /proc/net/unix: {error}")))?;
    Ok(observe::fetch_all(&endpoints, SNAPSHOT_TIMEOUT))
}

/// Returns the present width of the terminal, which the user may change at any time.
fn columns() -> usize {
    Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| columns.into())
}

/// Width that is assumed when the output is not a terminal.
const COLUMNS: usize = 120;
/// Timeout for a snapshot: a stopped process, or a child that has inherited its parent's socket, does not respond.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_millis(300);
