//! How many packets a receive buffer takes: what a peer may have under way to us.
//!
//! The kernel counts a packet's whole memory against the buffer, its *true size*: data, room for headers, its own
//! bookkeeping, rounded up to what the allocator hands out. A packet of 4 KB counts 8.4 KB (verbs study, section 3.7).
//! And it takes its time to notice that packets have been read: up to a quarter of the buffer counts as full when it is
//! not (`udp_rmem_release` in `net/ipv4/udp.c` gives memory back once a quarter has been freed). Trains take less;
//! nobody promises that packets come as trains.

/// Packets that a buffer of `granted_bytes` (as `SO_RCVBUF` reads back) takes, when each has up to `datagram_bytes`;
/// never less than [`WINDOW_MIN`].
pub(crate) fn receive_window(granted_bytes: usize, datagram_bytes: u32) -> u32 {
    let usable = granted_bytes as u64 / 4 * 3;
    // Every packet that comes in may be answered by one that acknowledges a packet of ours; those come into this buffer
    // too.
    let each = true_size(datagram_bytes) + true_size(ACK_BYTES);
    u32::try_from(usable / each).unwrap_or(u32::MAX).max(WINDOW_MIN)
}

/// What one of `peers` peers is told, so that all of them together stay within `window`. The division is by today's
/// number of peers: who came first keeps what it was told.
pub(crate) fn share(window: u32, peers: usize) -> u32 {
    let peers = u32::try_from(peers.max(1)).unwrap_or(u32::MAX);
    (window / peers).max(WINDOW_MIN)
}

/// What a packet counts.
fn true_size(datagram_bytes: u32) -> u64 {
    let data = u64::from(datagram_bytes) + HEADROOM_BYTES + SHARED_INFO_BYTES;
    data.next_power_of_two() + SK_BUFF_BYTES
}

/// With fewer packets in flight there is no recovery to speak of: three make IRN take its short timeout, a few more let
/// acknowledgements flow. A buffer that cannot hold so many loses packets now and then, and they are sent again.
pub(crate) const WINDOW_MIN: u32 = 8;

/// An acknowledgement, at most: BTH, AETH, the SACK field, ICRC.
const ACK_BYTES: u32 = 24;
/// Link, IP and UDP headers.
const HEADROOM_BYTES: u64 = 64;
/// `struct skb_shared_info`, which ends the data.
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
