//! An attacker who does not see a connection's packets and guesses their contents: how often a guess is right.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rnic_engine::{QpState, SendOp, Service, WcStatus};
use rnic_host::{NicConfig, NicStats, RxDrop};
use rnic_wire::{Addresses, IcrcPrefix, Qpn};

use crate::common::{HALF, Side, connect_qps, drive, drive_for, new_qp};

const PAYLOAD: [u8; 16] = [0x55; 16];

const HOST: &str = "127.0.0.1";

/// The default Q_Key of `librdmacm` for datagrams, which is public.
const WELL_KNOWN_QUEUE_KEY: u32 = 0x0123_4567;

fn host() -> IpAddr {
    HOST.parse().expect("an address")
}

pub fn udp() -> NicConfig {
    NicConfig { bypass: false, ..NicConfig::shared() }
}

/// A connection between two NICs that share this machine.
pub fn connected(left: &mut Side, right: &mut Side) -> (Qpn, Qpn) {
    let ends = [&mut *left, &mut *right].map(|side| new_qp(side, Service::ReliableConnection, "irn", 64));
    connect_qps(left, right, ends.into(), 77);
    ends.into()
}

/// Writes `len` bytes from `left` to `right`, and checks that they have arrived.
pub fn write_and_check(left: &mut Side, right: &mut Side, from: Qpn, len: u32) {
    right.nic.bytes_mut(&right.region)[HALF..HALF + len as usize].fill(0);
    let op = SendOp::Write { remote: right.region.remote(HALF), immediate: None };
    let sge = left.sge(0, len);
    left.post(from, 1, op, &[sge]);
    let done = drive(left, right, |left, _| left.completions().pop());
    assert_eq!(done.status, WcStatus::Success);
    let (sent, got) = (left.nic.bytes(&left.region), right.nic.bytes(&right.region));
    assert!(sent[..len as usize] == got[HALF..HALF + len as usize], "{len} bytes arrived changed");
}

/// Returns a packet with these bytes and the ICRC for `source` and `target`.
pub fn packet(bytes: &[u8], source: SocketAddr, target: SocketAddr) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let addresses = Addresses::new(source, target).expect("one version");
    let icrc = IcrcPrefix::new(&addresses, bytes.len() as u32 + 4).start(&bytes).finish();
    bytes.extend_from_slice(&icrc);
    bytes
}

/// BTH: opcode, queue pair, sequence number.
fn bth(opcode: u8, to: u32, psn: u32) -> Vec<u8> {
    let mut bytes = vec![opcode, 0, 0xff, 0xff, 0];
    bytes.extend_from_slice(&to.to_be_bytes()[1..]);
    bytes.push(0);
    bytes.extend_from_slice(&psn.to_be_bytes()[1..]);
    bytes
}

/// A datagram with this Q_Key.
fn datagram(to: u32, queue_key: u32) -> Vec<u8> {
    let mut bytes = bth(0x64, to, 0);
    bytes.extend_from_slice(&queue_key.to_be_bytes());
    bytes.extend_from_slice(&0x00ff_ffffu32.to_be_bytes());
    bytes.extend_from_slice(&PAYLOAD);
    bytes
}

/// Sends one packet to each queue pair number that the NIC may have assigned; returns the NIC's statistics after
/// that.
fn try_all(side: &mut Side, attacker: &UdpSocket, header: impl Fn(u32) -> Vec<u8>) -> NicStats {
    let target = SocketAddr::new(host(), side.nic.port());
    let source = attacker.local_addr().expect("the socket is bound");
    let before = side.nic.stats().datagrams_received;
    for index in 0..side.nic.queue_pairs_max() {
        let number = u32::from(side.nic.port()) << 8 | index;
        attacker.send_to(&packet(&header(number), source, target), target).expect("loopback");
        if index % 32 == 31 {
            // Waits, so that no packet is lost for lack of buffer space.
            while side.nic.stats().datagrams_received < before + u64::from(index) {
                side.nic.progress();
            }
        }
    }
    for _ in 0..100 {
        side.nic.progress();
    }
    *side.nic.stats()
}

/// Fourteen bits of a queue pair number are unpredictable, and a Q_Key chosen by the program adds 32 more.
#[test]
fn one_in_16384_datagrams_is_accepted_with_a_well_known_queue_key_and_none_otherwise() {
    let attacker = UdpSocket::bind((HOST, 0)).expect("a free port");
    for (key, expected) in [(WELL_KNOWN_QUEUE_KEY, 1), (0x5e3d_91c7, 0)] {
        let mut side = Side::open(udp());
        let qpn = new_qp(&mut side, Service::UnreliableDatagram, "irn", 64);
        side.nic.verbs().set_qkey(qpn, key).expect("datagram queue pairs have a queue key");
        side.nic.verbs().modify_to_rtr_unconnected(qpn, 4_096).expect("valid");
        for wr_id in 0..8 {
            let sge = side.sge(0, 200);
            side.post_recv(qpn, wr_id, &[sge]);
        }
        try_all(&mut side, &attacker, |number| datagram(number, WELL_KNOWN_QUEUE_KEY));
        assert_eq!(side.completions().len(), expected, "Q_Key {key:#x}");
    }
}

/// Another process on this machine cannot inject packets into a connection, whatever it guesses: its source port is
/// neither 4791, which only one user can bind, nor the peer's port.
#[test]
fn packets_from_another_port_do_not_reach_a_connection() {
    let (mut left, mut right) = (Side::open(udp()), Side::open(udp()));
    let (from, to) = connected(&mut left, &mut right);
    let attacker = UdpSocket::bind((HOST, 0)).expect("a free port");
    // A Send, an acknowledgement that reports a remote access error, a Write with address 0.
    let zero_and_typical = [[0u8; 8], [0, 0, 0, 7, 0, 0, 0, 16]].concat();
    let attempts =
        [(0x04, PAYLOAD.to_vec()), (0x11, vec![0x62, 0, 0, 0]), (0x0a, [&zero_and_typical[..], &PAYLOAD].concat())];
    for ((opcode, rest), times) in attempts.into_iter().zip(1..) {
        let stats = try_all(&mut right, &attacker, |number| [bth(opcode, number, 77), rest.clone()].concat());
        // One of the numbers is the connection's: its port distinguishes that packet from the peer's.
        assert_eq!(stats.dropped(RxDrop::ForeignPort), times, "{opcode:#x}: {stats:?}");
        assert_eq!(right.nic.query_qp(to).expect("the queue pair exists").state, QpState::ReadyToSend);
    }
    drive_for(&mut left, &mut right, Duration::from_millis(20));
    write_and_check(&mut left, &mut right, from, 100_000);
}
