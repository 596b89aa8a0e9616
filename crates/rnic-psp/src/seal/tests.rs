//! Sealed datagrams compared with those of another implementation.

use super::*;
use crate::key::tests::bytes;
use crate::open::Opener;
use rnic_wire::falcon::Timestamp;
use rnic_wire::falcon::psp::{self, ICV_LEN};

/// Contexts of both directions between 10.0.0.1, connection 0x11, and 10.0.0.2, connection 0x22, as a host encodes
/// them.
const CONTEXT: &str = "00000000000000000000ffff0a000001 00000011 00000000000000000000ffff0a000002 00000022";

/// Two packets under each cipher, the second of the next generation and with a time of more than 32 bits, created
/// with Python's `cryptography` (over OpenSSL) from secret, context and cookie, following only the crate's
/// documentation.
#[test]
fn f42_golden_datagrams_with_a_cookie() {
    let cases = [
        (
            Cipher::Gcm128,
            "fc020303 00000022 00000800 00000005 11223344 55667788 01020304b18df5694635a05f19dd015e3feb92bf037404ed7a03\
             ff79690679538ca89fd23f5b77de3ff05235188b6099",
            "fc020303 80000022 000a0c00 00000006 11223344 55667788 01020304eeb75087d3925004e6a7c114d19a1e40e7a689b337ef\
             39935ce1564d5151e34f7d70890de67f868c9a38589f",
        ),
        (
            Cipher::Gcm256,
            "fc020307 00000022 00000800 00000005 11223344 55667788 0102030453632ec4eab3559f3ce4a59481488860c470abd8fefc\
             c93c237b2ed001cf5d7272d73679690116ea98b8b99a",
            "fc020307 80000022 000a0c00 00000006 11223344 55667788 010203041e6044d13d40ae9b067341e669e34545933cccee6db8\
             1c77b5aacc1e4bbbb543e994b6ee14352beb6990ffa8",
        ),
        (
            Cipher::Gmac128,
            "fc02030b 00000022 00000800 00000005 11223344 55667788 0102030405060708090a0b0c0d0e0f101112131415161718191a\
             1b1c1d1e1f2008169ad21f5a62efea1f2d2ed66689ad",
            "fc02030b 80000022 000a0c00 00000006 11223344 55667788 0102030405060708090a0b0c0d0e0f101112131415161718191a\
             1b1c1d1e1f206f232f54a08289a37122c03f2031843f",
        ),
        (
            Cipher::Gmac256,
            "fc02030f 00000022 00000800 00000005 11223344 55667788 0102030405060708090a0b0c0d0e0f101112131415161718191a\
             1b1c1d1e1f208fa6c149de20e2a1d1bd9535b46f43d7",
            "fc02030f 80000022 000a0c00 00000006 11223344 55667788 0102030405060708090a0b0c0d0e0f101112131415161718191a\
             1b1c1d1e1f202b34ffd4f9fc98b769e211da60208285",
        ),
    ];
    let secret = Secret::new(std::array::from_fn(|at| at as u8));
    let (context, cid) = (Context::new(&bytes(CONTEXT)), Cid::new(0x22));
    for (cipher, first, second) in cases {
        let mut sealer = Sealer::new(&secret, cipher, &context, cid, 0x1122_3344_5566_7788).rotating_after(1);
        let mut opener = Opener::new(&secret, cipher, &context, cid);
        for (expected, units, label) in [(first, 5_u64, 2), (second, 0x5_0000_0006, 3)] {
            let mut datagram = [0; LEN_MAX + 32 + ICV_LEN];
            (1..=32).zip(&mut datagram[LEN_MAX..]).for_each(|(value, byte)| *byte = value);
            sealer.seal(Time::from_ps(units << Timestamp::UNIT_SHIFT), FlowLabel::new(label), &mut datagram);
            assert_eq!(datagram.to_vec(), bytes(expected), "{cipher:?}");
            let (header, layout) = psp::parse(&datagram).expect("the datagram has the PSP format");
            assert!(opener.open(&header, layout, &mut datagram).is_ok());
            assert_eq!(datagram[layout.message()].to_vec(), (1..=32).collect::<Vec<u8>>());
        }
    }
}
