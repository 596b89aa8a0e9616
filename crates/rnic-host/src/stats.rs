//! Counters of this crate, in addition to those of the engine.

use rnic_wire::WireError;
use rnic_wire::cm::CmError;

use crate::impair::ImpairmentStats;

/// Reason why a datagram was dropped before it reached the engine; every reason is caused by the sender or the network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum RxDrop {
    /// Longer than the maximum size of an IP packet.
    Truncated,
    /// From an address to which there is no connection.
    UnknownPeer,
    /// The invariant CRC is wrong, or the CRC of an unprotected Falcon packet.
    Icrc,
    /// The headers of the datagram are invalid; [`NicStats::wire_errors`] counts the reasons.
    Malformed,
    /// An invalid management datagram ([`NicStats::cm_errors`] counts the reasons), or any management datagram at a
    /// NIC that does not run the connection manager itself; or a message of a NIC with which none are exchanged.
    Management,
    /// From the address of a known peer, but neither from port 4791 nor from that of the queue pair at the other end.
    ForeignPort,
    /// A Falcon packet that is not protected as agreed, or is encrypted with another key.
    Protection,
    /// A Falcon packet that was sent too long ago: it may be a recording that an attacker replays.
    Replay,
    /// A Falcon packet that is not authentic.
    Forged,
}

impl RxDrop {
    /// Number of reasons.
    pub const COUNT: usize = 9;
    /// All reasons, in the order of their numbers.
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
    /// Datagrams received, counting each datagram that the kernel has merged with others (GRO).
    pub datagrams_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// System calls that received packets.
    pub receive_calls: u64,
    /// Datagrams that the kernel accepted, counting each datagram into which it splits a buffer (GSO).
    pub datagrams_sent: u64,
    /// UDP payload bytes that the kernel accepted.
    pub bytes_sent: u64,
    /// Buffers that the kernel accepted, each with one datagram or with several into which it splits the buffer (GSO).
    pub messages_sent: u64,
    /// System calls that sent packets.
    pub send_calls: u64,
    /// Acknowledgements that were not sent because a later one in the same batch covers them.
    pub acks_joined: u64,
    /// Datagrams for which the kernel had no space at first. They were sent later.
    pub datagrams_held: u64,
    /// Datagrams that the kernel finally did not accept. The engine treats them as lost in the network.
    pub datagrams_refused: u64,
    /// Packets that were not sent because their payload could not be read: its owner had unmapped, shortened or
    /// protected registered memory.
    pub payload_faults: u64,
    /// Number of times that a path MTU turned out to be too small for the packets to a peer. They are fragmented from
    /// then on, if possible.
    pub path_mtu_reductions: u64,
    /// Datagrams that were sent with fragmentation allowed.
    pub datagrams_fragmentable: u64,
    /// Errors about earlier datagrams that the network reported (host or port unreachable).
    pub network_errors: u64,
    /// Probes sent to processes that have been silent, to check whether they still exist.
    pub probes_sent: u64,
    /// Probes received.
    pub probes_received: u64,
    /// Peer processes of connected queue pairs that were found to no longer exist.
    pub peers_gone: u64,
    /// Hints of the program that were applied.
    pub hints_applied: u64,
    /// Number of hints that were rejected because they were invalid, or because the program was changing them while
    /// they were read.
    pub hints_rejected: u64,
    /// Packets sent through shared memory.
    pub bypass_sent: u64,
    /// Bytes of these packets.
    pub bypass_bytes_sent: u64,
    /// Packets for which the shared-memory ring had no space at first.
    pub bypass_held: u64,
    /// Packets lost because the ring did not get free space in time, or had no reader.
    pub bypass_lost: u64,
    /// Packets received through shared memory.
    pub bypass_received: u64,
    /// Bytes of these packets.
    pub bypass_bytes_received: u64,
    /// Peers on this machine that wrote invalid data into the shared memory.
    pub bypass_broken: u64,
    /// Number of key changes for sent packets, when Falcon packets are protected.
    pub key_changes: u64,
    /// Datagrams dropped, by [`RxDrop`].
    pub drops: [u64; RxDrop::COUNT],
    /// Number of datagrams among these with malformed headers of the RoCE family, by type, in the order of
    /// [`WIRE_ERRORS`].
    pub wire_errors: [u64; WIRE_ERRORS.len()],
    /// Number of invalid management datagrams among these, by type, in the order of [`CM_ERRORS`].
    pub cm_errors: [u64; CM_ERRORS.len()],
    /// Management messages that match no connection of this NIC, or are not permitted in the state of their
    /// connection.
    pub cm_strays: u64,
    /// Management messages sent, including retransmissions.
    pub cm_sent: u64,
    /// Credit requests sent: each asks a NIC whether it has received the packets that are not acknowledged yet.
    pub credit_requests: u64,
    /// Credit responses sent.
    pub credit_answers: u64,
    /// Number of times that credit of an unresponsive NIC was reclaimed.
    pub credit_given_up: u64,
    /// Number of hello messages sent, including responses to hello messages.
    pub hellos_sent: u64,
    /// Messages to the NICs of peers that were sent or queued.
    pub nic_messages_sent: u64,
    /// Messages from the NICs of peers that were passed to the engine, which decides whether to accept them.
    pub nic_messages_received: u64,
    /// Answers to such messages that were not sent, because data occupied half of the send buffer.
    pub message_answers_withheld: u64,
    /// Streams of bytes that were made.
    pub streams_opened: u64,
    /// Streams among these that use the software transport, because an end had no flow id left.
    pub streams_in_software: u64,
    /// Packets written to the capture.
    pub captured: u64,
    /// Packets affected by impairment.
    pub impairment: ImpairmentStats,
}

/// Possible errors in headers.
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

/// Possible errors in management messages.
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

    /// Returns the number of datagrams dropped for `reason`.
    pub fn dropped(&self, reason: RxDrop) -> u64 {
        self.drops[reason as usize]
    }
}
