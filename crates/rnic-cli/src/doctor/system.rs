//! Checks of processors, limits and kernel settings.

use std::fs;
use std::thread;

use rnic_host::Progress;

use super::Check;

/// Runs the checks of the system.
pub fn checks() -> Vec<Check> {
    vec![processors(), progress(), shared_memory(), descriptors(), memory_lock(), tracing(), namespaces()]
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn processors() -> Check {
    const NAME: &str = "processors";
    match thread::available_parallelism().map_or(1, usize::from) {
        1 => Check::note(
            NAME,
            "1",
            "two programs that poll alternate in time slices of milliseconds; provide at least two processors",
        ),
        count => Check::ok(NAME, count.to_string()),
    }
}

/// Reports which thread drives the NIC while the program does not call the library.
fn progress() -> Check {
    const NAME: &str = "progress";
    let settings = rnic_host::Settings::from_environment().unwrap_or_default();
    match settings.progress {
        Progress::Auto => Check::ok(NAME, "a thread, and signals to threads of the program that spin on memory"),
        Progress::Thread => Check::note(
            NAME,
            "a thread alone",
            "programs that spin on memory (ib_write_lat) may wait for the scheduler; set RNIC_PROGRESS=auto to avoid \
             this",
        ),
        Progress::Off => Check::note(
            NAME,
            "off",
            "passive ends respond only when they call the library; set RNIC_PROGRESS=auto to avoid this",
        ),
    }
}

/// Reports whether processes on one host bypass UDP through shared memory.
fn shared_memory() -> Check {
    const NAME: &str = "same host";
    let bad = rnic_host::Settings::from_environment().is_ok_and(|settings| !settings.allows_bypass());
    if bad {
        return Check::ok(NAME, "over UDP, as the settings require");
    }
    Check::ok(NAME, "processes of one user use shared memory instead of UDP (RNIC_BYPASS=off: always UDP)")
}

fn limit(name: &str) -> Option<(String, String)> {
    let limits = read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

fn descriptors() -> Check {
    const NAME: &str = "open files";
    match limit("Max open files") {
        Some((soft, hard)) if soft.parse::<u64>().is_ok_and(|soft| soft < DESCRIPTORS_RECOMMENDED) => Check::note(
            NAME,
            format!("{soft} (hard limit {hard})"),
            "each device needs about ten file descriptors; raise the limit with ulimit -n",
        ),
        Some((soft, _)) => Check::ok(NAME, soft),
        None => Check::ok(NAME, "unknown"),
    }
}

fn memory_lock() -> Check {
    let limit = limit("Max locked memory").map_or_else(|| "unknown".to_owned(), |(soft, _)| soft);
    Check::ok("locked memory", format!("limit {limit}; not needed, because no memory is pinned"))
}

fn tracing() -> Check {
    let scope = read("/proc/sys/kernel/yama/ptrace_scope");
    let found = scope.map_or_else(|| "no Yama".to_owned(), |scope| format!("ptrace_scope {scope}"));
    Check::ok("tracing", format!("{found}; not needed, because no process reads the memory of another"))
}

fn namespaces() -> Check {
    let most = read("/proc/sys/user/max_user_namespaces");
    let found = most.map_or_else(|| "unknown".to_owned(), |most| format!("at most {most}"));
    Check::ok("user namespaces", format!("{found}; not needed, but `unshare -Urn` creates a network for experiments"))
}

/// Limit on open file descriptors below which a note is shown: programs with a few devices and connections need more.
const DESCRIPTORS_RECOMMENDED: u64 = 128;
