//! One side is killed in the middle of its work: the other must notice and end, and nothing may be left behind.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use super::pair::Pair;
use super::{Case, Check, Outcome, Place};

/// Programs that would go on for long.
pub const KILL_CASES: &[Case] = &[
    endless("kill ib_write_bw", "ib_write_bw -D 20 -p {port}", "ib_write_bw -D 20 -p {port} {host}"),
    endless("kill ib_read_bw", "ib_read_bw -D 20 -p {port}", "ib_read_bw -D 20 -p {port} {host}"),
    endless("kill ib_send_bw", "ib_send_bw -D 20 -p {port}", "ib_send_bw -D 20 -p {port} {host}"),
    endless("kill ib_send_lat", "ib_send_lat -D 20 -p {port}", "ib_send_lat -D 20 -p {port} {host}"),
    endless("kill rping", "rping -s -a {host} -p {port} -C 10000000", "rping -c -a {host} -p {port} -C 10000000"),
];

const fn endless(name: &'static str, server: &'static str, client: &'static str) -> Case {
    Case {
        name,
        server,
        client,
        check: Check::Exit,
        seconds: 60,
        port: None,
        one_host: false,
        reliable: true,
        quick: false,
    }
}

/// Kills the server or the client of `case` after `delay`; the other must end by itself within [`NOTICE`].
pub fn kill(case: &Case, place: &Place, server: bool, delay: Duration) -> Outcome {
    let before = leftovers();
    let mut pair = match Pair::start(case, place) {
        Ok(pair) => pair,
        Err(error) => return Outcome::Failed(error),
    };
    std::thread::sleep(delay);
    pair.kill(server);
    let killed = Instant::now();
    let survivor = pair.survivor(server);
    while !survivor.has_ended() && killed.elapsed() < NOTICE {
        std::thread::sleep(Duration::from_millis(10));
    }
    if !survivor.has_ended() {
        return Outcome::Failed(format!("{} s later: {}", NOTICE.as_secs(), survivor.tail()));
    }
    let took = killed.elapsed();
    drop(pair);
    let left: Vec<String> = leftovers().difference(&before).cloned().collect();
    if left.is_empty() { Outcome::Passed(took) } else { Outcome::Failed(format!("left behind: {}", left.join(", "))) }
}

/// Everything of ours that could outlive a process: files, shared memory, named sockets.
fn leftovers() -> BTreeSet<String> {
    let is_ours = |name: &str| name.contains("rnic") && !name.contains("rnic-apps-");
    let mut found = BTreeSet::new();
    for dir in ["/dev/shm", "/tmp", "/run", "/var/run"] {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.path().to_string_lossy().into_owned());
        found.extend(names.filter(|path| is_ours(path)));
    }
    // Others may run programs meanwhile: a name of theirs ends with a process that lives.
    let is_orphan = |name: &str| {
        let mut numbers = name.split('-').filter_map(|part| part.parse::<u32>().ok());
        !numbers.any(|number| fs::exists(format!("/proc/{number}")).unwrap_or(false))
    };
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = sockets.lines().filter_map(|line| line.split_whitespace().nth(7));
    found.extend(names.filter(|name| is_ours(name) && is_orphan(name)).map(str::to_owned));
    found
}

/// Verbs programs ask for half a second of retries; give a loaded machine time.
const NOTICE: Duration = Duration::from_secs(10);
