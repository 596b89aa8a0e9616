//! No event allocates, in any place or form.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{Datapath, config, swift};
use rnic_base::{Duration, Time};
use rnic_fae::{Delayed, EventRecord, Filter, FlowGate, Form, Latency, Port, Processor};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: forwards to the system allocator; the counter is plain data that needs no allocation itself.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promises are handed on.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller's promises are handed on.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn handling_events_allocates_nothing() {
    let probe = allocations();
    drop(Box::new(1));
    assert!(allocations() > probe, "the counter counts");
    for form in [Form::Stateless, Form::Table, Form::PREFETCHING] {
        let mut processor = Processor::new(swift(), &config(form, 100)).expect("legal");
        let mut datapath = Datapath::new(1, 100, 1, processor.first());
        let before = allocations();
        for _ in 0..5_000 {
            let event = datapath.event();
            let record = processor.handle(&EventRecord::pack(&event, false));
            datapath.apply(&record.unpack());
        }
        let records = [EventRecord::pack(&datapath.event(), false); 50];
        let mut answered = 0;
        processor.handle_all(&records, |_| answered += 1);
        assert_eq!((allocations() - before, answered), (0, 50), "{form:?}");
    }
}

#[test]
fn queues_and_rings_allocate_nothing_for_an_event() {
    let make = || Processor::new(swift(), &config(Form::PREFETCHING, 100)).expect("legal");
    let mut datapath = Datapath::new(2, 100, 1, make().first());
    let mut delayed = Delayed::new(make(), Latency::FALCON, 16, Filter::open(16));
    let mut port = Port::start(make(), 16, Filter::open(16)).expect("a thread");
    let (mut now, mut refused, mut answered) = (Time::ZERO, 0, 0);
    let before = allocations();
    for _ in 0..5_000 {
        let event = datapath.event();
        // Faster than it can be worked on, so that the queue is full most of the time.
        now += Duration::from_ns(40);
        refused += u32::from(delayed.offer(now, &mut FlowGate::default(), &event).is_err());
        answered += u32::from(delayed.poll(now).is_some());
        refused += u32::from(port.offer(&mut FlowGate::default(), &event).is_err());
        answered += u32::from(port.poll().is_some());
    }
    assert_eq!(allocations() - before, 0);
    assert!(refused > 100 && answered > 1_000, "{refused} refused, {answered} answered");
}
