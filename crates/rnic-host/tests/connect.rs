//! Connections between live NICs: established, refused, rejected, timed out, negotiated, closed.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use common::{PORT, Pair, Side, connect, drive, requested};
use rnic_base::{Duration, Probability};
use rnic_engine::{QpState, SendOp, WcStatus};
use rnic_host::{
    ConnectError, ConnectionConfig, ConnectionEvent, Impairment, ListenError, Nic, NicConfig, NicError, TransportChoice,
};

fn choices(names: &[&str]) -> Vec<TransportChoice> {
    names.iter().map(|name| TransportChoice::named(name, &[]).expect("a transport")).collect()
}

fn failure(event: Option<ConnectionEvent>) -> Option<ConnectError> {
    match event? {
        ConnectionEvent::Failed { error, .. } => Some(error),
        event => panic!("{event:?} instead of a failure"),
    }
}

#[test]
fn an_address_in_use_is_a_one_line_error() {
    let side = Side::at("127.0.0.1:0");
    let error = Nic::open(NicConfig::at(side.addr())).expect_err("the address is taken");
    assert!(matches!(error, NicError::AddressInUse(address) if address == side.addr()));
    assert_eq!(error.to_string(), format!("address {} is in use by another socket", side.addr()));
    let elsewhere = "192.0.2.77:0".parse().expect("an address");
    let error = Nic::open(NicConfig::at(elsewhere)).expect_err("not ours");
    assert_eq!(error.to_string(), "192.0.2.77:0 is not an address of an interface of this machine");
    let odd = NicConfig { mtu_max_bytes: 1_023, ..NicConfig::at("127.0.0.1:0".parse().expect("an address")) };
    let error = Nic::open(odd).expect_err("an odd MTU");
    assert_eq!(error.to_string(), "mtu_max_bytes is `1023`; expected a multiple of 4 between 256 and 8192");
}

#[test]
fn a_connection_to_a_closed_port_is_refused_immediately() {
    let mut side = Side::at("127.0.0.1:0");
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let start = Instant::now();
    let config = side.config("irn");
    let error = side.nic.connect(free, PORT, &config).expect_err("no process listens");
    assert!(matches!(error, ConnectError::Refused { to } if to == free), "{error}");
    assert!(start.elapsed().as_millis() < 1_000, "the refusal took too long");
    // The NIC continues to work.
    let mut pair = Pair::connected(side, Side::at("127.0.0.1:0"), "irn");
    let (sge, remote) = (pair.left.sge(0, 100), pair.right.region.remote(0));
    pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    pair.succeed(1);
}

#[test]
fn a_connection_without_listener_is_refused() {
    let (mut left, mut right) = (Side::at("127.0.0.1:0"), Side::at("127.0.0.1:0"));
    let config = left.config("irn");
    left.nic.start_connect(right.addr(), 99, &config).expect("there is a route to the peer");
    let error = drive(&mut left, &mut right, |left, _| failure(left.event()));
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
    right.nic.listen(99, 1).expect("a free service");
    assert!(matches!(right.nic.listen(99, 1), Err(ListenError::ServiceInUse(_))));
}

#[test]
fn a_connection_without_response_times_out() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = silent.local_addr().expect("the socket is bound");
    let mut side = Side::at("127.0.0.1:0");
    let timeout = Duration::from_ms(300);
    let config = ConnectionConfig { timeout, ..side.config("irn") };
    let start = Instant::now();
    let error = side.nic.connect(to, PORT, &config).expect_err("no response arrives");
    assert_eq!(error.to_string(), format!("{to} did not respond within 300 ms"));
    assert!((300..2_000).contains(&start.elapsed().as_millis()));
}

#[test]
fn a_connection_without_route_is_unreachable() {
    let mut side = Side::at("127.0.0.1:0");
    let config = side.config("irn");
    // A loopback address cannot reach the outside.
    let to: SocketAddr = "192.0.2.1:4791".parse().expect("an address");
    match side.nic.connect(to, PORT, &config) {
        Err(ConnectError::Unreachable { .. } | ConnectError::TimedOut { .. }) => {}
        other => panic!("{other:?}"),
    }
    let error = side.nic.connect("[::1]:4791".parse().expect("an address"), PORT, &config).expect_err("another IP");
    assert_eq!(error.to_string(), "[::1]:4791 has a different IP version from the address of this NIC");
}

#[test]
fn a_program_may_reject_with_a_text() {
    let (mut left, mut right) = (Side::at("127.0.0.1:0"), Side::at("127.0.0.1:0"));
    right.nic.listen(PORT, 8).expect("a free service");
    let config = ConnectionConfig { private_data: b"let me in".to_vec(), ..left.config("irn") };
    left.nic.start_connect(right.addr(), PORT, &config).expect("there is a route to the peer");
    let request = drive(&mut left, &mut right, |_, right| match right.event()? {
        ConnectionEvent::Requested(request) => Some(request),
        event => panic!("{event:?}"),
    });
    assert_eq!((request.from, &request.private_data[..]), (left.addr(), &b"let me in"[..]));
    assert_eq!((request.service.port(), &request.transports[..]), (Some(PORT), &["irn".to_owned()][..]));
    right.nic.reject(request.id, "not on a Sunday").expect("it waits");
    assert!(matches!(right.nic.reject(request.id, ""), Err(ConnectError::Gone)));
    let error = drive(&mut left, &mut right, |left, _| failure(left.event()));
    assert_eq!(
        error.to_string(),
        format!("{} rejected the connection: the application rejected the request: not on a Sunday", right.addr())
    );
    let long = ConnectionConfig { private_data: vec![1; 17], ..left.config("irn") };
    let error = left.nic.start_connect(right.addr(), PORT, &long).expect_err("too long");
    assert_eq!(error.to_string(), "17 bytes of private data exceed the maximum of 16 bytes");
}

/// I-27: if one of the two ends supports only RoCE, they connect over RoCE.
#[test]
fn i27_transports_are_negotiated_or_refused() {
    let both = ["irn", "roce-gbn"];
    for (from, to, agreed) in [
        (&both[..], &both[..], Some("irn")),
        (&["roce-gbn", "irn"], &both, Some("roce-gbn")),
        (&both, &["roce-gbn"], Some("roce-gbn")),
        (&["roce-gbn"], &both, Some("roce-gbn")),
        (&["irn"], &["roce-gbn"], None),
        (&["roce-gbn"], &["irn"], None),
    ] {
        let (mut left, mut right) = (Side::at("127.0.0.1:0"), Side::at("127.0.0.1:0"));
        right.nic.listen(PORT, 8).expect("a free service");
        let ours = ConnectionConfig::new(left.pd, left.cq).with_transports(choices(from));
        let theirs = ConnectionConfig::new(right.pd, right.cq).with_transports(choices(to));
        if let Some(agreed) = agreed {
            let (one, other) = connect(&mut left, &mut right, &ours, &theirs);
            assert_eq!((one.transport, other.transport), (agreed, agreed), "{from:?} to {to:?}");
            let mut pair = Pair { left, right, from: one, to: other };
            let (sge, remote) = (pair.left.sge(0, 50_000), pair.right.region.remote(common::HALF));
            pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
            pair.succeed(1);
            continue;
        }
        left.nic.start_connect(right.addr(), PORT, &ours).expect("there is a route to the peer");
        let id = drive(&mut left, &mut right, |_, right| requested(right.event()));
        let error = right.nic.accept(id, &theirs).expect_err("nothing in common");
        assert!(matches!(error, ConnectError::NoCommonTransport { .. }), "{error}");
        let error = drive(&mut left, &mut right, |left, _| failure(left.event()));
        let expected = format!("transport service not offered: the other end supports {}", to[0]);
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

/// Flows have no field in packets, so both ends need the same number of them.
#[test]
fn t27_ends_with_different_numbers_of_flows_do_not_connect() {
    for (ours, theirs) in [("4", "1"), ("1", "4"), ("2", "3")] {
        let (mut left, mut right) = (Side::at("127.0.0.1:0"), Side::at("127.0.0.1:0"));
        right.nic.listen(PORT, 8).expect("a free service");
        let config = |side: &Side, flows| {
            let choice = common::chosen("tonic-irn", &[("flows", flows)]);
            ConnectionConfig::new(side.pd, side.cq).with_transports(vec![choice])
        };
        let (from, to) = (config(&left, ours), config(&right, theirs));
        left.nic.start_connect(right.addr(), PORT, &from).expect("there is a route to the peer");
        let id = drive(&mut left, &mut right, |_, right| requested(right.event()));
        let error = right.nic.accept(id, &to).expect_err("other flows").to_string();
        assert!(error.contains(&format!("uses flows={ours}, but this end uses flows={theirs};")), "{error}");
        let error = drive(&mut left, &mut right, |left, _| failure(left.event())).to_string();
        assert!(error.contains(&format!("the other end uses flows={theirs}")), "{error}");
    }
}

#[test]
fn the_smaller_cap_and_mtu_apply() {
    let open = |mtu_max_bytes| {
        let bind = "127.0.0.1:0".parse().expect("an address");
        Side::open(NicConfig { mtu_max_bytes, ..NicConfig::at(bind) })
    };
    let capped = |side: &Side, cap: &str| {
        let choice = TransportChoice::named("irn", &[("cap_packets", cap)]).expect("valid");
        ConnectionConfig::new(side.pd, side.cq).with_transports(vec![choice])
    };
    for (mtus, caps) in
        [((8_192, 1_000), ("20", "300")), ((1_000, 4_096), ("300", "20")), ((4_096, 1_000), ("0", "20"))]
    {
        let (left, right) = (open(mtus.0), open(mtus.1));
        let (ours, theirs) = (capped(&left, caps.0), capped(&right, caps.1));
        let mut pair = Pair::connected_with(left, right, &ours, &theirs);
        assert_eq!((pair.from.wire_mtu_bytes, pair.to.wire_mtu_bytes), (1_000, 1_000));
        // Without a common cap, packets would be outside the bitmap of one side, and losses would not be repaired.
        let (sge, remote) = (pair.left.sge(0, 500_000), pair.right.region.remote(common::HALF));
        pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.succeed(1);
        let outside = pair.right.nic.engine_stats().drops[rnic_engine::DropReason::OutOfWindow as usize];
        assert_eq!(outside, 0);
    }
}

#[test]
fn connections_are_established_despite_loss_and_duplication() {
    for seed in 1..=5 {
        let half = Probability::ratio(1, 2);
        let impairment = Impairment { seed, loss: Probability::ratio(1, 3), duplicate: half, ..Impairment::default() };
        let mut pair = Pair::impaired("irn", impairment);
        let (sge, remote) = (pair.left.sge(0, 10_000), pair.right.region.remote(common::HALF));
        pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.succeed(1);
        pair.left.nic.disconnect(pair.from.id).expect("the connection is established");
        let id = pair.from.id;
        pair.drive(|left, _| match left.event()? {
            ConnectionEvent::Disconnected(ended) if ended == id => Some(()),
            event => panic!("{event:?}"),
        });
    }
}

#[test]
fn an_ended_connection_is_flushed_on_both_sides() {
    let mut pair = Pair::loopback("irn");
    let receive = pair.right.sge(0, 64);
    pair.right.post_recv(pair.to.qpn, 3, &[receive]);
    pair.left.nic.disconnect(pair.from.id).expect("the connection is established");
    assert!(matches!(pair.left.nic.disconnect(pair.from.id), Err(ConnectError::Gone)), "disconnected twice");
    let (from, to) = (pair.from.id, pair.to.id);
    let mut ended = (false, false);
    pair.drive(|left, right| {
        ended.0 |= matches!(left.event(), Some(ConnectionEvent::Disconnected(id)) if id == from);
        ended.1 |= matches!(right.event(), Some(ConnectionEvent::Disconnected(id)) if id == to);
        (ended == (true, true)).then_some(())
    });
    let flushed: Vec<_> =
        pair.right.completions().iter().map(|completion| (completion.wr_id, completion.status)).collect();
    assert_eq!(flushed, [(3, WcStatus::WrFlushed)]);
    assert_eq!(pair.right.nic.query_qp(pair.to.qpn).map(|info| info.state), Some(QpState::Error));
    pair.left.nic.close(from);
    pair.right.nic.close(to);
    assert_eq!(pair.left.nic.query_qp(pair.from.qpn), None);
    // The two sides may connect again.
    let (ours, theirs) = (pair.left.config("irn"), pair.right.config("irn"));
    connect(&mut pair.left, &mut pair.right, &ours, &theirs);
}

#[test]
fn closing_disconnects_the_other_side() {
    let mut pair = Pair::loopback("irn");
    pair.left.nic.close(pair.from.id);
    let id = pair.to.id;
    pair.drive(|_, right| matches!(right.event()?, ConnectionEvent::Disconnected(ended) if ended == id).then_some(()));
}

#[test]
fn a_dropped_nic_is_detected_in_bounded_time() {
    for transport in ["irn", "roce-gbn"] {
        let (left, right) = (Side::at("127.0.0.1:0"), Side::at("127.0.0.1:0"));
        let config = ConnectionConfig { peer_timeout: Duration::from_ms(300), ..left.config(transport) };
        let theirs = right.config(transport);
        let Pair { mut left, right, from, .. } = Pair::connected_with(left, right, &config, &theirs);
        let (sge, remote) = (left.sge(0, 100_000), right.region.remote(0));
        drop(right);
        let start = Instant::now();
        left.post(from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
        left.post(from.qpn, 2, SendOp::Write { remote, immediate: None }, &[sge]);
        let mut found = Vec::new();
        while found.len() < 2 {
            assert!(start.elapsed().as_secs() < 10, "the connection failed too late");
            left.nic.progress();
            left.nic.wait(Duration::from_ms(20)).expect("the system call succeeds");
            found.extend(left.completions().iter().map(|completion| (completion.wr_id, completion.status)));
        }
        assert_eq!(found, [(1, WcStatus::RetryExceeded), (2, WcStatus::WrFlushed)], "{transport}");
        assert!(start.elapsed().as_millis() >= 250, "{transport}: {:?}", start.elapsed());
        assert!(left.nic.stats().network_errors > 0, "port unreachable was not reported");
    }
}
