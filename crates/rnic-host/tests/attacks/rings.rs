//! Rings of shared memory, and whoever would like to have one.

use std::time::Duration;

use rnic_host::NicConfig;

use crate::another_user::Other;
use crate::common::{Side, drive_for};
use crate::guesses::{connected, write_and_check};

/// Another user takes the names of the peer's letterbox, which the peer itself does not want or has not got: nothing of
/// what the connection carries gets to that user, and the connection goes on, by the network.
#[test]
fn another_user_that_has_the_name_of_a_letterbox_gets_no_ring() {
    let (mut left, mut right) =
        (Side::open(NicConfig::shared()), Side::open(NicConfig { bypass: false, ..NicConfig::shared() }));
    let ports = [("RNIC_TEST_PORT", right.nic.port().to_string()), ("RNIC_TEST_VICTIM", left.nic.port().to_string())];
    let Some(mut other) = Other::start("squats_on_letterboxes", &ports) else { return };
    assert_eq!(other.said("BOUND"), "3");
    let (from, _) = connected(&mut left, &mut right);
    for round in 0..3 {
        write_and_check(&mut left, &mut right, from, 200_000 + round);
        // Long enough for questions, answers, and a further question.
        drive_for(&mut left, &mut right, Duration::from_millis(500));
    }
    assert_eq!((left.nic.bypass_rings(), left.nic.stats().bypass_sent), (0, 0));
    other.tell("enough");
    let got = other.said("GOT");
    let letters: u32 = got.split(' ').next().and_then(|count| count.parse().ok()).expect("a number");
    assert!(letters > 0, "it was asked who it is");
    assert!(got.ends_with(" letters, 0 files"), "{got}");
}

/// Another user takes the name first, and the peer another one: the ring goes to the peer.
#[test]
fn a_peer_whose_name_is_taken_gets_its_ring_all_the_same() {
    // A port is drawn at random, so a NIC with a known seed and nobody else on its port tells which it will be.
    let seeded = || NicConfig { secret: Some(0x5ec_0de), ..NicConfig::shared() };
    let port = Side::open(seeded()).nic.port();
    let mut left = Side::open(NicConfig::shared());
    let ports = [("RNIC_TEST_PORT", port.to_string()), ("RNIC_TEST_VICTIM", left.nic.port().to_string())];
    let Some(mut other) = Other::start("squats_on_letterboxes", &ports) else { return };
    assert_eq!(other.said("BOUND"), "3");
    let mut right = Side::open(seeded());
    if right.nic.port() != port {
        return eprintln!("skipped: somebody else has taken port {port} meanwhile");
    }
    let (from, _) = connected(&mut left, &mut right);
    drive_for(&mut left, &mut right, Duration::from_millis(100));
    write_and_check(&mut left, &mut right, from, 200_000);
    assert_eq!((left.nic.bypass_rings(), right.nic.bypass_rings()), (1, 1));
    other.tell("enough");
    assert!(other.said("GOT").ends_with(" letters, 0 files"));
}
