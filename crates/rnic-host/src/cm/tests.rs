//! The protocol against itself, and against messages that nobody should send.

use rnic_base::{Duration, Psn, RandomStreams, Time};
use rnic_wire::cm::{
    DisconnectReply, DisconnectRequest, LookupRequest, Mad, Message, PrivateData, ReadyToUse, Reject, RejectInfo,
    RejectReason, Rejected, Reply, Request, ServiceId,
};
use rnic_wire::{Addresses, Qpn, cm, gsi};

use super::*;

const SERVICE: ServiceId = ServiceId::for_port(7_471);
const PATIENCE: Duration = Duration::from_secs(2);

/// A service that nobody listens for at first.
const OTHER: ServiceId = ServiceId::for_port(2);

fn manager(seed: u64) -> Manager {
    Manager::new(crate::Secrets::of_seed(seed).stream("test"))
}

fn addresses() -> Addresses {
    let address = |text: &str| text.parse().expect("an address");
    Addresses::new(address("10.0.0.1:4791"), address("10.0.0.2:4791")).expect("both IPv4")
}

/// An active and a passive side, and a network that does what the test says.
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
        self.active.connect(self.now, addresses(), request, PATIENCE).expect("room")
    }

    /// Carries every message that waits; `fate` says how often each arrives.
    fn carry(&mut self, mut fate: impl FnMut(&Message) -> usize) {
        let way = addresses();
        loop {
            let (sender, receiver, way) = match (self.active.poll_message(), self.passive.poll_message()) {
                (None, None) => return,
                (Some(message), later) => {
                    if let Some(later) = later {
                        self.deliver(later, true, &way, &mut fate);
                    }
                    (message, false, way)
                }
                (None, Some(message)) => (message, true, way),
            };
            self.deliver(sender, receiver, &way, &mut fate);
        }
    }

    fn deliver(
        &mut self,
        (to, mad): (Addresses, Mad),
        to_active: bool,
        way: &Addresses,
        fate: &mut impl FnMut(&Message) -> usize,
    ) {
        assert_eq!(to, if to_active { way.reversed() } else { *way });
        for _ in 0..fate(&mad.message) {
            let receiver = if to_active { &mut self.active } else { &mut self.passive };
            receiver.receive(self.now, &to, mad.clone());
        }
    }

    /// Lets time pass, in the steps that the timers ask for, for as long as `each` wants.
    fn run(&mut self, mut each: impl FnMut(&mut Self) -> bool) {
        for _ in 0..10_000 {
            if !each(self) {
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

    /// Brings a connection about on a network that loses nothing.
    fn established(&mut self) -> (ConnectionId, ConnectionId) {
        let asking = self.connect();
        self.carry(|_| 1);
        let asked = requested(&mut self.passive);
        assert!(self.passive.accept(self.now, asked, Reply::default(), PATIENCE));
        self.carry(|_| 1);
        assert!(matches!(self.active.poll_happening(), Some(CmEvent::Replied(id, ..)) if id == asking));
        self.active.confirm(asking);
        self.carry(|_| 1);
        assert_eq!(self.passive.poll_happening(), Some(CmEvent::Ready(asked)));
        (asking, asked)
    }
}

fn requested(manager: &mut Manager) -> ConnectionId {
    match manager.poll_happening() {
        Some(CmEvent::Requested(id, _)) => id,
        cm_event => panic!("{cm_event:?} instead of a request"),
    }
}

fn state(manager: &Manager, id: ConnectionId) -> Option<State> {
    manager.get(id).map(|exchange| exchange.state)
}

#[test]
fn three_messages_make_a_connection_and_two_end_it() {
    let mut bench = Bench::new();
    let (asking, asked) = bench.established();
    assert_eq!(state(&bench.active, asking), Some(State::Established));
    assert_eq!(state(&bench.passive, asked), Some(State::Established));
    assert!(bench.active.disconnect(bench.now, asking, Qpn::new(7)));
    assert!(!bench.active.disconnect(bench.now, asking, Qpn::new(7)), "once");
    bench.carry(|_| 1);
    assert_eq!(bench.active.poll_happening(), Some(CmEvent::Disconnected(asking)));
    assert_eq!(bench.passive.poll_happening(), Some(CmEvent::Disconnected(asked)));
    assert_eq!((state(&bench.active, asking), state(&bench.passive, asked)), (None, None));
}

#[test]
fn the_other_side_hears_nothing_before_the_program_knows() {
    let mut bench = Bench::new();
    let asking = bench.connect();
    bench.carry(|_| 1);
    let asked = requested(&mut bench.passive);
    bench.passive.accept(bench.now, asked, Reply::default(), PATIENCE);
    let mut ready = 0;
    bench.carry(|message| {
        ready += usize::from(matches!(message, Message::ReadyToUse(_)));
        1
    });
    assert_eq!((ready, state(&bench.passive, asked)), (0, Some(State::ReplySent)));
    bench.active.confirm(asking);
    bench.carry(|_| 1);
    assert_eq!(state(&bench.passive, asked), Some(State::Established));
}

#[test]
fn every_message_is_sent_again_until_it_arrives_and_acted_on_once() {
    // The first three of every kind get lost, the others arrive three times.
    let mut bench = Bench::new();
    let mut seen = std::collections::BTreeMap::<u16, usize>::new();
    let mut fate = move |message: &Message| {
        let count = seen.entry(message.attribute()).or_default();
        *count += 1;
        if *count <= 3 { 0 } else { 3 }
    };
    let asking = bench.connect();
    let (mut requests, mut replies, mut ready) = (0, 0, 0);
    bench.run(|bench| {
        bench.carry(&mut fate);
        while let Some(cm_event) = bench.passive.poll_happening() {
            match cm_event {
                CmEvent::Requested(id, _) => {
                    requests += 1;
                    assert!(bench.passive.accept(bench.now, id, Reply::default(), PATIENCE));
                }
                CmEvent::Ready(_) => ready += 1,
                cm_event => panic!("{cm_event:?}"),
            }
        }
        while let Some(cm_event) = bench.active.poll_happening() {
            assert!(matches!(cm_event, CmEvent::Replied(id, ..) if id == asking), "{cm_event:?}");
            replies += 1;
            bench.active.confirm(asking);
        }
        ready == 0
    });
    assert_eq!((requests, replies, ready), (1, 1, 1));
    assert_eq!(state(&bench.active, asking), Some(State::Established));
}

/// Karn's rule: an answer to a request that was sent twice may be one to either.
#[test]
fn a_request_that_was_sent_again_tells_no_round_trip() {
    for lost in [0, 1, 4] {
        let mut bench = Bench::new();
        let asking = bench.connect();
        let mut requests = 0;
        let mut told = None;
        bench.run(|bench| {
            bench.carry(|message| {
                requests += usize::from(matches!(message, Message::Request(_)));
                usize::from(requests > lost || !matches!(message, Message::Request(_)))
            });
            while let Some(CmEvent::Requested(id, _)) = bench.passive.poll_happening() {
                assert!(bench.passive.accept(bench.now, id, Reply::default(), PATIENCE));
            }
            bench.carry(|_| 1);
            while let Some(CmEvent::Replied(id, _, round_trip)) = bench.active.poll_happening() {
                assert_eq!(id, asking);
                told = Some(round_trip);
            }
            told.is_none()
        });
        let expected = (lost == 0).then_some(Duration::ZERO);
        assert_eq!(told, Some(expected), "{lost} lost: the bench's network takes no time");
    }
}

#[test]
fn silence_ends_in_time() {
    let mut bench = Bench::new();
    let asking = bench.connect();
    let mut sent = 0;
    bench.run(|bench| {
        bench.carry(|_| {
            sent += 1;
            0
        });
        true
    });
    assert_eq!(bench.active.poll_happening(), Some(CmEvent::TimedOut(asking, PATIENCE)));
    assert_eq!(bench.now, Time::ZERO + PATIENCE, "not a moment later");
    // 20, 40, 80, 160, 320, then every 500 ms: REQ eight or nine times, and the REJ that gives up.
    assert!((8..=11).contains(&sent), "{sent} messages");
}

#[test]
fn silence_ends_every_step_on_both_sides() {
    for lost in [Reply::ATTRIBUTE, ReadyToUse::ATTRIBUTE] {
        let mut bench = Bench::new();
        let asking = bench.connect();
        let mut ends = Vec::new();
        bench.run(|bench| {
            bench.carry(|message| usize::from(message.attribute() != lost));
            while let Some(cm_event) = bench.passive.poll_happening() {
                match cm_event {
                    CmEvent::Requested(id, _) => {
                        bench.passive.accept(bench.now, id, Reply::default(), PATIENCE);
                    }
                    cm_event => ends.push(cm_event),
                }
            }
            while let Some(cm_event) = bench.active.poll_happening() {
                match cm_event {
                    CmEvent::Replied(id, ..) => bench.active.confirm(id),
                    cm_event => ends.push(cm_event),
                }
            }
            true
        });
        match lost {
            // The active side gives up first and says so.
            Reply::ATTRIBUTE => {
                assert!(ends.contains(&CmEvent::TimedOut(asking, PATIENCE)), "{ends:?}");
            }
            // The passive side gives up. (In a real NIC, data would have told it that the RTU was lost.)
            _ => assert!(ends.iter().any(|end| matches!(end, CmEvent::TimedOut(_, PATIENCE))), "{ends:?}"),
        }
        assert_eq!(bench.passive.half_open(), 0);
    }
}

#[test]
fn data_stand_in_for_a_lost_rtu() {
    let mut bench = Bench::new();
    let asking = bench.connect();
    bench.carry(|_| 1);
    let asked = requested(&mut bench.passive);
    bench.passive.accept(bench.now, asked, Reply::default(), PATIENCE);
    bench.carry(|_| 1);
    bench.active.confirm(asking);
    bench.carry(|_| 0);
    bench.passive.establish(asked);
    assert_eq!(bench.passive.poll_happening(), Some(CmEvent::Ready(asked)));
    bench.passive.establish(asked);
    assert_eq!(bench.passive.poll_happening(), None, "once");
}

#[test]
fn nobody_listens_nobody_answers_and_no_more_than_the_backlog_wait() {
    let mut bench = Bench::new();
    let request = Request { service_id: ServiceId::for_port(1), ..Request::default() };
    let id = bench.active.connect(bench.now, addresses(), request, PATIENCE).expect("room");
    bench.carry(|_| 1);
    match bench.active.poll_happening() {
        Some(CmEvent::Refused(refused, reject)) => {
            assert_eq!((refused, reject.reason), (id, RejectReason::INVALID_SERVICE_ID));
        }
        cm_event => panic!("{cm_event:?}"),
    }
    for _ in 0..5 {
        bench.connect();
    }
    bench.carry(|_| 1);
    let refused: Vec<RejectReason> = std::iter::from_fn(|| bench.active.poll_happening())
        .map(|cm_event| match cm_event {
            CmEvent::Refused(_, reject) => reject.reason,
            cm_event => panic!("{cm_event:?}"),
        })
        .collect();
    assert_eq!(refused, [RejectReason::NO_RESOURCES], "the backlog is four");
    assert!(!bench.passive.listen(SERVICE, ServiceKind::Connections, 1), "somebody listens already");
}

#[test]
fn a_request_waits_for_the_program_but_not_for_ever() {
    let mut bench = Bench::new();
    bench.connect();
    bench.carry(|_| 1);
    let asked = requested(&mut bench.passive);
    assert_eq!(bench.passive.half_open(), 1);
    bench.run(|bench| {
        bench.carry(|_| 1);
        true
    });
    assert_eq!((bench.passive.half_open(), state(&bench.passive, asked)), (0, None));
    assert!(!bench.passive.accept(bench.now, asked, Reply::default(), PATIENCE), "too late");
}

#[test]
fn a_rejected_request_is_told_why() {
    let mut bench = Bench::new();
    let asking = bench.connect();
    bench.carry(|_| 1);
    let asked = requested(&mut bench.passive);
    assert!(bench.passive.reject(asked, RejectReason::CONSUMER, RejectInfo::default(), b"not today"));
    assert!(!bench.passive.reject(asked, RejectReason::CONSUMER, RejectInfo::default(), b""), "once");
    bench.carry(|_| 1);
    match bench.active.poll_happening() {
        Some(CmEvent::Refused(id, reject)) => {
            assert_eq!((id, reject.rejected, reject.reason), (asking, Rejected::Request, RejectReason::CONSUMER));
            assert_eq!(reject.private_data.0[..10], *b"not today\0");
        }
        cm_event => panic!("{cm_event:?}"),
    }
}

#[test]
fn an_end_that_is_not_answered_is_an_end_all_the_same() {
    let mut bench = Bench::new();
    let (asking, asked) = bench.established();
    bench.active.disconnect(bench.now, asking, Qpn::new(7));
    let start = bench.now;
    bench.run(|bench| {
        bench.carry(|_| 0);
        state(&bench.active, asking).is_some()
    });
    assert_eq!(bench.active.poll_happening(), Some(CmEvent::Disconnected(asking)));
    assert!(bench.now.since(start) <= Duration::from_secs(1));
    assert_eq!(state(&bench.passive, asked), Some(State::Established), "it does not know");
}

/// Adapters' connection managers ignore the end of a queue pair that is not theirs.
#[test]
fn the_end_names_the_other_sides_queue_pair() {
    let mut bench = Bench::new();
    let request = Request { service_id: SERVICE, local_qpn: Qpn::new(0x11), ..Request::default() };
    let active = bench.active.connect(bench.now, addresses(), request, PATIENCE).expect("room");
    bench.carry(|_| 1);
    let passive = requested(&mut bench.passive);
    let reply = Reply { local_qpn: Qpn::new(0x22), ..Reply::default() };
    assert!(bench.passive.accept(bench.now, passive, reply, PATIENCE));
    bench.carry(|_| 1);
    bench.active.confirm(active);
    bench.carry(|_| 1);
    let named = |manager: &mut Manager| match manager.poll_message().map(|(_, mad)| mad.message) {
        Some(Message::DisconnectRequest(request)) => request.remote_qpn,
        other => panic!("{other:?}"),
    };
    assert!(bench.active.disconnect(bench.now, active, Qpn::default()));
    assert_eq!(named(&mut bench.active), Qpn::new(0x22));
    assert!(bench.passive.disconnect(bench.now, passive, Qpn::default()));
    assert_eq!(named(&mut bench.passive), Qpn::new(0x11));
}

/// All messages of a host come to one place, and each is for the port that knows of it.
#[test]
fn a_message_is_known_where_its_connection_or_its_service_is() {
    let mut bench = Bench::new();
    let stranger = manager(3);
    bench.connect();
    let (way, mad) = bench.active.poll_message().expect("a request");
    assert!(bench.passive.knows(&way, &mad, true));
    assert!(!bench.passive.knows(&way, &mad, false), "it listens at another address");
    assert!(!stranger.knows(&way, &mad, true), "it does not listen");
    bench.passive.receive(bench.now, &way, mad.clone());
    assert!(bench.passive.knows(&way, &mad, false), "retransmitted");
    let passive = requested(&mut bench.passive);
    assert!(bench.passive.accept(bench.now, passive, Reply::default(), PATIENCE));
    let (way, mad) = bench.passive.poll_message().expect("a reply");
    assert!(bench.active.knows(&way, &mad, false));
    assert!(!stranger.knows(&way, &mad, true));
}

#[test]
fn crossing_ends_meet() {
    let mut bench = Bench::new();
    let (asking, asked) = bench.established();
    bench.active.disconnect(bench.now, asking, Qpn::new(7));
    bench.passive.disconnect(bench.now, asked, Qpn::new(8));
    bench.carry(|_| 1);
    assert_eq!(bench.active.poll_happening(), Some(CmEvent::Disconnected(asking)));
    assert_eq!(bench.passive.poll_happening(), Some(CmEvent::Disconnected(asked)));
}

#[test]
fn messages_from_the_wrong_place_change_nothing() {
    let mut bench = Bench::new();
    let (asking, asked) = bench.established();
    let elsewhere = {
        let address = |text: &str| text.parse().expect("an address");
        Addresses::new(address("10.0.0.66:4791"), address("10.0.0.2:4791")).expect("both IPv4")
    };
    let (ours, theirs) = {
        let exchange = bench.passive.get(asked).expect("established");
        (exchange.local_comm_id, exchange.remote_comm_id)
    };
    let end = DisconnectRequest {
        local_comm_id: theirs,
        remote_comm_id: ours,
        remote_qpn: Qpn::new(1),
        private_data: PrivateData::default(),
    };
    let forged = Mad { transaction_id: 1, message: Message::DisconnectRequest(end) };
    bench.passive.receive(bench.now, &elsewhere, forged.clone());
    // From the right place, but with a name that was guessed.
    let guessed = DisconnectRequest { local_comm_id: theirs ^ 1, ..end };
    let mad = Mad { transaction_id: 1, message: Message::DisconnectRequest(guessed) };
    bench.passive.receive(bench.now, &addresses(), mad);
    assert_eq!(state(&bench.passive, asked), Some(State::Established));
    assert_eq!(bench.passive.strays, 2);
    assert_eq!(state(&bench.active, asking), Some(State::Established));
    bench.passive.receive(bench.now, &addresses(), forged);
    assert_eq!(state(&bench.passive, asked), None, "the right one does end it");
}

/// A closed port is believed when the patience with listeners is over, counted from the first message; any other answer
/// of the network is believed at once.
#[test]
fn nobody_listens_is_an_answer_only_after_a_while() {
    let patience = Duration::from_ms(600);
    let look_up = |bench: &mut Bench| {
        let request = LookupRequest { service_id: SERVICE, ..LookupRequest::default() };
        bench.active.look_up(bench.now, addresses(), request, PATIENCE).expect("room")
    };
    for ask in [Bench::connect, look_up] {
        let mut bench = Bench::new();
        bench.active.patience_with_listeners = patience;
        let start = Time::from_us(50_000);
        bench.now = start;
        let id = ask(&mut bench);
        let (mut sent, mut last) = (0, start);
        bench.run(|bench| {
            while bench.active.poll_message().is_some() {
                sent += 1;
            }
            last = bench.now;
            bench.active.unreachable(bench.now, id, libc::ECONNREFUSED);
            state(&bench.active, id).is_some()
        });
        assert_eq!(bench.active.poll_happening(), Some(CmEvent::Unreachable(id, libc::ECONNREFUSED)));
        assert!(last.since(start) >= patience, "believed after {}", last.since(start));
        // Repetitions are at most 500 ms apart.
        assert!(last.since(start) <= patience + Duration::from_ms(500), "believed after {}", last.since(start));
        assert!(sent > 4, "asked again meanwhile: {sent}");

        let id = ask(&mut bench);
        bench.active.unreachable(bench.now, id, libc::EHOSTUNREACH);
        assert_eq!(bench.active.poll_happening(), Some(CmEvent::Unreachable(id, libc::EHOSTUNREACH)));

        let id = ask(&mut bench);
        bench.active.unreachable(bench.now + patience - Duration::from_ps(1), id, libc::ECONNREFUSED);
        assert_eq!((bench.active.poll_happening(), state(&bench.active, id).is_some()), (None, true));
        bench.active.unreachable(bench.now + patience, id, libc::ECONNREFUSED);
        assert_eq!(bench.active.poll_happening(), Some(CmEvent::Unreachable(id, libc::ECONNREFUSED)));
    }
}

/// What a report of the network quotes when the next message of the active side is not delivered.
fn quoted(bench: &mut Bench) -> Vec<u8> {
    let (way, mad) = bench.active.poll_message().expect("something is sent");
    let packet = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(0), mad: &cm::emit(&mad) };
    packet.encode(&way)[..64].to_vec()
}

#[test]
fn only_who_quotes_a_message_of_the_connection_is_believed() {
    let mut bench = Bench::new();
    let (asking, _) = bench.established();
    bench.active.probe();
    let (report, to) = (quoted(&mut bench), addresses().dst());
    assert_eq!(bench.active.sender_of(to, &report), Some(asking));
    assert_eq!(bench.active.sender_of(addresses().src(), &report), None, "it went to somebody else");
    // The transaction's identifier and the connection's: behind BTH (12), DETH (8) and four words of the MAD.
    for bit in (28 * 8..36 * 8).chain(44 * 8..48 * 8) {
        let mut forged = report.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(bench.active.sender_of(to, &forged), None, "bit {bit}");
    }
    for len in [0, 8, 20, 47] {
        assert_eq!(bench.active.sender_of(to, &report[..len]), None, "{len} bytes prove nothing");
    }
}

#[test]
fn a_port_that_nobody_has_ends_connections_after_three_proofs_and_not_after_one() {
    let mut bench = Bench::new();
    let (asking, _) = bench.established();
    bench.active.probe();
    let report = quoted(&mut bench);
    for proofs in 1..=3 {
        assert_eq!((bench.active.poll_happening(), state(&bench.active, asking)), (None, Some(State::Established)));
        let id = bench.active.sender_of(addresses().dst(), &report).expect("it is proven");
        bench.active.refused(bench.now, id);
        bench.active.unreachable(bench.now, id, libc::ECONNREFUSED);
        if proofs < 3 {
            let soon = bench.active.next_timeout().expect("it is asked again");
            assert!(soon.since(bench.now) <= Duration::from_ms(200), "{}", soon.since(bench.now));
            bench.now += Duration::from_ms(200);
            bench.active.tick(bench.now);
            assert_eq!(quoted(&mut bench)[20..], report[20..], "the same message once more");
        }
    }
    assert_eq!(bench.active.poll_happening(), Some(CmEvent::Disconnected(asking)));
}

#[test]
fn a_message_of_the_other_side_takes_doubts_away() {
    let mut bench = Bench::new();
    let (asking, _) = bench.established();
    for _ in 0..10 {
        bench.active.refused(bench.now, asking);
        bench.now += Duration::from_ms(150);
        bench.active.refused(bench.now, asking);
        bench.now += Duration::from_ms(150);
        bench.passive.probe();
        bench.carry(|_| 1);
    }
    assert_eq!(state(&bench.active, asking), Some(State::Established));
}

/// Likewise when the other side's process is there and says that nobody listens: who begins to within the patience is
/// found, by requests and by lookups.
#[test]
fn a_service_may_begin_to_listen_after_it_is_asked_for() {
    for (kind, service_id) in [(ServiceKind::Connections, ServiceId::for_port(1)), (ServiceKind::Datagrams, OTHER)] {
        let mut bench = Bench::new();
        bench.active.patience_with_listeners = Duration::from_ms(2_000);
        let id = if kind == ServiceKind::Datagrams {
            let request = LookupRequest { service_id, ..LookupRequest::default() };
            bench.active.look_up(bench.now, addresses(), request, PATIENCE)
        } else {
            let request = Request { service_id, ..Request::default() };
            bench.active.connect(bench.now, addresses(), request, PATIENCE)
        };
        let id = id.expect("room");
        bench.carry(|_| 1);
        assert_eq!((bench.active.poll_happening(), state(&bench.active, id).is_some()), (None, true), "{kind:?}");
        assert!(bench.passive.listen(service_id, kind, 4));
        let mut asked = false;
        bench.run(|bench| {
            bench.carry(|_| 1);
            asked |= bench.passive.poll_happening().is_some();
            !asked && bench.active.poll_happening().is_none()
        });
        assert!(asked, "{kind:?}: it was not asked again");
    }
}

/// Random messages of every kind, with names that are right now and then, from both sides' view of a live connection.
#[test]
fn nonsense_neither_breaks_nor_fills_the_manager() {
    let mut random = RandomStreams::new(11).stream("nonsense");
    let mut bench = Bench::new();
    let (_, asked) = bench.established();
    let exchange = bench.passive.get(asked).expect("established").clone();
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
        while bench.passive.poll_happening().is_some() {}
    }
    assert!(bench.passive.half_open() <= 4, "the backlog");
    assert_eq!(state(&bench.passive, asked), Some(State::Established), "nobody knew its name and its place");
}
