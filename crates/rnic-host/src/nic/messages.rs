//! Sends and receives messages between NICs: see [`crate::messages`].

use std::net::SocketAddr;

use rnic_base::{Duration, Time};
use rnic_engine::messages::exchange::Exchange;
use rnic_engine::{
    Arrival, Engine, MessageArrival, MessageTransmit, Messages, NicId, NoDma, PeerId, QpConnection, RxOutcome,
};
use rnic_policy::{PathLabel, Signals};
use rnic_wire::scr::{Body, MESSAGE_LEN, Message, ProbePath, VERSION};
use rnic_wire::{Addresses, ICRC_LEN, Qpn};

use super::Nic;
use super::device::Device;
use crate::bypass::RecordKind;
use crate::falcon::{Falcon, Opened, Within};
use crate::host_load::HostMeter;
use crate::link::lane::{Lane, OWN_PORT};
use crate::link::{Link, Ports};
use crate::memory::Arrived;
use crate::messages::{BufferCounts, MessagesConfig, is_of_nic, sender_of};
use crate::notice::Notice;
use crate::ports::port_of;
use crate::stats::RxDrop;
use crate::sys::UdpSocket;

/// Returns the state of the messages that a NIC exchanges with the NICs of its peers, if enabled: counters, and
/// measured round trips.
pub fn messages_of(nic: &Nic) -> Option<&Exchange> {
    Exchange::of(&nic.device.engine)
}

/// Returns the mean time that recently received packets waited until the NIC read them; `None` if it is not measured,
/// because the NIC exchanges no messages, or no packet has arrived recently.
pub fn host_delay_of(nic: &Nic) -> Option<Duration> {
    nic.device.host.as_ref()?.delay(nic.now())
}

impl Device {
    /// Enables messages, if `config` requests them.
    pub(super) fn enable_messages(&mut self, config: Option<&MessagesConfig>) {
        let Some(config) = config else { return };
        let link_rate = self.config.share.as_ref().and_then(|share| share.link_rate);
        let lanes = self.link.lanes.len() as u64;
        let exchange = config.exchange(self.link.ports, lanes * self.receive_buffer_bytes as u64, link_rate);
        self.link.hellos.announce_messages(VERSION);
        let now = self.clock.now();
        Messages::of(&mut self.engine).enable(now, exchange);
        // How long packets wait is measured for reports; without messages nothing is stamped.
        self.host = Some(Box::new(HostMeter::new(now)));
        self.link.lanes.iter().for_each(Lane::enable_time_stamps);
        if let Some(bypass) = &mut self.link.bypass {
            bypass.stamp_records();
        }
    }

    /// Returns the version of the messages that this NIC exchanges; 0 for none.
    pub(super) fn messages_version(&self) -> u8 {
        if self.config.messages.is_some() { VERSION } else { 0 }
    }

    /// Records which version of messages the peer of `qpn` supports, as learned by the connection manager.
    pub(super) fn note_messages_of(&mut self, qpn: Qpn, peer: PeerId, version: u8) {
        note_version(&mut self.engine, &mut self.link, self.clock.now(), qpn, (peer, version));
    }

    /// Opens the source ports of a queue pair that has been connected, if its path policy probes paths and its packets
    /// use UDP.
    pub(super) fn start_paths(&mut self, qpn: Qpn, connection: &QpConnection) {
        let probes = self.engine.profile_of(qpn).is_some_and(|profile| profile.paths.policy.probes);
        let peer = self.link.peers.look_up(connection.peer);
        if !probes || Exchange::of(&self.engine).is_none() || peer.is_none_or(|peer| peer.is_local) {
            return;
        }
        let number = if self.link.ports == Ports::OfQueuePair { port_of(connection.dest_qpn) } else { 0 };
        self.link.paths.connect(qpn, NicId { peer: connection.peer, number });
        self.link.peers.get_mut(connection.peer).differs_by_queue_pair = true;
    }

    /// Returns whether messages wait to be sent.
    #[inline]
    pub(super) fn has_messages(&self) -> bool {
        Exchange::of(&self.engine).is_some_and(Exchange::has_messages)
    }

    /// Sends the messages that wait, up to a budget; returns whether any was sent or queued.
    #[cold]
    pub(super) fn send_messages(&mut self, now: Time) -> bool {
        if self.link.is_blocked_on_space() {
            return false;
        }
        if let Some(host) = &mut self.host {
            Messages::of(&mut self.engine).report_load(now, host.load(now));
        }
        let mut any = false;
        for _ in 0..MESSAGES_PER_CALL {
            // A probe carries the time at which it is sent.
            let Some(transmit) = Messages::of(&mut self.engine).transmit(self.clock.now()) else { break };
            put(&mut self.link, &mut self.falcon, now, transmit);
            any = true;
        }
        if let Some(bypass) = &mut self.link.bypass {
            bypass.publish(now);
        }
        self.link.send_waiting(now) | any
    }

    /// Reports to the engine, at most once per interval, the bytes queued in the receive buffers, and the packets that
    /// the kernel dropped because the buffers were full ([`BacklogWatch`](crate::messages::BacklogWatch)).
    pub(super) fn report_backlog(&mut self, now: Time) {
        if Exchange::of(&self.engine).is_none() || !self.backlog.is_due(now) {
            return;
        }
        let levels = self.link.lanes.iter().flat_map(Lane::receivers).filter_map(UdpSocket::buffer_level);
        let stats = &self.link.stats;
        let counts = BufferCounts {
            received: stats.datagrams_received,
            refused: stats.drops.iter().sum(),
            ..BufferCounts::default()
        };
        let counts = levels.fold(counts, |sum, level| BufferCounts {
            waiting_bytes: sum.waiting_bytes + level.waiting_bytes,
            kernel_drops: sum.kernel_drops + level.drops,
            ..sum
        });
        let (waiting, drops) = self.backlog.examine(counts, Exchange::of(&self.engine).map_or(0, Exchange::threshold));
        Messages::of(&mut self.engine).report_backlog(now, waiting, drops);
    }
}

/// Sends or queues a message; encrypts it if the NIC has a key. Without a connection that has a key, it is then not
/// sent.
pub(super) fn put(link: &mut Link, falcon: &mut Falcon, now: Time, transmit: &MessageTransmit) {
    let MessageTransmit { nic: NicId { peer, number }, message, .. } = transmit;
    // The program may have released the peer since it connected the queue pair.
    let Some(known) = link.peers.look_up(*peer) else { return };
    let to =
        SocketAddr::new(known.addresses.dst().ip(), if *number == 0 { known.addresses.dst().port() } else { *number });
    let own_port = link.local_addr().port();
    let is_from_own_port = is_of_nic(message) && !falcon.protects();
    let source_port = if is_from_own_port { own_port } else { known.addresses.src().port() };
    let path = if source_port == known.addresses.src().port() { 0 } else { OWN_PORT };
    let (mut path, mut source_port, mut message) = (path, source_port, *message);
    let from = known.addresses.src().ip();
    if let Body::Probe(probe) = message.body
        && let Some((further, port)) = link.path_of_probe(to.ip(), message.source_qpn, probe)
    {
        (path, source_port) = (further, port);
        message.body = Body::Probe(ProbePath { label: port, ..probe });
    }
    let Ok(addresses) = Addresses::new(SocketAddr::new(from, source_port), to) else { return };
    if matches!(message.body, Body::Answer(_)) && link.is_crowded(to.ip(), path) {
        link.stats.message_answers_withheld += 1;
        return;
    }
    let bytes = message.encode(&addresses).expect("the engine makes messages that can be encoded");
    if !falcon.protects() {
        link.stats.nic_messages_sent += 1;
        return link.send_message(now, *peer, &addresses, path, (&bytes, RecordKind::default()));
    }
    let within = if is_of_nic(&message) {
        Within::Nic(*peer, (link.ports == Ports::OfQueuePair).then_some(*number))
    } else {
        Within::QueuePair(message.source_qpn)
    };
    if let Some(datagram) = falcon.seal_message(now, within, &bytes) {
        link.stats.nic_messages_sent += 1;
        link.send_message(now, *peer, &addresses, path, (&datagram, RecordKind::SEALED));
    }
}

/// A received message, with what is known about its sender.
pub(super) struct Received<'a> {
    pub(super) message: &'a Message,
    pub(super) nic: NicId,
    pub(super) source_port: u16,
}

/// Parses a message that arrived over UDP from `peer`, and determines the NIC that sent it. The cheap checks come
/// first, so that a flood of forged messages costs little.
///
/// # Errors
/// The reason why the message is dropped.
pub(super) fn read(
    (engine, link): (&Engine, &Link),
    peer: Option<PeerId>,
    addresses: &Addresses,
    datagram: &[u8],
) -> Result<(Message, NicId), RxDrop> {
    let message = Message::parse(datagram).map_err(|_| RxDrop::Malformed)?;
    let source_port = addresses.src().port();
    let from_its_port = peer.zip(sender_of(link.ports, source_port, &message));
    let nic = from_its_port.map(|(peer, number)| NicId { peer, number });
    let announcer = || Exchange::of(engine)?.announcer(&message, PathLabel(source_port));
    let nic = nic.or_else(|| announcer().filter(|nic| link.is_between(nic.peer, addresses)));
    let nic = nic.ok_or(if peer.is_none() { RxDrop::UnknownPeer } else { RxDrop::ForeignPort })?;
    if !Exchange::of(engine).is_some_and(|exchange| exchange.has_partner(nic)) {
        return Err(RxDrop::Management);
    }
    if rnic_wire::icrc::verify(addresses, datagram) { Ok((message, nic)) } else { Err(RxDrop::Icrc) }
}

/// Parses a message that arrived through the ring of the NIC with the port `writer_port`. Its bytes may change at any
/// time, so it is copied first. It has an ICRC only if it was delayed; `sealed` then has the source and the destination
/// of the sender's data.
///
/// # Errors
/// The reason why it is dropped.
pub(super) fn read_record(
    peer: Option<PeerId>,
    writer_port: u16,
    bytes: Arrived<'_>,
    sealed: Option<(SocketAddr, SocketAddr)>,
) -> Result<(Message, NicId), RxDrop> {
    let peer = peer.ok_or(RxDrop::UnknownPeer)?;
    let mut copy = [0; MESSAGE_LEN];
    let len = if sealed.is_some() { MESSAGE_LEN } else { MESSAGE_LEN - ICRC_LEN };
    bytes.copy_front(&mut copy[..len]);
    let message = Message::parse(&copy).map_err(|_| RxDrop::Malformed)?;
    // The ring belongs to one NIC, which can speak only for itself.
    let is_of_nic = is_of_nic(&message);
    if !is_of_nic && crate::ports::port_of(message.source_qpn) != writer_port {
        return Err(RxDrop::ForeignPort);
    }
    if let Some((source, local)) = sealed {
        let port = if is_of_nic { writer_port } else { source.port() };
        let addresses = Addresses::new(SocketAddr::new(source.ip(), port), local).map_err(|_| RxDrop::Malformed)?;
        if !rnic_wire::icrc::verify(&addresses, &copy) {
            return Err(RxDrop::Icrc);
        }
    }
    Ok((message, NicId { peer, number: writer_port }))
}

/// Determines the NIC that sent a message in an authentic datagram: that of the peer's queue pair.
///
/// # Errors
/// The reason why the message is dropped.
pub(super) fn read_sealed(
    (engine, link): (&Engine, &Link),
    opened: &Opened,
    message: Message,
) -> Result<(Message, NicId), RxDrop> {
    let number = |qpn| if link.ports == Ports::OfQueuePair { port_of(qpn) } else { 0 };
    let nic = NicId { peer: opened.peer, number: number(opened.dest_qpn) };
    if !is_of_nic(&message) && number(message.source_qpn) != nic.number {
        return Err(RxDrop::ForeignPort);
    }
    let has_partner = Exchange::of(engine).is_some_and(|exchange| exchange.has_partner(nic));
    if has_partner { Ok((message, nic)) } else { Err(RxDrop::Management) }
}

/// Passes a message to the engine.
#[cold]
pub(super) fn receive(engine: &mut Engine, link: &mut Link, now: Time, received: &Received<'_>) {
    let Received { message, nic, source_port } = *received;
    link.stats.nic_messages_received += 1;
    let (mut message, mut answered) = (*message, None);
    if let Body::Answer(answer) = &mut message.body
        && let Some(label) = link.paths.label_of(message.dest_qpn, answer.path)
    {
        answered = Some(answer.path);
        answer.path.label = label.0;
    }
    let ignored = |engine: &Engine| Exchange::of(engine).map_or(0, |exchange| exchange.stats().answers_ignored);
    let ignored_before = ignored(engine);
    let cookie_before = Exchange::of(engine).and_then(|exchange| exchange.announced_by(nic));
    let arrival = MessageArrival { message: &message, nic, label: PathLabel(source_port) };
    // The engine counts the result.
    let outcome = engine.receive(now, Arrival::Message(arrival), &mut NoDma);
    if Exchange::of(engine).and_then(|exchange| exchange.announced_by(nic)) != cookie_before {
        link.paths.forget(nic);
    }
    // An answer that is late or came before says nothing of the port.
    let is_answer = outcome == RxOutcome::Accepted && ignored(engine) == ignored_before;
    if let Some(path) = answered.filter(|_| is_answer) {
        link.paths.accept(message.dest_qpn, path);
    }
}

/// Records the version of messages that the peer of `qpn` supports, or 0.
#[cold]
pub(super) fn note_version(engine: &mut Engine, link: &mut Link, now: Time, qpn: Qpn, (peer, version): (PeerId, u8)) {
    if Exchange::of(engine).is_none() {
        return;
    }
    if version == VERSION {
        return Messages::of(engine).agree(now, qpn);
    }
    let needs_probes = engine.profile_of(qpn).is_some_and(|profile| {
        let control = &profile.control;
        (control.policy.interest)(&control.params).needs.has(Signals::PROBES) || profile.paths.policy.probes
    });
    if let Some(known) = link.peers.look_up(peer).filter(|_| needs_probes) {
        link.notices.push(Notice::PeerWithoutMessages(known.addresses.dst().ip()));
    }
}

/// Maximum number of messages that are sent together.
const MESSAGES_PER_CALL: u32 = 64;

#[cfg(test)]
mod tests {
    use rnic_base::Psn32;
    use rnic_wire::scr::Cookie;

    use super::*;
    use crate::ports::number_on;

    /// Rule 8 of scr.md section 5.4: a message in shared memory comes from the NIC that writes the ring, whichever NIC
    /// it names.
    #[test]
    fn s6_rule_8_the_writer_of_a_ring_speaks_for_itself_only() {
        let (writer, other, peer) = (32_768, 32_784, Some(PeerId(3)));
        let local = SocketAddr::from(([127, 0, 0, 1], writer));
        let addresses = Addresses::new(local, local).expect("both IPv4");
        let record_of = |source_qpn| {
            let message = Message {
                dest_qpn: if source_qpn == Qpn::GSI { Qpn::GSI } else { Qpn::new(9) },
                source_qpn,
                cookie: Cookie::new(5),
                announced: None,
                answer_wanted: true,
                is_last: false,
                sequence: Psn32::new(1),
                time: 2,
                body: Body::Probe(ProbePath::default()),
            };
            message.encode(&addresses).expect("it can be encoded")
        };
        let read = |peer, bytes: &[u8]| read_record(peer, writer, bytes[..MESSAGE_LEN - ICRC_LEN].into(), None);
        let nic = NicId { peer: PeerId(3), number: writer };
        for source_qpn in [number_on(writer, 7), Qpn::GSI] {
            assert_eq!(read(peer, &record_of(source_qpn)).map(|(_, from)| from), Ok(nic));
        }
        assert_eq!(read(peer, &record_of(number_on(other, 7))), Err(RxDrop::ForeignPort));
        assert_eq!(read(None, &record_of(Qpn::GSI)), Err(RxDrop::UnknownPeer));
        assert_eq!(read(peer, &[0xc0; MESSAGE_LEN]), Err(RxDrop::Malformed));

        // One that was delayed has an ICRC, over the port that it would have been sent from.
        let sealed = |bytes: &[u8], data| {
            let source = SocketAddr::new(local.ip(), data);
            read_record(peer, writer, bytes.into(), Some((source, local))).map(|(_, from)| from)
        };
        let read = |bytes: &[u8]| sealed(bytes, writer);
        let (of_queue_pair, of_nic) = (record_of(number_on(writer, 7)), record_of(Qpn::GSI));
        assert_eq!((read(&of_queue_pair), read(&of_nic)), (Ok(nic), Ok(nic)));
        assert_eq!((sealed(&of_queue_pair, 4_791), sealed(&of_nic, 4_791)), (Err(RxDrop::Icrc), Ok(nic)));
        assert_eq!(read(&record_of(number_on(other, 7))), Err(RxDrop::ForeignPort));
        let mut corrupt = of_queue_pair;
        corrupt[40] ^= 1;
        assert_eq!(read(&corrupt), Err(RxDrop::Icrc));
    }
}
