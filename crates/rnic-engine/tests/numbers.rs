//! Queue pair numbers that are created and destroyed: a number in use is found, a number that was destroyed is not,
//! and afterwards the table is as small as before.

#[path = "common/heap.rs"]
mod heap;

use std::sync::Arc;

use rnic_engine::*;
use rnic_wire::Qpn;

/// An engine, and the attributes to create queue pairs with.
struct Maker {
    engine: Engine,
    attributes: QpAttributes,
}

impl Maker {
    fn new() -> Self {
        let mut engine = Engine::new(EngineConfig { secret: 7, ..EngineConfig::default() });
        let pd = engine.objects_mut().create_pd().expect("a protection domain");
        let cq = engine.objects_mut().create_cq(16).expect("a legal size");
        let profile = rnic_transports::profile("irn").expect("a registered transport");
        let attributes = QpAttributes {
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            signal_all: true,
            service: Service::ReliableConnection,
            transport: Arc::new(Transport::new(profile).expect("the profile is valid")),
            number: None,
            nvme: None,
        };
        Self { engine, attributes }
    }

    /// Creates a queue pair with that number, or with one that the engine chooses.
    fn make(&mut self, number: Option<u32>) -> Qpn {
        let attributes = QpAttributes { number: number.map(Qpn::new), ..self.attributes.clone() };
        self.engine.create_qp(&attributes).expect("the number is free")
    }

    fn end(&mut self, number: Qpn) {
        self.engine.destroy_qp(number).expect("it exists");
    }

    /// Creates and destroys `at_a_time` queue pairs, `times` times, under numbers that the engine chooses.
    fn come_and_go(&mut self, times: u32, at_a_time: u32) {
        for _ in 0..times {
            let numbers: Vec<Qpn> = (0..at_a_time).map(|_| self.make(None)).collect();
            numbers.into_iter().for_each(|number| self.end(number));
        }
    }

    fn lives(&self, number: u32) -> bool {
        self.engine.query_qp(Qpn::new(number)).is_some()
    }
}

#[test]
fn destroyed_queue_pairs_free_the_memory_of_their_numbers() {
    let mut maker = Maker::new();
    // The list of pages grows to the length that the largest number needs, and is not shortened.
    let last = maker.make(Some(0xff_ffff));
    maker.end(last);
    maker.come_and_go(1, 300);
    let before = heap::live_bytes();
    maker.come_and_go(1_000, 1);
    maker.come_and_go(2, 300);
    let more = heap::live_bytes() - before;
    assert!(more.abs() < 4_096, "1600 destroyed queue pairs still hold {more} bytes");
}

#[test]
fn numbers_on_one_page_are_added_and_removed_independently() {
    let mut maker = Maker::new();
    let [first, second] = [0x100, 0x1ff].map(|number| maker.make(Some(number)));
    maker.end(first);
    assert!(!maker.lives(0x100) && maker.lives(0x1ff));
    maker.end(second);
    assert!(!maker.lives(0x1ff));
    // Their page is used again; none of their entries is left on it.
    let third = maker.make(Some(0x20_0042));
    assert!(maker.lives(0x20_0042));
    assert!(![0x100, 0x1ff, 0x142, 0x20_0000, 0x20_00ff].into_iter().any(|number| maker.lives(number)));
    maker.end(third);
    let again = maker.make(Some(0x1ff));
    assert!(maker.lives(0x1ff) && !maker.lives(0x20_0042));
    maker.end(again);
}

#[test]
fn a_number_that_is_used_repeatedly_allocates_no_new_page() {
    let mut maker = Maker::new();
    let cost = |maker: &mut Maker| {
        let before = heap::allocations();
        let number = maker.make(Some(0x4_2000));
        maker.end(number);
        heap::allocations() - before
    };
    let (first, again) = (cost(&mut maker), [(); 10].map(|()| cost(&mut maker)));
    // The first needs a page, the list of pages and a slot.
    assert!(again.iter().all(|count| *count < first), "{first}, {again:?}");
    assert!(again.iter().all(|count| *count == again[0]), "{again:?}");
}
