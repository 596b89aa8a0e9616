//! Requests to the devices of a running process.

use std::time::Duration;

use rnic_host::observe::{self, ControlReply, Endpoint, ObserveError};

use crate::failure::Failure;

/// Answers of the devices of a process.
#[derive(Debug)]
pub struct Answers<T> {
    /// Answers of the devices that carried out the request.
    pub done: Vec<T>,
    /// One line for each device that refused it, or did not answer.
    pub reasons: Vec<String>,
}

/// Sends a request to each device of process `pid` by `send`, which has at most the time that is passed to it; `read`
/// returns the contents of the right kind of answer.
///
/// # Errors
/// When the process has not opened the device, or none of its devices is its own.
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
                None => answers.reasons.push(format!("process {pid}: it answers another request")),
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
