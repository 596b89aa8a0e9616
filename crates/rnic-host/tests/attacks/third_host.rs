//! A third host on the same switch: it sees none of the packets between the other two, and sends packets with the
//! address of one of them. The test needs root for three network namespaces and a bridge; otherwise it is skipped,
//! with a reason.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::sync::mpsc;

use rnic_base::Serial;
use rnic_engine::{RemoteMemory, SendOp, Service};
use rnic_host::{NicConfig, Protection, RxDrop};
use rnic_psp::{Secret, SecurityFormat};
use rnic_wire::falcon::psp::{Cipher, Iv};
use rnic_wire::falcon::{Timestamp, esp, psp};
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Aeth, Headers, NakCode, Position, Qpn, SendTail, Syndrome};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::another_user::{Other, told};
use crate::common::{HALF, Side, connect_qp, new_qp};
use crate::fields::{Ends, NO_GRANT, NOTHING, bytes_of, falcon_bytes, format_of, push, write};
use crate::guesses::{packet, udp};

/// First sequence number of both victims.
const BASE: u32 = 0x10_0000;
/// Number of guesses, each wrong in one field.
const GUESSES: u32 = 20_000;

/// Three hosts on a switch, `10.79.0.1` to `.3`.
struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// Returns `None`, and prints a reason, if this cannot be set up.
    fn join() -> Option<Self> {
        let names: Vec<String> =
            ["1", "2", "3", "switch"].iter().map(|name| format!("rnic-third-{}-{name}", std::process::id())).collect();
        let hosts = Self { names };
        match hosts.lay() {
            Ok(()) => Some(hosts),
            Err(reason) => {
                eprintln!("skipped: no network namespaces on a bridge here ({reason}); they need root and iproute2");
                None
            }
        }
    }

    fn lay(&self) -> Result<(), String> {
        for name in &self.names {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        let (switch, hosts) = self.names.split_last().expect("four");
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge up"))?;
        for (host, number) in hosts.iter().zip(1..) {
            ip(&format!("-n {switch} link add port{number} type veth peer name wire netns {host}"))?;
            ip(&format!("-n {switch} link set port{number} master bridge up"))?;
            ip(&format!("-n {host} address add 10.79.0.{number}/24 dev wire"))?;
            ip(&format!("-n {host} link set wire up"))?;
        }
        Ok(())
    }

    /// Starts a role on host `number`, from 1 on.
    fn start(&self, number: usize, role: &str, variables: &[(&str, String)]) -> Other {
        Other::start_in(&self.names[number - 1], &format!("third_host::{role}"), variables)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// One end of the attacked connection.
struct Victim {
    process: Other,
    qpn: Qpn,
    port: u16,
    memory: String,
}

impl Victim {
    fn start(hosts: &Hosts, number: usize, transport: &str, key: &str) -> Self {
        let variables = [("RNIC_TEST_TRANSPORT", transport.to_owned()), ("RNIC_TEST_KEY", key.to_owned())];
        let mut process = hosts.start(number, "is_a_victim", &variables);
        let numbers = process.said("NUMBERS");
        let (qpn, rest) = numbers.split_once(' ').expect("four numbers");
        let (port, memory) = rest.split_once(' ').expect("four numbers");
        let qpn = Qpn::new(qpn.parse().expect("a number"));
        Self { process, qpn, port: port.parse().expect("a port"), memory: memory.to_owned() }
    }

    fn asks(&mut self, question: &str) -> String {
        self.process.tell(question);
        self.process.said(&question[..question.find(' ').unwrap_or(question.len())].to_uppercase())
    }
}

/// Returns a packet of the third host to the first with the second's address, in which everything but the sequence
/// number is right: an empty Write, one into memory, a Send, a Read, or a NAK; for Falcon, a Push.
fn guesses(transport: &str, form: Option<SecurityFormat>, ends: Ends, psn: u32) -> Vec<u8> {
    let format = format_of(transport);
    match (transport, psn % 5) {
        ("falcon", _) => falcon_guess(form, ends, psn),
        (_, 0) => write(format, ends.to, psn, NOTHING),
        (_, 1) => write(format, ends.to, psn, NO_GRANT),
        (_, 2) => {
            let placement = (transport == "irn")
                .then(|| rnic_wire::SendPlacement { recv_sn: Serial::new(0), offset: Serial::new(0) });
            let headers = Headers::Send { position: Position::Only, tail: SendTail::Plain, placement };
            bytes_of(format, ends.to, psn, headers, &[7; 16])
        }
        (_, 3) => {
            let read_sn = (transport == "irn").then(|| Serial::new(0));
            bytes_of(format, ends.to, psn, Headers::ReadRequest { reth: NO_GRANT, read_sn, fasr: None }, &[])
        }
        _ => {
            let syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
            let headers = Headers::Ack { aeth: Aeth { syndrome, msn: Serial::new(0) }, sack: None };
            bytes_of(format, ends.to, psn, headers, &[])
        }
    }
}

/// Returns a Push in the encapsulation that its receiver requires, with the right SPI but without valid encryption.
fn falcon_guess(form: Option<SecurityFormat>, ends: Ends, number: u32) -> Vec<u8> {
    let inside = falcon_bytes(&push(ends, ends.to, NO_GRANT)).split_off(psp::LEN);
    let iv = Iv { salt: number << 8, timestamp: Timestamp::new(number) };
    let mut bytes = Vec::new();
    if form == Some(SecurityFormat::Esp) {
        let header = esp::Header { spi: esp::SPI_MARK | ends.to.get(), sequence: 1 + number, iv };
        bytes.resize(esp::LEN, 0);
        header.emit(bytes.first_chunk_mut().expect("the packet has space for the header"));
    } else {
        let header = psp::Header { spi: ends.to.get(), iv, cookie: Some(number.into()), ..psp::Header::default() };
        bytes.resize(psp::LEN_MAX, 0);
        header.emit(bytes.first_chunk_mut().expect("the packet has space for the header"));
    }
    bytes.extend_from_slice(&inside);
    bytes.resize(bytes.len().next_multiple_of(4) + psp::ICV_LEN, number as u8);
    bytes
}

/// Guesses with the peer's address neither end the connection nor write memory, and are not answered. If the sequence
/// number is right as well, the connection ends, which shows that the packets arrive. With a key, even that has no
/// effect.
#[test]
fn a_third_host_that_forges_addresses_needs_the_numbers_too() {
    let Some(hosts) = Hosts::join() else { return };
    for (transport, key) in [("irn", ""), ("roce-gbn", ""), ("falcon", "psp"), ("falcon", "esp")] {
        let form = (!key.is_empty()).then_some(if key == "esp" { SecurityFormat::Esp } else { SecurityFormat::Psp });
        let mut victims = [1, 2].map(|number| Victim::start(&hosts, number, transport, key));
        let [first, second] = &mut victims;
        first.asks(&format!("connect 10.79.0.2 {} {}", second.qpn.get(), second.memory));
        second.asks(&format!("connect 10.79.0.1 {} {}", first.qpn.get(), first.memory));
        assert_eq!(second.asks("write"), "Success", "{transport} {key}");

        let source = SocketAddrV4::new(Ipv4Addr::new(10, 79, 0, 2), UDP_PORT);
        let target = SocketAddrV4::new(Ipv4Addr::new(10, 79, 0, 1), first.port);
        let variables = [("RNIC_TEST_SOURCE", source.to_string()), ("RNIC_TEST_TARGET", target.to_string())];
        let mut third = hosts.start(3, "sends_from_a_forged_address", &variables);
        let ends = Ends { from: second.qpn, to: first.qpn };
        let datagram = |psn: u32| {
            let bytes = guesses(transport, form, ends, psn);
            let whole = if form.is_some() { bytes } else { packet(&bytes, source.into(), target.into()) };
            whole.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        // Far from the expected number, ahead and behind.
        (0..GUESSES).for_each(|guess| third.tell(&datagram((0x40_0000 + guess * 397) & 0xff_ffff)));
        third.tell("end");
        assert_eq!(third.said("SENT"), GUESSES.to_string());
        assert_eq!(second.asks("write"), "Success", "{transport} {key}: after {GUESSES} guesses");
        let state = first.asks("state");
        assert!(state.starts_with("ReadyToSend"), "{transport} {key}: {state}");
        let heard: u32 = state.split(' ').nth(1).and_then(|heard| heard.parse().ok()).expect("a number");
        // Some are lost where buffers are full.
        assert!(heard > GUESSES / 20, "{transport} {key}: {state}");

        let expected = first.asks("expects").parse::<u32>().expect("a number");
        let mut third = hosts.start(3, "sends_from_a_forged_address", &variables);
        let last = if form.is_some() {
            datagram(expected)
        } else {
            let bytes = write(format_of(transport), ends.to, expected, NO_GRANT);
            packet(&bytes, source.into(), target.into()).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        third.tell(&last);
        third.tell("end");
        assert_eq!(third.said("SENT"), "1");
        std::thread::sleep(std::time::Duration::from_millis(100));
        let state = first.asks("state");
        assert_eq!(state.starts_with("Error"), form.is_none(), "{transport} {key}: {state}");
    }
}

/// Role: sends the packets it is given, as hexadecimal digits, with another host's address.
#[test]
#[ignore = "a role of the other tests"]
fn sends_from_a_forged_address() {
    let (Some(source), Some(target)) = (told("RNIC_TEST_SOURCE"), told("RNIC_TEST_TARGET")) else { return };
    let [source, target] = [source, target].map(|text| text.parse::<SocketAddrV4>().expect("an address"));
    // With this protocol number the sender writes the IP header itself.
    let raw = Socket::new(Domain::IPV4, Type::from(libc::SOCK_RAW), Some(Protocol::from(libc::IPPROTO_RAW)));
    let raw = raw.expect("it is root");
    let mut sent = 0;
    for line in std::io::stdin().lines().map(|line| line.expect("text")).take_while(|line| line != "end") {
        let digits = line.as_bytes().chunks(2);
        let payload: Vec<u8> =
            digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("digits")).collect();
        let udp_len = 8 + payload.len() as u16;
        // The kernel fills in what is zero: length, identification, checksum.
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
        bytes.extend_from_slice(&source.ip().octets());
        bytes.extend_from_slice(&target.ip().octets());
        for word in [source.port(), target.port(), udp_len, 0] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&payload);
        sent += u32::from(raw.send_to(&bytes, &SockAddr::from(target)).is_ok());
    }
    println!("SENT {sent}");
}

/// Role: one end of a connection, controlled by commands on standard input.
#[test]
#[ignore = "a role of the other tests"]
fn is_a_victim() {
    let (Some(transport), Some(key)) = (told("RNIC_TEST_TRANSPORT"), told("RNIC_TEST_KEY")) else { return };
    let form = if key == "esp" { SecurityFormat::Esp } else { SecurityFormat::Psp };
    let protection = (!key.is_empty()).then(|| Protection::new(Secret::new([7; 32]), Cipher::Gcm128).within(form));
    let mut side = Side::open(NicConfig { protection, carries_falcon: transport == "falcon", ..udp() });
    let qpn = new_qp(&mut side, Service::ReliableConnection, &transport, 64);
    let remote = side.region.remote(HALF);
    println!("NUMBERS {} {} {} {}", qpn.get(), side.nic.port(), remote.addr, remote.rkey);
    let (tell, orders) = mpsc::channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let mut far = RemoteMemory::default();
    loop {
        side.nic.progress();
        for done in side.completions() {
            println!("WRITE {:?}", done.status);
        }
        let order = match orders.try_recv() {
            Ok(order) => order,
            Err(mpsc::TryRecvError::Empty) => continue,
            Err(mpsc::TryRecvError::Disconnected) => return,
        };
        let words: Vec<&str> = order.split(' ').collect();
        match words[..] {
            ["connect", host, number, addr, rkey] => {
                let host = host.parse().expect("an address");
                connect_qp(&mut side, qpn, (host, Qpn::new(number.parse().expect("a number"))), BASE);
                far = RemoteMemory { addr: addr.parse().expect("a number"), rkey: rkey.parse().expect("a number") };
                println!("CONNECT done");
            }
            ["write"] => {
                let sge = side.sge(0, 50_000);
                side.post(qpn, 1, SendOp::Write { remote: far, immediate: None }, &[sge]);
            }
            ["state"] => {
                let (stats, engine) = (side.nic.stats(), side.nic.engine_stats());
                let heard: u64 = engine.drops.iter().sum::<u64>() + stats.dropped(RxDrop::Protection);
                let state = side.nic.query_qp(qpn).expect("the queue pair exists").state;
                println!("STATE {state:?} {heard} {:?} {:?}", stats.drops, engine.drops);
            }
            ["expects"] => {
                let info = side.nic.query_qp(qpn).expect("the queue pair exists");
                println!("EXPECTS {}", info.expected.wire::<24>().value());
            }
            _ => panic!("{order}"),
        }
    }
}
