//! Computes how many packets a receive buffer holds: this is the number of packets that a peer may have in flight to
//! this NIC.
//!
//! The kernel charges all memory of a packet to the buffer, its *true size*: data, space for headers, its own
//! bookkeeping, rounded up to the allocator's sizes. A packet of 4 KB is charged as 8.4 KB (verbs study, section
//! 3.7). In addition, memory of packets that have been read is released with a delay: up to a quarter of the buffer
//! may count as full although it is not (`udp_rmem_release` in `net/ipv4/udp.c` releases memory once a quarter has
//! been freed). Trains use less memory per packet, but there is no guarantee that packets arrive as trains.

/// Returns the number of packets that a buffer of `granted_bytes` (as `SO_RCVBUF` reads back) holds, when each has up
/// to `datagram_bytes`; never less than [`WINDOW_MIN`].
pub(crate) fn receive_window(granted_bytes: usize, datagram_bytes: u32) -> u32 {
    let usable = granted_bytes as u64 / 4 * 3;
    // Each received packet may be accompanied by an acknowledgement of a packet that this NIC sent; those use this
    // buffer too.
    let bytes_per_packet = true_size(datagram_bytes) + true_size(ACK_BYTES);
    u32::try_from(usable / bytes_per_packet).unwrap_or(u32::MAX).max(WINDOW_MIN)
}

/// Returns the window for each of `peers` peers, so that all windows together stay within `window`. The divisor is the
/// current number of peers; windows of earlier peers are not reduced.
pub(crate) fn share(window: u32, peers: usize) -> u32 {
    let peers = u32::try_from(peers.max(1)).unwrap_or(u32::MAX);
    (window / peers).max(WINDOW_MIN)
}

/// Returns the memory that the kernel charges to the buffer for a packet, in bytes.
fn true_size(datagram_bytes: u32) -> u64 {
    let data = u64::from(datagram_bytes) + HEADROOM_BYTES + SHARED_INFO_BYTES;
    data.next_power_of_two() + SK_BUFF_BYTES
}

/// Smallest window, in packets. With fewer in flight, loss recovery does not work well: IRN uses its short timeout
/// with fewer than three, and a few more are needed for a steady flow of acknowledgements. A buffer that cannot hold
/// this many sometimes loses packets, which are retransmitted.
pub(crate) const WINDOW_MIN: u32 = 8;

/// Maximum size of an acknowledgement in bytes: BTH, AETH, the SACK field, ICRC.
const ACK_BYTES: u32 = 24;
/// Length of the link, IP and UDP headers.
const HEADROOM_BYTES: u64 = 64;
/// Size of `struct skb_shared_info`, which follows the data.
const SHARED_INFO_BYTES: u64 = 320;
/// Size of `struct sk_buff`.
const SK_BUFF_BYTES: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_for_the_default_buffer_matches_the_measurement() {
        // The default `rmem_max` of most distributions, doubled by the kernel: it holds 30 to 45 packets of 4 KB.
        let window = receive_window(2 * 212_992, crate::mtu::datagram_bytes(4_096));
        assert!((30..=45).contains(&window), "{window}");
    }

    #[test]
    fn small_packets_give_larger_windows_and_the_minimum_applies() {
        let window = |granted, mtu| receive_window(granted, crate::mtu::datagram_bytes(mtu));
        assert!(window(8 << 20, 1_024) > 2 * window(8 << 20, 4_096));
        assert_eq!(window(2_304, 4_096), WINDOW_MIN);
        assert_eq!(receive_window(usize::MAX, 300), u32::MAX);
    }

    #[test]
    fn the_window_is_divided_among_the_peers() {
        assert_eq!([share(700, 0), share(700, 1), share(700, 2), share(700, 7)], [700, 700, 350, 100]);
        assert_eq!(share(20, 1_000), WINDOW_MIN);
    }
}
