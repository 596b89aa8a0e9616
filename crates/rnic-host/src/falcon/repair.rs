//! Length of a Falcon NIC's sending turns between two receive polls: shorter than usual while packets get lost.
//!
//! Source: Falcon (SIGCOMM'25) section 4.1: an acknowledgement covers 128 packets from the base on, and RACK judges
//! none beyond them. So each round trip recovers the losses of one or two hundred packets, and the window advances at
//! that pace. Between processes most of a round trip is the sender's own work before it polls for the response: two
//! batches of 57 packets take 140 us. Polling after two trains costs a twentieth of the goodput without loss, and gains
//! a sixth at 1 % loss and 5 % reordering (64 KiB Writes of 4 KiB packets, 20.8 to 24.2 Gbit/s): so it is done for a
//! while after a retransmission. The RoCE family does not gain: IRN's acknowledgements cover its complete window.

/// Tracks the number of packets that a Falcon NIC sends before it polls for received packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repairs {
    /// Packets retransmitted so far.
    again: u64,
    /// Remaining sending turns until losses are forgotten.
    turns: u32,
}

impl Repairs {
    /// Returns the maximum number of packets to send in this turn. `is_falcons` is true when Falcon packets are among
    /// them; `again` is the number of packets retransmitted so far.
    #[inline]
    pub(crate) fn packets(&mut self, is_falcons: bool, again: u64) -> u32 {
        if !is_falcons {
            return FLUSH_PACKETS;
        }
        self.turns = if again == self.again { self.turns.saturating_sub(1) } else { TURNS };
        self.again = again;
        if self.turns > 0 { WHILE_REPAIRING } else { FLUSH_PACKETS }
    }
}

/// Packets per turn while losses are recovered: two trains of 4 KiB packets.
const WHILE_REPAIRING: u32 = 30;

/// Turns for which losses are remembered. At a loss in a thousand packets, the next one comes before this is over;
/// recovering one takes two or three turns.
const TURNS: u32 = 32;

/// Maximum number of packets that one call of `progress` sends before it polls for received packets again:
/// acknowledgements that wait delay the remote end.
pub(crate) const FLUSH_PACKETS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_shortens_some_turns() {
        let mut repairs = Repairs::default();
        assert_eq!(repairs.packets(true, 0), FLUSH_PACKETS);
        assert_eq!(repairs.packets(true, 1), WHILE_REPAIRING);
        assert_eq!(repairs.packets(false, 1), FLUSH_PACKETS, "others have nothing to do with it");
        let short = (0..2 * TURNS).filter(|_| repairs.packets(true, 1) == WHILE_REPAIRING).count();
        assert_eq!(short as u32, TURNS - 1);
        assert_eq!(repairs.packets(true, 2), WHILE_REPAIRING, "and the next one again");
    }
}
