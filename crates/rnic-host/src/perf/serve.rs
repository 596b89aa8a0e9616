//! The server: serves measurements and receives files, one session at a time. Clients that have not sent their
//! first order wait in parallel (`waiting.rs`).

use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_base::limits::{COMPLETIONS_MAX, WORK_REQUESTS_MAX};
use rnic_engine::{Access, Completion, CqId, NamespaceId, NvmeRole, PdId, RecvRequest, WcFlags, WcOpcode, WcStatus};
use rnic_wire::Qpn;

use super::client::sent;
use super::control::{Control, IDLE_WAIT, IdleBackoff, Role};
use super::pattern::Pattern;
use super::plan::{Answer, Layout, MemoryAt, Order, Outcome, Task, TransferTask, TransportOrder, VERSION};
use super::run::{PONG_QP, send_pong};
use super::seen::SeenNumbers;
use super::setup::{DEPTH_MAX, QPS_MAX, ServeConfig, make_cq, reject_client};
use super::waiting::{BUSY, FIRST_ORDER_TIMEOUT, Waiting, WaitingClient};
use super::{Op, PerfError, nvme, order, peers, protection, stream};
use crate::cm::ConnectionId;
use crate::connection::{ConnectionConfig, ConnectionEvent, ConnectionRequest};
use crate::defaults::TransportChoice;
use crate::impair::Impairment;
use crate::memory::Region;
use crate::nic::Nic;
use crate::stream::Offer;

/// Result of a session that has been served.
#[derive(Clone, PartialEq, Debug)]
pub struct Served {
    /// Address of the client.
    pub peer: SocketAddr,
    /// Description of the task.
    pub task: String,
    /// Reason why the session ended early; `None` when it ended as agreed.
    pub problem: Option<String>,
    /// Operations whose data were compared here and correct.
    pub verified: u64,
    /// Operations whose data were compared here and wrong.
    pub wrong: u64,
    /// Data packets sent, including retransmissions.
    pub packets_sent: u64,
    /// Of these, retransmissions.
    pub packets_retransmitted: u64,
}

impl Served {
    /// Returns the result of a session of `peer` in which no operation was done.
    fn nothing(peer: SocketAddr, problem: String) -> Self {
        Self {
            peer,
            task: String::new(),
            problem: Some(problem),
            verified: 0,
            wrong: 0,
            packets_sent: 0,
            packets_retransmitted: 0,
        }
    }
}

/// Serves sessions until `keep_serving` returns `false`; `keep_serving` is called about a hundred times per second
/// when idle. Calls `on_session` for each session that has ended.
///
/// # Errors
/// When no session can be served. An error within one session ends that session only.
pub fn serve(
    nic: &mut Nic,
    config: &ServeConfig,
    mut keep_serving: impl FnMut() -> bool,
    mut on_session: impl FnMut(&Served),
) -> Result<(), PerfError> {
    let service = nic.listen(config.port, BACKLOG)?;
    let mut waiting = Waiting::default();
    while keep_serving() {
        let mut moved = nic.progress();
        let mut served = None;
        if let Some(event) = nic.poll_connection_event() {
            moved = true;
            served = match event {
                ConnectionEvent::Requested(request) if Offer::parse(&request.private_data).is_some() => {
                    Some(serve_stream(nic, config, &request, &mut keep_serving))
                }
                event => receive(nic, config, event, &mut waiting),
            };
        }
        if let Some((client, received)) = waiting.next(nic, config) {
            moved = true;
            served = match received {
                Ok(order) => Some(serve_session(nic, config, client, order, &mut waiting, &mut keep_serving)),
                Err(error) => {
                    let ended =
                        client.is_session_failure().then(|| Served::nothing(client.control.peer, error.to_string()));
                    client.control.close(nic);
                    // A client that sends no order does not count as a session.
                    if matches!(error, PerfError::Silent { .. }) {
                        ended.iter().for_each(&mut on_session);
                        continue;
                    }
                    ended
                }
            };
        }
        if let Some(served) = served {
            on_session(&served);
            if config.once {
                break;
            }
        } else if !moved {
            nic.wait(IDLE_WAIT)?;
        }
    }
    waiting.close(nic);
    nic.unlisten(service);
    Ok(())
}

/// Handles a connection manager event while no session is served; returns a result when a connection failed.
fn receive(nic: &mut Nic, config: &ServeConfig, event: ConnectionEvent, waiting: &mut Waiting) -> Option<Served> {
    match event {
        ConnectionEvent::Requested(request) => match Role::parse(&request.private_data) {
            Some(Role::Control { session }) => {
                let admitted = waiting.admit(nic, config, &request, session);
                return admitted.err().map(|problem| Served::nothing(request.from, problem));
            }
            _ => reject_client(nic, request.id, "this service requires a control connection first"),
        },
        ConnectionEvent::Disconnected(id) | ConnectionEvent::Failed { id, .. } => waiting.end(id),
        ConnectionEvent::Established(_) => {}
    }
    None
}

/// Serves one stream.
fn serve_stream(
    nic: &mut Nic,
    config: &ServeConfig,
    request: &ConnectionRequest,
    keep_serving: &mut impl FnMut() -> bool,
) -> Served {
    let (outcome, error) = stream::serve(nic, config, request, keep_serving);
    let Outcome { verified, wrong, packets_sent, packets_retransmitted, .. } = outcome;
    let problem = error.map(|error| error.to_string());
    let task = "stream".to_owned();
    Served { peer: request.from, task, problem, verified, wrong, packets_sent, packets_retransmitted }
}

/// Serves one session, starting with its first order.
fn serve_session(
    nic: &mut Nic,
    config: &ServeConfig,
    client: WaitingClient,
    order: Order,
    waiting: &mut Waiting,
    keep_serving: &mut impl FnMut() -> bool,
) -> Served {
    let sent_before = sent(nic);
    let WaitingClient { control, session: number, .. } = client;
    let mut served = Served::nothing(control.peer, String::new());
    served.problem = None;
    let pd = match nic.verbs().create_pd() {
        Ok(pd) => pd,
        Err(error) => {
            control.close(nic);
            served.problem = Some(error.to_string());
            return served;
        }
    };
    let mut session = Session { pd, control, number, sent_before, job: None, finished: false };
    let result = session.execute(nic, config, order).and_then(|()| session.run(nic, config, waiting, keep_serving));
    served.problem = result.err().map(|error| error.to_string());
    if let Some(job) = &session.job {
        served.task = job.name();
        (served.verified, served.wrong) = (job.verified, job.wrong);
    }
    session.close(nic);
    let after = sent(nic);
    (served.packets_sent, served.packets_retransmitted) = (after.0 - sent_before.0, after.1 - sent_before.1);
    served
}

/// A session, at the server.
struct Session {
    /// Protection domain of the data connections and their memory.
    pd: PdId,
    control: Control,
    number: u64,
    /// Number of packets sent before the session, and number of retransmissions included in it: subtracted from the
    /// final counts.
    sent_before: (u64, u64),
    job: Option<Job>,
    finished: bool,
}

impl Session {
    /// Serves the session until the other end disconnects.
    fn run(
        &mut self,
        nic: &mut Nic,
        config: &ServeConfig,
        waiting: &mut Waiting,
        keep_serving: &mut impl FnMut() -> bool,
    ) -> Result<(), PerfError> {
        let mut idle_backoff = IdleBackoff::new(nic.now(), config.sleeps_at_once);
        // Writes and Reads cause no events in this program, but their packets are counted, so received packets show
        // that the session is alive; connection requests of other clients do not.
        let (mut received, mut alive_at) = (0, nic.now());
        loop {
            let mut moved = nic.progress();
            if let Some(job) = &mut self.job {
                moved |= job.take_completions(nic)?;
            }
            if let Some(event) = nic.poll_connection_event() {
                moved = true;
                let silent_for = nic.now().since(alive_at);
                self.process_event(nic, config, event, (waiting, silent_for))?;
            }
            if !waiting.is_empty() {
                waiting.refuse(nic);
            }
            match self.control.poll::<Order>(nic) {
                Ok(Some(order)) => self.execute(nic, config, order)?,
                Ok(None) => {}
                Err(PerfError::Ended { .. } | PerfError::Gone { .. }) if self.finished => return Ok(()),
                Err(error) => return Err(error),
            }
            idle_backoff.sleep_if_idle(nic, moved)?;
            if moved && nic.engine_stats().packets_received != received {
                received = nic.engine_stats().packets_received;
                alive_at = nic.now();
            } else if !moved && nic.now().since(alive_at) > config.patience {
                return Err(PerfError::Silent { peer: self.control.peer, after: config.patience });
            }
            if !moved && !keep_serving() {
                return Ok(());
            }
        }
    }

    /// Handles a connection manager event; `silent_for` is the time since the last packet of this session arrived.
    fn process_event(
        &mut self,
        nic: &mut Nic,
        config: &ServeConfig,
        event: ConnectionEvent,
        (waiting, silent_for): (&mut Waiting, Duration),
    ) -> Result<(), PerfError> {
        match event {
            ConnectionEvent::Requested(request) => match (Role::parse(&request.private_data), &mut self.job) {
                (Some(Role::Data { session, index }), Some(job)) if session == self.number => {
                    job.accept(nic, self.pd, &request, index)
                }
                // A session without packets for too long does not block other clients.
                (Some(Role::Control { session }), _) if silent_for > FIRST_ORDER_TIMEOUT => {
                    // On failure, `admit` has already sent a rejection to the client.
                    let _ = waiting.admit(nic, config, &request, session);
                    Err(PerfError::Silent { peer: self.control.peer, after: silent_for })
                }
                _ => {
                    reject_client(nic, request.id, BUSY);
                    Ok(())
                }
            },
            ConnectionEvent::Disconnected(id) => {
                if id == self.control.id {
                    self.control.end();
                }
                waiting.end(id);
                Ok(())
            }
            ConnectionEvent::Established(_) => Ok(()),
            ConnectionEvent::Failed { id, error } => {
                let is_own = id == self.control.id || self.job.as_ref().is_some_and(|job| job.has(id));
                waiting.end(id);
                if is_own { Err(error.into()) } else { Ok(()) }
            }
        }
    }

    fn execute(&mut self, nic: &mut Nic, config: &ServeConfig, order: Order) -> Result<(), PerfError> {
        match order {
            Order::Prepare { version, task, transport, impairment, round_trip_ps } => {
                let checked = impairment.check();
                let impairment = Impairment::from(impairment);
                // Round-trip time including the impairment: when it was measured, this end did not delay its packets
                // yet.
                let round_trip = Duration::from_ps(round_trip_ps.saturating_add(impairment.delay.as_ps()));
                let job = match version {
                    // Refused, because the memory of the first task is still allocated and counts against the limit.
                    VERSION if self.job.is_some() => Err("a task has already been prepared in this session".to_owned()),
                    VERSION => checked
                        .and_then(|()| Job::prepare(nic, self.pd, config, task, &transport))
                        .map(|job| job.on_path(round_trip)),
                    other => Err(format!(
                        "the client uses protocol version {other}, but the server uses version {VERSION}; use the \
                         same release at both ends"
                    )),
                };
                match job {
                    Ok(job) => {
                        let region = &job.region;
                        let memory = MemoryAt { addr: region.addr(), rkey: region.key().0, len: region.len() as u64 };
                        self.job = Some(job);
                        self.control.send(nic, &Answer::Ready { memory })?;
                        // Delayed packets of an earlier session would occupy buffer space.
                        nic.drop_delayed();
                        nic.set_impairment(impairment);
                        Ok(())
                    }
                    Err(reason) => {
                        self.finished = true;
                        self.control.send(nic, &Answer::Refused { reason })
                    }
                }
            }
            Order::Finish => {
                let after = sent(nic);
                let mut outcome = Outcome {
                    packets_sent: after.0 - self.sent_before.0,
                    packets_retransmitted: after.1 - self.sent_before.1,
                    ..Outcome::default()
                };
                if let Some(job) = &self.job {
                    (outcome.verified, outcome.wrong) = (job.verified, job.wrong);
                    outcome.sha256 = job.digest(nic);
                }
                self.finished = true;
                self.control.send(nic, &Answer::Outcome(outcome))
            }
        }
    }

    fn close(self, nic: &mut Nic) {
        let Self { pd, control, job, .. } = self;
        if let Some(job) = job {
            job.close(nic);
        }
        control.close(nic);
        // No other object uses the protection domain any more.
        let _ = nic.verbs().destroy_pd(pd);
        nic.set_impairment(Impairment::default());
    }
}

/// The task of a session, and its resources.
struct Job {
    task: Task,
    choice: TransportChoice,
    layout: Layout,
    region: Region,
    /// Namespace of NVMe commands; `None` for other operations.
    namespace: Option<NamespaceId>,
    cq: CqId,
    flows: Vec<Option<Flow>>,
    /// Response of a ping-pong that could not be posted because the send queue was full.
    unsent: Option<PendingSend>,
    verified: u64,
    wrong: u64,
}

/// Receives of one queue pair.
#[derive(Clone, Debug)]
struct Flow {
    id: ConnectionId,
    qpn: Qpn,
    /// Number of operations that have arrived.
    received: u64,
    /// Numbers of the operations that have arrived, if operations may arrive in any order.
    seen: SeenNumbers,
}

/// A Send of a ping-pong that is still to be posted.
#[derive(Clone, Copy, Debug)]
struct PendingSend {
    qpn: Qpn,
    at: usize,
    len: u32,
    round: u64,
}

impl Job {
    /// Checks the task and allocates memory for it; returns the reason of a refusal as text.
    fn prepare(
        nic: &mut Nic,
        pd: PdId,
        config: &ServeConfig,
        task: Task,
        transport: &TransportOrder,
    ) -> Result<Self, String> {
        let options: Vec<(&str, &str)> = transport.options.iter().map(|(name, value)| (&**name, &**value)).collect();
        let choice = peers::choice(nic, &transport.name, &options).map_err(|error| error.to_string())?;
        protection::check_choice(nic, &choice).map_err(|error| error.to_string())?;
        let (layout, qps, bytes, completions) = match &task {
            Task::Perf { op, size_bytes, qps, depth, verify, .. } => {
                if !(1..=QPS_MAX).contains(&u64::from(*qps)) || !(1..=DEPTH_MAX).contains(&u64::from(*depth)) {
                    return Err(format!(
                        "{qps} queue pairs with {depth} operations in flight are out of range: allowed are 1 to \
                         {QPS_MAX} and 1 to {DEPTH_MAX}"
                    ));
                }
                let layout = Layout::new(*op, *size_bytes, *depth, *verify, order::is_any(&choice));
                (layout, *qps, layout.remote_bytes(*qps), qps.saturating_mul(*depth).saturating_mul(2))
            }
            Task::Transfer(TransferTask { bytes }) => (Layout::new(Op::Write, 1, 1, false, false), 1, *bytes, 0),
        };
        if bytes > config.memory_max_bytes {
            return Err(format!(
                "the task needs {bytes} bytes of memory, but the server allows at most {}",
                config.memory_max_bytes
            ));
        }
        let len = usize::try_from(bytes.max(1)).map_err(|error| error.to_string())?;
        let region = nic.verbs().register(pd, len, Access::all()).map_err(|error| error.to_string())?;
        if matches!(task, Task::Transfer(_)) {
            // Hardware pins registered memory. Here pages are allocated at the first access, which should not be part
            // of a Write.
            nic.bytes_mut(&region).fill(0);
        }
        let cq = match make_cq(nic, completions.clamp(64, COMPLETIONS_MAX)) {
            Ok(cq) => cq,
            Err(error) => {
                nic.verbs().deregister(region);
                return Err(error.to_string());
            }
        };
        let is_nvme = matches!(&task, Task::Perf { op, .. } if op.is_nvme());
        let flows = vec![None; qps as usize];
        let (unsent, namespace) = (None, None);
        let mut job = Self { task, choice, layout, region, namespace, cq, flows, unsent, verified: 0, wrong: 0 };
        if is_nvme {
            match nvme::namespace(nic, pd, &job.region) {
                Ok(namespace) => job.namespace = Some(namespace),
                Err(reason) => {
                    job.close(nic);
                    return Err(reason);
                }
            }
        }
        job.fill_for_reads(nic);
        Ok(job)
    }

    /// Adapts the timeouts of the job's transport to a path with this round-trip time.
    fn on_path(self, round_trip: Duration) -> Self {
        Self { choice: self.choice.adapted_to(round_trip), ..self }
    }

    fn name(&self) -> String {
        match &self.task {
            Task::Perf { op, size_bytes, qps, .. } => {
                let (plural, name) = (if *qps == 1 { "" } else { "s" }, self.choice.profile.name);
                format!("{} of {size_bytes} bytes on {qps} queue pair{plural}, {name}", op.name())
            }
            Task::Transfer(TransferTask { bytes }) => format!("a file of {bytes} bytes, {}", self.choice.profile.name),
        }
    }

    fn has(&self, id: ConnectionId) -> bool {
        self.flows.iter().flatten().any(|flow| flow.id == id)
    }

    /// Fills every slot that will be read with its own pattern.
    fn fill_for_reads(&self, nic: &mut Nic) {
        let Task::Perf { op: Op::Read | Op::NvmeRead, size_bytes, qps, verify: true, .. } = self.task else { return };
        let bytes = nic.bytes_mut(&self.region);
        for qp in 0..qps {
            for slot in 0..self.layout.remote_slots() {
                let at = self.layout.remote_offset(qp, slot);
                Pattern::of(qp, slot).fill(&mut bytes[at..at + size_bytes as usize]);
            }
        }
    }

    /// Accepts a data connection and posts its receives.
    fn accept(&mut self, nic: &mut Nic, pd: PdId, request: &ConnectionRequest, index: u32) -> Result<(), PerfError> {
        let Some(slot) = self.flows.get(index as usize) else {
            reject_client(nic, request.id, "the client connects more queue pairs than it announced");
            return Ok(());
        };
        if slot.is_some() {
            reject_client(nic, request.id, "this queue pair is already connected");
            return Ok(());
        }
        let queue = self.receives().saturating_mul(2).clamp(16, WORK_REQUESTS_MAX);
        let mut config = ConnectionConfig::new(pd, self.cq).with_transports(vec![self.choice.clone()]);
        (config.queues.max_send_wr, config.queues.max_recv_wr, config.queues.max_sge) = (queue, queue, 1);
        config.queues.nvme = self.namespace.map(NvmeRole::Target);
        let connection = nic.accept(request.id, &config)?;
        let seen = SeenNumbers::within(self.receives().into());
        self.flows[index as usize] = Some(Flow { id: connection.id, qpn: connection.qpn, received: 0, seen });
        for operation in 0..u64::from(self.receives()) {
            self.post_recv(nic, index, connection.qpn, operation);
        }
        Ok(())
    }

    /// Returns the number of receives that are kept posted on each queue pair.
    fn receives(&self) -> u32 {
        match self.task {
            Task::Perf { op: Op::Send, depth, .. } | Task::Perf { op: Op::Write, depth, verify: true, .. } => depth,
            _ => 0,
        }
    }

    /// Posts the receive that operation `index` of queue pair `qp` will use.
    fn post_recv(&self, nic: &mut Nic, qp: u32, qpn: Qpn, index: u64) {
        let sge = match self.task {
            Task::Perf { op: Op::Send, size_bytes, .. } if size_bytes > 0 => {
                Some(self.region.sge(self.layout.remote_offset(qp, index), size_bytes))
            }
            _ => None,
        };
        // On a failed queue pair the receive is flushed.
        let _ = nic.verbs().post_recv(qpn, &RecvRequest { wr_id: u64::from(qp), sges: sge.as_slice() });
    }

    /// Processes received operations; returns whether there were any.
    #[inline]
    fn take_completions(&mut self, nic: &mut Nic) -> Result<bool, PerfError> {
        self.send_unsent(nic);
        let mut any = false;
        while let Some(completion) = nic.verbs().poll_cq_one(self.cq) {
            any = true;
            let is_receive = matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
            if completion.status == WcStatus::Success && is_receive {
                self.receive_operation(nic, &completion);
            }
        }
        Ok(any)
    }

    fn receive_operation(&mut self, nic: &mut Nic, completion: &Completion) {
        let qp = completion.wr_id as u32;
        let Some(Some(flow)) = self.flows.get_mut(qp as usize) else { return };
        let (qpn, received) = (flow.qpn, flow.received);
        flow.received += 1;
        let Task::Perf { op, size_bytes, depth, verify, ping_pong, .. } = self.task else { return };
        // Without order, the index is taken from the immediate data.
        let any_order = verify && order::is_any(&self.choice);
        let index = if any_order { flow.seen.extend_low_bits(completion.word) } else { received };
        // A Send consumes the oldest receive, whatever its index; a Write carries its own address.
        let at = self.layout.remote_offset(qp, if op == Op::Send { received } else { index });
        let len = size_bytes as usize;
        if verify {
            let right = completion.flags.contains(WcFlags::WITH_IMM)
                && completion.word == index as u32
                && (!any_order || flow.seen.note(index))
                && Pattern::of(qp, index).matches(&nic.bytes(&self.region)[at..at + len]);
            // In a ping-pong the other end also compares the data, and the report contains that end's count.
            self.verified += u64::from(right && !ping_pong);
            self.wrong += u64::from(!right);
        }
        if ping_pong {
            if verify {
                Pattern::of(PONG_QP, index).fill(&mut nic.bytes_mut(&self.region)[at..at + len]);
            }
            self.unsent = Some(PendingSend { qpn, at, len: size_bytes, round: index });
            self.send_unsent(nic);
        }
        self.post_recv(nic, qp, qpn, received + u64::from(depth));
    }

    fn send_unsent(&mut self, nic: &mut Nic) {
        if let Some(PendingSend { qpn, at, len, round }) = self.unsent
            && send_pong(nic, qpn, &self.region, at, len, round)
        {
            self.unsent = None;
        }
    }

    fn digest(&self, nic: &Nic) -> Option<String> {
        match self.task {
            Task::Transfer(TransferTask { bytes }) => {
                Some(crate::digest::sha256(&nic.bytes(&self.region)[..bytes as usize]))
            }
            Task::Perf { .. } => None,
        }
    }

    fn close(self, nic: &mut Nic) {
        self.flows.iter().flatten().for_each(|flow| nic.close(flow.id));
        if let Some(namespace) = self.namespace {
            // No queue pair uses the namespace any more.
            let _ = nic.verbs().nvme().destroy_namespace(namespace);
        }
        nic.verbs().deregister(self.region);
        let _ = nic.verbs().destroy_cq(self.cq);
    }
}

/// Maximum number of pending connection requests: the queue pairs of a session are connected one after the other.
const BACKLOG: usize = 64;
