//! The client: sets up a session, runs it, and assembles the report.

use std::net::SocketAddr;

use rnic_base::Duration;
use rnic_base::limits::{MESSAGE_BYTES_MAX, WORK_REQUESTS_MAX};
use rnic_engine::{Access, CqId, NvmeRole, PdId};

use super::control::{Control, IdleBackoff, Role};
use super::plan::{Answer, ImpairmentOrder, Layout, MemoryAt, Order, Outcome, Task, TransportOrder, VERSION};
use super::report::{FlowReport, LatencyKind, PerfReport};
use super::run::{Flow, Measured, Run};
use super::setup::{DEPTH_MAX, QPS_MAX, make_cq};
use super::{Op, PerfConfig, PerfError, nvme, order, peers, protection};
use crate::connection::{Connection, ConnectionConfig, ConnectionEvent};
use crate::defaults::TransportChoice;
use crate::memory::Region;
use crate::nic::Nic;

/// Repeats an operation of verbs on connections to the NIC at `to`; see [`super::measure`].
pub(super) fn measure(nic: &mut Nic, to: SocketAddr, config: &PerfConfig) -> Result<PerfReport, PerfError> {
    let terms = Terms { choice: choice_of(nic, config)?, ..Terms::of(config)? };
    check_against(config, &terms.choice, nic.config().mtu_max_bytes)?;
    let task = Task::Perf {
        op: config.op,
        size_bytes: config.operation_bytes(),
        qps: config.qps,
        depth: config.depth,
        verify: config.verify,
        ping_pong: config.ping_pong,
    };
    let any_order = order::is_any(&terms.choice) || config.op.is_nvme();
    let layout = Layout::new(config.op, config.operation_bytes(), config.depth, config.verify, any_order);
    let local_bytes = layout.local_bytes(config.qps);
    let entries_per_op = if config.op.is_nvme() { nvme::ENTRIES } else { 2 };
    let queue = config.depth.saturating_mul(entries_per_op).min(WORK_REQUESTS_MAX);
    let nvme = nvme::initiator(config.op);
    let wanted = Wanted { task, local_bytes, qps: config.qps, queue, nvme };
    let mut session = Session::open(nic, to, &terms, &wanted)?;
    // The MTU of the path may be smaller than this end's limit, which was checked before.
    if let Err(error) = order::check(config, &terms.choice, session.negotiated().1) {
        session.close(nic);
        return Err(error);
    }
    let before = sent(nic);
    // With verification or atomics each operation in flight has its own memory, so the first incomplete and the last
    // posted operation must be less than `depth` apart; otherwise only the send queue limits this distance.
    let span = if config.verify || config.op.is_atomic() { config.depth } else { queue };
    let flows = session.connections.iter().map(|connection| Flow::new(connection.qpn, span)).collect();
    let run = Run { config, layout, flows, region: &session.region, remote: session.remote, cq: session.cq, any_order };
    let measured = match config.ping_pong {
        true => run.ping_pong(nic, &mut session.control),
        false => run.run_until_end(nic, &mut session.control),
    };
    let (after, flows) = (sent(nic), flow_reports(nic, &session.connections));
    let finished = measured.and_then(|measured| Ok((measured, session.finish(nic, config.timeout)?)));
    let agreed = session.negotiated();
    session.close(nic);
    let (measured, outcome) = finished?;
    let report = report(nic, config, &measured, &outcome, (after.0 - before.0, after.1 - before.1), agreed);
    Ok(PerfReport { flows, ..report })
}

pub(super) fn choice_of(nic: &Nic, config: &PerfConfig) -> Result<TransportChoice, PerfError> {
    let options: Vec<(&str, &str)> = config.options.iter().map(|(name, value)| (&**name, &**value)).collect();
    peers::choice(nic, &config.transport, &options)
}

/// Returns the number of packets that each flow of `connections` has sent and retransmitted.
fn flow_reports(nic: &Nic, connections: &[Connection]) -> Vec<FlowReport> {
    let mut reports: Vec<FlowReport> = Vec::new();
    let is_ours = |qpn| connections.iter().any(|connection| connection.qpn == qpn);
    for (view, _) in nic.queue_pairs().filter(|(view, _)| is_ours(view.info.number)) {
        reports.resize(reports.len().max(view.flows.len()), FlowReport::default());
        for (report, flow) in reports.iter_mut().zip(&view.flows) {
            report.packets += flow.counters.sent + flow.counters.retransmitted_packets;
            report.packets_retransmitted += flow.counters.retransmitted_packets;
            report.path_changes += flow.counters.moves;
        }
    }
    reports
}

/// See [`super::check`].
pub(super) fn check(config: &PerfConfig, mtu_bytes: u32) -> Result<(), PerfError> {
    check_against(config, &Terms::of(config)?.choice, mtu_bytes)
}

fn check_against(config: &PerfConfig, choice: &TransportChoice, mtu_bytes: u32) -> Result<(), PerfError> {
    // The ranges that NVMe accepts are smaller.
    nvme::check(config, choice, mtu_bytes)?;
    check_ranges(config)?;
    order::check(config, choice, mtu_bytes)
}

fn check_ranges(config: &PerfConfig) -> Result<(), PerfError> {
    let range = |what, given: u64, least: u64, most: u64, expected| {
        if (least..=most).contains(&given) { Ok(()) } else { Err(PerfError::Plan { what, given, expected }) }
    };
    range("number of queue pairs", config.qps.into(), 1, QPS_MAX, "1 to 1024")?;
    range("depth", config.depth.into(), 1, DEPTH_MAX, "1 to 16384")?;
    range("size", config.size_bytes.into(), 0, MESSAGE_BYTES_MAX, "0 to 1 GiB")?;
    if let super::Length::Count(count) = config.length {
        range("count", count, 1, u64::MAX, "at least 1")?;
    }
    if config.ping_pong {
        range("depth of a ping-pong", config.depth.into(), 1, 1, "1")?;
        range("number of queue pairs of a ping-pong", config.qps.into(), 1, 1, "1")?;
        if config.op != Op::Send {
            return Err(PerfError::Plan { what: "operation of a ping-pong", given: 0, expected: "send" });
        }
    }
    Ok(())
}

/// Returns the number of data packets that this NIC has sent so far: the total including retransmissions, and the
/// number of retransmissions.
pub(crate) fn sent(nic: &Nic) -> (u64, u64) {
    let stats = nic.engine_stats();
    (stats.packets_sent + stats.packets_retransmitted, stats.packets_retransmitted)
}

fn report(
    nic: &Nic,
    config: &PerfConfig,
    measured: &Measured,
    outcome: &Outcome,
    packets: (u64, u64),
    (transport, wire_mtu_bytes): (&str, u32),
) -> PerfReport {
    let elapsed_s = measured.elapsed.as_secs_f64();
    let bytes = measured.ops * u64::from(config.operation_bytes());
    let verified = measured.verified + outcome.verified;
    let wrong = measured.wrong + outcome.wrong;
    PerfReport {
        transport: transport.to_owned(),
        op: config.op.name().to_owned(),
        wire: "udp".to_owned(),
        size_bytes: config.operation_bytes(),
        qps: config.qps,
        depth: config.depth,
        loss: config.impairment.loss.as_f64(),
        reorder: config.impairment.reorder.as_f64(),
        ops: measured.ops,
        bytes,
        elapsed_s,
        goodput_gbps: bytes as f64 * 8.0 / elapsed_s.max(f64::MIN_POSITIVE) / 1e9,
        ops_per_s: measured.ops as f64 / elapsed_s.max(f64::MIN_POSITIVE),
        latency_us: measured.latency.summary(),
        latency_kind: if config.ping_pong { LatencyKind::HalfRoundTrip } else { LatencyKind::Operation },
        packets_sent: packets.0 + outcome.packets_sent,
        packets_retransmitted: packets.1 + outcome.packets_retransmitted,
        verified: config.verify && wrong == 0 && verified >= measured.ops,
        ops_verified: verified,
        ops_wrong: wrong,
        wire_mtu_bytes,
        segmentation: nic.uses_segmentation(),
        flows: Vec::new(),
    }
}

/// Settings with which a session is requested, regardless of its task.
pub(crate) struct Terms {
    pub(crate) port: u16,
    pub(crate) choice: TransportChoice,
    pub(crate) transport: TransportOrder,
    pub(crate) impairment: crate::impair::Impairment,
    pub(crate) timeout: Duration,
}

impl Terms {
    fn of(config: &PerfConfig) -> Result<Self, PerfError> {
        Self::new(config.port, &config.transport, &config.options, config.impairment, config.timeout)
    }

    pub(crate) fn new(
        port: u16,
        transport: &str,
        options: &[(String, String)],
        impairment: crate::impair::Impairment,
        timeout: Duration,
    ) -> Result<Self, PerfError> {
        let pairs: Vec<(&str, &str)> = options.iter().map(|(name, value)| (&**name, &**value)).collect();
        let choice = TransportChoice::named(transport, &pairs)?;
        let transport = TransportOrder { name: transport.to_owned(), options: options.to_vec() };
        Ok(Self { port, choice, transport, impairment, timeout })
    }
}

/// Resources that a session requires.
pub(crate) struct Wanted {
    pub(crate) task: Task,
    pub(crate) local_bytes: u64,
    pub(crate) qps: u32,
    /// Number of entries of a send queue and of a receive queue.
    pub(crate) queue: u32,
    /// NVMe role of the queue pairs.
    pub(crate) nvme: Option<NvmeRole>,
}

/// A session, at the end that has requested it.
pub(crate) struct Session {
    pd: PdId,
    pub(crate) cq: CqId,
    pub(crate) control: Control,
    pub(crate) connections: Vec<Connection>,
    pub(crate) region: Region,
    pub(crate) remote: MemoryAt,
}

impl Session {
    /// Connects to the remote end, agrees with it on the task, and connects the queue pairs.
    pub(crate) fn open(nic: &mut Nic, to: SocketAddr, terms: &Terms, wanted: &Wanted) -> Result<Self, PerfError> {
        protection::check_choice(nic, &terms.choice)?;
        let local_bytes = usize::try_from(wanted.local_bytes.max(1)).unwrap_or(usize::MAX);
        nic.set_impairment(terms.impairment);
        let number = nic.draw_number();
        let pd = nic.verbs().create_pd().map_err(|error| PerfError::Nic(error.into()))?;
        let completions = wanted.queue.saturating_mul(2 * wanted.qps).clamp(64, rnic_base::limits::COMPLETIONS_MAX);
        let cq = make_cq(nic, completions)?;
        let region = nic.verbs().register(pd, local_bytes, Access::LOCAL_WRITE)?;
        let control = Control::open(nic, terms.timeout, |nic, config| {
            let private_data = Role::Control { session: number }.emit();
            nic.connect(to, terms.port, &ConnectionConfig { private_data, ..config })
        })?;
        let remote = MemoryAt { addr: 0, rkey: 0, len: 0 };
        let mut session = Self { pd, cq, control, connections: Vec::new(), region, remote };
        match session.prepare(nic, terms, wanted, number) {
            Ok(()) => Ok(session),
            Err(error) => {
                session.close(nic);
                Err(error)
            }
        }
    }

    fn prepare(&mut self, nic: &mut Nic, terms: &Terms, wanted: &Wanted, number: u64) -> Result<(), PerfError> {
        let peer = self.control.peer;
        let round_trip_ps = self.control.round_trip.unwrap_or_default().as_ps();
        self.control.send(
            nic,
            &Order::Prepare {
                version: VERSION,
                task: wanted.task.clone(),
                transport: terms.transport.clone(),
                impairment: ImpairmentOrder::from(&terms.impairment),
                round_trip_ps,
            },
        )?;
        match self.control.receive(nic, terms.timeout)? {
            Answer::Ready { memory } => self.remote = memory,
            Answer::Refused { reason } => return Err(PerfError::Refused { peer, reason }),
            Answer::Outcome(_) => {
                return Err(PerfError::Protocol {
                    peer,
                    what: "it sent an outcome before the session was ready".to_owned(),
                });
            }
        }
        let mut config = ConnectionConfig::new(self.pd, self.cq).with_transports(vec![terms.choice.clone()]);
        config.timeout = terms.timeout;
        (config.queues.max_send_wr, config.queues.max_recv_wr) = (wanted.queue, wanted.queue);
        config.queues.max_sge = 1;
        config.queues.nvme = wanted.nvme;
        for index in 0..wanted.qps {
            config.private_data = Role::Data { session: number, index }.emit();
            self.connections.push(nic.connect(peer, terms.port, &config)?);
        }
        Ok(())
    }

    /// Returns the transport and the wire MTU on which the ends have agreed.
    pub(crate) fn negotiated(&self) -> (&'static str, u32) {
        self.connections.first().map_or(("", 0), |first| (first.transport, first.wire_mtu_bytes))
    }

    /// Sleeps if the polling loop has been idle, and checks whether the remote end has exited or is silent.
    pub(crate) fn sleep_if_idle(
        &mut self,
        nic: &mut Nic,
        idle_backoff: &mut IdleBackoff,
        moved: bool,
        patience: Duration,
    ) -> Result<(), PerfError> {
        let idle = idle_backoff.sleep_if_idle(nic, moved)?;
        if !moved {
            self.control.check(nic, idle, patience)?;
        }
        Ok(())
    }

    /// Reports to the remote end that all operations are done, and requests the outcome at that end.
    pub(crate) fn finish(&mut self, nic: &mut Nic, patience: Duration) -> Result<Outcome, PerfError> {
        self.control.send(nic, &Order::Finish)?;
        match self.control.receive(nic, patience)? {
            Answer::Outcome(outcome) => Ok(outcome),
            answer => {
                let what = format!("the peer sent {answer:?} instead of an outcome");
                Err(PerfError::Protocol { peer: self.control.peer, what })
            }
        }
    }

    /// Ends the session and releases all its resources.
    pub(crate) fn close(self, nic: &mut Nic) {
        let Self { pd, cq, control, connections, region, .. } = self;
        connections.iter().for_each(|connection| nic.close(connection.id));
        control.close(nic);
        nic.verbs().deregister(region);
        // No other object uses these resources any more.
        let _ = nic.verbs().destroy_cq(cq);
        let _ = nic.verbs().destroy_pd(pd);
        nic.set_impairment(crate::impair::Impairment::default());
        wait_for_disconnect(nic);
    }
}

/// Gives the remote end time to receive the disconnect before this program exits.
pub(super) fn wait_for_disconnect(nic: &mut Nic) {
    let start = nic.now();
    while nic.now().since(start) < DISCONNECT_WAIT_MAX && nic.has_open_exchanges() {
        if !nic.progress() && nic.wait(Duration::from_ms(1)).is_err() {
            return;
        }
        while let Some(event) = nic.poll_connection_event() {
            debug_assert!(!matches!(event, ConnectionEvent::Established(_)), "no client asks for connections any more");
        }
    }
}

/// Maximum time to wait for the remote end to confirm the end of a session.
const DISCONNECT_WAIT_MAX: Duration = Duration::from_ms(100);
