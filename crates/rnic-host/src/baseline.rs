//! Kernel baseline: the performance of the kernel's own sockets, to which every benchmark of this crate is compared.
//!
//! The baseline is measured in the same run of the process as the NIC's own performance, because the load of a shared
//! machine changes from minute to minute and only ratios are meaningful. Each measurement uses two threads, as a NIC
//! and its peer do, so both have the same share of the machine.
//!
//! The UDP measurements poll without sleeping, as the NIC does when its program polls; TCP blocks, as it does in
//! practice.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::ip_fields::PackedIpFields;
pub use crate::sys::OnProcessor;
use crate::sys::{Outgoing, ReceiveBatch, SocketOptions, UdpSocket, wait};

/// An amount of received data, and the time in which it was received.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stream {
    /// Bytes received.
    pub bytes: u64,
    /// Time from the first to the last byte.
    pub elapsed: Duration,
}

impl Stream {
    /// Returns the goodput of the receiver, in gigabits per second.
    pub fn goodput_gbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64() / 1e9
    }
}

/// Measures kernel TCP over `ip` (a loopback address): one connection, one direction, `write_bytes` per call, for
/// `duration`.
///
/// # Errors
/// The error of the sockets.
pub fn tcp_stream(ip: IpAddr, write_bytes: usize, duration: Duration) -> io::Result<Stream> {
    let listener = TcpListener::bind(SocketAddr::new(ip, 0))?;
    let address = listener.local_addr()?;
    let receiver = thread::spawn(move || -> io::Result<Stream> {
        let _stays = OnProcessor::nth(1);
        let (mut connection, _) = listener.accept()?;
        let mut buffer = vec![0; write_bytes.max(TCP_READ_BYTES)];
        let mut bytes = connection.read(&mut buffer)? as u64;
        let start = Instant::now();
        loop {
            match connection.read(&mut buffer)? {
                0 => return Ok(Stream { bytes, elapsed: start.elapsed() }),
                count => bytes += count as u64,
            }
        }
    });
    let _stays = OnProcessor::nth(0);
    let mut connection = TcpStream::connect(address)?;
    let data = vec![0x5a; write_bytes];
    let start = Instant::now();
    while start.elapsed() < duration {
        connection.write_all(&data)?;
    }
    drop(connection);
    join(receiver)
}

/// Measures plain UDP over `ip` as a ping-pong of `payload_bytes`: returns half of each round-trip time in
/// nanoseconds. Both sides poll.
///
/// # Errors
/// The error of the sockets; `TimedOut` when a response is lost.
pub fn udp_ping_pong(ip: IpAddr, payload_bytes: usize, rounds: u64) -> io::Result<Histogram<u64>> {
    let (client, server) = (socket(ip, false)?, socket(ip, false)?);
    let (client_address, server_address) = (client.local_addr(), server.local_addr());
    let answering = thread::spawn(move || -> io::Result<()> {
        let _stays = OnProcessor::nth(1);
        let (mut batch, to) = (ReceiveBatch::new(1), client_address.into());
        let data = vec![0; payload_bytes];
        for _ in 0..rounds {
            poll_one(&server, &mut batch)?;
            send(&server, &to, &[IoSlice::new(&data)], None)?;
        }
        Ok(())
    });
    let _stays = OnProcessor::nth(0);
    let mut histogram = Histogram::new_with_max(LATENCY_NS_MAX, 3).map_err(io::Error::other)?;
    let (mut batch, to) = (ReceiveBatch::new(1), server_address.into());
    let data = vec![0; payload_bytes];
    for _ in 0..rounds {
        let start = Instant::now();
        send(&client, &to, &[IoSlice::new(&data)], None)?;
        poll_one(&client, &mut batch)?;
        histogram.saturating_record((start.elapsed().as_nanos() / 2) as u64);
    }
    join(answering)?;
    Ok(histogram)
}

/// Measures plain UDP over `ip` with segmentation offload at both ends: sends trains of datagrams of `payload_bytes`
/// for `duration`. The receiver acknowledges every train, and the sender has [`WINDOW_BYTES`] in flight: normally no
/// datagram is lost, and only the kernel copies data.
///
/// # Errors
/// The error of the sockets; `TimedOut` when a train is lost nevertheless.
pub fn udp_stream(ip: IpAddr, payload_bytes: usize, duration: Duration) -> io::Result<Stream> {
    let (sender, receiver) = (socket(ip, true)?, socket(ip, true)?);
    let (sender_address, receiver_address) = (sender.local_addr(), receiver.local_addr());
    let train = train_len(payload_bytes);
    let receiving = thread::spawn(move || -> io::Result<Stream> {
        let _stays = OnProcessor::nth(1);
        let (mut batch, to) = (ReceiveBatch::new(DATAGRAMS_PER_CALL), sender_address.into());
        let (mut bytes, mut start, mut last) = (0, None, Instant::now());
        loop {
            let count = poll(&receiver, &mut batch, DATAGRAMS_PER_CALL)?;
            let now = Instant::now();
            for (incoming, _) in batch.iter() {
                if incoming.len <= 1 {
                    let elapsed = start.map_or(Duration::ZERO, |start| last.duration_since(start));
                    return Ok(Stream { bytes, elapsed });
                }
                bytes += incoming.len as u64;
            }
            (start, last) = (start.or(Some(now)), now);
            send(&receiver, &to, &[IoSlice::new(&[count as u8])], None)?;
        }
    });
    let _stays = OnProcessor::nth(0);
    let data = vec![0x5a; train];
    let (mut batch, to) = (ReceiveBatch::new(DATAGRAMS_PER_CALL), receiver_address.into());
    let (start, mut trains_in_flight) = (Instant::now(), 0);
    let segment = (train > payload_bytes).then_some(payload_bytes as u16);
    while start.elapsed() < duration {
        while trains_in_flight * train < WINDOW_BYTES {
            send(&sender, &to, &[IoSlice::new(&data)], segment)?;
            trains_in_flight += 1;
        }
        poll(&sender, &mut batch, DATAGRAMS_PER_CALL)?;
        trains_in_flight -= batch.iter().flat_map(|(_, bytes)| bytes).map(|count| usize::from(*count)).sum::<usize>();
    }
    send(&sender, &to, &[IoSlice::new(&[0])], None)?;
    join(receiving)
}

/// One end of transfers over plain UDP with segmentation offload: each transfer is sent in trains and acknowledged by
/// one byte. The waiting end sleeps. This is a lower bound of the work of any transport on such sockets, because
/// there are no checks, no ordering and no retransmission.
#[derive(Debug)]
pub struct Transfers {
    socket: UdpSocket,
    batch: ReceiveBatch,
}

impl Transfers {
    /// Opens an end on a free port of `ip`.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn open(ip: IpAddr) -> io::Result<Self> {
        Ok(Self { socket: socket(ip, true)?, batch: ReceiveBatch::new(DATAGRAMS_PER_CALL) })
    }

    /// Returns the address to which the remote end sends.
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Sends `data` to `to` in datagrams of `payload_bytes`, and waits for the acknowledgement.
    ///
    /// # Errors
    /// The error of the socket; `TimedOut` when a datagram is lost.
    pub fn send(&mut self, to: SocketAddr, data: &[u8], payload_bytes: usize) -> io::Result<()> {
        let to = to.into();
        for part in data.chunks(train_len(payload_bytes)) {
            let segment = (part.len() > payload_bytes).then_some(payload_bytes as u16);
            send(&self.socket, &to, &[IoSlice::new(part)], segment)?;
        }
        self.sleep_for_some()
    }

    /// Receives transfers of `bytes` from `from` and acknowledges each, until a single byte is received.
    ///
    /// # Errors
    /// The error of the socket; `TimedOut` when a datagram is lost.
    pub fn answer(&mut self, from: SocketAddr, bytes: usize) -> io::Result<()> {
        let (from, mut had) = (from.into(), 0);
        loop {
            self.sleep_for_some()?;
            for (incoming, _) in self.batch.iter() {
                if incoming.len <= 1 {
                    return Ok(());
                }
                had += incoming.len;
            }
            if had >= bytes {
                had -= bytes;
                send(&self.socket, &from, &[IoSlice::new(&[1])], None)?;
            }
        }
    }

    /// Signals to the receiving end at `to` that no more data follows.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn end(&self, to: SocketAddr) -> io::Result<()> {
        send(&self.socket, &to.into(), &[IoSlice::new(&[0])], None)
    }

    fn sleep_for_some(&mut self) -> io::Result<()> {
        while self.socket.receive(&mut self.batch, DATAGRAMS_PER_CALL)? == 0 {
            let start = Instant::now();
            wait(&[self.socket.as_raw_fd()], Some(LOSS_TIMEOUT.as_nanos() as u64), false)?;
            if start.elapsed() >= LOSS_TIMEOUT {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

/// Returns the number of bytes of a batch of datagrams of `payload_bytes` that is passed to the kernel in one call
/// (GSO).
fn train_len(payload_bytes: usize) -> usize {
    (TRAIN_BYTES / payload_bytes).clamp(1, crate::sys::SEGMENTS_MAX) * payload_bytes
}

fn socket(ip: IpAddr, receive_offload: bool) -> io::Result<UdpSocket> {
    let bind = SocketAddr::new(ip, 0);
    UdpSocket::open(&SocketOptions::at(bind, BUFFER_BYTES, BUFFER_BYTES, receive_offload))
}

fn send(socket: &UdpSocket, to: &socket2::SockAddr, parts: &[IoSlice<'_>], segment: Option<u16>) -> io::Result<()> {
    socket.send(&[Outgoing { to, from: None, parts, segment, ip_fields: PackedIpFields::NONE }]).map(|_| ())
}

fn poll_one(socket: &UdpSocket, batch: &mut ReceiveBatch) -> io::Result<usize> {
    poll(socket, batch, 1)
}

/// Polls until a datagram is received.
fn poll(socket: &UdpSocket, batch: &mut ReceiveBatch, wanted: usize) -> io::Result<usize> {
    let start = Instant::now();
    loop {
        for _ in 0..POLLS_PER_CLOCK_READ {
            let count = socket.receive(batch, wanted)?;
            if count > 0 {
                return Ok(count);
            }
        }
        if start.elapsed() > LOSS_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn join<T>(thread: thread::JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a thread of the measurement has failed"))?
}

/// Number of bytes that the UDP stream has in flight. A window of half the size to which an ordinary kernel lets a
/// receive buffer grow by default would be too small, and one of a few megabytes exceeds the cache; the verbs study
/// used the same value.
const WINDOW_BYTES: usize = 400_000;
/// Payload bytes of a batch of datagrams that is passed to the kernel in one call (GSO): less than 65 507 bytes, the
/// maximum of a datagram.
const TRAIN_BYTES: usize = 62_000;
const DATAGRAMS_PER_CALL: usize = 8;
const BUFFER_BYTES: usize = 4 << 20;
/// Minimum number of bytes that a TCP receiver reads per call.
const TCP_READ_BYTES: usize = 128 << 10;
/// Number of polls between two reads of the clock, because reading it costs as much as an empty poll.
const POLLS_PER_CLOCK_READ: usize = 64;
/// Longest latency that the histogram can record: a minute, far more than `LOSS_TIMEOUT`.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
const LOSS_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn every_baseline_moves_data() {
        let short = Duration::from_millis(20);
        let tcp = tcp_stream(LOOPBACK, 65_536, short).expect("loopback works");
        assert!(tcp.bytes > 65_536 && tcp.goodput_gbps() > 0.1, "{tcp:?}");
        let udp = udp_stream(LOOPBACK, 4_096, short).expect("loopback works");
        assert!(udp.bytes > 65_536 && udp.goodput_gbps() > 0.1, "{udp:?}");
        let [mut one, mut other] = [(); 2].map(|()| Transfers::open(LOOPBACK).expect("loopback works"));
        let (from, to) = (one.local_addr(), other.local_addr());
        let answering = thread::spawn(move || other.answer(from, 65_536));
        (0..20).for_each(|_| one.send(to, &[7; 65_536], 4_096).expect("the other end responds"));
        one.end(to).expect("loopback works");
        join(answering).expect("the thread ends when it is stopped");
        let rounds = udp_ping_pong(LOOPBACK, 8, 100).expect("loopback works");
        assert_eq!(rounds.len(), 100);
        assert!(rounds.min() > 0);
    }
}
