//! Computes how many packets a receive buffer holds, which is the number that a peer may have in flight to this NIC.
//!
//! The kernel counts a packet's complete memory against the buffer, its *true size*: data, space for headers, its own
//! bookkeeping, rounded up to the allocator's sizes. A packet of 4 KB counts 8.4 KB (verbs study, section 3.7). And it
//! accounts for read packets with a delay: up to a quarter of the buffer counts as full when it is not
//! (`udp_rmem_release` in `net/ipv4/udp.c` releases memory once a quarter has been freed). Trains take less, but there
//! is no guarantee that packets arrive as trains.

/// Returns the number of packets that a buffer of `granted_bytes` (as `SO_RCVBUF` reads back) holds, when each has up
/// to `datagram_bytes`; never less than [`WINDOW_MIN`].
pub(crate) fn receive_window(granted_bytes: usize, datagram_bytes: u32) -> u32 {
    let usable = granted_bytes as u64 / 4 * 3;
    // Each received packet may be accompanied by an acknowledgement of a packet that this NIC sent; those use this
    // buffer too.
    let each = true_size(datagram_bytes) + true_size(ACK_BYTES);
    u32::try_from(usable / each).unwrap_or(u32::MAX).max(WINDOW_MIN)
}

/// Returns the window for one of `peers` peers, so that all of them together stay within `window`. It is divided by the
/// current number of peers: earlier peers keep the window that they were given.
pub(crate) fn share(window: u32, peers: usize) -> u32 {
    let peers = u32::try_from(peers.max(1)).unwrap_or(u32::MAX);
    (window / peers).max(WINDOW_MIN)
}

/// Returns the memory that a packet counts against the buffer, in bytes.
fn true_size(datagram_bytes: u32) -> u64 {
    let data = u64::from(datagram_bytes) + HEADROOM_BYTES + SHARED_INFO_BYTES;
    data.next_power_of_two() + SK_BUFF_BYTES
}

/// Smallest window, in packets. With fewer in flight loss recovery does not work well: three make IRN use its short
/// timeout, a few more keep acknowledgements flowing. A buffer that cannot hold this many sometimes loses packets,
/// which are retransmitted.
pub(crate) const WINDOW_MIN: u32 = 8;

/// Maximum size of an acknowledgement in bytes: BTH, AETH, the SACK field, ICRC.
const ACK_BYTES: u32 = 24;
/// Link, IP and UDP headers.
const HEADROOM_BYTES: u64 = 64;
/// `struct skb_shared_info`, which follows the data.
const SHARED_INFO_BYTES: u64 = 320;
/// `struct sk_buff`.
const SK_BUFF_BYTES: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_study_measured() {
        // `rmem_max` of most distributions, doubled by the kernel: "30 to 45 packets of 4 KB".
        let window = receive_window(2 * 212_992, crate::mtu::datagram_bytes(4_096));
        assert!((30..=45).contains(&window), "{window}");
    }

    #[test]
    fn small_packets_fit_more_often_and_no_buffer_is_too_small() {
        let window = |granted, mtu| receive_window(granted, crate::mtu::datagram_bytes(mtu));
        assert!(window(8 << 20, 1_024) > 2 * window(8 << 20, 4_096));
        assert_eq!(window(2_304, 4_096), WINDOW_MIN);
        assert_eq!(receive_window(usize::MAX, 300), u32::MAX);
    }

    #[test]
    fn peers_share() {
        assert_eq!([share(700, 0), share(700, 1), share(700, 2), share(700, 7)], [700, 700, 350, 100]);
        assert_eq!(share(20, 1_000), WINDOW_MIN);
    }
}
