//! Level of the receive buffer of a socket.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use super::UdpSocket;

/// State of the receive buffer of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BufferLevel {
    /// Bytes of memory that the datagrams in the buffer occupy.
    pub waiting_bytes: u64,
    /// Number of datagrams dropped since the socket was opened, for example because the buffer was full, modulo 2^32.
    pub drops: u64,
}

impl UdpSocket {
    /// Returns the state of the receive buffer; `None` if the kernel does not report it.
    pub fn buffer_level(&self) -> Option<BufferLevel> {
        let mut values = [0u32; VALUES];
        let mut len = size_of_val(&values) as libc::socklen_t;
        let out: *mut [u32; VALUES] = &raw mut values;
        // SAFETY: the kernel writes at most `len` bytes, the size of `values`, and the number of them into `len`.
        let result = unsafe {
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, out.cast(), &raw mut len)
        };
        let is_complete = result == 0 && len as usize >= size_of::<u32>() * (DROPS + 1);
        is_complete.then(|| BufferLevel { waiting_bytes: values[RECEIVE].into(), drops: values[DROPS].into() })
    }
}

/// Option that returns the memory in use (linux/socket.h).
const SO_MEMINFO: c_int = 55;

/// Number of values that the kernel returns, and the indices of two of them (linux/sock_diag.h).
const VALUES: usize = 9;
const RECEIVE: usize = 0;
const DROPS: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::{ReceiveBatch, SocketOptions};
    use super::*;

    #[test]
    fn the_level_rises_with_waiting_datagrams_and_drops_are_counted() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let socket = UdpSocket::open(&SocketOptions::at(any, 8 << 10, 8 << 10, false)).expect("a free port");
        let sender = std::net::UdpSocket::bind(any).expect("a free port");
        assert_eq!(socket.buffer_level(), Some(BufferLevel::default()));
        sender.send_to(&[0; 1_000], socket.local_addr()).expect("loopback carries it");
        let one = socket.buffer_level().expect("Linux tells").waiting_bytes;
        assert!(one >= 1_000, "{one} bytes");
        for _ in 0..1_000 {
            sender.send_to(&[0; 1_000], socket.local_addr()).expect("loopback carries it");
        }
        let full = socket.buffer_level().expect("Linux tells");
        assert!(full.waiting_bytes > one && full.drops > 900, "{full:?}");
        let mut batch = ReceiveBatch::new(8);
        while socket.receive(&mut batch, 8).expect("no error is pending") > 0 {}
        assert!(socket.buffer_level().expect("Linux tells").waiting_bytes < one);
    }
}
