//! The registered programs in the template.

use rnic_base::RandomStreams;
use rnic_program::Scheme;
use rnic_tonic::{SegmentId, Tonic};

use crate::lazy::{compare, rough};
use crate::network::{Conditions, Network, flows, open, template};

#[test]
fn t28_every_program_delivers_all_segments_over_a_lossy_network() {
    for program in rnic_transports::programs::all() {
        let description = program.description();
        let count = 4;
        let mut tonic = template(flows(count), program, &[]);
        let is_token = description.scheme == Scheme::Token;
        let conditions = Conditions {
            delay: 400,
            jitter: if description.name == "dcqcn" { 0 } else { 20 },
            loss: 2,
            trims: if is_token { 6 } else { 0 },
            ack_loss: 2,
            marks: u64::from(description.name == "dcqcn"),
            has_nacks: ["irn", "dcqcn"].contains(&&*description.name),
            has_grants: is_token,
            ..Conditions::default()
        };
        let mut network = Network::new(28, count, conditions);
        let mut random = RandomStreams::new(28).stream("first");
        let firsts: Vec<_> = (0..count).map(|_| SegmentId::new(0xFF_FF00 + random.below(300) as u32)).collect();
        for (flow, first) in (0..).zip(&firsts) {
            open(&mut tonic, flow, *first, 1_000);
            network.expect(flow, *first);
        }
        // Up to 300 ms, until all has arrived.
        let is_done = |tonic: &Tonic| {
            (0..).zip(&firsts).all(|(flow, first)| tonic.flow(flow).unwrap().start == first.plus(1_000))
        };
        let mut steps = 0;
        while tonic.now() < 30_000_000 && !is_done(&tonic) {
            let end = tonic.now() + 100_000;
            steps += network.run_lazily(&mut tonic, end);
        }
        println!("{}: {steps} steps, {} cycles", description.name, tonic.now());
        for (flow, first) in (0..).zip(&firsts) {
            let view = tonic.flow(flow).unwrap();
            let name = &description.name;
            assert_eq!(network.expected(flow), first.plus(1_000), "{name}, flow {flow}: {view:?}");
            assert_eq!(view.start, first.plus(1_000), "{name}, flow {flow}: {view:?}");
        }
        // Idle flows cost no steps, except while a program's own timers run. The answer to a call of the program is
        // merged in the cycle after it, in which the program may be called again: calls in successive cycles take one
        // cycle more than there are calls.
        let idle = tonic.now() + 100_000_000;
        let (mut cycles, mut rows_of_calls, mut last) = (0, 0, 0);
        while let Some(event) = tonic.next_event(idle) {
            assert_eq!(tonic.advance_to(event + 1), None);
            rows_of_calls += u64::from(event != last + 1);
            cycles += 1;
            last = event;
        }
        let calls = cycles - rows_of_calls;
        println!("{}: {calls} calls of the program, {cycles} cycles", description.name);
        assert!(
            calls < 40_000,
            "{}: the program is called {calls} times in a second without segments",
            description.name
        );
        let (delivery, _) = tonic.counters();
        println!("{}: {delivery:?}", description.name);
        assert!(delivery.repeats > 10, "{}: {delivery:?}", description.name);
    }
}

#[test]
fn lazy_stepping_equals_eager_with_every_program() {
    for program in rnic_transports::programs::all() {
        compare(program, &[], flows(4), Conditions { lies: 3, ..rough() });
    }
}
