//! Event counters of a connection's delivery layer.

/// Event counts so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliveryCounters {
    /// Packets sent for the first time.
    pub first_transmissions: u64,
    /// Packets retransmitted before their timeout, because recovery considered them lost.
    pub retransmitted_early: u64,
    /// Packets whose timeout has expired.
    pub timeouts: u64,
    /// Timeouts of these whose packets were acknowledged too soon to have been lost.
    pub timeouts_spurious: u32,
    /// Tail loss probes sent.
    pub probes: u64,
    /// Acknowledgements sent, with and without bitmaps.
    pub acks_sent: u64,
    /// Acknowledgements sent with bitmaps; included in `acks_sent`.
    pub extended_acks_sent: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// Duplicate packets received.
    pub duplicates: u64,
    /// Packets dropped beyond a window.
    pub out_of_window: u64,
    /// Acknowledgements dropped because a base was older than the current one.
    pub stale_acks: u64,
    /// Acknowledgements of packets that were never sent, and packets with invalid labels or numbers: errors of the
    /// peer.
    pub peer_errors: u64,
    /// Events rejected because the queue to the adaptive engine was full; saturates.
    pub signals_refused: u32,
    /// Number of path changes of flows.
    pub moves: u64,
}

impl DeliveryCounters {
    /// Adds the counts of another connection.
    pub fn add(&mut self, other: &Self) {
        self.first_transmissions += other.first_transmissions;
        self.retransmitted_early += other.retransmitted_early;
        self.timeouts += other.timeouts;
        self.timeouts_spurious = self.timeouts_spurious.saturating_add(other.timeouts_spurious);
        self.probes += other.probes;
        self.acks_sent += other.acks_sent;
        self.extended_acks_sent += other.extended_acks_sent;
        self.nacks_sent += other.nacks_sent;
        self.duplicates += other.duplicates;
        self.out_of_window += other.out_of_window;
        self.stale_acks += other.stale_acks;
        self.peer_errors += other.peer_errors;
        self.signals_refused = self.signals_refused.saturating_add(other.signals_refused);
        self.moves += other.moves;
    }
}
