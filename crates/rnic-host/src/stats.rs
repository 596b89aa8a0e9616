//! What this room counts, beside what the engine counts.

use rnic_wire::WireError;
use rnic_wire::cm::CmError;

use crate::impair::ImpairmentStats;

/// Why a datagram was dropped before the engine saw it: all of them the sender's fault, or the network's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum RxDrop {
    /// Longer than anything that fits IP.
    Truncated,
    /// From an address that no connection leads to.
    UnknownPeer,
    /// The invariant CRC is wrong, or the CRC of a Falcon packet that nothing protects.
    Icrc,
    /// Its headers make no sense; [`NicStats::wire_errors`] says in what way.
    Malformed,
    /// A management datagram that makes no sense; [`NicStats::cm_errors`] says in what way. Or one at a NIC that leaves
    /// the connection manager to others.
    Management,
    /// From an address that it may come from, but neither from port 4791 nor from that of the queue pair at the other
    /// end.
    ForeignPort,
    /// A Falcon packet that is not protected as agreed on, or with another key.
    Protection,
    /// A Falcon packet that left too long ago: somebody may have recorded it.
    Replay,
    /// A Falcon packet that is not authentic.
    Forged,
}

impl RxDrop {
    /// How many there are.
    pub const COUNT: usize = 9;
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Truncated,
        Self::UnknownPeer,
        Self::Icrc,
        Self::Malformed,
        Self::Management,
        Self::ForeignPort,
        Self::Protection,
        Self::Replay,
        Self::Forged,
    ];
}

/// Counters of one NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NicStats {
    /// Datagrams that came in, segments of trains counted one by one.
    pub datagrams_received: u64,
    /// UDP payload bytes that came in.
    pub bytes_received: u64,
    /// Calls that received something.
    pub receive_calls: u64,
    /// Datagrams that the kernel took, segments of trains counted one by one.
    pub datagrams_sent: u64,
    /// UDP payload bytes that the kernel took.
    pub bytes_sent: u64,
    /// Datagrams and trains that the kernel took.
    pub messages_sent: u64,
    /// Calls that sent something.
    pub send_calls: u64,
    /// Acknowledgements that were not sent because a later one in the same batch says the same and more.
    pub acks_joined: u64,
    /// Datagrams that the kernel had no room for at first. They were sent later.
    pub datagrams_held: u64,
    /// Datagrams that the kernel refused for good. To the engine they are lost on the way.
    pub datagrams_refused: u64,
    /// Packets that did not leave because their payload could not be read: its owner had unmapped, shortened or
    /// protected registered memory.
    pub payload_faults: u64,
    /// Times a path turned out to be narrower than our packets, and a peer's packets were fragmented from then on.
    pub path_mtu_reductions: u64,
    /// Datagrams that were sent with fragmentation allowed.
    pub datagrams_fragmentable: u64,
    /// Late errors that the network reported (host or port unreachable).
    pub network_errors: u64,
    /// Probes sent to processes that have been silent, to learn whether they are still there.
    pub probes_sent: u64,
    /// Probes of others that came in.
    pub probes_received: u64,
    /// Processes that queue pairs were connected to and that have turned out to be gone.
    pub peers_gone: u64,
    /// Packets sent through memory.
    pub bypass_sent: u64,
    /// Of these, bytes.
    pub bypass_bytes_sent: u64,
    /// Packets that found no room in memory at first.
    pub bypass_held: u64,
    /// Packets that found none later either, or nobody there to read: lost.
    pub bypass_lost: u64,
    /// Packets that came in through memory.
    pub bypass_received: u64,
    /// Of these, bytes.
    pub bypass_bytes_received: u64,
    /// Peers on this machine that wrote nonsense into memory that we share.
    pub bypass_broken: u64,
    /// Times that what leaves took another key, where Falcon's packets are protected.
    pub key_changes: u64,
    /// Datagrams dropped, by [`RxDrop`].
    pub drops: [u64; RxDrop::COUNT],
    /// Of these malformed and of the RoCE family, by kind, in the order of [`WIRE_ERRORS`].
    pub wire_errors: [u64; WIRE_ERRORS.len()],
    /// Of these management datagrams, by kind, in the order of [`CM_ERRORS`].
    pub cm_errors: [u64; CM_ERRORS.len()],
    /// Management messages that fit no connection of ours, or not its state.
    pub cm_strays: u64,
    /// Management messages sent, again ones included.
    pub cm_sent: u64,
    /// Times a NIC was asked whether it has taken in what nobody acknowledges.
    pub credit_requests: u64,
    /// Times this NIC has answered that it has.
    pub credit_answers: u64,
    /// Times a NIC was given up that did not answer.
    pub credit_given_up: u64,
    /// Messages sent that say what a connection goes by, or answer that.
    pub hellos_sent: u64,
    /// Packets written to the capture.
    pub captured: u64,
    /// What impairment has done.
    pub impairment: ImpairmentStats,
}

/// What can be wrong with headers.
pub const WIRE_ERRORS: [WireError; 9] = [
    WireError::Short,
    WireError::Version,
    WireError::Opcode,
    WireError::PartitionKey,
    WireError::Padding,
    WireError::PayloadLength,
    WireError::Syndrome,
    WireError::Destination,
    WireError::QueueKey,
];

/// What can be wrong with management messages.
pub const CM_ERRORS: [CmError; 6] = [
    CmError::BaseVersion,
    CmError::Class,
    CmError::ClassVersion,
    CmError::Method,
    CmError::Attribute,
    CmError::RejectInfo,
];

impl NicStats {
    #[cold]
    pub(crate) fn drop_datagram(&mut self, reason: RxDrop) {
        self.drops[reason as usize] += 1;
    }

    #[cold]
    pub(crate) fn drop_malformed(&mut self, error: WireError) {
        self.drop_datagram(RxDrop::Malformed);
        if let Some(index) = WIRE_ERRORS.iter().position(|known| *known == error) {
            self.wire_errors[index] += 1;
        }
    }

    #[cold]
    pub(crate) fn drop_management(&mut self, error: CmError) {
        self.drop_datagram(RxDrop::Management);
        if let Some(index) = CM_ERRORS.iter().position(|known| *known == error) {
            self.cm_errors[index] += 1;
        }
    }

    /// Datagrams dropped for `reason`.
    pub fn dropped(&self, reason: RxDrop) -> u64 {
        self.drops[reason as usize]
    }
}
