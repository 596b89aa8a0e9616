//! Number of packets that a Falcon NIC sends between two receive polls: smaller than usual while packets are being
//! lost.
//!
//! Source: Falcon (SIGCOMM'25) section 4.1: an acknowledgement covers 128 packets from the base, and RACK does not
//! detect losses beyond them. So each round trip recovers the losses of one or two hundred packets, and the window
//! advances at this rate. Between processes most of a round trip is the sender's own work before it polls for the
//! response: two batches of 57 packets take 140 us. Polling after two trains costs a twentieth of the goodput without
//! loss, and gains a sixth at 1 % loss and 5 % reordering (64 KiB Writes of 4 KiB packets, 20.8 to 24.2 Gbit/s): so
//! this is done for a limited time after each retransmission. Transports of the RoCE family do not benefit: IRN's
//! acknowledgements cover its complete window.

/// Tracks the number of packets that a Falcon NIC sends before it polls for received packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossRecoveries {
    /// Packets retransmitted so far.
    retransmitted: u64,
    /// Number of further iterations of the NIC's loop in which fewer packets are sent before the NIC polls for received
    /// packets.
    turns_left: u32,
}

impl LossRecoveries {
    /// Returns the maximum number of packets to send in this iteration of the NIC's loop. `sends_falcon` is true if
    /// Falcon packets are among them; `retransmitted` is the total number of packets retransmitted so far.
    #[inline]
    pub(crate) fn packets(&mut self, sends_falcon: bool, retransmitted: u64) -> u32 {
        if !sends_falcon {
            return FLUSH_PACKETS;
        }
        self.turns_left =
            if retransmitted == self.retransmitted { self.turns_left.saturating_sub(1) } else { RECOVERY_TURNS };
        self.retransmitted = retransmitted;
        if self.turns_left > 0 { RECOVERY_PACKETS } else { FLUSH_PACKETS }
    }
}

/// Packets per iteration of the NIC's loop while losses are recovered: two batches (GSO) of 4 KiB packets.
const RECOVERY_PACKETS: u32 = 30;

/// Number of iterations of the NIC's loop after a retransmission for which the smaller limit applies. If one in a
/// thousand packets is lost, the next loss occurs before they are over; recovering a loss takes two or three
/// iterations.
const RECOVERY_TURNS: u32 = 32;

/// Maximum number of packets that one call of `progress` sends before it polls for received packets again:
/// acknowledgements that wait in the socket delay the remote end.
pub(crate) const FLUSH_PACKETS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_recovery_reduces_the_packets_of_some_turns() {
        let mut recoveries = LossRecoveries::default();
        assert_eq!(recoveries.packets(true, 0), FLUSH_PACKETS);
        assert_eq!(recoveries.packets(true, 1), RECOVERY_PACKETS);
        assert_eq!(recoveries.packets(false, 1), FLUSH_PACKETS, "other transports are limited too");
        let reduced = (0..2 * RECOVERY_TURNS).filter(|_| recoveries.packets(true, 1) == RECOVERY_PACKETS).count();
        assert_eq!(reduced as u32, RECOVERY_TURNS - 1);
        assert_eq!(recoveries.packets(true, 2), RECOVERY_PACKETS, "the next loss has no effect");
    }
}
