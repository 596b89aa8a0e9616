//! Requests to the devices of a running process.

use std::time::Duration;

use rnic_host::observe::{self, ControlReply, Endpoint, ObserveError};

use crate::failure::Failure;

/// Answers of the devices of a process.
#[derive(Debug)]
pub struct Answers<T> {
    /// Answers of the devices that executed the request.
    pub done: Vec<T>,
    /// One line for each device that rejected the request, or did not answer.
    pub reasons: Vec<String>,
}

/// Sends a request to each device of process `pid` with `send`, which receives a time limit; `read` returns the
/// contents of an answer of the expected kind.
///
/// # Errors
/// When the process has not opened a device itself.
pub fn request<T>(
    pid: u32,
    timeout: Duration,
    send: impl Fn(&Endpoint, Duration) -> Result<ControlReply, ObserveError>,
    read: impl Fn(ControlReply) -> Option<T>,
) -> Result<Answers<T>, Failure> {
    let mut answers = Answers { done: Vec::new(), reasons: Vec::new() };
    for device in &observe::devices_of(pid).map_err(Failure::input)? {
        match send(device, timeout) {
            Ok(ControlReply::Refused(reason)) => answers.reasons.push(format!("process {pid}: {reason}")),
            Ok(reply) => match read(reply) {
                Some(done) => answers.done.push(done),
                None => answers.reasons.push(format!("process {pid}: the answer does not match the request")),
            },
            // Any process can choose any name, so a socket that belongs to another user says nothing of this process.
            Err(ObserveError::Impostor { .. }) => {}
            Err(error) => answers.reasons.push(error.to_string()),
        }
    }
    if answers.done.is_empty() && answers.reasons.is_empty() {
        return Err(Failure::input(format!("no device of process {pid} answers")));
    }
    Ok(answers)
}

/// Returns the number of queue pairs of the devices of process `pid` that answer.
///
/// # Errors
/// When the process has not opened the device.
pub fn queue_pairs(pid: u32) -> Result<u64, Failure> {
    let devices = observe::devices_of(pid).map_err(Failure::input)?;
    let snapshots = observe::fetch_all(&devices, SNAPSHOT_TIMEOUT);
    Ok(snapshots.iter().map(|device| device.queue_pairs.len() as u64 + device.queue_pairs_omitted).sum())
}

/// Longest time for a snapshot.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(1);
