//! Unmodified programs with the library: a server and a client in Python, each with it or without it.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::{Program, opened_streams};
use rnic_base::Duration as NicDuration;
use rnic_host::stream::{StreamConfig, StreamId, Streams};
use rnic_host::{Nic, NicConfig, TransportChoice};

/// Serves one connection without waiting for it in a call: epoll, non-blocking accept and receive.
const SERVER: &str = r"
import asyncio, hashlib, sys
async def serve(reader, writer):
    data = await reader.read(-1)
    print('peer', *writer.get_extra_info('peername'), flush=True)
    writer.write(hashlib.sha256(data).hexdigest().encode() + data[::-1])
    writer.write_eof()
    await writer.drain()
    print('served', len(data), flush=True)
    writer.close()
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    print('port', server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
asyncio.run(main())
";

/// Sends random bytes, ends its direction, and compares what comes back.
const CLIENT: &str = r"
import hashlib, os, socket, sys
data = os.urandom(3_000_001)
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=60)
print('local', *s.getsockname(), flush=True)
print('peer', *s.getpeername(), flush=True)
s.sendall(data)
s.shutdown(socket.SHUT_WR)
back = b''
while part := s.recv(1 << 20):
    back += part
assert back == hashlib.sha256(data).hexdigest().encode() + data[::-1], (len(back), len(data))
print('compared', len(back), flush=True)
sys.stdin.readline()
";

/// Accepts connections, one after the other, and reads each to its end.
const READER: &str = r"
import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
print('port', listener.getsockname()[1], flush=True)
while True:
    s, _ = listener.accept()
    count = 0
    try:
        while part := s.recv(1 << 20):
            count += len(part)
        print('end', count, flush=True)
    except ConnectionResetError:
        print('reset', flush=True)
    s.close()
";

fn serve_and_compare(is_server_ours: bool, is_client_ours: bool) -> Option<[u64; 2]> {
    let mut server = Program::python(SERVER, &[], is_server_ours)?;
    let port = server.line("port ");
    let mut client = Program::python(CLIENT, &[&port], is_client_ours)?;
    let local = client.line("local ");
    assert_eq!(client.line("peer "), format!("127.0.0.1 {port}"));
    assert_eq!(server.line("peer "), local, "both ends see the same addresses");
    assert_eq!(server.line("served "), "3000001");
    assert_eq!(client.line("compared "), "3000065");
    let opened = [&server, &client].map(|program| opened_streams(program.pid()));
    client.say("\n");
    client.succeed();
    server.say("\n");
    server.succeed();
    Some(opened)
}

#[test]
fn t26_unmodified_programs_exchange_bytes_over_a_stream_at_one_percent_loss() {
    let Some(opened) = serve_and_compare(true, true) else { return };
    assert_eq!(opened, [1, 1], "streams of the two processes");
}

#[test]
fn t26_programs_without_the_library_at_the_other_end_use_tcp() {
    for (is_server_ours, is_client_ours) in [(true, false), (false, true)] {
        let Some(opened) = serve_and_compare(is_server_ours, is_client_ours) else { return };
        assert_eq!(opened, [0, 0], "streams of the two processes");
    }
}

/// Data that was written is delivered although the program exits at once, without closing its socket.
#[test]
fn t26_data_is_delivered_when_a_program_exits_after_its_last_write() {
    let script = "import socket, sys\n\
                  s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
                  s.sendall(bytes(400_000))\n";
    let Some(mut server) = Program::python(READER, &[], true) else { return };
    let port = server.line("port ");
    for _ in 0..3 {
        Program::python(script, &[&port], true).expect("Python is there").succeed();
        assert_eq!(server.line("end "), "400000");
    }
    assert_eq!(opened_streams(server.pid()), 3);
}

#[test]
fn t26_a_killed_server_is_an_error_at_its_client_in_bounded_time() {
    let script = "import socket, sys\n\
                  s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
                  print('connected', flush=True)\n\
                  try:\n    print('got', s.recv(1))\n\
                  except ConnectionResetError:\n    print('reset', flush=True)\n";
    let Some(mut server) = Program::python(READER, &[], true) else { return };
    let port = server.line("port ");
    let mut client = Program::python(script, &[&port], true).expect("Python is there");
    client.line("connected");
    let start = Instant::now();
    server.kill();
    client.line("reset");
    assert!(start.elapsed() < Duration::from_secs(8), "it took {:?}", start.elapsed());
    client.succeed();
}

/// The parent accepts, and a child process per connection reads and writes: its descriptors are those of the parent.
#[test]
fn t26_a_child_process_can_use_a_connection_that_its_parent_has_accepted() {
    let script = "import os, socket, sys\n\
                  listener = socket.create_server(('127.0.0.1', 0))\n\
                  print('port', listener.getsockname()[1], flush=True)\n\
                  s, peer = listener.accept()\n\
                  child = os.fork()\n\
                  if child == 0:\n    \
                      assert s.getpeername() == peer\n    \
                      count = 0\n    \
                      while part := s.recv(1 << 16):\n        count += len(part)\n    \
                      s.sendall(str(count).encode())\n    \
                      os._exit(0)\n\
                  s.close()\n\
                  os.waitpid(child, 0)\n\
                  sys.stdin.readline()\n";
    let client = "import socket, sys\n\
                  s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
                  s.sendall(bytes(300_000))\n\
                  s.shutdown(socket.SHUT_WR)\n\
                  print('counted', s.recv(100).decode(), s.recv(1), flush=True)\n";
    let Some(mut server) = Program::python(script, &[], true) else { return };
    let port = server.line("port ");
    let mut client = Program::python(client, &[&port], true).expect("Python is there");
    assert_eq!(client.line("counted "), "300000 b''");
    client.succeed();
    server.say("\n");
    server.succeed();
}

/// A client that requests a stream, but cannot prove that a TCP connection belongs to it: the program sees a reset, and
/// the next client is served.
#[test]
fn t26_a_wrong_token_ends_the_connection_and_no_other() {
    let Some(mut server) = Program::python(READER, &[], true) else { return };
    let port: u16 = server.line("port ").parse().expect("a port");
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut nic = Nic::open(NicConfig::at("127.0.0.1:0".parse().expect("an address"))).expect("a free port");
    let choice = TransportChoice::named("tonic-new-reno", &[]).expect("it exists");
    let config = StreamConfig { connect_timeout: NicDuration::from_secs(10), ..StreamConfig::over(choice) };
    let mut streams = Streams::new(&mut nic, config).expect("valid settings");
    let (socket, own) = common::bound_socket();
    let id = streams.connect(&mut nic, to, port, (own, 1)).expect("there is a route");
    let drive = |nic: &mut Nic, streams: &mut Streams, is_done: fn(&Streams, StreamId) -> bool| {
        let start = Instant::now();
        while !is_done(streams, id) {
            nic.progress();
            while let Some(event) = nic.poll_connection_event() {
                streams.process(nic, event);
            }
            streams.progress(nic);
            assert!(start.elapsed() < Duration::from_secs(20), "neither established nor ended");
        }
    };
    drive(&mut nic, &mut streams, Streams::is_confirmed);
    socket.connect(&to.into()).expect("it listens");
    let mut shadow = TcpStream::from(socket);
    shadow.write_all(b"\x01rnic-s\x01\0\0\0\0\0\0\0\x02").expect("it is open");
    // With the right token, the program would read these bytes and the end.
    streams.write(&mut nic, id, b"forged").expect("it is open");
    streams.finish(&mut nic, id);
    drive(&mut nic, &mut streams, |streams, id| streams.broken(id).is_some() || streams.is_at_end(id));
    server.line("reset");
    drop(shadow);
    let mut plain = TcpStream::connect(to).expect("it listens");
    plain.write_all(b"four").expect("it is open");
    plain.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert_eq!(server.line("end "), "4");
    assert_eq!(plain.read(&mut [0]).expect("the program closes it"), 0);
}
