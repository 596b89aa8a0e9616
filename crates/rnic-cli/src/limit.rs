//! `rnic limit`: sets rate limits for the queue pairs of a running process.

use std::time::Duration;

use rnic_host::observe::{self, ControlReply, Endpoint, LimitRequest};
use serde::Serialize;

use crate::args::LimitArgs;
use crate::console;
use crate::failure::Failure;
use crate::running::{self, Answers};

/// The JSON object that `rnic limit --json` prints.
#[derive(Debug, Serialize)]
struct Outcome {
    pid: u32,
    /// Limit in bits per second; `None` when it was removed.
    rate_bps: Option<u64>,
    /// Number of existing queue pairs that have the limit now.
    queue_pairs: u32,
}

/// Runs `rnic limit`.
///
/// # Errors
/// When the process has not opened the device, or one of its devices refuses the limit or does not answer.
pub fn run(args: &LimitArgs) -> Result<(), Failure> {
    let LimitArgs { pid, qp, .. } = *args;
    let rate = args.rate.0;
    let request = LimitRequest { queue_pair: qp, rate_bps: rate.map(|rate| rate.as_bps()) };
    let send = |device: &Endpoint, timeout| observe::set_limit(device, &request, timeout);
    let count = |reply| if let ControlReply::QueuePairs(count) = reply { Some(count) } else { None };
    let Answers { done, mut reasons } = running::request(pid, TIMEOUT, send, count)?;
    // A queue pair belongs to a single device, and the others refuse it.
    let refusals_matter = done.is_empty() || qp.is_none();
    if let Some(reason) = reasons.pop().filter(|_| refusals_matter) {
        return Err(Failure::input(reason));
    }
    let queue_pairs = done.into_iter().sum();
    let text = describe(pid, rate.map(|rate| rate.to_string()), qp, queue_pairs);
    console::result(&text, args.json.then_some(&Outcome { pid, rate_bps: request.rate_bps, queue_pairs }));
    Ok(())
}

fn describe(pid: u32, rate: Option<String>, qp: Option<u32>, queue_pairs: u32) -> String {
    let limit = rate.unwrap_or("none".to_owned());
    match qp {
        Some(number) => format!("process {pid}: limit of queue pair {number:#x}: {limit}\n"),
        None => format!("process {pid}: limit of each queue pair: {limit} (queue pairs now: {queue_pairs})\n"),
    }
}

/// Maximum time for an answer: a process that is stopped does not answer.
const TIMEOUT: Duration = Duration::from_secs(1);
