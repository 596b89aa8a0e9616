//! Swift with a larger state.

use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use rnic_policy::control::lanes::{Acks, LANES, LaneSet, ResponseLanes, StateLanes};
use rnic_policy::control::report::Ticks;
use rnic_policy::control::{ControlActions, ControlEvent, ControlInterest, ControlView};
use rnic_policy::{Control, ParamSpec, Params, ReportControl};
use rnic_transports::control::swift::Swift;

/// Defines Swift with a larger state, of which every event accesses every line.
macro_rules! wide {
    ($name:ident, $bytes:literal, $lines:literal) => {
        #[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        pub(super) struct $name {
            swift: Swift,
            counters: [[u64; BUCKETS]; $lines],
        }

        const _: () = assert!(size_of::<$name>() == $bytes);

        impl Control for $name {
            const NAME: &'static str = Swift::NAME;
            const SUMMARY: &'static str = Swift::SUMMARY;
            const PARAMS: &'static [ParamSpec] = Swift::PARAMS;

            fn start(params: &Params, view: &ControlView) -> (Self, ControlActions) {
                let (swift, actions) = Swift::start(params, view);
                (Self { swift, counters: [[0; BUCKETS]; $lines] }, actions)
            }

            fn interest(params: &Params) -> ControlInterest {
                Swift::interest(params)
            }

            #[inline(always)]
            fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
                if let ControlEvent::Reported(report) = event {
                    let bucket = bucket(report.rtt());
                    self.counters.iter_mut().for_each(|line| line[bucket] += 1);
                }
                self.swift.on_event(event, view, params)
            }
        }

        impl ReportControl for $name {
            const LANES: bool = true;

            #[inline(always)]
            fn on_acks<L: StateLanes<Self> + ?Sized>(
                states: &mut L,
                acks: &Acks,
                set: LaneSet,
                params: &Params,
                answers: &mut ResponseLanes,
            ) -> LaneSet {
                let done = Swift::on_acks(&mut Narrow(&mut *states, PhantomData::<Self>), acks, set, params, answers);
                for lane in (0..LANES).filter(|lane| done >> lane & 1 != 0) {
                    let bucket = bucket(acks.rtt[lane]);
                    states.state(lane).counters.iter_mut().for_each(|line| line[bucket] += 1);
                }
                done
            }
        }

        impl<L: StateLanes<$name> + ?Sized> StateLanes<Swift> for Narrow<&mut L, $name> {
            #[inline(always)]
            fn state(&mut self, lane: usize) -> &mut Swift {
                &mut self.0.state(lane).swift
            }
        }
    };
}

/// Returns the index, in the cache line of a connection, of the counter that an event with round-trip time `rtt`
/// increments.
#[inline(always)]
fn bucket(rtt: Ticks) -> usize {
    (rtt.get() / BUCKET_TICKS) as usize % BUCKETS
}

/// Number of counters in a cache line.
const BUCKETS: usize = 8;
/// Width of a counter's range in ticks; round trips of the datapath, 120 to 380 ticks, fall into several of them.
const BUCKET_TICKS: u32 = 64;

/// Access to the part of a larger state that Swift uses.
struct Narrow<L, S>(L, PhantomData<S>);

wide!(Wide128, 128, 1);
wide!(Wide256, 256, 3);
wide!(Wide512, 512, 7);
