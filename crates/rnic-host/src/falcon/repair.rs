//! How long a Falcon NIC sends before it looks at what has come in: not as long as usual while packets get lost.
//!
//! Source: Falcon (SIGCOMM'25) section 4.1: an acknowledgement tells of 128 packets from the base on, and RACK judges
//! none beyond them. So each round trip repairs what was lost of one or two hundred packets, and the window goes on at
//! that pace. Between processes most of a round trip is what the sender does before it looks at the answer: two
//! batches of 57 packets take 140 us. Looking after two trains costs a twentieth of the goodput without loss, and gains
//! a sixth at 1 % loss and 5 % reordering (64 KiB Writes of 4 KiB packets, 20.8 to 24.2 Gbit/s): so it is done for a
//! while after something had to be sent again. The RoCE family does not gain: IRN's acknowledgements are as far-sighted
//! as its window is wide.

/// How many packets a Falcon NIC sends before it looks at what has come in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repairs {
    /// Packets sent again so far.
    again: u64,
    /// Turns of sending until losses are forgotten.
    turns: u32,
}

impl Repairs {
    /// Packets that this turn sends, at most. `is_falcons` says that Falcon's packets are among them, `again` how many
    /// have been sent again so far.
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

/// Two trains of 4 KiB packets.
const WHILE_REPAIRING: u32 = 30;

/// At a loss in a thousand packets, the next one comes before this is over; one repair needs two or three turns.
const TURNS: u32 = 32;

/// Packets that one call of `progress` sends, at most, before it looks again at what has come in: acknowledgements that
/// wait hold up the other side.
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
