//! Transfer of a file by RDMA Write: the library behind `make run`.
//!
//! The file is read into registered memory, written in chunks into memory of the remote end (which
//! [serves](crate::perf::serve())), and checked twice: the remote end computes the SHA-256 of the received data, and
//! every byte is read back by RDMA Read and compared.

use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;

use rnic_base::Duration;
use rnic_base::limits::WORK_REQUESTS_MAX;
use rnic_engine::{RemoteMemory, SendFlags, SendOp, SendRequest, WcStatus};
use serde::{Deserialize, Serialize};

use crate::digest::sha256;
use crate::impair::Impairment;
use crate::nic::Nic;
use crate::perf::{
    IdleBackoff, Latency, LatencyUs, PERF_PORT, PerfError, Session, Task, Terms, TransferTask, Wanted, sent,
};

/// Settings of a file transfer.
#[derive(Clone, Debug)]
pub struct TransferConfig {
    /// Service of the remote end.
    pub port: u16,
    /// Bytes of one Write.
    pub chunk_bytes: u32,
    /// Number of Writes in flight.
    pub depth: u32,
    /// Name of the transport.
    pub transport: String,
    /// Options of the transport.
    pub options: Vec<(String, String)>,
    /// Impairment of packets, in both directions.
    pub impairment: Impairment,
    /// Time limit for connection setup, and for the remote end to compute the SHA-256 of the data.
    pub timeout: Duration,
    /// True to read all data back and compare them.
    pub read_back: bool,
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self {
            port: PERF_PORT,
            chunk_bytes: 64 << 10,
            depth: 32,
            transport: "irn".to_owned(),
            options: Vec::new(),
            impairment: Impairment::default(),
            timeout: Duration::from_secs(10),
            read_back: true,
        }
    }
}

/// Result of a file transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TransferReport {
    /// Name of the transport that the two ends have agreed on.
    pub transport: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of one Write.
    pub chunk_bytes: u32,
    /// Number of Writes in flight.
    pub depth: u32,
    /// Configured loss probability in each direction, 0 to 1.
    pub loss: f64,
    /// Configured reordering probability in each direction, 0 to 1.
    pub reorder: f64,
    /// Time from posting the first Write to the last completion, in seconds.
    pub elapsed_s: f64,
    /// Goodput: bits of the file per time, in Gbit/s.
    pub goodput_gbps: f64,
    /// Time from posting a Write to its completion.
    pub latency_us: LatencyUs,
    /// Data packets of both ends while the file was written, including retransmissions.
    pub packets_sent: u64,
    /// Of these, retransmissions.
    pub packets_retransmitted: u64,
    /// Payload bytes of a full packet.
    pub wire_mtu_bytes: u32,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// True when the remote end has the same SHA-256, and every byte that was read back is correct.
    pub verified: bool,
    /// Points of the transfer's progress: seconds since the first Write, and bytes whose Writes had completed by
    /// then; at most [`DELIVERED_MAX`] points.
    pub delivered: Vec<(f64, u64)>,
}

/// Maximum number of points of [`TransferReport::delivered`]: as many as a chart can show.
pub const DELIVERED_MAX: usize = 512;

/// Sends the file at `path` to the NIC at `to`.
///
/// # Errors
/// When the file cannot be read, the session cannot be set up, an operation fails, or the remote end stops
/// responding. A file that arrives with wrong contents is not an error here: [`TransferReport::verified`] is false.
pub fn send_file(
    nic: &mut Nic,
    to: SocketAddr,
    path: &Path,
    config: &TransferConfig,
) -> Result<TransferReport, PerfError> {
    let content = read(path).map_err(|error| PerfError::File { path: path.display().to_string(), error })?;
    send_bytes(nic, to, &content, config)
}

/// Reads a file that fits into memory.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("the file exceeds the maximum size of {} GiB", FILE_BYTES_MAX >> 30)));
    }
    Ok(content)
}

/// Size limit in bytes: larger files must be sent in parts.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Sends `content` to the NIC at `to`, as [`send_file`] does.
///
/// # Errors
/// As [`send_file`].
pub fn send_bytes(
    nic: &mut Nic,
    to: SocketAddr,
    content: &[u8],
    config: &TransferConfig,
) -> Result<TransferReport, PerfError> {
    for (what, given, most, expected) in [
        ("chunk size in bytes", config.chunk_bytes, 1 << 30, "1 to 1073741824"),
        ("depth", config.depth, 16_384, "1 to 16384"),
    ] {
        if !(1..=most).contains(&given) {
            return Err(PerfError::Plan { what, given: given.into(), expected });
        }
    }
    let TransferConfig { port, transport, options, impairment, timeout, .. } = config;
    let terms = Terms::new(*port, transport, options, *impairment, *timeout)?;
    let bytes = content.len() as u64;
    let queue = config.depth.saturating_mul(2).min(WORK_REQUESTS_MAX);
    let wanted = Wanted { task: Task::Transfer(TransferTask { bytes }), local_bytes: bytes, qps: 1, queue, nvme: None };
    let mut session = Session::open(nic, to, &terms, &wanted)?;
    nic.bytes_mut(&session.region)[..content.len()].copy_from_slice(content);
    let before = sent(nic);
    let result = Move::run(nic, &mut session, config, bytes, false).and_then(|written| {
        let after = sent(nic);
        let outcome = session.finish(nic, config.timeout)?;
        let sha256 = sha256(content);
        let mut verified = outcome.sha256.as_deref() == Some(&*sha256);
        if config.read_back {
            // Cleared, so that the contents compared afterwards are those that were read from the remote end.
            nic.bytes_mut(&session.region).fill(0);
            Move::run(nic, &mut session, config, bytes, true)?;
            verified &= nic.bytes(&session.region)[..content.len()] == *content;
        }
        let packets = (after.0 - before.0 + outcome.packets_sent, after.1 - before.1 + outcome.packets_retransmitted);
        Ok((written, packets, sha256, verified))
    });
    let (transport, wire_mtu_bytes) = session.negotiated();
    session.close(nic);
    let (written, packets, sha256, verified) = result?;
    let elapsed_s = written.elapsed.as_secs_f64();
    Ok(TransferReport {
        transport: transport.to_owned(),
        bytes,
        chunk_bytes: config.chunk_bytes,
        depth: config.depth,
        loss: config.impairment.loss.as_f64(),
        reorder: config.impairment.reorder.as_f64(),
        elapsed_s,
        goodput_gbps: bytes as f64 * 8.0 / elapsed_s.max(f64::MIN_POSITIVE) / 1e9,
        latency_us: written.latency.summary(),
        packets_sent: packets.0,
        packets_retransmitted: packets.1,
        wire_mtu_bytes,
        sha256,
        verified,
        delivered: thinned(written.delivered),
    })
}

/// One pass over the complete content, writing or reading.
#[derive(Default)]
struct Move {
    elapsed: Duration,
    latency: Latency,
    delivered: Vec<(f64, u64)>,
}

impl Move {
    /// Writes everything, or reads everything back, in chunks.
    fn run(
        nic: &mut Nic,
        session: &mut Session,
        config: &TransferConfig,
        bytes: u64,
        back: bool,
    ) -> Result<Self, PerfError> {
        let Some(qpn) = session.connections.first().map(|connection| connection.qpn) else {
            return Ok(Self::default());
        };
        let mut moved = Self::default();
        let start = nic.now();
        let mut idle_backoff = IdleBackoff::new(start, false);
        let (mut posted, mut done) = (0, 0);
        // Operations in flight, by `wr_id`: the time at which each was posted, and its bytes. They may complete in any
        // order; entries of the send queue become free in posting order.
        let mut in_flight = vec![(start, 0u32); config.depth as usize];
        let mut free: Vec<usize> = (0..in_flight.len()).collect();
        while done < bytes {
            while posted < bytes
                && nic.send_queue_space(qpn).is_some_and(|room| room > 0)
                && let Some(slot) = free.pop()
            {
                let len = u64::from(config.chunk_bytes).min(bytes - posted) as u32;
                let remote = RemoteMemory { addr: session.remote.addr + posted, rkey: session.remote.rkey };
                let op = if back { SendOp::Read { remote } } else { SendOp::Write { remote, immediate: None } };
                let sges = [session.region.sge(posted as usize, len)];
                let request = SendRequest { wr_id: slot as u64, op, sges: &sges, flags: SendFlags::SIGNALED };
                nic.verbs().post_send(qpn, &request)?;
                in_flight[slot] = (nic.now(), len);
                posted += u64::from(len);
            }
            let mut is_busy = nic.progress();
            let now = nic.now();
            while let Some(completion) = nic.verbs().poll_cq_one(session.cq) {
                if completion.status != WcStatus::Success {
                    return Err(session.control.failure(nic, completion.status));
                }
                is_busy = true;
                let slot = completion.wr_id as usize;
                let (posted_at, len) = in_flight[slot];
                free.push(slot);
                moved.latency.record(now.since(posted_at));
                done += u64::from(len);
                moved.delivered.push((now.since(start).as_secs_f64(), done));
                moved.elapsed = now.since(start);
            }
            session.sleep_if_idle(nic, &mut idle_backoff, is_busy, config.timeout)?;
        }
        Ok(moved)
    }
}

/// Keeps evenly spaced points and the last one, at most [`DELIVERED_MAX`].
fn thinned(points: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    let step = points.len().div_ceil(DELIVERED_MAX - 1).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.into_iter().enumerate().filter(|(index, _)| index % step == 0 || *index == last);
    kept.map(|(_, point)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_thinned_and_the_first_and_last_are_kept() {
        for len in [0, 1, 511, 512, 513, 10_000] {
            let points: Vec<(f64, u64)> = (0..len).map(|index| (index as f64, index)).collect();
            let kept = thinned(points.clone());
            assert!(kept.len() <= DELIVERED_MAX, "{len}: {}", kept.len());
            assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
        }
    }
}
