//! The queue pairs, memory and peers of a NIC, and the wires to them.

use std::collections::VecDeque;

use rnic_base::limits::QUEUE_PAIRS_MAX;
use rnic_engine::{
    AsyncEvent, Engine, EngineConfig, ModifyError, PeerId, QpAttributes, QpConnection, ResourceError, Service,
};
use rnic_wire::Qpn;

use super::open::open_link;
use crate::background;
use crate::clock::Clock;
use crate::config::NicConfig;
use crate::error::NicError;
use crate::falcon::{Falcon, Repairs};
use crate::link::Link;
use crate::link::batch::SLAB_BYTES;
use crate::link::lane::Lane;
use crate::liveness::Liveness;
use crate::memory::Memory;
use crate::ports::{number_on, port_of, queue_pairs_of};
use crate::secrets::{SecretStream, Secrets};
use crate::sys::UdpSocket;
use crate::window;

/// The queue pairs, memory and peers of a NIC, and the wires to them: everything but connection management and the
/// loop. Public methods are [`Nic`](super::Nic)'s and [`Verbs`](super::Verbs)'.
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) config: NicConfig,
    pub(super) clock: Clock,
    pub(super) engine: Engine,
    pub(super) memory: Memory,
    pub(super) link: Link,
    pub(super) falcon: Falcon,
    /// Something has been posted since packets left last.
    pub(super) has_posts: bool,
    /// What Falcon's connections repair.
    pub(super) repairs: Repairs,
    /// Where the packets of one batch are made.
    pub(super) slab: Box<[u8]>,
    /// What the kernel granted as receive buffer, bytes.
    receive_buffer_bytes: usize,
    /// Events of the engine that the program has not taken yet.
    events: VecDeque<AsyncEvent>,
    /// Which processes at the other ends still live.
    pub(super) liveness: Liveness,
    pub(super) secret: Secret,
}

/// Streams of numbers that nobody can guess, one for each use ([`crate::secrets`]).
#[derive(Debug)]
pub(super) struct Secret {
    /// Keys of memory.
    pub(super) keys: SecretStream,
    /// Numbers of queue pairs.
    numbers: SecretStream,
    /// What comes back in answers: to requests for credit, to probes.
    pub(super) cookies: SecretStream,
}

impl Device {
    /// Opens the sockets that `config` asks for, with an engine behind them.
    ///
    /// # Errors
    /// When the address is taken or is not one of this machine, or the system refuses a socket.
    pub(super) fn open(config: NicConfig, secrets: &Secrets) -> Result<Self, NicError> {
        let link = open_link(&config, secrets)?;
        let granted = link.lanes.iter().flat_map(Lane::receivers).map(UdpSocket::granted_receive_buffer);
        let granted = granted
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| NicError::System { doing: "asking for the receive buffer", error })?;
        let mut engine = Engine::new(EngineConfig {
            line_rate: config.line_rate,
            // Nothing that travels comes from it: keys and numbers are handed in.
            secret: secrets.stream("engine").bits(),
            adaptive_thread: Some(background::start_adaptive),
        });
        // Peers that have been heard are not probed; and `rnic top` shows what unmodified programs do.
        engine.watch();
        Ok(Self {
            clock: Clock::start(),
            engine,
            memory: Memory::new(),
            link,
            falcon: Falcon::new(config.protection.clone()),
            has_posts: false,
            repairs: Repairs::default(),
            slab: vec![0; SLAB_BYTES].into_boxed_slice(),
            receive_buffer_bytes: granted.into_iter().min().unwrap_or_default(),
            events: VecDeque::new(),
            liveness: Liveness::default(),
            secret: Secret {
                keys: secrets.stream("keys"),
                numbers: secrets.stream("numbers"),
                cookies: secrets.stream("cookies"),
            },
            config,
        })
    }

    /// See [`Nic::receive_window`](super::Nic::receive_window).
    pub(super) fn receive_window(&self, wire_mtu_bytes: u32) -> u32 {
        window::receive_window(self.receive_buffer_bytes, crate::mtu::datagram_bytes(wire_mtu_bytes))
    }

    /// Returns whether anything but acknowledgements may be ready to leave.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.has_posts || self.link.credits.has_work()
    }

    /// Takes an event of the engine, and keeps it for the program too; the oldest goes when the program reads none.
    pub(super) fn next_event(&mut self) -> Option<AsyncEvent> {
        let event = self.engine.objects_mut().poll_event()?;
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        Some(event)
    }

    /// Takes the oldest event that the program has not taken.
    pub(super) fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// Makes a queue pair in the engine; chooses its number if `attributes` does not say one.
    pub(super) fn create_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        let qpn = match attributes.number {
            Some(_) => self.engine.create_qp(attributes)?,
            None => self.create_numbered_qp(attributes)?,
        };
        self.falcon.add(qpn, &attributes.transport);
        if attributes.service == Service::UnreliableDatagram {
            // Nothing else wants to know, and each packet would tell.
            self.link.lanes.iter_mut().for_each(Lane::tell_markings);
        }
        Ok(qpn)
    }

    /// Destroys a queue pair of the engine.
    pub(super) fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ResourceError> {
        self.engine.destroy_qp(qpn)?;
        self.falcon.remove(qpn);
        self.leave_ring(qpn);
        self.link.hellos.gone(qpn);
        Ok(())
    }

    /// Connects a queue pair of the engine.
    pub(super) fn connect_qp(&mut self, qpn: Qpn, connection: &QpConnection) -> Result<(), ModifyError> {
        self.engine.modify_to_rtr(qpn, connection)?;
        self.join_ring(qpn, connection);
        if let Some(peer) = self.link.peers.look_up(connection.peer) {
            self.falcon.connect(qpn, connection, &peer.addresses);
        }
        self.greet(qpn, connection);
        self.watch_life();
        Ok(())
    }

    /// Returns the UDP port that packets for this NIC come to.
    pub(super) fn port(&self) -> u16 {
        self.link.local_addr().port()
    }

    /// See [`Nic::queue_pairs_max`](super::Nic::queue_pairs_max).
    pub(super) fn queue_pairs_max(&self) -> u32 {
        if self.config.shared { queue_pairs_of(self.port()) } else { QUEUE_PAIRS_MAX }
    }

    /// Makes a queue pair with a number that cannot be predicted: of the NIC's own range where it shares its machine.
    fn create_numbered_qp(&mut self, attributes: &QpAttributes) -> Result<Qpn, ResourceError> {
        let port = self.config.shared.then(|| self.port());
        let limit = self.queue_pairs_max();
        let mut attributes = attributes.clone();
        let first = self.secret.numbers.bits() as u32;
        for step in 0..limit {
            // Drawn anew at first, then one after the other, so that the last free number is found too.
            let index = if step < DRAWS { self.secret.numbers.bits() as u32 } else { first.wrapping_add(step) };
            attributes.number = Some(port.map_or(Qpn::new(index), |port| number_on(port, index)));
            match self.engine.create_qp(&attributes) {
                Err(ResourceError::NumberTaken(_)) => {}
                made => return made,
            }
        }
        Err(ResourceError::Exhausted { what: "queue pairs", limit: u64::from(limit) })
    }

    /// A queue pair is about to be connected to `dest_qpn`: if that is on this machine, the way through memory is made.
    pub(super) fn prepare_bypass(&mut self, peer: PeerId, dest_qpn: Qpn) {
        let now = self.clock.now();
        let Link { bypass: Some(bypass), peers, .. } = &mut self.link else { return };
        let Some(known) = peers.ids().any(|id| id == peer).then(|| peers.get(peer)) else { return };
        if known.is_local {
            bypass.prepare(now, peer, &known.way(port_of(dest_qpn)));
        }
    }

    /// Queue pair `qpn` has been connected: it holds the way through memory, if there is one.
    fn join_ring(&mut self, qpn: Qpn, connection: &QpConnection) {
        if let Some(bypass) = &mut self.link.bypass {
            bypass.join(qpn, (connection.peer, port_of(connection.dest_qpn)));
        }
    }

    /// Queue pair `qpn` is connected no more: the last one to a peer and port takes the way through memory along.
    pub(super) fn leave_ring(&mut self, qpn: Qpn) {
        let Some(bypass) = &mut self.link.bypass else { return };
        if let Some(target) = bypass.part(qpn) {
            let now = self.clock.now();
            self.link.release_ring(now, target);
        }
    }

    /// Sends the acknowledgements that queue pair `qpn`, which is about to end, owes: the last one more than once.
    pub(super) fn flush_last_acks(&mut self, qpn: Qpn) {
        self.flush(self.clock.now());
        for _ in 0..LAST_ACKS {
            // A batch of its own for each: in one batch, the last acknowledgement speaks for those before.
            if !self.engine.repeat_acks(qpn) {
                break;
            }
            self.flush(self.clock.now());
        }
    }
}

/// Numbers drawn before they are tried one after the other.
const DRAWS: u32 = 64;

/// Repeats of the last acknowledgement of a queue pair that ends: with the first one, the peer misses it when four in
/// a row are lost.
const LAST_ACKS: u32 = 3;

/// Events of the engine that wait for the program.
const EVENTS_MAX: usize = 4_096;
