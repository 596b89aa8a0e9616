//! Mapping between queue pair numbers and UDP ports, when several NICs share one machine.
//!
//! Each NIC receives on its own UDP port, which its queue pair numbers encode, so the number determines the port:
//! programs exchange addresses and numbers only. There are two types of ports. Below 32768 a NIC's port is a multiple
//! of 64 and `port / 64` is the upper 10 bits of its numbers; above, it is a multiple of 16 and the upper 12 bits.
//! The remaining low bits are random: 14 bits, for 16,384 queue pairs, or 12 bits, for 4,096. A NIC uses a port of
//! the first type while one is free; there are 496 of those, and 2,048 of the others, for the NICs of one network
//! namespace.
//!
//! ```text
//!            23                      14 13                      0
//!   16,384  | port / 64, less than 512 |         random          |
//!            23                            12 11                0
//!    4,096  | port / 16, at least 2,048      |      random       |
//! ```
//!
//! One port for 16,384 numbers was preferred to several ports of 4,096 each: a NIC needs no additional sockets and
//! polls no more than before, and all its packets arrive on one port, whatever queue pair they belong to. The cost is
//! that 1,488 of 4,032 NICs no longer fit.
//!
//! Packets are sent from port 4791, which all NICs of a user share, so that captures show them as RoCEv2.
//! ARCHITECTURE.md, section "Under unmodified programs", lists the alternatives that were considered.

use rnic_wire::Qpn;

use crate::secrets::SecretStream;

/// Returns the UDP port on which a queue pair receives.
#[inline]
pub(crate) fn port_of(qpn: Qpn) -> u16 {
    // The upper 12 of the 24 bits of the number give 12 bits of the port.
    let port = ((qpn.get() >> INDEX_BITS) << PORT_SHIFT) as u16;
    port & !(step_of(port) - 1)
}

/// Returns the queue pair number on `port` with `index` in its lower bits.
pub(crate) fn number_on(port: u16, index: u32) -> Qpn {
    Qpn::new(u32::from(port >> PORT_SHIFT) << INDEX_BITS | index & (queue_pairs_of(port) - 1))
}

/// Returns the number of queue pairs that `port` can have.
pub(crate) fn queue_pairs_of(port: u16) -> u32 {
    u32::from(step_of(port) >> PORT_SHIFT) << INDEX_BITS
}

/// Number of random indices that are tried before consecutive ones are.
const RANDOM_DRAWS: u32 = 64;

/// Returns the indices to try for a new queue pair of a NIC that can have `limit` of them: random ones first, then
/// `limit` consecutive ones (wrapping), so that the last free number is found too.
pub(crate) fn candidate_indices(random: &mut SecretStream, limit: u32) -> impl Iterator<Item = u32> + '_ {
    let first = random.bits() as u32;
    let consecutive = (0..limit).map(move |step| first.wrapping_add(step));
    (0..RANDOM_DRAWS).map(|_| random.bits() as u32).chain(consecutive)
}

/// Returns whether `port` is one that NICs choose as their own.
pub(crate) fn is_port_of_nic(port: u16) -> bool {
    port.is_multiple_of(step_of(port)) && port >= PORT_MIN
}

/// Returns the step of the port range that contains `port`: a NIC's port in this range is a multiple of it.
#[inline]
fn step_of(port: u16) -> u16 {
    if port < LARGE_BELOW { LARGE_STEP } else { 1 << PORT_SHIFT }
}

/// Returns a random port of category `class`, below [`PORT_CLASSES`], or `None` when the random number gives a port
/// outside that category, or a round port, which only the last category permits.
pub(crate) fn draw_port(class: u32, random: &mut SecretStream) -> Option<u16> {
    let ports = match class {
        0 => PORT_MIN..=LARGE_BELOW - 1,
        1 => *EPHEMERAL.end() + 1..=u16::MAX,
        2 => LARGE_BELOW..=u16::MAX,
        _ => PORT_MIN..=u16::MAX,
    };
    let any = *ports.start() + random.below(u64::from(ports.end() - ports.start()) + 1) as u16;
    let port = any & !(step_of(any) - 1);
    (ports.contains(&port) && (class + 1 == PORT_CLASSES || !port.is_multiple_of(ROUND_PORT_MULTIPLE))).then_some(port)
}

/// Number of low bits of a queue pair number that do not encode the port, for ports of the second type.
const INDEX_BITS: u32 = 12;

/// Ports of the second type are multiples of 16, so that 12 bits encode one.
const PORT_SHIFT: u32 = 4;

/// Ports of the first type are below this port, where the kernel's ephemeral range usually starts.
const LARGE_BELOW: u16 = 1 << 15;

/// Ports of the first type are multiples of this: each has four times as many queue pair numbers.
const LARGE_STEP: u16 = 64;

/// The first port that unprivileged users may bind.
const PORT_MIN: u16 = 1_024;

/// The kernel's default range of ephemeral ports.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Number of further ports from which a NIC sends: the paths of connections that have several.
pub(crate) const PATHS_MAX: usize = 16;

/// Multiples of this are round ports, which users like to choose.
const ROUND_PORT_MULTIPLE: u16 = 1_000;

/// Number of categories of ports, tried in order of preference.
pub(crate) const PORT_CLASSES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Secrets;

    #[test]
    fn any_number_that_is_the_last_free_one_is_tried() {
        let limit = 1 << 12;
        for seed in 0..64 {
            let mut random = Secrets::of_seed(seed).stream("numbers");
            let mut tried = vec![false; limit as usize];
            candidate_indices(&mut random, limit).for_each(|index| tried[(index & (limit - 1)) as usize] = true);
            assert!(tried.iter().all(|tried| *tried), "seed {seed}");
        }
    }

    #[test]
    fn a_queue_pair_number_encodes_its_port() {
        let cases = [(1_024, 0, 14), (1_088, 4_096, 14), (32_704, 16_383, 14), (32_768, 17, 12), (65_520, 4_095, 12)];
        for (port, index, bits) in cases {
            let number = number_on(port, index);
            assert!(is_port_of_nic(port) && queue_pairs_of(port) == 1 << bits, "{port}");
            assert_eq!(port_of(number), port);
            assert_eq!(number.get() & ((1 << bits) - 1), index);
            assert!(number.get() >= 2, "a management queue pair number was chosen");
            assert_eq!(number_on(port, 1 << bits | index), number, "the index changes the port");
        }
        for port in [0, 960, 1_040, 32_752, 32_776, 65_535] {
            assert!(!is_port_of_nic(port), "{port}");
        }
    }

    /// Every 24-bit number maps to one port, and that port maps back to the same number.
    #[test]
    fn every_queue_pair_number_maps_to_a_port_and_back() {
        for number in (0..1 << 24).step_by(61) {
            let port = port_of(Qpn::new(number));
            assert_eq!(number_on(port, number), Qpn::new(number));
            assert_eq!(is_port_of_nic(port), port >= PORT_MIN);
        }
    }

    /// Each category gives exactly the ports of its range, so that another range is used when all ports of one are in
    /// use.
    #[test]
    fn ports_of_every_class_are_drawn() {
        let mut random = Secrets::of_seed(8).stream("ports");
        let mut seen = [const { std::collections::BTreeSet::new() }; PORT_CLASSES as usize];
        for attempt in 0..240_000 {
            let class = attempt % PORT_CLASSES;
            if let Some(port) = draw_port(class, &mut random) {
                assert!(is_port_of_nic(port), "{port}");
                assert!(port % 1_000 > 0 || class + 1 == PORT_CLASSES, "{port}");
                assert!(class > 1 || !EPHEMERAL.contains(&port), "{port}");
                seen[class as usize].insert(port);
            }
        }
        // The two types have 496 and 2,048 ports. All categories but the last exclude those that are also divisible
        // by 1,000.
        assert_eq!(seen.map(|ports| ports.len()), [492, 281, 2_032, 2_544]);
    }
}
