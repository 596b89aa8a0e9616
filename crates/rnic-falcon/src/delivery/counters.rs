//! What a connection's delivery layer counts.

/// What has happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliveryCounters {
    /// Packets that left for the first time.
    pub sent: u64,
    /// Packets sent again because recovery took them for lost, before their timeout.
    pub sent_again_early: u64,
    /// Packets that timed out.
    pub timeouts: u64,
    /// Probes for the end of a burst.
    pub probes: u64,
    /// Acknowledgements that left, and of them those with bitmaps.
    pub acks_sent: u64,
    /// See `acks_sent`.
    pub extended_acks_sent: u64,
    /// NACKs that left.
    pub nacks_sent: u64,
    /// Packets that came a second time.
    pub duplicates: u64,
    /// Packets dropped beyond a window.
    pub out_of_window: u64,
    /// Acknowledgements dropped because a base was behind.
    pub stale_acks: u64,
    /// Acknowledgements of what was never sent, and labels or numbers that make no sense: the peer's mistakes.
    pub peer_errors: u64,
    /// Events that found the queue to the adaptive engine full.
    pub signals_refused: u64,
    /// Times that a flow took another path.
    pub moves: u64,
}

impl DeliveryCounters {
    /// Adds those of another connection.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_again_early += other.sent_again_early;
        self.timeouts += other.timeouts;
        self.probes += other.probes;
        self.acks_sent += other.acks_sent;
        self.extended_acks_sent += other.extended_acks_sent;
        self.nacks_sent += other.nacks_sent;
        self.duplicates += other.duplicates;
        self.out_of_window += other.out_of_window;
        self.stale_acks += other.stale_acks;
        self.peer_errors += other.peer_errors;
        self.signals_refused += other.signals_refused;
        self.moves += other.moves;
    }
}
