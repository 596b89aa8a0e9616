//! Kills one side during its work: the other side must detect it and exit, and no resources may be left behind.

use std::time::{Duration, Instant};

use super::pair::Pair;
use super::{Case, Check, Outcome, Place};
use crate::leftovers;

/// Programs that would run for a long time.
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
        sockets: false,
        needs: &[],
    }
}

/// Kills the server or the client of `case` after `delay`; the other side must exit by itself within [`EXIT_TIME_MAX`].
pub fn kill(case: &Case, place: &Place, kills_server: bool, delay: Duration) -> Outcome {
    let before = leftovers::names();
    let mut pair = match Pair::start(case, place) {
        Ok(pair) => pair,
        Err(error) => return Outcome::Failed(error),
    };
    std::thread::sleep(delay);
    pair.kill(kills_server);
    let killed = Instant::now();
    let survivor = pair.survivor(kills_server);
    if !survivor.wait(EXIT_TIME_MAX) {
        return Outcome::Failed(format!("{} s later: {}", EXIT_TIME_MAX.as_secs(), survivor.tail()));
    }
    let exit_time = killed.elapsed();
    drop(pair);
    let left: Vec<String> = leftovers::names().difference(&before).cloned().collect();
    if left.is_empty() {
        Outcome::Passed(exit_time)
    } else {
        Outcome::Failed(format!("left behind: {}", left.join(", ")))
    }
}

/// Maximum time until the survivor exits: verbs programs request half a second of retries, and a loaded machine needs
/// more time.
const EXIT_TIME_MAX: Duration = Duration::from_secs(10);
