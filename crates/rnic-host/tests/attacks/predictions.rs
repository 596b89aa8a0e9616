//! Checks that a peer that has seen many keys and numbers cannot predict the next ones.
//!
//! The argument is in `rnic-host/src/secrets.rs`: every value is a 32-bit or 24-bit part of the output of a
//! pseudorandom function, applied to a counter, under a key with no other use. A test cannot prove that; these tests
//! check that an attack which used to work fails, even for an attacker who knows the seed of everything else.

use std::collections::BTreeSet;

use rnic_engine::{Access, Engine, EngineConfig, MemoryRegion};
use rnic_host::{NicConfig, TransportChoice};

use crate::common::Side;

/// Unknown bits of the engine's secret. Finding all 64 took the attacker 75 seconds; the test reveals the others.
const UNKNOWN_BITS: u32 = 12;

/// The attack: keys of consecutive registrations reveal the secret that they were made from, and with it the next
/// keys. Tries every secret that begins like `known`; returns the keys that it predicts after `seen`.
fn invert(known: u64, seen: &[u32], predicted: usize) -> Option<Vec<u32>> {
    (0..1 << UNKNOWN_BITS).find_map(|low| {
        let keys = keys_of_engine((known >> UNKNOWN_BITS << UNKNOWN_BITS) | low, seen.len() + predicted);
        // A few registrations may have come before.
        (keys[..seen.len()] == *seen).then(|| keys[seen.len()..].to_vec())
    })
}

/// Keys that an engine makes by itself.
fn keys_of_engine(secret: u64, count: usize) -> Vec<u32> {
    let mut engine = Engine::new(EngineConfig { secret, ..EngineConfig::default() });
    let pd = engine.objects_mut().create_pd().expect("a protection domain");
    let region = MemoryRegion { pd, addr: 4_096, len: 64, local: 0, access: Access::LOCAL_WRITE };
    (0..count).map(|_| engine.objects_mut().register(region).expect("valid").0).collect()
}

fn keys_of_nic(side: &mut Side, count: usize) -> Vec<u32> {
    let register = |_| side.nic.verbs().register(side.pd, 64, Access::LOCAL_WRITE).expect("memory").key().0;
    (0..count).map(register).collect()
}

#[test]
fn eight_keys_of_memory_predict_nothing() {
    let secret = 0x0123_4567_89ab_cdef;
    let keys = keys_of_engine(secret, 10);
    assert_eq!(invert(secret, &keys[..8], 2).as_deref(), Some(&keys[8..]), "the attack fails against predictable keys");

    let config = NicConfig { secret: Some(secret), ..NicConfig::shared() };
    let mut side = Side::open(config);
    let keys = keys_of_nic(&mut side, 8);
    assert_eq!(invert(secret, &keys, 2), None, "the keys of a NIC were predicted");
    // The keys of one NIC say nothing about those of another.
    let others = keys_of_nic(&mut Side::open(NicConfig::shared()), 8);
    assert!(keys.iter().all(|key| !others.contains(key)), "{keys:x?} and {others:x?}");
}

/// Differences, parities and bits of many keys look like those of independent random values, which a simple mixing of
/// a counter would not achieve.
#[test]
fn memory_keys_show_no_order() {
    let mut side = Side::open(NicConfig { secret: Some(5), ..NicConfig::shared() });
    let keys = keys_of_nic(&mut side, 4_096);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "two keys are equal");
    let differences: BTreeSet<u32> = keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    // Two of 4095 draws of 32 bits are equal with a chance of one in 512.
    assert!(differences.len() >= keys.len() - 4, "{} differences", differences.len());
    for bit in 0..32 {
        let set = keys.iter().filter(|key| **key >> bit & 1 == 1).count();
        let unchanged = keys.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 0).count();
        // Five standard deviations of 4096 throws of a coin: 160.
        assert!(set.abs_diff(2_048) < 160 && unchanged.abs_diff(2_048) < 160, "bit {bit}: {set}, {unchanged}");
    }
    // The key of a removed region is not used again when another region takes its slot.
    let mut deregistered = BTreeSet::new();
    for _ in 0..1_000 {
        let region = side.nic.verbs().register(side.pd, 64, Access::LOCAL_WRITE).expect("memory");
        assert!(deregistered.insert(region.key().0), "{:#x} was reused", region.key().0);
        side.nic.verbs().deregister(region);
    }
}

#[test]
fn queue_pair_numbers_cannot_be_predicted_from_packets() {
    let numbers = |config: NicConfig| {
        let mut side = Side::open(config);
        let choice = TransportChoice::named("irn", &[]).expect("it exists");
        let transport = std::sync::Arc::new(rnic_engine::Transport::new(choice.profile).expect("a complete profile"));
        let attributes = rnic_engine::QpAttributes {
            service: rnic_engine::Service::ReliableConnection,
            pd: side.pd,
            send_cq: side.cq,
            recv_cq: side.cq,
            srq: None,
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            signal_all: false,
            transport,
            number: None,
            nvme: None,
        };
        let create = |_| side.nic.verbs().create_qp(&attributes).expect("a free number").get();
        let numbers: Vec<u32> = (0..16).map(create).collect();
        (numbers, (side.nic.port(), side.nic.queue_pairs_max() - 1))
    };
    let secret = Some(11);
    let (shared, (port, below)) = numbers(NicConfig { secret, ..NicConfig::shared() });
    assert!(shared.iter().all(|number| number & !below == u32::from(port) << 8), "the upper bits are not the port");
    let loopback = || NicConfig { secret, ..NicConfig::at("127.0.0.1:0".parse().expect("an address")) };
    let (fixed, _) = numbers(loopback());
    // Equal seeds give equal numbers, other seeds other numbers.
    assert_eq!(fixed, numbers(loopback()).0);
    let (other, _) = numbers(NicConfig { secret: None, ..loopback() });
    assert!(fixed.iter().filter(|number| other.contains(number)).count() < 2, "{fixed:x?} and {other:x?}");
    let halves = |numbers: &[u32]| numbers.iter().map(|number| number & below).collect::<BTreeSet<_>>();
    assert!(halves(&shared).len() >= 14 && halves(&fixed).len() >= 14, "{shared:x?}, {fixed:x?}");
}
