//! Hostile packets against live processes: unmodified programs do their work, checking their data, while somebody on
//! the same machine sends noise, lies and wounded packets to every UDP port that they have.
//!
//! He cannot speak from the port of a peer in the first tests, so nothing that he sends may make any difference. In the
//! last one he can: then he may end connections, as an eavesdropper could, but no process.
//!
//! What is sent follows from a seed, which is printed; when it arrives does not. `RNIC_HOSTILE_SEED` chooses another.

mod common;

#[path = "hostile/attack.rs"]
mod attack;
#[path = "hostile/packets.rs"]
mod packets;
#[path = "hostile/victim.rs"]
mod victim;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use attack::{Attack, Tally};
use rnic_wire::net::UDP_PORT;
use socket2::{Domain, Socket, Type};
use victim::Victim;

/// A pair of programs under attack.
struct Battle {
    server: &'static str,
    client: &'static str,
    socket: fn(IpAddr) -> io::Result<UdpSocket>,
    /// How both may end.
    may_end: fn(ExitStatus) -> bool,
    /// For how long the attack goes on after the first of them has ended; for ever, where what he sends must make no
    /// difference.
    aftermath: Duration,
}

/// What they said, and what they were sent.
struct Outcome {
    said: String,
    tally: Tally,
}

impl Battle {
    /// Fights once; `None` when the program is not installed.
    fn fight(&self, name: &str) -> Option<Outcome> {
        if !common::is_installed(self.server.split(' ').next()?) {
            return None;
        }
        let seed = seed();
        println!("replay: RNIC_HOSTILE_SEED={seed} cargo test -p rnic-verbs --test hostile {name}");
        let port = free_port();
        let fill = |line: &str| line.replace("PORT", &port.to_string());
        let mut server = Victim::start(&fill(self.server));
        server.wait_for_port(port);
        let mut client = Victim::start(&fill(self.client));
        let pids = [server.pid(), client.pid()];
        let sequences = Mutex::default();
        let attack = Attack { seed, name, pids, sequences: &sequences, service_port: port, socket: self.socket };
        let stop = AtomicBool::new(false);
        let (ends, tally) = std::thread::scope(|scope| {
            let attacker = scope.spawn(|| attack.run(&stop));
            let deadline = Instant::now() + PATIENCE;
            let mut ends = [server.end(), client.end()];
            let mut first_end = None;
            while ends.contains(&None) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
                ends = [server.end(), client.end()];
                if ends.iter().any(Option::is_some) {
                    let is_over = first_end.get_or_insert_with(Instant::now).elapsed() > self.aftermath;
                    stop.fetch_or(is_over, Ordering::Relaxed);
                }
                *sequences.lock().expect("nobody panics with it") = client.sequences();
            }
            stop.store(true, Ordering::Relaxed);
            (ends, attacker.join().expect("the attacker does not fail"))
        });
        let well = ends.iter().all(|end| end.is_some_and(|end| (self.may_end)(end)));
        assert!(well, "{name}, seed {seed}, {tally:?}\nserver: {}\nclient: {}", server.story(), client.story());
        println!("{name}: {tally:?}");
        for (pid, (early, most)) in &tally.memory {
            assert!(most - early < GROWTH_BYTES, "process {pid} grew from {early} to {most} bytes; {tally:?}");
        }
        Some(Outcome { said: server.said() + &client.said(), tally })
    }
}

/// From a port of his own.
fn stranger(address: IpAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind((address, 0))
}

fn succeeds(end: ExitStatus) -> bool {
    end.success()
}

#[test]
fn a_stream_goes_on() {
    let battle = Battle {
        server: "ib_write_bw -D 3 -p PORT",
        client: "ib_write_bw -D 3 -p PORT 127.0.0.1",
        socket: stranger,
        may_end: succeeds,
        aftermath: Duration::MAX,
    };
    if let Some(Outcome { said, tally }) = battle.fight("a_stream_goes_on") {
        assert!(said.contains("BW average"), "{said}");
        assert!(tally.datagrams > 20_000 && tally.dropped > 1_000 && tally.memory.len() == 2, "{tally:?}");
    }
}

#[test]
fn every_byte_of_a_pingpong_arrives() {
    let battle = Battle {
        server: "ibv_rc_pingpong -d rnic0 -g 0 -c -n 2000 -p PORT",
        client: "ibv_rc_pingpong -d rnic0 -g 0 -c -n 2000 -p PORT 127.0.0.1",
        socket: stranger,
        may_end: succeeds,
        aftermath: Duration::MAX,
    };
    let (begin, mut datagrams) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(3) {
        let Some(Outcome { said, tally }) = battle.fight("every_byte_of_a_pingpong_arrives") else { return };
        assert!(said.contains("2000 iters in") && !said.contains("invalid data"), "{said}");
        datagrams += tally.datagrams;
    }
    assert!(datagrams > 5_000, "{datagrams} datagrams are no attack");
}

#[test]
fn connections_are_made_and_kept() {
    let battle = Battle {
        server: "rping -s -a 127.0.0.1 -p PORT -C 500 -V",
        client: "rping -c -a 127.0.0.1 -p PORT -C 500 -V",
        socket: stranger,
        // Its two threads end in either order: the one that fetches events may find their channel gone (EBADF, 255).
        may_end: |end| matches!(end.code(), Some(0 | 255)),
        aftermath: Duration::MAX,
    };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        let Some(Outcome { said, tally }) = battle.fight("connections_are_made_and_kept") else { return };
        // The server ends when the client has done all its rounds; the client may be gone before it says so.
        assert!(said.contains("server DISCONNECT EVENT..."), "{said}");
        for wrong in ["mismatch", "completion failed", "poll error", "RNR"] {
            assert!(!said.contains(wrong), "{said}");
        }
        assert!(tally.datagrams > 100, "{tally:?}");
    }
}

/// From the port that all packets leave from: what he sends gets as far as the protocol.
#[test]
fn who_can_speak_for_a_peer_ends_no_process() {
    let battle = Battle {
        server: "ibv_rc_pingpong -d rnic0 -g 0 -c -n 2000 -p PORT",
        client: "ibv_rc_pingpong -d rnic0 -g 0 -c -n 2000 -p PORT 127.0.0.1",
        socket: shared,
        may_end: |end| end.signal().is_none(),
        aftermath: AFTERMATH,
    };
    if let Err(error) = shared([127, 0, 0, 1].into()) {
        return common::skip(&format!("port 4791: {error}"));
    }
    for _ in 0..3 {
        let Some(Outcome { tally, .. }) = battle.fight("who_can_speak_for_a_peer_ends_no_process") else { return };
        assert!(tally.datagrams > 100, "{tally:?}");
    }
}

/// From the port of RoCEv2, which a user's processes share.
fn shared(address: IpAddr) -> io::Result<UdpSocket> {
    let address = SocketAddr::new(address, UDP_PORT);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    attack::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// What the attacks are made from; `RNIC_HOSTILE_SEED` says otherwise.
fn seed() -> u64 {
    std::env::var("RNIC_HOSTILE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A port that nobody uses, for streams or for datagrams.
fn free_port() -> u16 {
    loop {
        let stream = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = stream.local_addr().expect("its address").port();
        if UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// A pair of programs that goes on for longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Who speaks for a peer that is gone keeps it alive to a process that only listens; once he is silent, the process has
/// to find out.
const AFTERMATH: Duration = Duration::from_secs(2);
/// A process may grow by so much under attack: buffers are touched for the first time, late.
const GROWTH_BYTES: u64 = 8 << 20;
