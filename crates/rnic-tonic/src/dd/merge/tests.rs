//! The observer's check of the table of conflicts: each rule is stated here a second time, variable by variable, and
//! held against the merge for all 32 subsets of the five modules' events.

use rnic_base::{RandomStream, RandomStreams};
use rnic_program::{Actions, U};

use super::super::incoming::acknowledge;
use super::*;
use crate::program::Scheme;
use crate::shape::Sizes;
use crate::wires::Packet;

const K: u32 = 128;

fn shape() -> Shape {
    Shape::new(Sizes::default(), Scheme::Token, 0).unwrap()
}

/// A state that the NIC can reach, near the wrap of ids now and then.
fn draw_state(random: &mut RandomStream, shape: &Shape) -> (Window, Duty) {
    let start =
        SegmentId::new(if random.below(2) == 0 { 0xFF_FFF0 + random.below(32) as u32 } else { random.bits() as u32 });
    let sent = random.below(u64::from(K) + 1) as u32;
    let inside = RingMap::range(shape.position(start), sent, K);
    let mut map = || {
        let density = random.below(4);
        let words = core::array::from_fn(|_| (0..density).fold(u64::MAX, |word, _| word & random.bits()));
        RingMap::new(words) & inside
    };
    let (acked, marked, repeats_low, repeats_high) = (map(), map(), map(), map());
    let next = start.plus(sent);
    let window = Window {
        in_use: true,
        start,
        size: random.below(u64::from(K) + 1) as u16,
        next,
        limit: next.plus(random.below(200) as u32),
        has_short_last: random.below(2) == 0,
        acked,
        repeats_low,
        repeats_high,
    };
    let outstanding = random.below(12) as u8;
    let timer_on = sent > 0 && random.below(4) > 0;
    let mut duty = Duty {
        marked: marked & !acked,
        outstanding,
        back_pressured: outstanding >= 11 || (outstanding == 10 && random.below(2) == 0),
        idle: false,
        total_sent: SegmentId::new(random.bits() as u32),
        timer_on,
        expiry: if timer_on { Ticks::new(random.bits() as u32) } else { Ticks::new(0) },
        timer: Ticks::new(1 + random.below(5_000) as u32),
        rate: 0,
    };
    duty.idle = next_segment(&window, &duty, shape).is_none();
    (window, duty)
}

fn draw_answer(random: &mut RandomStream, window: &Window, shape: &Shape) -> Answer {
    let mut near = || U::new(u64::from(window.start.plus(random.below(160) as u32).plus(0xFF_FFF0).value()));
    let (from, to) = (near(), near());
    let mut bit = || random.below(2) == 0;
    let (mark, restart) = (bit(), bit());
    let actions = Actions {
        mark,
        from,
        to,
        window: U::new(random.below(130)),
        rate: U::new(7),
        restart,
        timer: U::new(1 + random.below(900)),
    };
    Answer::new(&actions, shape)
}

/// Draws the events of the subset `modules`: bit 0 the fixed stage, 1 the program's answer to a packet, 2 a visit, 3 a
/// generation, 4 a transmission. Returns `None` when the drawn state cannot have them.
fn draw_events(random: &mut RandomStream, modules: u32, window: &Window, duty: &Duty, shape: &Shape) -> Option<Events> {
    let has = |module: u32| modules >> module & 1 == 1;
    let mut events = Events::default();
    if has(0) {
        let sent = forward(window.start, window.next);
        let packet = Packet {
            ack: true,
            cum: window.start.plus(random.below(u64::from(sent) + 1) as u32),
            sacked: random.below(2) == 0,
            sack: window.start.plus(random.below(150) as u32),
            ..Packet::default()
        };
        events.acknowledged = Some(acknowledge(window, &packet, shape)?);
    }
    if has(1) {
        events.incoming = Some(draw_answer(random, window, shape));
    }
    if has(2) {
        events.periodic = Some((draw_answer(random, window, shape), duty.timer_on && random.below(2) == 0));
    }
    if has(3) {
        events.generated = Some(next_segment(window, duty, shape).filter(|_| !duty.back_pressured)?);
    }
    if has(4) {
        (duty.outstanding > 0).then_some(())?;
        events.transmitted = true;
    }
    Some(events)
}

/// The next state by the table, segment by segment and variable by variable.
fn observe(window: &Window, duty: &Duty, events: &Events, now: Ticks, shape: &Shape) -> (Window, Duty) {
    let at = |map: &RingMap, id: SegmentId| map.test(shape.position(id));
    let visit = if events.incoming.is_none() { events.periodic } else { None };
    let start = events.acknowledged.map_or(window.start, |done| done.start);
    let next = match events.generated {
        Some(generated) if !generated.is_repeat => generated.id.plus(1),
        _ => window.next,
    };
    let is_in = |answer: Answer, id: SegmentId| {
        answer.mark.is_some_and(|(from, to)| from.distance_to(id) >= 0 && id.distance_to(to) > 0)
    };
    let mut maps = [RingMap::EMPTY; 4];
    for offset in 0..forward(start, next) {
        let id = start.plus(offset);
        let is_generated = events.generated.is_some_and(|generated| generated.id == id);
        let is_acked = at(&events.acknowledged.map_or(window.acked, |done| done.acked), id);
        let was_marked = at(&duty.marked, id) && !is_generated;
        let is_marked_now = events.incoming.is_some_and(|answer| is_in(answer, id))
            || visit.is_some_and(|(answer, _)| is_in(answer, id));
        let before = u8::from(at(&window.repeats_low, id)) + 2 * u8::from(at(&window.repeats_high, id));
        let is_repeat = is_generated && events.generated.is_some_and(|generated| generated.is_repeat);
        let times = if is_repeat { (before + 1).min(3) } else { before };
        let bits = [is_acked, (was_marked || is_marked_now) && !is_acked, times & 1 == 1, times >= 2];
        maps.iter_mut().zip(bits).filter(|(_, bit)| *bit).for_each(|(map, _)| map.set(shape.position(id)));
    }
    let [acked, marked, repeats_low, repeats_high] = maps;
    let answer = events.incoming.or(visit.map(|(answer, _)| answer));
    let outstanding =
        i16::from(duty.outstanding) + i16::from(events.generated.is_some()) - i16::from(events.transmitted);
    let timer = answer.map_or(duty.timer, |answer| answer.timer);
    let is_restarted = events.incoming.is_some_and(|answer| answer.restart)
        || visit.is_some_and(|(answer, is_expired)| is_expired || answer.restart);
    let is_started = !duty.timer_on && events.generated.is_some();
    let timer_on = start != next && (is_restarted || is_started || duty.timer_on);
    let next_window = Window {
        start,
        next,
        size: answer.map_or(window.size, |answer| answer.window),
        acked,
        repeats_low,
        repeats_high,
        ..*window
    };
    let mut next_duty = Duty {
        marked,
        outstanding: u8::try_from(outstanding).unwrap(),
        back_pressured: outstanding >= 11 || (outstanding == 10 && duty.back_pressured),
        idle: false,
        total_sent: duty.total_sent.plus(u32::from(events.generated.is_some())),
        timer_on,
        expiry: match (timer_on, is_restarted || is_started) {
            (false, _) => Ticks::new(0),
            (true, true) => now.plus(timer.value()),
            (true, false) => duty.expiry,
        },
        timer,
        rate: 0,
    };
    let may_send = |id: SegmentId| forward(start, id) < u32::from(next_window.size);
    let has_marked =
        (0..forward(start, next)).map(|offset| start.plus(offset)).any(|id| at(&marked, id) && may_send(id));
    let has_new = may_send(next) && next.is_before(window.limit);
    next_duty.idle = !has_marked && !has_new;
    (next_window, next_duty)
}

/// Compares merge and table over `rounds` states for each subset; returns how many of each subset were compared.
fn compare(seed: u64, rounds: u32) -> [u32; 32] {
    let shape = shape();
    let mut random = RandomStreams::new(seed).stream("merge");
    let mut hits = [0; 32];
    for modules in 0..32_u32 {
        while hits[modules as usize] < rounds {
            let (window, duty) = draw_state(&mut random, &shape);
            let now = Ticks::new(random.bits() as u32);
            let Some(events) = draw_events(&mut random, modules, &window, &duty, &shape) else { continue };
            let merged = merge(&window, &duty, &events, now, &shape);
            let expected = observe(&window, &duty, &events, now, &shape);
            assert_eq!((merged.window, merged.duty), expected, "modules {modules:05b}: {events:?} at {now}");
            assert!(is_zero_outside(&merged, &shape));
            hits[modules as usize] += 1;
        }
    }
    hits
}

/// Returns whether all maps are zero outside of the sent segments.
fn is_zero_outside(merged: &Merged, shape: &Shape) -> bool {
    let Merged { window, duty, .. } = merged;
    let inside = RingMap::range(shape.position(window.start), forward(window.start, window.next), K);
    [window.acked, window.repeats_low, window.repeats_high, duty.marked].iter().all(|map| (*map & !inside).is_empty())
}

#[test]
fn t18_t8_all_subsets_of_events_are_merged_by_the_table() {
    let hits = compare(18, 1_000);
    println!("merge cases hit (I0 = 1, I1 = 2, P = 4, G = 8, D = 16): {hits:?}");
    assert!(hits.iter().all(|hits| *hits >= 1_000), "{hits:?}");
}

/// A flow with ten segments from `start` outstanding and two more announced.
fn flow(start: u32) -> (Shape, Window, Duty) {
    let start = SegmentId::new(start);
    let next = start.plus(10);
    let window = Window { in_use: true, start, size: 64, next, limit: next.plus(2), ..Window::default() };
    let duty =
        Duty { outstanding: 3, timer_on: true, expiry: Ticks::new(50), timer: Ticks::new(100), ..Duty::default() };
    (shape(), window, duty)
}

fn answer(actions: &Actions) -> Answer {
    Answer::new(actions, &shape())
}

fn id(id: SegmentId) -> U<24> {
    U::new(u64::from(id.value()))
}

#[test]
fn t18_an_acknowledgement_wins_over_a_timeout() {
    let (shape, window, duty) = flow(0xFF_FFFA);
    let start = window.start;
    let timeout = answer(&Actions {
        mark: true,
        from: id(start),
        to: id(start.plus(10)),
        window: U::new(1),
        timer: U::new(200),
        ..Actions::default()
    });
    let alone = Events { periodic: Some((timeout, true)), ..Events::default() };
    let merged = merge(&window, &duty, &alone, Ticks::new(60), &shape);
    assert_eq!((merged.window.size, merged.duty.marked.count(), merged.timed_out), (1, 10, 10));
    assert_eq!(merged.duty.expiry, Ticks::new(260), "restarted with the new duration");
    let packet = Packet { ack: true, cum: start.plus(4), ..Packet::default() };
    let acknowledged = acknowledge(&window, &packet, &shape);
    let both = merge(&window, &duty, &Events { acknowledged, ..alone }, Ticks::new(60), &shape);
    assert_eq!(
        (both.window.start, both.duty.marked.count(), both.timed_out),
        (start.plus(4), 6, 6),
        "none is repeated"
    );
    let second = Events { incoming: Some(answer(&Actions { window: U::new(65), ..Actions::default() })), ..alone };
    let merged = merge(&window, &duty, &second, Ticks::new(60), &shape);
    assert_eq!((merged.window.size, merged.duty.marked.count(), merged.timed_out), (65, 0, 0), "nothing of the visit");
}

#[test]
fn t18_an_answer_marks_the_segment_that_is_sent_while_it_is_merged() {
    let (shape, window, duty) = flow(0xFF_FFFA);
    let mark =
        |to: u32| Actions { mark: true, from: id(window.start), to: id(window.start.plus(to)), ..Actions::default() };
    let generated = next_segment(&window, &duty, &shape);
    assert_eq!(generated.map(|generated| generated.id), Some(window.next), "a new one");
    for (to, expected) in [(10, 10), (11, 11), (12, 11)] {
        let events = Events { generated, incoming: Some(answer(&mark(to))), ..Events::default() };
        let merged = merge(&window, &duty, &events, Ticks::new(0), &shape);
        assert_eq!(merged.duty.marked.count(), expected, "up to {to}");
    }
}

#[test]
fn t18_generation_and_transmission_cancel() {
    let (shape, window, duty) = flow(5);
    let generated = next_segment(&window, &duty, &shape);
    let both = Events { generated, transmitted: true, ..Events::default() };
    let merged = merge(&window, &duty, &both, Ticks::new(0), &shape);
    assert_eq!(merged.duty.outstanding, 3);
    assert_eq!(merged.window.next, window.next.plus(1));
}

#[test]
fn t18_a_mark_wins_over_its_clearing_in_the_same_cycle() {
    let (shape, window, mut duty) = flow(5);
    duty.marked.set(7);
    let generated = next_segment(&window, &duty, &shape);
    assert_eq!(generated.map(|generated| (generated.id.value(), generated.is_repeat)), Some((7, true)));
    let cleared = merge(&window, &duty, &Events { generated, ..Events::default() }, Ticks::new(0), &shape);
    assert!(cleared.duty.marked.is_empty() && cleared.window.repeats_low.test(7));
    let seven = SegmentId::new(7);
    let mark = answer(&Actions { mark: true, from: id(seven), to: id(seven.plus(1)), ..Actions::default() });
    let both = Events { generated, incoming: Some(mark), ..Events::default() };
    assert!(merge(&window, &duty, &both, Ticks::new(0), &shape).duty.marked.test(7), "a lost mark would stall");
}

#[test]
fn t12_the_lowest_marked_segment_is_next_in_ring_order() {
    let (shape, window, mut duty) = flow(124);
    // Segments 126 and 129: positions 126 and 1.
    duty.marked.set(1);
    duty.marked.set(126);
    assert_eq!(next_segment(&window, &duty, &shape).unwrap().id, SegmentId::new(126));
    let acked = Window { acked: RingMap::range(126, 1, K), ..window };
    assert_eq!(next_segment(&acked, &duty, &shape).unwrap().id, SegmentId::new(129), "acknowledged ones are passed");
    let narrow = Window { size: 2, ..window };
    assert_eq!(next_segment(&narrow, &duty, &shape), None, "marks beyond the window wait");
    duty.marked = RingMap::EMPTY;
    assert_eq!(next_segment(&window, &duty, &shape).unwrap().id, window.next);
}

#[test]
fn t8_the_number_of_retransmissions_saturates() {
    let (shape, mut window, mut duty) = flow(0);
    let mut times = Vec::new();
    for _ in 0..5 {
        duty.marked.set(3);
        let generated = next_segment(&window, &duty, &shape);
        times.push(generated.unwrap().times_sent);
        let merged = merge(&window, &duty, &Events { generated, ..Events::default() }, Ticks::new(0), &shape);
        (window, duty) = (merged.window, merged.duty);
    }
    assert_eq!(times, [1, 2, 3, 3, 3]);
}
