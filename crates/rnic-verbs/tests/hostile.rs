//! Hostile packets against running processes: unmodified programs work and check their data, while an attacker on the
//! same machine sends random bytes, false information and damaged packets to every UDP port that they have.
//!
//! In the first tests the attacker cannot send from the port of a peer, so none of its packets may have any effect.
//! In the last one it can: then it may end connections, as an eavesdropper could, but no process.
//!
//! The packets depend on a seed, which is printed; their arrival times do not. `RNIC_HOSTILE_SEED` sets another seed.

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
use victim::AttackedProgram;

/// A pair of programs under attack.
struct AttackTest {
    server: &'static str,
    client: &'static str,
    socket: fn(IpAddr) -> io::Result<UdpSocket>,
    /// Returns `true` if a process may end with this status.
    may_end: fn(ExitStatus) -> bool,
    /// How long the attack continues after the first of the two attacked programs has exited; unlimited if the attack
    /// must have no effect.
    attack_after_exit: Duration,
}

/// Output of both programs, and statistics of the attack.
struct Outcome {
    said: String,
    tally: Tally,
}

impl AttackTest {
    /// Runs both programs under attack; returns `None` if the program is not installed.
    fn run_attacked(&self, name: &str) -> Option<Outcome> {
        if !common::is_installed(self.server.split(' ').next()?) {
            return None;
        }
        let seed = seed();
        println!("replay: RNIC_HOSTILE_SEED={seed} cargo test -p rnic-verbs --test hostile {name}");
        let port = free_port();
        let fill = |line: &str| line.replace("PORT", &port.to_string());
        let mut server = AttackedProgram::start(&fill(self.server));
        server.wait_for_port(port);
        let mut client = AttackedProgram::start(&fill(self.client));
        let pids = [server.pid(), client.pid()];
        let sequences = Mutex::default();
        let attack = Attack { seed, name, pids, sequences: &sequences, service_port: port, socket: self.socket };
        let stop = AtomicBool::new(false);
        let (ends, tally) = std::thread::scope(|scope| {
            let attacker = scope.spawn(|| attack.run(&stop));
            let deadline = Instant::now() + RUN_TIME_MAX;
            let mut ends = [server.end(), client.end()];
            let mut first_end = None;
            while ends.contains(&None) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
                ends = [server.end(), client.end()];
                if ends.iter().any(Option::is_some) {
                    let is_over = first_end.get_or_insert_with(Instant::now).elapsed() > self.attack_after_exit;
                    stop.fetch_or(is_over, Ordering::Relaxed);
                }
                *sequences.lock().expect("no thread panics while it holds the lock") = client.sequences();
            }
            stop.store(true, Ordering::Relaxed);
            (ends, attacker.join().expect("the attacker does not fail"))
        });
        let exits_permitted = ends.iter().all(|end| end.is_some_and(|end| (self.may_end)(end)));
        let (server_story, client_story) = (server.story(), client.story());
        assert!(exits_permitted, "{name}, seed {seed}, {tally:?}\nserver: {server_story}\nclient: {client_story}");
        println!("{name}: {tally:?}");
        for (pid, (early, most)) in &tally.memory {
            assert!(most - early < GROWTH_BYTES, "process {pid} grew from {early} to {most} bytes; {tally:?}");
        }
        Some(Outcome { said: server.said() + &client.said(), tally })
    }
}

/// Binds a port of the attacker's own.
fn bind_own_port(address: IpAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind((address, 0))
}

fn succeeds(end: ExitStatus) -> bool {
    end.success()
}

#[test]
fn a_stream_goes_on() {
    let test = AttackTest {
        server: "ib_write_bw -D 3 -p PORT",
        client: "ib_write_bw -D 3 -p PORT 127.0.0.1",
        socket: bind_own_port,
        may_end: succeeds,
        attack_after_exit: Duration::MAX,
    };
    if let Some(Outcome { said, tally }) = test.run_attacked("a_stream_goes_on") {
        assert!(said.contains("BW average"), "{said}");
        assert!(tally.datagrams > 20_000 && tally.dropped > 1_000 && tally.memory.len() == 2, "{tally:?}");
    }
}

#[test]
fn every_byte_of_a_pingpong_arrives() {
    let test = AttackTest {
        server: "ibv_rc_pingpong -d rnic0 -g 0 -c -n 2000 -p PORT",
        client: "ibv_rc_pingpong -d rnic0 -g 0 -c -n 2000 -p PORT 127.0.0.1",
        socket: bind_own_port,
        may_end: succeeds,
        attack_after_exit: Duration::MAX,
    };
    let (begin, mut datagrams) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(3) {
        let Some(Outcome { said, tally }) = test.run_attacked("every_byte_of_a_pingpong_arrives") else { return };
        assert!(said.contains("2000 iters in") && !said.contains("invalid data"), "{said}");
        datagrams += tally.datagrams;
    }
    assert!(datagrams > 5_000, "only {datagrams} hostile datagrams were sent");
}

#[test]
fn connections_are_made_and_kept() {
    let test = AttackTest {
        server: "rping -s -a 127.0.0.1 -p PORT -C 500 -V",
        client: "rping -c -a 127.0.0.1 -p PORT -C 500 -V",
        socket: bind_own_port,
        // Its two threads end in any order: the one that fetches events may find their channel closed (EBADF, 255).
        may_end: |end| matches!(end.code(), Some(0 | 255)),
        attack_after_exit: Duration::MAX,
    };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        let Some(Outcome { said, tally }) = test.run_attacked("connections_are_made_and_kept") else { return };
        // The server ends after all of the client's rounds; the client may end before its output is complete.
        assert!(said.contains("server DISCONNECT EVENT..."), "{said}");
        for wrong in ["mismatch", "completion failed", "poll error", "RNR"] {
            assert!(!said.contains(wrong), "{said}");
        }
        assert!(tally.datagrams > 100, "{tally:?}");
    }
}

/// From port 4791, from which all packets are sent: the attacker's packets pass the source check.
#[test]
fn who_can_speak_for_a_peer_ends_no_process() {
    let test = AttackTest {
        server: "ibv_rc_pingpong -d rnic0 -g 0 -c -n 2000 -p PORT",
        client: "ibv_rc_pingpong -d rnic0 -g 0 -c -n 2000 -p PORT 127.0.0.1",
        socket: shared,
        may_end: |end| end.signal().is_none(),
        attack_after_exit: ATTACK_AFTER_EXIT,
    };
    if let Err(error) = shared([127, 0, 0, 1].into()) {
        return common::skip(&format!("port 4791: {error}"));
    }
    for _ in 0..3 {
        let Some(Outcome { tally, .. }) = test.run_attacked("who_can_speak_for_a_peer_ends_no_process") else { return };
        assert!(tally.datagrams > 100, "{tally:?}");
    }
}

/// Binds the port of RoCEv2, which the processes of a user share.
fn shared(address: IpAddr) -> io::Result<UdpSocket> {
    let address = SocketAddr::new(address, UDP_PORT);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    attack::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Seed of the attack; `RNIC_HOSTILE_SEED` overrides it.
fn seed() -> u64 {
    std::env::var("RNIC_HOSTILE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Returns a port that is free for TCP and for UDP.
fn free_port() -> u16 {
    loop {
        let stream = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = stream.local_addr().expect("its address").port();
        if UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// A pair of programs that runs longer than this hangs.
const RUN_TIME_MAX: Duration = Duration::from_secs(120);
/// An attacker with the address of a dead peer makes it look alive to a process that only listens; when the attack
/// stops, the process must detect the dead peer.
const ATTACK_AFTER_EXIT: Duration = Duration::from_secs(2);
/// Permitted growth of a process under attack: some buffers are used for the first time only late.
const GROWTH_BYTES: u64 = 8 << 20;
