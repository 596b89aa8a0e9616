//! Checks that no packet causes an allocation, even if its key is new.

#[path = "../../rnic-engine/tests/common/heap.rs"]
mod heap;

use rnic_base::{Duration, Time};
use rnic_psp::{Context, Opener, Sealer, Secret, esp};
use rnic_wire::falcon::psp::{self, Cipher, ICV_LEN, LEN_MAX};
use rnic_wire::falcon::{Cid, FlowLabel};

#[test]
fn sealing_opening_and_rotating_allocate_nothing() {
    let (secret, context, cid) = (Secret::new([9; 32]), Context::new(b"this way"), Cid::new(2));
    let mut datagram = vec![7; LEN_MAX + 300 + ICV_LEN];
    for cipher in Cipher::ALL {
        let mut sealer = Sealer::new(&secret, cipher, &context, cid, 1).rotating_after(10);
        let mut opener = Opener::new(&secret, cipher, &context, cid);
        let before = heap::allocations();
        let mut now = Time::ZERO;
        for packet in 0..1_000 {
            now += Duration::from_ns(100);
            sealer.seal(now, FlowLabel::new(0), &mut datagram);
            if packet % 7 == 3 {
                datagram[40] ^= 1;
            }
            let (header, layout) = psp::parse(&datagram).expect("the PSP header is valid");
            assert_eq!(opener.open(&header, layout, &mut datagram).is_err(), packet % 7 == 3);
        }
        assert_eq!(heap::allocations() - before, 0, "{cipher:?}");
        assert_eq!((sealer.generation(), opener.generation()), (99, 99));
    }
}

#[test]
fn sealing_opening_and_rotating_with_esp_allocate_nothing() {
    let (secret, context, cid) = (Secret::new([9; 32]), Context::new(b"this way"), Cid::new(2));
    let mut datagram = vec![7; rnic_wire::falcon::esp::encapsulation_len(300) + 300];
    for cipher in Cipher::ALL {
        let mut sealer = esp::Sealer::new(&secret, cipher, &context, cid, 1).rotating_after(10);
        let mut opener = esp::Opener::new(&secret, cipher, &context, cid);
        let before = heap::allocations();
        let mut now = Time::ZERO;
        for packet in 0..1_000 {
            now += Duration::from_ns(100);
            sealer.seal(now, FlowLabel::new(0), 300, &mut datagram);
            if packet % 7 == 3 {
                datagram[40] ^= 1;
            }
            let (header, layout) = rnic_wire::falcon::esp::parse(&datagram).expect("the ESP header is valid");
            assert_eq!(opener.open(&header, layout, &mut datagram).is_err(), packet % 7 == 3);
        }
        assert_eq!(heap::allocations() - before, 0, "{cipher:?}");
        assert_eq!((sealer.generation(), opener.generation()), (99, 99));
    }
}
