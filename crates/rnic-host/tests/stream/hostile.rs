//! A peer that violates the protocol of streams: each violation ends the stream with one error.

use std::time::Instant;

use rnic_engine::{SendFlags, SendOp, SendRequest};
use rnic_host::stream::{Broken, StreamError};
use rnic_host::{Connection, ConnectionConfig, ConnectionEvent, Impairment, TransportChoice};

use crate::common::Side;
use crate::harness::{End, SERVICE, TEST_TIMEOUT};

const SEGMENT_BYTES: u16 = 1_024;
const WINDOW: u32 = (256 << 10) / SEGMENT_BYTES as u32;

const WHOLE: u32 = 0 << 30;
const SUB_SEGMENT: u32 = 1 << 30;
const END: u32 = 2 << 30;
const CREDIT: u32 = 3 << 30;

/// Private data of a valid request.
fn offer() -> Vec<u8> {
    let [high, low] = SEGMENT_BYTES.to_be_bytes();
    [&[b'S', 1, high, low][..], &[0; 12]].concat()
}

fn config(side: &Side, private_data: Vec<u8>) -> ConnectionConfig {
    let transports = vec![TransportChoice::named("tonic-new-reno", &[]).expect("it exists")];
    let mut config =
        ConnectionConfig { private_data, ..ConnectionConfig::new(side.pd, side.cq) }.with_transports(transports);
    (config.queues.max_send_wr, config.queues.max_recv_wr) = (1_024, 1_024);
    config
}

/// Requests a stream by hand; returns the connection, or the error with which it failed.
fn request(attacker: &mut Side, victim: &mut End, private_data: Vec<u8>) -> Result<Connection, String> {
    let config = config(attacker, private_data);
    attacker.nic.start_connect(victim.nic.local_addr(), SERVICE, &config).expect("there is a route");
    let start = Instant::now();
    loop {
        attacker.nic.progress();
        victim.progress();
        match attacker.nic.poll_connection_event() {
            Some(ConnectionEvent::Established(connection)) => return Ok(connection),
            Some(ConnectionEvent::Failed { error, .. }) => return Err(error.to_string()),
            _ => assert!(start.elapsed() < TEST_TIMEOUT),
        }
    }
}

fn victim() -> End {
    let mut end = End::open("tonic-new-reno", Impairment::default(), |config| config);
    end.nic.listen(SERVICE, 16).expect("a free service");
    end
}

/// Sends these messages, as immediate data and length, to a new stream; returns how the stream ended.
fn attack(messages: &[(Option<u32>, u32)]) -> Broken {
    let (mut attacker, mut victim) = (Side::at("127.0.0.1:0"), victim());
    let connection = request(&mut attacker, &mut victim, offer()).expect("a valid request");
    let id = *victim.accepted[0].as_ref().expect("it was accepted");
    for slot in 0..16 {
        let sge = attacker.sge(slot * 4_096, 4_096);
        attacker.post_recv(connection.qpn, slot as u64, &[sge]);
    }
    for (immediate, len) in messages {
        let (op, sges) = (SendOp::Send { immediate: *immediate }, [attacker.sge(0, *len)]);
        let request = SendRequest { wr_id: 0, op, sges: &sges, flags: SendFlags::empty() };
        attacker.nic.verbs().post_send(connection.qpn, &request).expect("the queue has space");
    }
    let start = Instant::now();
    let mut is_notified = false;
    while victim.streams.broken(id).is_none() || !is_notified {
        attacker.nic.progress();
        victim.progress();
        is_notified |= matches!(attacker.nic.poll_connection_event(), Some(ConnectionEvent::Disconnected(_)));
        assert!(start.elapsed() < TEST_TIMEOUT, "{:?}, notified: {is_notified}", victim.streams.broken(id));
    }
    victim.streams.broken(id).expect("it has ended")
}

#[test]
fn t26_each_violation_ends_the_stream_with_one_error_and_the_peer_is_notified() {
    let granted = WINDOW;
    let whole = (Some(WHOLE | granted), u32::from(SEGMENT_BYTES));
    let end = (Some(END | granted), 0);
    let too_many: Vec<_> = (0..=WINDOW).map(|_| whole).collect();
    let cases: [(&str, &[_], &str); 9] = [
        ("credit beyond the window", &[(Some(CREDIT | (granted + 1)), 0)], "beyond the window of 256 messages"),
        ("credit that decreases", &[(Some(CREDIT | (granted - 1)), 0)], "beyond the window"),
        ("the end twice", &[end, end], "followed the end of its data"),
        ("data after the end", &[end, whole], "followed the end of its data"),
        ("a short whole segment", &[(Some(WHOLE | granted), 1_000)], "has 1000 bytes; segments have 1024"),
        ("a long sub-segment", &[(Some(SUB_SEGMENT | granted), 1_024)], "has 1024 bytes"),
        ("an empty sub-segment", &[(Some(SUB_SEGMENT | granted), 0)], "has 0 bytes"),
        ("no immediate data", &[(None, 1_024)], "no immediate data"),
        ("more data than credit", &too_many, "more messages with data than the 256 receives"),
    ];
    for (name, messages, expected) in cases {
        match attack(messages) {
            Broken::Violation { what, .. } => assert!(what.contains(expected), "{name}: {what}"),
            other => panic!("{name}: {other}"),
        }
    }
}

#[test]
fn t26_a_message_longer_than_a_segment_is_refused_by_its_receive() {
    match attack(&[(Some(WHOLE | WINDOW), 4_096)]) {
        Broken::Violation { what, .. } => assert!(what.contains("could not be received"), "{what}"),
        other => panic!("{other}"),
    }
}

#[test]
fn t26_requests_that_describe_no_stream_are_rejected() {
    let (mut attacker, mut victim) = (Side::at("127.0.0.1:0"), victim());
    let mut reserved = offer();
    reserved[6] = 1;
    for data in [Vec::new(), vec![0; 16], offer()[..15].to_vec(), reserved] {
        let error = request(&mut attacker, &mut victim, data.clone()).expect_err("not a stream");
        assert!(error.contains("accepts streams of version 1 only"), "{data:?}: {error}");
        assert!(victim.streams.is_empty());
    }
    // Private data of a request end at 16 bytes.
    let config = config(&attacker, vec![0; 17]);
    attacker.nic.start_connect(victim.nic.local_addr(), SERVICE, &config).expect_err("too long");
}

/// A listener that answers with something else: the requesting end reports an error, and releases the stream.
#[test]
fn t26_an_answer_that_describes_no_stream_is_an_error() {
    let mut listener = Side::at("127.0.0.1:0");
    listener.nic.listen(SERVICE, 16).expect("a free service");
    let mut end = End::open("tonic-new-reno", Impairment::default(), |config| config);
    end.streams.connect(&mut end.nic, listener.addr(), SERVICE, (0, 0)).expect("there is a route");
    let start = Instant::now();
    while end.events.is_empty() {
        end.progress();
        listener.nic.progress();
        if let Some(ConnectionEvent::Requested(request)) = listener.nic.poll_connection_event() {
            let config = config(&listener, vec![b'S', 1, 0, 1]);
            listener.nic.accept(request.id, &config).expect("an acceptable request");
        }
        assert!(start.elapsed() < TEST_TIMEOUT);
    }
    match end.events.remove(0) {
        rnic_host::stream::StreamEvent::Failed(_, error) => assert!(matches!(error, StreamError::NotAStream(_))),
        other @ rnic_host::stream::StreamEvent::Established(_) => panic!("{other:?}"),
    }
    assert!(end.streams.is_empty());
}
