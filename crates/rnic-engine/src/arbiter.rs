//! Which class is served next: strict priorities, and, among classes of the same priority, shares by weight.
//!
//! Deficit round robin (Shreedhar and Varghese, SIGCOMM'95), with one change: a class may send while its credit is
//! positive, and is charged afterwards, because a NIC knows the length of a packet only when it has been built. A class
//! gets its share to within one packet and one quantum. Switches use the same arbiter for their outputs.

/// Maximum number of classes: the priorities that a pause frame can name (IEEE 802.1Qbb).
pub const CLASSES_MAX: usize = 8;

/// Largest weight of a class.
pub const CLASS_WEIGHT_MAX: u16 = 1_000;

/// Service that a class gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassShare {
    /// Classes of a higher priority are served first.
    pub priority: u8,
    /// Share of what is left, among the classes with the same priority: 1 to [`CLASS_WEIGHT_MAX`].
    pub weight: u16,
}

/// Service of all classes. The state of each link is separate: [`ClassTurns`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassShares {
    /// Classes by priority, the highest first: a bit for each class. Unused entries are zero.
    levels: [u8; CLASSES_MAX],
    /// Bytes that a class may send when its turn comes.
    quanta: [i32; CLASSES_MAX],
}

/// State of the classes at one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassTurns {
    /// Bytes that each class may send before its turn ends; negative when its last packet was longer.
    credit: [i32; CLASSES_MAX],
    /// For each priority, the class whose turn it is.
    turn: [u8; CLASSES_MAX],
}

impl ClassShares {
    /// Returns the service of classes with these shares, at most [`CLASSES_MAX`].
    ///
    /// # Panics
    /// When there are more classes, or a weight is zero or above [`CLASS_WEIGHT_MAX`].
    pub fn new(shares: &[ClassShare]) -> Self {
        assert!(shares.len() <= CLASSES_MAX, "there are at most {CLASSES_MAX} classes");
        let mut priorities: Vec<u8> = shares.iter().map(|share| share.priority).collect();
        priorities.sort_unstable_by(|one, other| other.cmp(one));
        priorities.dedup();
        let mut all = Self { levels: [0; CLASSES_MAX], quanta: [0; CLASSES_MAX] };
        for (level, priority) in priorities.into_iter().enumerate() {
            let members = || shares.iter().enumerate().filter(move |(_, share)| share.priority == priority);
            let unit = members().map(|(_, share)| share.weight).fold(0, greatest_divisor);
            for (class, share) in members() {
                assert!((1..=CLASS_WEIGHT_MAX).contains(&share.weight), "a weight is 1 to {CLASS_WEIGHT_MAX}");
                all.levels[level] |= 1 << class;
                all.quanta[class] = i32::from(share.weight / unit) * QUANTUM_BYTES;
            }
        }
        all
    }

    /// Returns the class that is served next, of those in `ready`, a bit for each class that has a packet and may send.
    #[inline]
    pub fn select(&self, turns: &mut ClassTurns, ready: u8) -> Option<usize> {
        let level = self.levels.iter().position(|members| members & ready != 0)?;
        let waiting = self.levels[level] & ready;
        let idle = self.levels[level] & !ready;
        // A class without packets saves no credit for later.
        bits(idle).for_each(|class| turns.credit[class] = turns.credit[class].min(0));
        let mut class = usize::from(turns.turn[level]);
        loop {
            if waiting >> class & 1 == 1 && turns.credit[class] > 0 {
                turns.turn[level] = class as u8;
                return Some(class);
            }
            class = (class + 1) % CLASSES_MAX;
            if waiting >> class & 1 == 1 {
                turns.credit[class] += self.quanta[class];
            }
        }
    }
}

impl ClassTurns {
    /// Counts a packet of `bytes` that `class` has sent.
    #[inline]
    pub fn charge(&mut self, class: usize, bytes: u32) {
        self.credit[class] -= bytes as i32;
    }
}

/// Returns the positions of the bits that are set.
fn bits(set: u8) -> impl Iterator<Item = usize> {
    (0..CLASSES_MAX).filter(move |bit| set >> bit & 1 == 1)
}

fn greatest_divisor(one: u16, other: u16) -> u16 {
    if other == 0 { one } else { greatest_divisor(other, one % other) }
}

/// Bytes of a turn for each unit of weight: small, so that classes alternate often, yet so many that few rounds repay
/// the longest packet.
const QUANTUM_BYTES: i32 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(shares: &[(u8, u16)]) -> ClassShares {
        let share = |&(priority, weight): &(u8, u16)| ClassShare { priority, weight };
        ClassShares::new(&shares.iter().map(share).collect::<Vec<_>>())
    }

    /// Serves `packets` packets of classes that always have one, with the lengths `bytes`; returns the bytes of each.
    fn serve(shares: &ClassShares, ready: u8, bytes: [u32; CLASSES_MAX], packets: u32) -> [u64; CLASSES_MAX] {
        let (mut turns, mut served) = (ClassTurns::default(), [0; CLASSES_MAX]);
        for _ in 0..packets {
            let class = shares.select(&mut turns, ready).expect("a class is ready");
            turns.charge(class, bytes[class]);
            served[class] += u64::from(bytes[class]);
        }
        served
    }

    /// Shares are in proportion to weights, whatever the lengths of packets.
    #[test]
    fn weighted_classes_share_in_proportion_to_bytes() {
        let cases: [(&[(u8, u16)], u8); 4] = [
            (&[(0, 1), (0, 3)], 3),
            (&[(0, 60), (0, 40), (0, 20)], 7),
            (&[(0, 1000), (0, 999)], 3),
            (&[(0, 7); 8], 255),
        ];
        for (plan, ready) in cases {
            let lengths = [64, 1_500, 9_000, 300, 1_100, 64, 4_200, 900];
            let served = serve(&shares(plan), ready, lengths, 2_000_000);
            let (total, weights) = (served.iter().sum::<u64>(), plan.iter().map(|(_, weight)| *weight).sum::<u16>());
            for (class, (_, weight)) in plan.iter().enumerate() {
                let (share, expected) = (served[class] as f64 / total as f64, f64::from(*weight) / f64::from(weights));
                assert!((share / expected - 1.0).abs() < 0.005, "{plan:?}: class {class} has {share}");
            }
        }
    }

    /// A higher priority is always served first; what it leaves is shared by the next.
    #[test]
    fn a_higher_priority_is_always_first() {
        let shares = shares(&[(0, 1), (7, 1), (0, 3)]);
        assert_eq!(serve(&shares, 0b111, [1_000; 8], 100)[..3], [0, 100_000, 0]);
        let served = serve(&shares, 0b101, [1_000; 8], 1_000);
        assert_eq!((served[1], served[0] * 3), (0, served[2]));
        assert_eq!(shares.select(&mut ClassTurns::default(), 0), None);
    }

    /// A class that has had nothing to send gets no more than its share afterwards.
    #[test]
    fn an_idle_class_saves_nothing() {
        let shares = shares(&[(0, 1), (0, 1)]);
        let mut turns = ClassTurns::default();
        for _ in 0..1_000 {
            assert_eq!(shares.select(&mut turns, 1), Some(0));
            turns.charge(0, 1_000);
        }
        let mut served = [0u32; 2];
        for _ in 0..100 {
            let class = shares.select(&mut turns, 3).expect("both are ready");
            turns.charge(class, 1_000);
            served[class] += 1;
        }
        assert!(served[0].abs_diff(served[1]) <= 2, "{served:?}");
    }
}
