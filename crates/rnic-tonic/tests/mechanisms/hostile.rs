//! A program that answers anything, and receivers that say anything: the template keeps its bounds.

use rnic_base::RandomStreams;
use rnic_program::{
    Actions, Description, Graphs, Id, Incoming, Initial, Lowering, Needs, Offset, Periodic, Rate, RecordError, Scheme,
    Start, StateField, Ticks, Transport,
};
use rnic_tonic::{Address, FlowSetup, Input, Installed, Packet, SegmentId, Sizes, Tonic};

/// Answers that depend on its inputs in no sensible way.
struct Wild(Scheme);

/// Mixes a number (SplitMix64).
fn mix(seed: u64) -> u64 {
    let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn answer(state: &mut [u8], start: u64, actions: &mut Actions) {
    let seed = u64::from_le_bytes(state[..8].try_into().expect("the state has eight bytes")).wrapping_add(0x9e37_79b9);
    state[..8].copy_from_slice(&seed.to_le_bytes());
    let bits = mix(seed);
    let near = |bits: u64| {
        Id::new(if bits & 7 == 0 { bits >> 8 } else { start.wrapping_add(bits >> 8 & 0xFF).wrapping_sub(64) })
    };
    *actions = Actions {
        mark: bits & 3 == 0,
        from: near(mix(bits)),
        to: near(mix(bits + 1)),
        window: Offset::new(bits >> 8),
        rate: Rate::new(bits >> 20 >> (bits & 15)),
        restart: bits & 8 == 8,
        timer: Ticks::new(if bits & 16 == 16 { bits >> 40 & 0xFF } else { bits >> 40 }),
    };
}

impl Transport for Wild {
    fn description(&self) -> Description {
        let constant = Initial::Constant;
        Description {
            name: "wild".into(),
            summary: "Answers anything.".into(),
            scheme: self.0,
            receiver: rnic_program::Receiver::Places,
            start: Start { window: constant(300), rate: constant(0), timer: constant(50) },
            state: vec![StateField { name: "seed".into(), bits: 64, initial: constant(7), due: Default::default() }],
            parameters: Vec::new(),
            lines: 0,
        }
    }

    fn incoming(&self, packet: &Incoming, _: &[u64], state: &mut [u8], actions: &mut Actions) {
        answer(state, packet.start.get(), actions);
    }

    fn periodic(&self, visit: &Periodic, _: &[u64], state: &mut [u8], actions: &mut Actions) {
        answer(state, visit.start.get(), actions);
    }

    fn graphs(&self, _: Lowering) -> Result<Graphs, RecordError> {
        unreachable!("the template runs it as it stands")
    }

    fn needs(&self) -> Result<Needs, RecordError> {
        Ok(Needs::ALL)
    }
}

#[test]
fn t8_t14_a_program_that_answers_anything_breaks_no_bound() {
    const FLOWS: u16 = 5;
    for (seed, scheme) in [(1, Scheme::Window), (2, Scheme::Rate), (3, Scheme::Token)] {
        for window in [64, 256] {
            let program = Installed::new(Box::leak(Box::new(Wild(scheme))), Vec::new(), 8_192_000).unwrap();
            let mut tonic = Tonic::new(Sizes { flows: FLOWS, window, ..Sizes::default() }, program).unwrap();
            let mut random = RandomStreams::new(seed).stream("wild");
            for flow in 0..FLOWS {
                let first = SegmentId::new(random.bits() as u32);
                tonic.add_flow(flow, FlowSetup { first, segment_bytes: 700 }).unwrap();
                tonic.set_limit(flow, first.plus(1 << 20), 0).unwrap();
            }
            let mut left = 0;
            for cycle in 0..120_000_u32 {
                let flow = random.below(u64::from(FLOWS)) as u16;
                let view = tonic.flow(flow).unwrap();
                let packet = (random.below(3) == 0).then(|| {
                    let bits = random.bits();
                    let ahead = if bits & 0xF00 == 0 { bits >> 20 } else { bits >> 20 & 0x3F };
                    let near = view.start.plus(ahead as u32);
                    Packet {
                        ack: bits & 1 == 1,
                        nack: bits & 2 == 2,
                        trimmed: bits & 32 == 32,
                        cnp: bits & 4 == 4,
                        sacked: bits & 8 == 8,
                        cum: near,
                        sack: near.plus((bits >> 60) as u32),
                        times_sent: (bits >> 6 & 3) as u8,
                        grant: (bits & 16 == 16).then(|| SegmentId::new(cycle / 4)),
                    }
                });
                let input = Input { packet: packet.map(|packet| (flow, packet)), is_blocked: random.below(9) == 0 };
                let address: Option<Address> = tonic.step(&input);
                left += u32::from(address.is_some());
                // Packing checks that every field keeps its width.
                let after = tonic.flow(flow).unwrap();
                let sent = after.start.distance_to(after.next);
                assert!((0..=i64::from(window)).contains(&sent) && after.window <= window && after.outstanding <= 11);
                assert!(tonic.context(flow).unwrap().0.bits() > 4 * u32::from(window));
                assert!(i64::from(after.marked + after.acked) <= sent, "{scheme:?}, cycle {cycle}: {after:?}");
            }
            assert!(left > 3_000, "{scheme:?}: {left} addresses left");
        }
    }
}
