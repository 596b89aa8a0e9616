//! Queue pair numbers that come and go: who has one is found, who had one is not, and the table is as small as before.

#[path = "common/heap.rs"]
mod heap;

use std::sync::Arc;

use rnic_engine::*;
use rnic_wire::Qpn;

/// What there is to make queue pairs with.
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
            transport: Arc::new(Transport::new(profile).expect("a sound transport")),
            number: None,
            nvme: None,
        };
        Self { engine, attributes }
    }

    /// A queue pair of that number, or of one that the engine draws.
    fn make(&mut self, number: Option<u32>) -> Qpn {
        let attributes = QpAttributes { number: number.map(Qpn::new), ..self.attributes.clone() };
        self.engine.create_qp(&attributes).expect("a number that is free")
    }

    fn end(&mut self, number: Qpn) {
        self.engine.destroy_qp(number).expect("it lives");
    }

    /// So many queue pairs at a time, under numbers that the engine draws.
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
fn numbers_that_are_nobodys_any_more_leave_no_memory_behind() {
    let mut maker = Maker::new();
    // The list of pages is as long as the largest number asks for, and stays.
    let last = maker.make(Some(0xff_ffff));
    maker.end(last);
    maker.come_and_go(1, 300);
    let before = heap::live_bytes();
    maker.come_and_go(1_000, 1);
    maker.come_and_go(2, 300);
    let more = heap::live_bytes() - before;
    assert!(more.abs() < 4_096, "1600 queue pairs have left {more} bytes");
}

#[test]
fn numbers_in_one_neighbourhood_come_and_go_by_themselves() {
    let mut maker = Maker::new();
    let [first, second] = [0x100, 0x1ff].map(|number| maker.make(Some(number)));
    maker.end(first);
    assert!(!maker.lives(0x100) && maker.lives(0x1ff));
    maker.end(second);
    assert!(!maker.lives(0x1ff));
    // Where the page of those is used again, nothing of theirs is left on it.
    let third = maker.make(Some(0x20_0042));
    assert!(maker.lives(0x20_0042));
    assert!(![0x100, 0x1ff, 0x142, 0x20_0000, 0x20_00ff].into_iter().any(|number| maker.lives(number)));
    maker.end(third);
    let again = maker.make(Some(0x1ff));
    assert!(maker.lives(0x1ff) && !maker.lives(0x20_0042));
    maker.end(again);
}

#[test]
fn a_number_that_is_used_again_and_again_takes_no_new_page() {
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
