//! The calls as a program makes them, with both sides in this process.

mod bench;
mod hostile;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use super::abi::*;
use super::ack::rdma_ack_cm_event;
use super::address::{rdma_get_dst_port, rdma_get_src_port};
use super::addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
use super::channel::{rdma_create_event_channel, rdma_destroy_event_channel};
use super::connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_get_request, rdma_listen, rdma_notify, rdma_reject,
};
use super::ep::{rdma_create_ep, rdma_destroy_ep};
use super::event::rdma_get_cm_event;
use super::id::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
use super::qp::{rdma_create_qp, rdma_destroy_qp, rdma_init_qp_attr};
use super::resolve::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route};
use super::unsupported::{rdma_join_multicast, rsocket};
use crate::abi::*;

use bench::*;

#[test]
fn a_connection_is_established_and_closed_with_all_its_events() {
    for host in ["127.0.0.1", "::1"] {
        let bench = Bench::new();
        let (listener, port) = bench.listen(host, RDMA_PS_TCP, 0);
        let active = bench.resolved(host, port, RDMA_PS_TCP);
        assert_eq!(destination_port(active), port);
        assert_ne!(source_port(active), 0);
        bench.make_qp(active, IBV_QPT_RC);
        let data = [7u8; 56];
        assert_eq!(connect(active, &data), 0);

        let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(request.listener(), listener);
        assert_eq!(request.data(), data, "{host}: wrong private data");
        assert_eq!((request.conn().responder_resources, request.conn().initiator_depth), (3, 5), "not the local view");
        let passive = request.id();
        assert_eq!((destination_port(passive), source_port(passive)), (source_port(active), port));
        // SAFETY: the identifier is valid.
        unsafe { assert!(!(*passive).verbs.is_null() && (*passive).port_num == 1) };
        request.acknowledge();
        bench.make_qp(passive, IBV_QPT_RC);
        assert_eq!(accept(passive, &[9; 196]), 0);

        let (mut ends, mut answer) = (0, Vec::new());
        for _ in 0..2 {
            let event = bench.next(RDMA_CM_EVENT_ESTABLISHED);
            if event.id() == active {
                answer = event.data().to_vec();
            }
            ends += 1 + usize::from(event.id() == active);
            event.acknowledge();
        }
        assert_eq!((ends, answer), (3, vec![9; 196]), "wrong number of events or wrong private data");
        exchange(active, passive);

        assert_eq!(disconnect(active), 0);
        for _ in 0..2 {
            bench.next(RDMA_CM_EVENT_DISCONNECTED).acknowledge();
        }
        assert_eq!(disconnect(passive), 0, "disconnecting after the other side failed");
        for _ in 0..2 {
            bench.next(RDMA_CM_EVENT_TIMEWAIT_EXIT).acknowledge();
        }
        bench.destroy(&[active, passive, listener]);
    }
}

#[test]
fn synchronous_endpoints_connect_and_exchange_messages() {
    let bench = Bench::new();
    let (node, service) = (c"127.0.0.1", c"0");
    // SAFETY: zeros are legal hints.
    let mut hints: rdma_addrinfo = unsafe { std::mem::zeroed() };
    (hints.ai_flags, hints.ai_port_space) = (RAI_PASSIVE, RDMA_PS_TCP.cast_signed());
    let (mut info, mut listener, mut active) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let mut wish = qp_attributes(IBV_QPT_RC);
    // SAFETY: all pointers are to data of the test that outlives the calls.
    unsafe {
        assert_eq!(rdma_getaddrinfo(node.as_ptr(), service.as_ptr(), &raw const hints, &raw mut info), 0);
        assert_eq!(rdma_create_ep(&raw mut listener, info, ptr::null_mut(), &raw mut wish), 0);
        rdma_freeaddrinfo(info);
        assert_eq!(rdma_listen(listener, 0), 0);
        let port = u16::from_be(rdma_get_src_port(listener));
        let place = listener as usize;
        let server = std::thread::spawn(move || {
            let (listener, mut passive) = (place as *mut rdma_cm_id, ptr::null_mut());
            assert_eq!(rdma_get_request(listener, &raw mut passive), 0);
            assert!(!(*passive).qp.is_null(), "the passive endpoint created no queue pair");
            assert_eq!(rdma_accept(passive, ptr::null_mut()), 0);
            assert_eq!((*(*passive).event).event, RDMA_CM_EVENT_ESTABLISHED);
            passive as usize
        });
        let service = std::ffi::CString::new(port.to_string()).expect("digits");
        hints.ai_flags = 0;
        assert_eq!(rdma_getaddrinfo(node.as_ptr(), service.as_ptr(), &raw const hints, &raw mut info), 0);
        let mut wish = qp_attributes(IBV_QPT_RC);
        assert_eq!(rdma_create_ep(&raw mut active, info, ptr::null_mut(), &raw mut wish), 0);
        rdma_freeaddrinfo(info);
        assert!(!(*active).send_cq.is_null() && !(*active).recv_cq_channel.is_null(), "the queues are missing");
        assert_eq!(rdma_connect(active, ptr::null_mut()), 0);
        let passive = server.join().expect("a server") as *mut rdma_cm_id;
        exchange(active, passive);
        assert_eq!(rdma_disconnect(active), 0);
        assert_eq!(rdma_disconnect(passive), 0);
        [active, passive, listener].into_iter().for_each(|id| rdma_destroy_ep(id));
    }
    drop(bench);
}

#[test]
fn refusals_carry_reason_and_data() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 0);
    let active = bench.resolved("127.0.0.1", port, RDMA_PS_TCP);
    bench.make_qp(active, IBV_QPT_RC);
    assert_eq!(connect(active, b"hello"), 0);
    let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    let passive = request.id();
    request.acknowledge();
    assert_eq!(reject(passive, &[5; 149]), -1, "149 bytes of private data were accepted");
    assert_eq!(reject(passive, &[5; 148]), 0);
    assert_eq!(reject(passive, &[]), -1, "a request was rejected twice");
    let rejected = bench.next(RDMA_CM_EVENT_REJECTED);
    assert_eq!((rejected.status(), rejected.data()), (28, &[5u8; 148][..]), "not the reason and data of the reject");
    rejected.acknowledge();
    bench.destroy(&[active, passive, listener]);

    // No process uses the port, which the network reports.
    let started = Instant::now();
    let active = bench.resolved("127.0.0.1", port, RDMA_PS_TCP);
    bench.make_qp(active, IBV_QPT_RC);
    assert_eq!(connect(active, b""), 0);
    let rejected = bench.next(RDMA_CM_EVENT_REJECTED);
    assert_eq!(rejected.status(), 8, "not the reason for a missing listener");
    rejected.acknowledge();
    assert!(started.elapsed() < Duration::from_secs(5));
    bench.destroy(&[active]);
}

#[test]
fn datagram_services_are_looked_up() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_UDP, 0);
    let active = bench.resolved("127.0.0.1", port, RDMA_PS_UDP);
    bench.make_qp(active, IBV_QPT_UD);
    assert_eq!(connect(active, &[3; 181]), -1, "181 bytes of private data were accepted");
    assert_eq!(connect(active, &[3; 180]), 0);
    let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(request.ud_data(), [3; 180]);
    let passive = request.id();
    request.acknowledge();
    bench.make_qp(passive, IBV_QPT_UD);
    assert_eq!(accept(passive, &[4; 136]), 0);
    let found = bench.next(RDMA_CM_EVENT_ESTABLISHED);
    // SAFETY: the event of a datagram service uses this member of the union.
    let (found_qp, qkey, address) = unsafe { (found.ud().qp_num, found.ud().qkey, found.ud().ah_attr) };
    assert_eq!((found.id(), found_qp), (active, qp_num(passive)));
    assert_eq!((qkey, address.is_global, address.port_num), (RDMA_UDP_QKEY, 1, 1));
    assert_eq!(address.grh.dgid, super::address::gid("127.0.0.1".parse().expect("an address")));
    assert_eq!(found.ud_data(), [4; 136]);
    found.acknowledge();
    bench.destroy(&[active, passive, listener]);
}

/// Returns the result of `rdma_init_qp_attr` for `state`, for a structure whose bytes were all `pattern` before the
/// call.
fn attributes_from(id: *mut rdma_cm_id, state: u32, pattern: u8) -> (ibv_qp_attr, c_int) {
    let mut place = std::mem::MaybeUninit::<ibv_qp_attr>::uninit();
    let mut mask = 0;
    // SAFETY: a valid identifier, and a structure of numbers, for which any bytes are legal.
    unsafe {
        ptr::write_bytes(place.as_mut_ptr().cast::<u8>(), pattern, size_of::<ibv_qp_attr>());
        (*place.as_mut_ptr()).qp_state = state;
        assert_eq!(rdma_init_qp_attr(id, place.as_mut_ptr(), &raw mut mask), 0, "state {state}: {}", errno());
        (place.assume_init(), mask)
    }
}

#[test]
fn attributes_for_a_programs_own_queue_pairs_are_complete() {
    let bench = Bench::new();
    let states = [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS];
    for space in [RDMA_PS_TCP, RDMA_PS_UDP] {
        let (listener, port) = bench.listen("127.0.0.1", space, 0);
        let active = bench.resolved("127.0.0.1", port, space);
        assert_eq!(connect_without_qp(active, 77), 0);
        let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
        let passive = request.id();
        request.acknowledge();
        for state in states {
            let (attributes, mask) = attributes_from(passive, state, 0);
            let (again, mask_again) = attributes_from(passive, state, 0xa5);
            assert_eq!((format!("{attributes:?}"), mask), (format!("{again:?}"), mask_again), "state {state}");
            assert_eq!((attributes.qp_state, mask & 1), (state, 1));
        }
        assert_eq!(attributes_from(passive, IBV_QPS_INIT, 0xa5).0.pkey_index, 0);
        bench.destroy(&[passive, active, listener]);
    }
}

/// Programs that manage their queue pairs themselves query the initial sequence numbers before they accept: the
/// numbers sent to the remote end must be the same.
#[test]
fn both_sides_get_the_same_first_sequence_numbers() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 0);
    let active = bench.resolved("127.0.0.1", port, RDMA_PS_TCP);
    assert_eq!(connect_without_qp(active, 77), 0);
    let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    let passive = request.id();
    request.acknowledge();
    let numbers = |id| (attributes_from(id, IBV_QPS_RTR, 0).0.rq_psn, attributes_from(id, IBV_QPS_RTS, 0).0.sq_psn);
    let before = numbers(passive);
    assert_eq!(accept(passive, b""), 0);
    bench.next(RDMA_CM_EVENT_CONNECT_RESPONSE).acknowledge();
    let (expected, next) = numbers(active);
    assert_eq!(before, (next, expected), "one side does not expect the other's first number");
    assert_eq!(numbers(passive), before, "accepting changed the sequence numbers");
    assert_ne!(expected, next, "both sides have the same sequence number");
    bench.destroy(&[passive, active, listener]);
}

/// A peer with few RNR retries gets an RNR timer that is long enough for a program that posts a receive late.
#[test]
fn a_slow_receiver_keeps_a_peer_with_five_rnr_retries() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 0);
    let active = bench.resolved("127.0.0.1", port, RDMA_PS_TCP);
    bench.make_qp(active, IBV_QPT_RC);
    assert_eq!(connect_retrying(active, 5), 0);
    let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    let passive = request.id();
    request.acknowledge();
    bench.make_qp(passive, IBV_QPT_RC);
    assert_eq!(attributes_from(passive, IBV_QPS_RTR, 0).0.min_rnr_timer, 28, "not the RNR timer of 164 ms");
    assert_eq!(accept(passive, b""), 0);
    for _ in 0..2 {
        bench.next(RDMA_CM_EVENT_ESTABLISHED).acknowledge();
    }
    message(active, passive, Duration::from_millis(200));
    bench.destroy(&[active, passive, listener]);
}

/// When a queue pair cannot be created, the program's structure and its identifier are unchanged.
#[test]
fn a_failed_queue_pair_creation_changes_nothing() {
    let bench = Bench::new();
    let active = bench.resolved("127.0.0.1", 9, RDMA_PS_TCP);
    // SAFETY: zeros are legal attributes; the identifier is valid.
    unsafe {
        let mut wish: ibv_qp_init_attr_ex = std::mem::zeroed();
        (wish.cap, wish.qp_type) = (qp_attributes(IBV_QPT_RC).cap, 99);
        let pd = (*active).pd;
        assert_eq!(super::qp::rdma_create_qp_ex(active, &raw mut wish), -1);
        assert!(wish.send_cq.is_null() && wish.recv_cq.is_null() && wish.pd.is_null());
        assert!((*active).qp.is_null() && (*active).send_cq.is_null() && (*active).pd == pd);
        wish.qp_type = IBV_QPT_RC;
        assert_eq!(super::qp::rdma_create_qp_ex(active, &raw mut wish), 0, "{}", errno());
        assert!(!wish.send_cq.is_null() && wish.pd == pd);
    }
    bench.destroy(&[active]);
}

/// After parameters are rejected, the queue pair is in the same state as before, and the request can still be
/// accepted.
#[test]
fn an_accept_with_invalid_parameters_can_be_repeated() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 0);
    let active = bench.resolved("127.0.0.1", port, RDMA_PS_TCP);
    bench.make_qp(active, IBV_QPT_RC);
    assert_eq!(connect(active, b""), 0);
    let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    let passive = request.id();
    request.acknowledge();
    bench.make_qp(passive, IBV_QPT_RC);
    assert_eq!((accept(passive, &[9; 197]), errno()), (-1, libc::EINVAL), "197 bytes of private data were accepted");
    assert_eq!(accept(passive, b""), 0);
    for _ in 0..2 {
        bench.next(RDMA_CM_EVENT_ESTABLISHED).acknowledge();
    }
    exchange(active, passive);
    bench.destroy(&[active, passive, listener]);
}

#[test]
fn ports_are_bound_in_the_kernel() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 0);
    let second = bench.id(RDMA_PS_TCP);
    assert_eq!((bench.bind(second, "127.0.0.1", port), errno()), (-1, libc::EADDRINUSE));
    // The other port space has services of its own, on the same socket.
    let third = bench.id(RDMA_PS_UDP);
    assert_eq!(bench.bind(third, "127.0.0.1", port), 0);
    assert_eq!(listen(third, 1), 0);
    let outside = std::net::UdpSocket::bind(("127.0.0.1", port));
    assert_eq!(outside.expect_err("the port is in use").kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!((bench.bind(second, "192.0.2.77", port), errno()), (-1, libc::EADDRNOTAVAIL), "a foreign address");
    bench.destroy(&[listener, third, second]);
    wait_for("the port to be free", || std::net::UdpSocket::bind(("127.0.0.1", port)).is_ok());
    let outside = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = outside.local_addr().expect("bound").port();
    let fourth = bench.id(RDMA_PS_TCP);
    assert_eq!((bench.bind(fourth, "127.0.0.1", port), errno()), (-1, libc::EADDRINUSE));
    bench.destroy(&[fourth]);
}

#[test]
fn calls_out_of_order_are_refused() {
    let bench = Bench::new();
    let id = bench.id(RDMA_PS_TCP);
    // SAFETY: the identifier is valid.
    unsafe {
        assert_eq!((rdma_resolve_route(id, 1), errno()), (-1, libc::EINVAL));
        assert_eq!((connect(id, b""), errno()), (-1, libc::EINVAL));
        assert_eq!((accept(id, b""), errno()), (-1, libc::EINVAL));
        assert_eq!((rdma_disconnect(id), errno()), (-1, libc::EINVAL));
        assert_eq!((rdma_notify(id, IBV_EVENT_COMM_EST), errno()), (-1, libc::EINVAL));
        let mut wish = qp_attributes(IBV_QPT_RC);
        assert_eq!((rdma_create_qp(id, ptr::null_mut(), &raw mut wish), errno()), (-1, libc::EINVAL), "no device yet");
        assert_eq!((rdma_join_multicast(id, ptr::null_mut(), ptr::null_mut()), errno()), (-1, libc::EOPNOTSUPP));
        assert_eq!((rsocket(libc::AF_INET, libc::SOCK_STREAM, 0), errno()), (-1, libc::EOPNOTSUPP));
        let mut none = ptr::null_mut();
        assert_eq!(
            (rdma_create_id(bench.channel, &raw mut none, ptr::null_mut(), 2), errno()),
            (-1, libc::EPROTONOSUPPORT)
        );
    }
    bench.destroy(&[id]);
}

#[test]
fn a_channel_is_pollable_and_destroying_waits_for_acknowledgements() {
    let bench = Bench::new();
    assert!(!bench.is_readable());
    // SAFETY: the descriptor is the channel's.
    unsafe { libc::fcntl((*bench.channel).fd, libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(bench.fetch().map(drop), Err(libc::EAGAIN));
    let id = bench.id(RDMA_PS_TCP);
    bench.start_resolving(id, "127.0.0.1", 9);
    wait_for("an event", || bench.is_readable());
    // An event is moved together with its identifier.
    let other = Bench::new();
    assert_eq!(other.take(id), 0);
    assert!(!bench.is_readable() && other.is_readable());
    let resolved = other.next(RDMA_CM_EVENT_ADDR_RESOLVED);
    let place = id as usize;
    let destroying = std::thread::spawn(move || destroy(place as *mut rdma_cm_id));
    std::thread::sleep(Duration::from_millis(30));
    assert!(!destroying.is_finished(), "destroyed before the event was acknowledged");
    resolved.acknowledge();
    assert_eq!(destroying.join().expect("the thread does not panic"), 0);
}

/// The descriptors of a closed connection are closed too: otherwise the process would run out of them after a
/// thousand connections.
#[test]
fn a_thousand_connections_leak_no_descriptors() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 0);
    let cycle = || {
        let active = bench.resolved("127.0.0.1", port, RDMA_PS_TCP);
        assert_eq!(connect_without_qp(active, 1), 0);
        let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
        let passive = request.id();
        request.acknowledge();
        assert_eq!(accept(passive, b""), 0);
        bench.next(RDMA_CM_EVENT_CONNECT_RESPONSE).acknowledge();
        assert_eq!(establish(active), 0);
        bench.next(RDMA_CM_EVENT_ESTABLISHED).acknowledge();
        assert_eq!(disconnect(passive), 0);
        for _ in 0..2 {
            bench.next(RDMA_CM_EVENT_DISCONNECTED).acknowledge();
        }
        bench.destroy(&[active, passive]);
    };
    cycle();
    let sockets = || super::service::Cm::lock().map_or(0, |cm| cm.ports.len() + cm.ids.len() + cm.owners.len());
    let _alone = alone();
    let (files_before, before) = (open_files(), sockets());
    (0..1_000).for_each(|_| cycle());
    wait_for("the last ports to close", || sockets() <= before);
    assert!(open_files() <= files_before + FILES_OF_OTHER_TESTS, "{} files, {files_before} before", open_files());
    bench.destroy(&[listener]);
}

/// Number of descriptors that other tests of this process may open at the same time.
const FILES_OF_OTHER_TESTS: usize = 60;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
