//! No event allocates, in any place or form.

mod common;
#[path = "../../rnic-engine/tests/common/heap.rs"]
mod heap;

use common::{Datapath, config, swift};
use rnic_base::{Duration, Time};
use rnic_fae::{Delayed, EventRecord, Filter, FlowAdmission, Latency, Port, Processor, StateLocation, thread};

#[test]
fn handling_events_allocates_nothing() {
    let probe = heap::allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert!(heap::allocations() > probe, "the allocation counter did not change");
    for form in [StateLocation::Stateless, StateLocation::Table, StateLocation::PREFETCHING] {
        let mut processor = Processor::new(swift(), &config(form, 100)).expect("it is valid");
        let mut datapath = Datapath::new(1, 100, 1, processor.first());
        let before = heap::allocations();
        for _ in 0..5_000 {
            let event = datapath.event();
            let record = processor.handle(&EventRecord::pack(&event, false));
            datapath.apply(&record.unpack());
        }
        let records = [EventRecord::pack(&datapath.event(), false); 50];
        let mut answered = 0;
        processor.handle_all(&records, |_| answered += 1);
        assert_eq!((heap::allocations() - before, answered), (0, 50), "{form:?}");
    }
}

#[test]
fn queues_and_rings_allocate_nothing_for_an_event() {
    let make = || Processor::new(swift(), &config(StateLocation::PREFETCHING, 100)).expect("it is valid");
    let mut datapath = Datapath::new(2, 100, 1, make().first());
    let mut delayed = Delayed::new(make(), Latency::FALCON, 16, Filter::open(16));
    let mut port = Port::start(make(), 16, Filter::open(16), thread::spawn).expect("a thread starts");
    let (mut now, mut refused, mut answered) = (Time::ZERO, 0, 0);
    let before = heap::allocations();
    for _ in 0..5_000 {
        let event = datapath.event();
        // Faster than the engine processes events, so that the queue is full most of the time.
        now += Duration::from_ns(40);
        refused += u32::from(delayed.offer(now, &mut FlowAdmission::default(), &event).is_err());
        answered += u32::from(delayed.poll(now).is_some());
        refused += u32::from(port.offer(&mut FlowAdmission::default(), &event).is_err());
        answered += u32::from(port.poll().is_some());
    }
    assert_eq!(heap::allocations() - before, 0);
    assert!(refused > 100 && answered > 1_000, "{refused} refused, {answered} answered");
}
