//! The queue pairs, memory and peers of a NIC, and its sockets.

use std::collections::VecDeque;

use rnic_base::limits::QUEUE_PAIRS_MAX;
use rnic_base::{BitRate, Duration};
use rnic_engine::{
    AsyncEvent, BurstDefault, Engine, EngineConfig, Latencies, LatencyHistogram, LimitSource, ModifyError, PeerId,
    ProcessorConfig, QpAttributes, QpConnection, RATE_LIMIT_MIN, RateLimit, ResourceError, SchedulerThreads, Service,
};
use rnic_wire::Qpn;

use super::Nic;
use super::open::{join_share, open_link};
use crate::background;
use crate::clock::Clock;
use crate::config::NicConfig;
use crate::error::NicError;
use crate::falcon::{Falcon, LossRecoveries};
use crate::hint::{Hint, HintReader};
use crate::host_load::HostMeter;
use crate::keepalive::Keepalive;
use crate::link::Link;
use crate::link::batch::SLAB_BYTES;
use crate::link::lane::Lane;
use crate::memory::Memory;
use crate::messages::BacklogWatch;
use crate::ports::{candidate_indices, number_on, port_of, queue_pairs_of};
use crate::secrets::{SecretStream, Secrets};
use crate::share::capacity::CapacityMeter;
use crate::sys::UdpSocket;
use crate::window;

/// The queue pairs, memory and peers of a NIC, and its sockets: everything except connection management and the main
/// loop. Its methods implement the public methods of [`Nic`] and [`Verbs`](super::Verbs).
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) config: NicConfig,
    pub(super) clock: Clock,
    pub(super) engine: Engine,
    pub(super) memory: Memory,
    pub(super) link: Link,
    pub(super) falcon: Falcon,
    /// True when requests have been posted since packets were last sent.
    pub(super) has_posts: bool,
    /// State that limits the batch size while Falcon connections recover from losses.
    pub(super) repairs: LossRecoveries,
    /// Buffer in which the packets of one batch are built.
    pub(super) slab: Box<[u8]>,
    /// Size of the receive buffer that the kernel granted, in bytes.
    pub(super) receive_buffer_bytes: usize,
    /// Engine events that the program has not polled yet.
    events: VecDeque<AsyncEvent>,
    /// Detects remote processes that have exited.
    pub(super) keepalive: Keepalive,
    /// Schedule of measurements of the receive buffers, for messages between NICs.
    pub(super) backlog: BacklogWatch,
    /// Measures the NIC's throughput, if schedulers divide it because no link has a known rate.
    pub(super) capacity: Option<Box<CapacityMeter>>,
    /// Load of this host, measured while messages are exchanged.
    pub(super) host: Option<Box<HostMeter>>,
    /// Line that the program writes.
    pub(super) hint: HintReader,
    pub(super) secret: Secret,
}

/// Streams of unpredictable random numbers, one for each use ([`crate::secrets`]).
#[derive(Debug)]
pub(super) struct Secret {
    /// Generator of memory keys.
    pub(super) keys: SecretStream,
    /// Generator of queue pair numbers.
    numbers: SecretStream,
    /// Generator of cookies for credit requests and probes, which responses to them must contain.
    pub(super) cookies: SecretStream,
}

/// Returns the latencies of all send requests of a NIC, if they are measured.
pub(crate) fn latency_histogram(nic: &Nic) -> Option<&LatencyHistogram> {
    LatencyHistogram::of(&nic.device.engine)
}

impl Device {
    /// Records that the program posts a request now.
    #[inline]
    pub(super) fn note_post(&mut self) {
        self.has_posts = true;
        if self.config.latencies {
            let now = self.clock.now();
            Latencies::of(&mut self.engine).set_clock(now);
        }
    }

    /// Opens the sockets that `config` requests, and creates the engine that uses them.
    ///
    /// # Errors
    /// When the address is in use or does not belong to this machine, or the system refuses a socket.
    pub(super) fn open(config: NicConfig, secrets: &Secrets) -> Result<Self, NicError> {
        if let Some(rate) = config.rate_limit.filter(|rate| !(RATE_LIMIT_MIN..=config.line_rate).contains(rate)) {
            let expected = "a rate between 1 Mbit/s and that of the link";
            return Err(NicError::Setting { what: "the rate limit", found: rate.to_string(), expected });
        }
        let clock = Clock::start();
        let mut link = open_link(&config, secrets)?;
        join_share(&config, clock, &mut link)?;
        let granted = link.lanes.iter().flat_map(Lane::receivers).map(UdpSocket::granted_receive_buffer);
        let granted = granted
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| NicError::System { doing: "setting the size of the receive buffer", error })?;
        let mut engine = Engine::new(EngineConfig {
            line_rate: config.line_rate,
            // This secret never appears in packets: keys and queue pair numbers are supplied from outside the engine.
            secret: secrets.stream("engine").bits(),
            burst: burst(config.share.as_ref().and_then(|share| share.link_rate)),
            idle_after: IDLE_AFTER,
            processors: schedule_threads(config.schedule_threads),
            adaptive_thread: Some(background::start_adaptive),
            falcon_receive_bytes: None,
        });
        let weight = config.share.as_ref().map_or(1, |share| share.weight.into());
        // Enables the record of received packets, so that peers that were recently active are not probed, and `rnic
        // top` shows the activity of unmodified programs.
        engine.watch();
        if config.latencies {
            Latencies::of(&mut engine).collect(0);
        }
        engine.sharing().set_capacity(link.share.as_ref().and_then(|share| share.share()));
        let messages = config.messages;
        let mut device = Self {
            clock,
            engine,
            memory: Memory::new(),
            link,
            falcon: Falcon::new(config.protection.clone()),
            has_posts: false,
            repairs: LossRecoveries::default(),
            slab: vec![0; SLAB_BYTES].into_boxed_slice(),
            receive_buffer_bytes: granted.into_iter().min().unwrap_or_default(),
            events: VecDeque::new(),
            keepalive: Keepalive::default(),
            capacity: None,
            host: None,
            hint: HintReader::new(Hint { weight, cap_kbps: 0 }),
            secret: Secret {
                keys: secrets.stream("keys"),
                numbers: secrets.stream("numbers"),
                cookies: secrets.stream("cookies"),
            },
            backlog: BacklogWatch::default(),
            config,
        };
        device.enable_messages(messages.as_ref());
        Ok(device)
    }

    /// See [`Nic::receive_window`](super::Nic::receive_window).
    pub(super) fn receive_window(&self, wire_mtu_bytes: u32) -> u32 {
        window::receive_window(self.receive_buffer_bytes, crate::mtu::datagram_bytes(wire_mtu_bytes))
    }

    /// Returns whether anything other than acknowledgements may be ready to be sent.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.has_posts || self.link.credits.has_work()
    }

    /// Removes and returns an event of the engine, and also queues it for the program; if the program does not poll
    /// events, the oldest queued event is discarded.
    pub(super) fn next_event(&mut self) -> Option<AsyncEvent> {
        let event = self.engine.objects_mut().poll_event()?;
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        Some(event)
    }

    /// Removes and returns the oldest event that the program has not polled yet.
    pub(super) fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// Creates a queue pair in the engine; chooses its number if `attributes` does not give one.
    pub(super) fn create_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        let qpn = match attributes.number {
            Some(_) => self.engine.create_qp(attributes)?,
            None => self.create_numbered_qp(attributes)?,
        };
        self.falcon.add(qpn, &attributes.transport);
        self.start_measuring_capacity(&attributes.transport);
        if let Some(rate) = self.config.rate_limit {
            let limit = RateLimit { rate, burst_bytes: None };
            let limited = self.engine.set_rate_limit(self.clock.now(), qpn, LimitSource::Operator, Some(limit));
            limited.expect("the limit was checked when the NIC was opened");
        }
        if self.is_capped_by_hint() {
            self.limit_by_hint(self.clock.now(), qpn);
        }
        if attributes.service == Service::UnreliableDatagram {
            // Reports of IP fields are enabled only when a queue pair needs them: they cost work for each packet.
            self.link.lanes.iter_mut().for_each(Lane::enable_ip_fields_reports);
        }
        Ok(qpn)
    }

    /// Destroys a queue pair of the engine.
    pub(super) fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ResourceError> {
        self.engine.destroy_qp(qpn)?;
        self.falcon.remove(qpn);
        self.leave_ring(qpn);
        self.link.disconnected(qpn);
        Ok(())
    }

    /// Connects a queue pair of the engine (transition to RTR).
    pub(super) fn connect_qp(&mut self, qpn: Qpn, connection: &QpConnection) -> Result<(), ModifyError> {
        self.engine.modify_to_rtr(qpn, connection)?;
        self.join_ring(qpn, connection);
        if let Some(peer) = self.link.peers.look_up(connection.peer) {
            self.falcon.connect(qpn, connection, &peer.addresses);
        }
        self.start_paths(qpn, connection);
        self.start_hello(qpn, connection);
        self.start_keepalive();
        Ok(())
    }

    /// Returns the UDP port on which this NIC receives packets.
    pub(super) fn port(&self) -> u16 {
        self.link.local_addr().port()
    }

    /// See [`Nic::queue_pairs_max`](super::Nic::queue_pairs_max).
    pub(super) fn queue_pairs_max(&self) -> u32 {
        if self.config.shared { queue_pairs_of(self.port()) } else { QUEUE_PAIRS_MAX }
    }

    /// Creates a queue pair with an unpredictable number. If the NIC shares its machine, the number is from the NIC's
    /// own range.
    fn create_numbered_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        let port = self.config.shared.then(|| self.port());
        let limit = self.queue_pairs_max();
        let mut attributes = attributes.clone();
        for index in candidate_indices(&mut self.secret.numbers, limit) {
            attributes.number = Some(port.map_or(Qpn::new(index), |port| number_on(port, index)));
            match self.engine.create_qp(&attributes) {
                Err(ResourceError::NumberInUse(_)) => {}
                result => return result,
            }
        }
        Err(ResourceError::Exhausted { what: "queue pairs", limit: u64::from(limit) })
    }

    /// Prepares the shared-memory path before a queue pair is connected to `dest_qpn`, if the peer is on this
    /// machine.
    pub(super) fn prepare_bypass(&mut self, peer: PeerId, dest_qpn: Qpn) {
        let now = self.clock.now();
        let Link { bypass: Some(bypass), peers, .. } = &mut self.link else { return };
        let Some(known) = peers.ids().any(|id| id == peer).then(|| peers.get(peer)) else { return };
        if known.is_local {
            bypass.prepare(now, peer, &known.path(port_of(dest_qpn)));
        }
    }

    /// Makes queue pair `qpn`, which has been connected, a user of the shared-memory path, if there is one.
    fn join_ring(&mut self, qpn: Qpn, connection: &QpConnection) {
        if let Some(bypass) = &mut self.link.bypass {
            bypass.join(qpn, (connection.peer, port_of(connection.dest_qpn)));
        }
    }

    /// Removes queue pair `qpn`, which is no longer connected, from the users of the shared-memory path; the last user
    /// of a peer and port releases the path.
    pub(super) fn leave_ring(&mut self, qpn: Qpn) {
        let Some(bypass) = &mut self.link.bypass else { return };
        if let Some(target) = bypass.remove_user(qpn) {
            let now = self.clock.now();
            self.link.release_ring(now, target);
        }
    }

    /// Sends the pending acknowledgements of queue pair `qpn`, which is about to be destroyed or stopped; the last
    /// one is sent several times.
    pub(super) fn flush_last_acks(&mut self, qpn: Qpn) {
        self.flush(self.clock.now());
        for _ in 0..LAST_ACK_REPEATS {
            // Each repetition is sent in its own batch: within one batch, an acknowledgement would replace the one
            // before it.
            if !self.engine.repeat_acks(qpn) {
                break;
            }
            self.flush(self.clock.now());
        }
    }
}

/// Number of retransmissions of the last acknowledgement of a queue pair that is destroyed or stopped: including the
/// first transmission, the peer misses the acknowledgement only if four in a row are lost.
const LAST_ACK_REPEATS: u32 = 3;

/// Maximum number of engine events that wait for the program.
const EVENTS_MAX: usize = 4_096;

/// Time without data after which a queue pair is no longer counted among the queue pairs that share the link: programs
/// sleep between messages, and wake up late on a busy machine.
const IDLE_AFTER: Duration = Duration::from_ms(100);

/// Returns `count` threads on which schedulers run; `None` if `count` is 0.
fn schedule_threads(count: usize) -> Option<ProcessorConfig> {
    (count > 0).then_some(ProcessorConfig::Threads(SchedulerThreads { count, spawn: background::start_scheduler }))
}

/// Returns the burst of queue pairs whose rate is limited. A burst is queued for the shared link, and delays packets of
/// other processes: on such a link it is as short as the timers permit.
fn burst(link_rate: Option<BitRate>) -> BurstDefault {
    let Some(rate) = link_rate else { return BURST };
    let bytes = (rate.bytes_in(SHARED_BURST) as u32).min(BURST.bytes);
    BurstDefault { bytes, train_bytes: bytes / 2, catch_up: SHARED_CATCH_UP }
}

/// Duration of a burst on a shared link, at its rate.
const SHARED_BURST: Duration = Duration::from_us(64);

/// Maximum delay that is caught up on a shared link.
const SHARED_CATCH_UP: Duration = Duration::from_ms(2);

/// Burst of queue pairs whose rate is limited. Packets are passed to the kernel in batches (GSO), and timers are late
/// by some 50 us, or, on a busy machine, by as long as other processes run.
const BURST: BurstDefault = BurstDefault { bytes: 64 << 10, train_bytes: 32 << 10, catch_up: Duration::from_ms(20) };
