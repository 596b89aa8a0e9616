//! The measured part of a session: operations, with one or many in flight.

use rnic_base::{Duration, Time};
use rnic_engine::{
    Completion, CqId, PostError, RecvRequest, RemoteMemory, SendFlags, SendOp, SendRequest, WcFlags, WcOpcode, WcStatus,
};
use rnic_wire::Qpn;

use super::control::{Control, IdleBackoff};
use super::latency::Latency;
use super::pattern::Pattern;
use super::plan::{Layout, MemoryAt};
use super::seen::SeenNumbers;
use super::{Length, Op, PerfConfig, PerfError};
use crate::memory::Region;
use crate::nic::Nic;

/// Results of a run.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) ops: u64,
    pub(super) elapsed: Duration,
    pub(super) latency: Latency,
    pub(super) verified: u64,
    pub(super) wrong: u64,
}

/// The operations of one queue pair.
#[derive(Debug)]
pub(super) struct Flow {
    qpn: Qpn,
    posted: u64,
    completed: u64,
    /// The completed operations: without order, these are not always the oldest.
    completed_numbers: SeenNumbers,
    /// Values that atomics have returned: all must be different.
    returned_numbers: SeenNumbers,
    /// Time at which each operation in flight was posted.
    posted_at: Vec<Time>,
}

impl Flow {
    /// Returns the state of a queue pair with up to `span` operations between the oldest in flight and the newest.
    pub(super) fn new(qpn: Qpn, span: u32) -> Self {
        let posted_at = vec![Time::ZERO; span as usize];
        let span = u64::from(span);
        // An atomic that returned a small value may complete after as many later ones as the span permits.
        Self {
            qpn,
            posted: 0,
            completed: 0,
            completed_numbers: SeenNumbers::within(span),
            returned_numbers: SeenNumbers::within(2 * span),
            posted_at,
        }
    }

    /// Returns whether one more operation may be posted: entries of the send queue, and slots of memory, become free in
    /// order.
    #[inline]
    fn may_post(&self, depth: u32) -> bool {
        let span = self.posted_at.len() as u64;
        self.posted - self.completed < u64::from(depth) && self.posted - self.completed_numbers.first() < span
    }
}

/// A run that is ready to start.
pub(super) struct Run<'a> {
    pub(super) config: &'a PerfConfig,
    pub(super) layout: Layout,
    pub(super) flows: Vec<Flow>,
    pub(super) region: &'a Region,
    pub(super) remote: MemoryAt,
    pub(super) cq: CqId,
    /// True when operations are executed, and complete, in any order.
    pub(super) any_order: bool,
}

impl Run<'_> {
    /// Keeps as many operations in flight as the plan requires, until all operations have completed.
    pub(super) fn run_until_end(mut self, nic: &mut Nic, control: &mut Control) -> Result<Measured, PerfError> {
        let mut measured = Measured::default();
        let start = nic.now();
        let (mut now, mut idle_backoff) = (start, IdleBackoff::new(start, self.config.sleeps_at_once));
        for qp in 0..self.flows.len() {
            self.fill_up(nic, qp, now, start)?;
        }
        let mut last = start;
        while self.flows.iter().any(|flow| flow.completed < flow.posted) {
            let mut moved = nic.progress();
            now = nic.now();
            while let Some(completion) = nic.verbs().poll_cq_one(self.cq) {
                (moved, last) = (true, now);
                check_status(nic, &completion, control)?;
                if self.needs_read_back(&completion) {
                    self.read_back(nic, &completion)?;
                    continue;
                }
                let qp = self.complete(nic, &completion, now, &mut measured);
                self.fill_up(nic, qp, now, start)?;
            }
            let idle = idle_backoff.sleep_if_idle(nic, moved)?;
            if !moved {
                control.check(nic, idle, self.config.timeout)?;
            }
        }
        measured.elapsed = last.since(start);
        Ok(measured)
    }

    /// Posts operations of queue pair `qp` while the plan has more operations and the queue has space.
    #[inline]
    fn fill_up(&mut self, nic: &mut Nic, qp: usize, now: Time, start: Time) -> Result<(), PerfError> {
        while self.flows[qp].may_post(self.config.depth) {
            let continues_turn = match self.config.length {
                Length::Count(count) => self.flows[qp].posted < count,
                Length::Time(span) => now.since(start) < span,
            };
            if !continues_turn {
                break;
            }
            self.post_next(nic, qp, now)?;
        }
        Ok(())
    }

    /// Posts the next operation of queue pair `qp`.
    #[inline]
    fn post_next(&mut self, nic: &mut Nic, qp: usize, now: Time) -> Result<(), PerfError> {
        let flow = &mut self.flows[qp];
        let index = flow.posted;
        let (local, remote_offset) =
            (self.layout.local_offset(qp as u32, index), self.layout.remote_offset(qp as u32, index));
        let len = self.config.operation_bytes();
        let remote = RemoteMemory { addr: self.remote.addr.wrapping_add(remote_offset as u64), rkey: self.remote.rkey };
        let blocks = RemoteMemory { addr: remote_offset as u64, rkey: 0 };
        let immediate = self.config.verify.then_some(index as u32);
        let op = match self.config.op {
            Op::NvmeRead => SendOp::Read { remote: blocks },
            Op::NvmeWrite => SendOp::Write { remote: blocks, immediate: None },
            Op::Write => SendOp::Write { remote, immediate },
            Op::Send => SendOp::Send { immediate },
            Op::Read => SendOp::Read { remote },
            Op::Atomic => SendOp::FetchAdd { remote, add: 1 },
            Op::CompareSwap => SendOp::CompareSwap { remote, compare: index, swap: index + 1 },
        };
        if self.config.verify && matches!(self.config.op, Op::Write | Op::Send | Op::NvmeWrite) {
            Pattern::of(qp as u32, index).fill(&mut nic.bytes_mut(self.region)[local..local + len as usize]);
        }
        let sges = [self.region.sge(local, len)];
        let sges = if len == 0 { &[][..] } else { &sges };
        let wr_id = index << QP_BITS | qp as u64;
        nic.verbs().post_send(flow.qpn, &SendRequest { wr_id, op, sges, flags: SendFlags::SIGNALED })?;
        let span = flow.posted_at.len() as u64;
        flow.posted_at[(index % span) as usize] = now;
        flow.posted += 1;
        Ok(())
    }

    /// Returns whether `completion` is that of an NVMe Write whose data this end verifies.
    #[inline]
    fn needs_read_back(&self, completion: &Completion) -> bool {
        self.config.verify && self.config.op == Op::NvmeWrite && completion.opcode == WcOpcode::RdmaWrite
    }

    /// Reads the data of an NVMe Write back into the buffer from which it was written, which is cleared before.
    fn read_back(&mut self, nic: &mut Nic, completion: &Completion) -> Result<(), PerfError> {
        let wr_id = completion.wr_id;
        let (qp, index) = ((wr_id & QP_MASK) as usize, wr_id >> QP_BITS);
        let (local, remote_offset) =
            (self.layout.local_offset(qp as u32, index), self.layout.remote_offset(qp as u32, index));
        let len = self.config.operation_bytes();
        nic.bytes_mut(self.region)[local..local + len as usize].fill(0);
        let op = SendOp::Read { remote: RemoteMemory { addr: remote_offset as u64, rkey: 0 } };
        let sges = [self.region.sge(local, len)];
        let request = SendRequest { wr_id, op, sges: &sges, flags: SendFlags::SIGNALED };
        Ok(nic.verbs().post_send(self.flows[qp].qpn, &request)?)
    }

    /// Accounts for a completed operation; returns the index of its queue pair.
    #[inline]
    fn complete(&mut self, nic: &Nic, completion: &Completion, now: Time, measured: &mut Measured) -> usize {
        let (qp, index) = ((completion.wr_id & QP_MASK) as usize, completion.wr_id >> QP_BITS);
        let flow = &mut self.flows[qp];
        let is_new = flow.completed_numbers.note(index);
        assert!(is_new, "operation {index} of queue pair {qp} has completed before, or was never posted");
        flow.completed += 1;
        measured.ops += 1;
        measured.latency.record(now.since(flow.posted_at[(index % flow.posted_at.len() as u64) as usize]));
        if self.config.verify {
            let local = self.layout.local_offset(qp as u32, index);
            let len = self.config.operation_bytes() as usize;
            let bytes = &nic.bytes(self.region)[local..local + len];
            let right = match self.config.op {
                // The data of these operations are compared at the receiving end.
                Op::Write | Op::Send => return qp,
                Op::Read | Op::NvmeRead => Pattern::of(qp as u32, self.layout.remote_slot(index)).matches(bytes),
                Op::NvmeWrite => Pattern::of(qp as u32, index).matches(bytes),
                Op::Atomic | Op::CompareSwap => {
                    let mut found = [0; size_of::<u64>()];
                    found.copy_from_slice(bytes);
                    let found = u64::from_ne_bytes(found);
                    flow.returned_numbers.note(found) && (self.any_order || found == index)
                }
            };
            measured.verified += u64::from(right);
            measured.wrong += u64::from(!right);
        }
        qp
    }

    /// Runs a ping-pong: posts a Send, waits for the response, and so on. Records half of each round-trip time.
    pub(super) fn ping_pong(self, nic: &mut Nic, control: &mut Control) -> Result<Measured, PerfError> {
        let mut measured = Measured::default();
        let (qpn, len) = (self.flows[0].qpn, self.config.operation_bytes());
        let post_recv = |nic: &mut Nic| {
            let sges = [self.region.sge(0, len)];
            let sges = if len == 0 { &[][..] } else { &sges };
            nic.verbs().post_recv(qpn, &RecvRequest { wr_id: 0, sges }).expect("one receive at a time");
        };
        let warm_up = match self.config.length {
            Length::Count(count) => count.min(WARM_UP_ROUNDS),
            Length::Time(_) => WARM_UP_ROUNDS,
        };
        let (mut start, mut sent_at) = (nic.now(), nic.now());
        let mut idle_backoff = IdleBackoff::new(start, self.config.sleeps_at_once);
        let mut is_warm = false;
        for round in 0.. {
            if !is_warm && (round == warm_up || sent_at.since(start) >= WARM_UP_MAX) {
                is_warm = true;
                start = sent_at;
            }
            let is_over = match self.config.length {
                Length::Count(count) => measured.ops == count,
                Length::Time(span) => measured.ops > 0 && sent_at.since(start) >= span,
            };
            if is_over {
                break;
            }
            post_recv(nic);
            if self.config.verify {
                Pattern::of(0, round).fill(&mut nic.bytes_mut(self.region)[..len as usize]);
            }
            let mut is_sent = false;
            let answer = loop {
                is_sent = is_sent || send_pong(nic, qpn, self.region, 0, len, round);
                let moved = nic.progress();
                if let Some(completion) = nic.verbs().poll_cq_one(self.cq) {
                    check_status(nic, &completion, control)?;
                    if completion.opcode == WcOpcode::Recv {
                        break completion;
                    }
                }
                if !moved {
                    let idle = idle_backoff.sleep_if_idle(nic, false)?;
                    if idle > Duration::ZERO {
                        control.check(nic, idle, self.config.timeout)?;
                    }
                }
            };
            let now = nic.now();
            idle_backoff = IdleBackoff::new(now, self.config.sleeps_at_once);
            if is_warm {
                measured.ops += 1;
                measured.latency.record(now.since(sent_at) / 2);
                if self.config.verify {
                    let right = answer.flags.contains(WcFlags::WITH_IMM)
                        && answer.word == round as u32
                        && Pattern::of(PONG_QP, round).matches(&nic.bytes(self.region)[..len as usize]);
                    measured.verified += u64::from(right);
                    measured.wrong += u64::from(!right);
                }
            }
            sent_at = now;
        }
        measured.elapsed = sent_at.since(start);
        Ok(measured)
    }
}

/// Posts a Send of a ping-pong, without requesting a completion. Returns `false` when the send queue is full: this
/// happens when the acknowledgement of the previous message was lost although the response to that message arrived.
pub(super) fn send_pong(nic: &mut Nic, qpn: Qpn, region: &Region, offset: usize, len: u32, round: u64) -> bool {
    let sges = [region.sge(offset, len)];
    let sges = if len == 0 { &[][..] } else { &sges };
    let op = SendOp::Send { immediate: Some(round as u32) };
    let posted = nic.verbs().post_send(qpn, &SendRequest { wr_id: 0, op, sges, flags: SendFlags::empty() });
    // When the queue pair has failed, its receive completes with an error, which reports the failure.
    !matches!(posted, Err(PostError::QueueFull))
}

fn check_status(nic: &Nic, completion: &Completion, control: &Control) -> Result<(), PerfError> {
    match (completion.status, completion.nvme_failure()) {
        (WcStatus::Success, _) => Ok(()),
        (_, Some(failure)) => Err(PerfError::Command { peer: control.peer, failure }),
        (status, None) => Err(control.failure(nic, status)),
    }
}

/// Number of bits of a work request ID that hold the index of the queue pair; the other bits hold the index of the
/// operation.
const QP_BITS: u32 = 10;
const QP_MASK: u64 = (1 << QP_BITS) - 1;
const _: () = assert!(super::setup::QPS_MAX <= 1 << QP_BITS);

/// Pseudo queue pair index that selects the data pattern of ping-pong responses.
pub(super) const PONG_QP: u32 = u32::MAX >> 16;

/// Number of rounds before the measurement, in which caches, branch predictors and the scheduler warm up.
const WARM_UP_ROUNDS: u64 = 1_000;

/// Maximum duration of the warm-up: rounds on a slow path, or of long messages that suffer packet loss, may take a
/// tenth of a second.
pub const WARM_UP_MAX: Duration = Duration::from_ms(500);
