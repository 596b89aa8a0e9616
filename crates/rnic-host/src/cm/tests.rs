//! Tests of the protocol between two managers, and with messages that a correct peer does not send.

use rnic_base::{Duration, Psn, RandomStreams, Time};
use rnic_wire::cm::{
    DisconnectReply, DisconnectRequest, LookupRequest, Mad, Message, PrivateData, ReadyToUse, Reject, RejectInfo,
    RejectReason, Rejected, Reply, Request, ServiceId,
};
use rnic_wire::{Addresses, Qpn, cm, gsi};

use super::*;

const SERVICE: ServiceId = ServiceId::for_port(7_471);
const CM_TIMEOUT: Duration = Duration::from_secs(2);

/// A service that initially has no listener.
const OTHER: ServiceId = ServiceId::for_port(2);

fn manager(seed: u64) -> Manager {
    Manager::new(crate::Secrets::of_seed(seed).stream("test"))
}

fn addresses() -> Addresses {
    let address = |text: &str| text.parse().expect("an address");
    Addresses::new(address("10.0.0.1:4791"), address("10.0.0.2:4791")).expect("both IPv4")
}

/// An active and a passive side, and a network that the test controls.
struct Bench {
    active: Manager,
    passive: Manager,
    now: Time,
}

impl Bench {
    fn new() -> Self {
        let (active, mut passive) = (manager(1), manager(2));
        assert!(passive.listen(SERVICE, ServiceKind::ReliableConnections, 4));
        Self { active, passive, now: Time::ZERO }
    }

    fn connect(&mut self) -> ConnectionId {
        let request = Request { service_id: SERVICE, ..Request::default() };
        self.active.connect(self.now, addresses(), request, CM_TIMEOUT).expect("the table has space")
    }

    /// Delivers every waiting message; `copies` returns the number of copies of it that arrive.
    fn deliver_all(&mut self, mut copies: impl FnMut(&Message) -> usize) {
        let path = addresses();
        loop {
            let (sender, receiver, path) = match (self.active.poll_message(), self.passive.poll_message()) {
                (None, None) => return,
                (Some(message), later) => {
                    if let Some(later) = later {
                        self.deliver(later, true, &path, &mut copies);
                    }
                    (message, false, path)
                }
                (None, Some(message)) => (message, true, path),
            };
            self.deliver(sender, receiver, &path, &mut copies);
        }
    }

    fn deliver(
        &mut self,
        (to, mad): (Addresses, Mad),
        to_active: bool,
        path: &Addresses,
        copies: &mut impl FnMut(&Message) -> usize,
    ) {
        assert_eq!(to, if to_active { path.reversed() } else { *path });
        for _ in 0..copies(&mad.message) {
            let receiver = if to_active { &mut self.active } else { &mut self.passive };
            receiver.receive(self.now, &to, mad.clone());
        }
    }

    /// Advances time, from timer to timer, for as long as `on_step` returns `true`.
    fn run(&mut self, mut on_step: impl FnMut(&mut Self) -> bool) {
        for _ in 0..10_000 {
            if !on_step(self) {
                return;
            }
            let next = [self.active.next_timeout(), self.passive.next_timeout()];
            let Some(next) = next.into_iter().flatten().min() else { return };
            self.now = self.now.max(next);
            self.active.tick(self.now);
            self.passive.tick(self.now);
        }
        panic!("still running at {}", self.now);
    }

    /// Establishes a connection over a network without losses.
    fn established(&mut self) -> (ConnectionId, ConnectionId) {
        let active_id = self.connect();
        self.deliver_all(|_| 1);
        let passive_id = requested(&mut self.passive);
        assert!(self.passive.accept(self.now, passive_id, Reply::default(), CM_TIMEOUT));
        self.deliver_all(|_| 1);
        assert!(matches!(self.active.poll_cm_event(), Some(CmEvent::Replied(id, ..)) if id == active_id));
        self.active.confirm(active_id);
        self.deliver_all(|_| 1);
        assert_eq!(self.passive.poll_cm_event(), Some(CmEvent::Ready(passive_id)));
        (active_id, passive_id)
    }
}

fn requested(manager: &mut Manager) -> ConnectionId {
    match manager.poll_cm_event() {
        Some(CmEvent::Requested(id, _)) => id,
        cm_event => panic!("{cm_event:?} instead of a request"),
    }
}

fn state(manager: &Manager, id: ConnectionId) -> Option<State> {
    manager.get(id).map(|exchange| exchange.state)
}

#[test]
fn three_messages_establish_a_connection_and_two_end_it() {
    let mut bench = Bench::new();
    let (active_id, passive_id) = bench.established();
    assert_eq!(state(&bench.active, active_id), Some(State::Established));
    assert_eq!(state(&bench.passive, passive_id), Some(State::Established));
    assert!(bench.active.disconnect(bench.now, active_id, Qpn::new(7)));
    assert!(!bench.active.disconnect(bench.now, active_id, Qpn::new(7)), "disconnected twice");
    bench.deliver_all(|_| 1);
    assert_eq!(bench.active.poll_cm_event(), Some(CmEvent::Disconnected(active_id)));
    assert_eq!(bench.passive.poll_cm_event(), Some(CmEvent::Disconnected(passive_id)));
    assert_eq!((state(&bench.active, active_id), state(&bench.passive, passive_id)), (None, None));
}

#[test]
fn the_rtu_is_sent_only_after_the_program_has_got_the_reply() {
    let mut bench = Bench::new();
    let active_id = bench.connect();
    bench.deliver_all(|_| 1);
    let passive_id = requested(&mut bench.passive);
    bench.passive.accept(bench.now, passive_id, Reply::default(), CM_TIMEOUT);
    let mut ready = 0;
    bench.deliver_all(|message| {
        ready += usize::from(matches!(message, Message::ReadyToUse(_)));
        1
    });
    assert_eq!((ready, state(&bench.passive, passive_id)), (0, Some(State::ReplySent)));
    bench.active.confirm(active_id);
    bench.deliver_all(|_| 1);
    assert_eq!(state(&bench.passive, passive_id), Some(State::Established));
}

#[test]
fn every_message_is_retransmitted_until_it_arrives_and_processed_once() {
    // The first three messages of each kind are lost, the others arrive three times.
    let mut bench = Bench::new();
    let mut seen = std::collections::BTreeMap::<u16, usize>::new();
    let mut copies = move |message: &Message| {
        let count = seen.entry(message.attribute()).or_default();
        *count += 1;
        if *count <= 3 { 0 } else { 3 }
    };
    let active_id = bench.connect();
    let (mut requests, mut replies, mut ready) = (0, 0, 0);
    bench.run(|bench| {
        bench.deliver_all(&mut copies);
        while let Some(cm_event) = bench.passive.poll_cm_event() {
            match cm_event {
                CmEvent::Requested(id, _) => {
                    requests += 1;
                    assert!(bench.passive.accept(bench.now, id, Reply::default(), CM_TIMEOUT));
                }
                CmEvent::Ready(_) => ready += 1,
                cm_event => panic!("{cm_event:?}"),
            }
        }
        while let Some(cm_event) = bench.active.poll_cm_event() {
            assert!(matches!(cm_event, CmEvent::Replied(id, ..) if id == active_id), "{cm_event:?}");
            replies += 1;
            bench.active.confirm(active_id);
        }
        ready == 0
    });
    assert_eq!((requests, replies, ready), (1, 1, 1));
    assert_eq!(state(&bench.active, active_id), Some(State::Established));
}

/// Karn's algorithm: the response to a request that was retransmitted may belong to either transmission.
#[test]
fn a_retransmitted_request_gives_no_round_trip_time() {
    for lost in [0, 1, 4] {
        let mut bench = Bench::new();
        let active_id = bench.connect();
        let mut requests = 0;
        let mut measured = None;
        bench.run(|bench| {
            bench.deliver_all(|message| {
                requests += usize::from(matches!(message, Message::Request(_)));
                usize::from(requests > lost || !matches!(message, Message::Request(_)))
            });
            while let Some(CmEvent::Requested(id, _)) = bench.passive.poll_cm_event() {
                assert!(bench.passive.accept(bench.now, id, Reply::default(), CM_TIMEOUT));
            }
            bench.deliver_all(|_| 1);
            while let Some(CmEvent::Replied(id, _, round_trip)) = bench.active.poll_cm_event() {
                assert_eq!(id, active_id);
                measured = Some(round_trip);
            }
            measured.is_none()
        });
        let expected = (lost == 0).then_some(Duration::ZERO);
        assert_eq!(measured, Some(expected), "{lost} lost: the bench's network takes no time");
    }
}

#[test]
fn a_request_without_response_times_out() {
    let mut bench = Bench::new();
    let active_id = bench.connect();
    let mut sent = 0;
    bench.run(|bench| {
        bench.deliver_all(|_| {
            sent += 1;
            0
        });
        true
    });
    assert_eq!(bench.active.poll_cm_event(), Some(CmEvent::TimedOut(active_id, CM_TIMEOUT)));
    assert_eq!(bench.now, Time::ZERO + CM_TIMEOUT, "the timeout is not exact");
    // The intervals are 20, 40, 80, 160 and 320 ms, then 500 ms each: the REQ is sent eight or nine times, then the
    // REJ that reports the timeout.
    assert!((8..=11).contains(&sent), "{sent} messages");
}

#[test]
fn a_missing_response_times_out_in_every_state_on_both_sides() {
    for lost in [Reply::ATTRIBUTE, ReadyToUse::ATTRIBUTE] {
        let mut bench = Bench::new();
        let active_id = bench.connect();
        let mut events = Vec::new();
        bench.run(|bench| {
            bench.deliver_all(|message| usize::from(message.attribute() != lost));
            while let Some(cm_event) = bench.passive.poll_cm_event() {
                match cm_event {
                    CmEvent::Requested(id, _) => {
                        bench.passive.accept(bench.now, id, Reply::default(), CM_TIMEOUT);
                    }
                    cm_event => events.push(cm_event),
                }
            }
            while let Some(cm_event) = bench.active.poll_cm_event() {
                match cm_event {
                    CmEvent::Replied(id, ..) => bench.active.confirm(id),
                    cm_event => events.push(cm_event),
                }
            }
            true
        });
        match lost {
            // The active side times out first and reports it.
            Reply::ATTRIBUTE => {
                assert!(events.contains(&CmEvent::TimedOut(active_id, CM_TIMEOUT)), "{events:?}");
            }
            // The passive side times out. (In a real NIC, data packets would have shown that the RTU was lost.)
            _ => assert!(events.iter().any(|end| matches!(end, CmEvent::TimedOut(_, CM_TIMEOUT))), "{events:?}"),
        }
        assert_eq!(bench.passive.half_open(), 0);
    }
}

#[test]
fn data_packets_replace_a_lost_rtu() {
    let mut bench = Bench::new();
    let active_id = bench.connect();
    bench.deliver_all(|_| 1);
    let passive_id = requested(&mut bench.passive);
    bench.passive.accept(bench.now, passive_id, Reply::default(), CM_TIMEOUT);
    bench.deliver_all(|_| 1);
    bench.active.confirm(active_id);
    bench.deliver_all(|_| 0);
    bench.passive.establish(passive_id);
    assert_eq!(bench.passive.poll_cm_event(), Some(CmEvent::Ready(passive_id)));
    bench.passive.establish(passive_id);
    assert_eq!(bench.passive.poll_cm_event(), None, "reported twice");
}

#[test]
fn requests_without_listener_or_beyond_the_backlog_are_rejected() {
    let mut bench = Bench::new();
    let request = Request { service_id: ServiceId::for_port(1), ..Request::default() };
    let id = bench.active.connect(bench.now, addresses(), request, CM_TIMEOUT).expect("the table has space");
    bench.deliver_all(|_| 1);
    match bench.active.poll_cm_event() {
        Some(CmEvent::Refused(refused, reject)) => {
            assert_eq!((refused, reject.reason), (id, RejectReason::INVALID_SERVICE_ID));
        }
        cm_event => panic!("{cm_event:?}"),
    }
    for _ in 0..5 {
        bench.connect();
    }
    bench.deliver_all(|_| 1);
    let refused: Vec<RejectReason> = std::iter::from_fn(|| bench.active.poll_cm_event())
        .map(|cm_event| match cm_event {
            CmEvent::Refused(_, reject) => reject.reason,
            cm_event => panic!("{cm_event:?}"),
        })
        .collect();
    assert_eq!(refused, [RejectReason::NO_RESOURCES], "the backlog was exceeded");
    assert!(!bench.passive.listen(SERVICE, ServiceKind::Connections, 1), "a second listener was accepted");
}

#[test]
fn a_request_waits_for_the_program_for_a_limited_time() {
    let mut bench = Bench::new();
    bench.connect();
    bench.deliver_all(|_| 1);
    let passive_id = requested(&mut bench.passive);
    assert_eq!(bench.passive.half_open(), 1);
    bench.run(|bench| {
        bench.deliver_all(|_| 1);
        true
    });
    assert_eq!((bench.passive.half_open(), state(&bench.passive, passive_id)), (0, None));
    assert!(!bench.passive.accept(bench.now, passive_id, Reply::default(), CM_TIMEOUT), "accepted too late");
}

#[test]
fn a_rejection_carries_its_reason_and_private_data() {
    let mut bench = Bench::new();
    let active_id = bench.connect();
    bench.deliver_all(|_| 1);
    let passive_id = requested(&mut bench.passive);
    assert!(bench.passive.reject(passive_id, RejectReason::CONSUMER, RejectInfo::default(), b"not today"));
    assert!(!bench.passive.reject(passive_id, RejectReason::CONSUMER, RejectInfo::default(), b""), "rejected twice");
    bench.deliver_all(|_| 1);
    match bench.active.poll_cm_event() {
        Some(CmEvent::Refused(id, reject)) => {
            assert_eq!((id, reject.rejected, reject.reason), (active_id, Rejected::Request, RejectReason::CONSUMER));
            assert_eq!(reject.private_data.0[..10], *b"not today\0");
        }
        cm_event => panic!("{cm_event:?}"),
    }
}

#[test]
fn a_disconnect_without_response_still_ends_the_connection() {
    let mut bench = Bench::new();
    let (active_id, passive_id) = bench.established();
    bench.active.disconnect(bench.now, active_id, Qpn::new(7));
    let start = bench.now;
    bench.run(|bench| {
        bench.deliver_all(|_| 0);
        state(&bench.active, active_id).is_some()
    });
    assert_eq!(bench.active.poll_cm_event(), Some(CmEvent::Disconnected(active_id)));
    assert!(bench.now.since(start) <= Duration::from_secs(1));
    assert_eq!(state(&bench.passive, passive_id), Some(State::Established), "the passive side was disconnected");
}

/// The connection managers of adapters ignore a DREQ that names the queue pair of another connection.
#[test]
fn a_disconnect_request_names_the_remote_queue_pair() {
    let mut bench = Bench::new();
    let request = Request { service_id: SERVICE, local_qpn: Qpn::new(0x11), ..Request::default() };
    let active = bench.active.connect(bench.now, addresses(), request, CM_TIMEOUT).expect("the table has space");
    bench.deliver_all(|_| 1);
    let passive = requested(&mut bench.passive);
    let reply = Reply { local_qpn: Qpn::new(0x22), ..Reply::default() };
    assert!(bench.passive.accept(bench.now, passive, reply, CM_TIMEOUT));
    bench.deliver_all(|_| 1);
    bench.active.confirm(active);
    bench.deliver_all(|_| 1);
    let disconnected_qpn = |manager: &mut Manager| match manager.poll_message().map(|(_, mad)| mad.message) {
        Some(Message::DisconnectRequest(request)) => request.remote_qpn,
        other => panic!("{other:?}"),
    };
    assert!(bench.active.disconnect(bench.now, active, Qpn::default()));
    assert_eq!(disconnected_qpn(&mut bench.active), Qpn::new(0x22));
    assert!(bench.passive.disconnect(bench.now, passive, Qpn::default()));
    assert_eq!(disconnected_qpn(&mut bench.passive), Qpn::new(0x11));
}

/// All messages of a host arrive at one socket, and each is processed by the port to which it belongs.
#[test]
fn a_manager_handles_messages_of_its_own_connections_and_services() {
    let mut bench = Bench::new();
    let other_manager = manager(3);
    bench.connect();
    let (path, mad) = bench.active.poll_message().expect("a request");
    assert!(bench.passive.handles(&path, &mad, true));
    assert!(!bench.passive.handles(&path, &mad, false), "it listens at another address");
    assert!(!other_manager.handles(&path, &mad, true), "it does not listen");
    bench.passive.receive(bench.now, &path, mad.clone());
    assert!(bench.passive.handles(&path, &mad, false), "retransmitted");
    let passive = requested(&mut bench.passive);
    assert!(bench.passive.accept(bench.now, passive, Reply::default(), CM_TIMEOUT));
    let (path, mad) = bench.passive.poll_message().expect("a reply");
    assert!(bench.active.handles(&path, &mad, false));
    assert!(!other_manager.handles(&path, &mad, true));
}

#[test]
fn simultaneous_disconnects_end_the_connection_at_both_ends() {
    let mut bench = Bench::new();
    let (active_id, passive_id) = bench.established();
    bench.active.disconnect(bench.now, active_id, Qpn::new(7));
    bench.passive.disconnect(bench.now, passive_id, Qpn::new(8));
    bench.deliver_all(|_| 1);
    assert_eq!(bench.active.poll_cm_event(), Some(CmEvent::Disconnected(active_id)));
    assert_eq!(bench.passive.poll_cm_event(), Some(CmEvent::Disconnected(passive_id)));
}

#[test]
fn messages_from_wrong_addresses_are_ignored() {
    let mut bench = Bench::new();
    let (active_id, passive_id) = bench.established();
    let wrong_path = {
        let address = |text: &str| text.parse().expect("an address");
        Addresses::new(address("10.0.0.66:4791"), address("10.0.0.2:4791")).expect("both IPv4")
    };
    let (ours, theirs) = {
        let exchange = bench.passive.get(passive_id).expect("the connection is established");
        (exchange.local_comm_id, exchange.remote_comm_id)
    };
    let end = DisconnectRequest {
        local_comm_id: theirs,
        remote_comm_id: ours,
        remote_qpn: Qpn::new(1),
        private_data: PrivateData::default(),
    };
    let forged = Mad { transaction_id: 1, message: Message::DisconnectRequest(end) };
    bench.passive.receive(bench.now, &wrong_path, forged.clone());
    // This message has the right address, but a guessed communication id.
    let guessed = DisconnectRequest { local_comm_id: theirs ^ 1, ..end };
    let mad = Mad { transaction_id: 1, message: Message::DisconnectRequest(guessed) };
    bench.passive.receive(bench.now, &addresses(), mad);
    assert_eq!(state(&bench.passive, passive_id), Some(State::Established));
    assert_eq!(bench.passive.strays, 2);
    assert_eq!(state(&bench.active, active_id), Some(State::Established));
    bench.passive.receive(bench.now, &addresses(), forged);
    assert_eq!(state(&bench.passive, passive_id), None, "the valid message was ignored");
}

/// A "port unreachable" report is accepted only after the time allowed for a listener to start, counted from the
/// first message; any other network error is accepted immediately.
#[test]
fn port_unreachable_is_accepted_only_after_the_listener_grace_time() {
    let grace = Duration::from_ms(600);
    let look_up = |bench: &mut Bench| {
        let request = LookupRequest { service_id: SERVICE, ..LookupRequest::default() };
        bench.active.look_up(bench.now, addresses(), request, CM_TIMEOUT).expect("the table has space")
    };
    for begin_exchange in [Bench::connect, look_up] {
        let mut bench = Bench::new();
        bench.active.listener_grace = grace;
        let start = Time::from_us(50_000);
        bench.now = start;
        let id = begin_exchange(&mut bench);
        let (mut sent, mut last) = (0, start);
        bench.run(|bench| {
            while bench.active.poll_message().is_some() {
                sent += 1;
            }
            last = bench.now;
            bench.active.unreachable(bench.now, id, libc::ECONNREFUSED);
            state(&bench.active, id).is_some()
        });
        assert_eq!(bench.active.poll_cm_event(), Some(CmEvent::Unreachable(id, libc::ECONNREFUSED)));
        assert!(last.since(start) >= grace, "accepted after {}", last.since(start));
        // Retransmissions are at most 500 ms apart.
        assert!(last.since(start) <= grace + Duration::from_ms(500), "accepted after {}", last.since(start));
        assert!(sent > 4, "too few retransmissions: {sent}");

        let id = begin_exchange(&mut bench);
        bench.active.unreachable(bench.now, id, libc::EHOSTUNREACH);
        assert_eq!(bench.active.poll_cm_event(), Some(CmEvent::Unreachable(id, libc::EHOSTUNREACH)));

        let id = begin_exchange(&mut bench);
        bench.active.unreachable(bench.now + grace - Duration::from_ps(1), id, libc::ECONNREFUSED);
        assert_eq!((bench.active.poll_cm_event(), state(&bench.active, id).is_some()), (None, true));
        bench.active.unreachable(bench.now + grace, id, libc::ECONNREFUSED);
        assert_eq!(bench.active.poll_cm_event(), Some(CmEvent::Unreachable(id, libc::ECONNREFUSED)));
    }
}

/// Returns the part of the active side's next message that an ICMP error about it would quote.
fn quoted(bench: &mut Bench) -> Vec<u8> {
    let (path, mad) = bench.active.poll_message().expect("a packet is sent");
    let packet = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(0), mad: &cm::emit(&mad) };
    packet.encode(&path)[..64].to_vec()
}

#[test]
fn an_error_report_must_quote_a_message_of_the_connection() {
    let mut bench = Bench::new();
    let (active_id, _) = bench.established();
    bench.active.probe();
    let (report, to) = (quoted(&mut bench), addresses().dst());
    assert_eq!(bench.active.sender_of(to, &report), Some(active_id));
    assert_eq!(bench.active.sender_of(addresses().src(), &report), None, "a report for another address was accepted");
    // Bits of the transaction id and of the communication id: they follow BTH (12 bytes), DETH (8 bytes) and the
    // first words of the MAD.
    for bit in (28 * 8..36 * 8).chain(44 * 8..48 * 8) {
        let mut forged = report.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(bench.active.sender_of(to, &forged), None, "bit {bit}");
    }
    for len in [0, 8, 20, 47] {
        assert_eq!(bench.active.sender_of(to, &report[..len]), None, "a quote of {len} bytes was accepted");
    }
}

#[test]
fn a_closed_port_ends_its_connections_after_three_proven_reports() {
    let mut bench = Bench::new();
    let (active_id, _) = bench.established();
    bench.active.probe();
    let report = quoted(&mut bench);
    for reports in 1..=3 {
        assert_eq!((bench.active.poll_cm_event(), state(&bench.active, active_id)), (None, Some(State::Established)));
        let id = bench.active.sender_of(addresses().dst(), &report).expect("the report is proven");
        bench.active.refused(bench.now, id);
        bench.active.unreachable(bench.now, id, libc::ECONNREFUSED);
        if reports < 3 {
            let retry_at = bench.active.next_timeout().expect("it is asked again");
            assert!(retry_at.since(bench.now) <= Duration::from_ms(200), "{}", retry_at.since(bench.now));
            bench.now += Duration::from_ms(200);
            bench.active.tick(bench.now);
            assert_eq!(quoted(&mut bench)[20..], report[20..], "the probe is not the same message");
        }
    }
    assert_eq!(bench.active.poll_cm_event(), Some(CmEvent::Disconnected(active_id)));
}

#[test]
fn a_message_from_the_peer_resets_the_count_of_reports() {
    let mut bench = Bench::new();
    let (active_id, _) = bench.established();
    for _ in 0..10 {
        bench.active.refused(bench.now, active_id);
        bench.now += Duration::from_ms(150);
        bench.active.refused(bench.now, active_id);
        bench.now += Duration::from_ms(150);
        bench.passive.probe();
        bench.deliver_all(|_| 1);
    }
    assert_eq!(state(&bench.active, active_id), Some(State::Established));
}

/// The same test for a peer whose process exists and reports that there is no listener: a listener that starts within
/// the allowed time is found, by connection requests and by lookups.
#[test]
fn a_service_may_start_to_listen_after_the_first_request() {
    for (kind, service_id) in [(ServiceKind::Connections, ServiceId::for_port(1)), (ServiceKind::Datagrams, OTHER)] {
        let mut bench = Bench::new();
        bench.active.listener_grace = Duration::from_ms(2_000);
        let id = if kind == ServiceKind::Datagrams {
            let request = LookupRequest { service_id, ..LookupRequest::default() };
            bench.active.look_up(bench.now, addresses(), request, CM_TIMEOUT)
        } else {
            let request = Request { service_id, ..Request::default() };
            bench.active.connect(bench.now, addresses(), request, CM_TIMEOUT)
        };
        let id = id.expect("the table has space");
        bench.deliver_all(|_| 1);
        assert_eq!((bench.active.poll_cm_event(), state(&bench.active, id).is_some()), (None, true), "{kind:?}");
        assert!(bench.passive.listen(service_id, kind, 4));
        let mut passive_id = false;
        bench.run(|bench| {
            bench.deliver_all(|_| 1);
            passive_id |= bench.passive.poll_cm_event().is_some();
            !passive_id && bench.active.poll_cm_event().is_none()
        });
        assert!(passive_id, "{kind:?}: the request was not retransmitted");
    }
}

/// Random messages of every kind, some with valid communication ids, are received by both sides of an established
/// connection.
#[test]
fn random_messages_neither_break_nor_fill_the_manager() {
    let mut random = RandomStreams::new(11).stream("nonsense");
    let mut bench = Bench::new();
    let (_, passive_id) = bench.established();
    let exchange = bench.passive.get(passive_id).expect("the connection is established").clone();
    for round in 0..50_000u64 {
        let name = |random: &mut rnic_base::RandomStream, right: u32| match random.below(4) {
            0 => right,
            1 => 0,
            _ => random.bits() as u32,
        };
        let local_comm_id = name(&mut random, exchange.remote_comm_id);
        let remote_comm_id = name(&mut random, exchange.local_comm_id);
        let message = match random.below(6) {
            0 => Message::Request(Request { local_comm_id, service_id: SERVICE, ..Request::default() }),
            1 => Message::Reply(Reply { local_comm_id, remote_comm_id, ..Reply::default() }),
            2 => Message::ReadyToUse(ReadyToUse { local_comm_id, remote_comm_id, ..ReadyToUse::default() }),
            3 => Message::Reject(Reject { local_comm_id, remote_comm_id, ..Reject::default() }),
            4 => Message::DisconnectReply(DisconnectReply {
                local_comm_id,
                remote_comm_id,
                ..DisconnectReply::default()
            }),
            _ => Message::DisconnectRequest(DisconnectRequest {
                local_comm_id,
                remote_comm_id: remote_comm_id ^ 1,
                ..DisconnectRequest::default()
            }),
        };
        let transaction_id = if random.below(2) == 0 { exchange.transaction_id } else { random.bits() };
        bench.now = Time::from_us(round);
        bench.passive.receive(bench.now, &addresses(), Mad { transaction_id, message });
        bench.passive.tick(bench.now);
        let answers = std::iter::from_fn(|| bench.passive.poll_message()).count();
        assert!(answers <= 8, "{answers} answers to one message");
        while bench.passive.poll_cm_event().is_some() {}
    }
    assert!(bench.passive.half_open() <= 4, "the backlog was exceeded");
    assert_eq!(state(&bench.passive, passive_id), Some(State::Established), "a random message ended the connection");
}
