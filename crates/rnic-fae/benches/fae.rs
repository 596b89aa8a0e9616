//! Events a second on one core, with the real Swift (F-R19, F-R21): connections x bytes of state x form.
//!
//! Each batch of events names random connections; making events, and carrying state back for the stateless form, is not
//! timed. On average a connection has two events a round trip, whatever the number of connections, half of them above
//! the target delay: so all rows take the same branches equally often, and what differs is memory. A state larger than
//! Swift's has counters in every further line, one of which every event raises.
//!
//! The last table is what memory alone gives: the same lines asked for as far ahead and raised by one, with no program.
//!
//! Run `taskset -c 3 cargo bench -p rnic-fae`; add `-- --quick` for a first look, numbers of connections for those rows
//! alone. A figure is that of the median batch of the best of several rounds: a batch takes a fraction of a time slice,
//! so other programs interrupt few of them. What the paper shows stands at the end beside what was measured.
#![allow(clippy::disallowed_types, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::marker::PhantomData;
use std::time::Instant;

use bytemuck::{Pod, Zeroable};
use prefetch_index::prefetch_index;
use rnic_base::{BitRate, RandomStream, RandomStreams};
use rnic_fae::{Erased, Event, EventRecord, Form, Processor, ProcessorConfig, Program, ResponseRecord, Typed};
use rnic_policy::control::lanes::{Acks, Answers, LANES, LaneSet, StateLanes};
use rnic_policy::control::report::{Carried, FlowReport, InForce, Ticks};
use rnic_policy::control::{ControlActions, ControlEvent, ControlInterest, ControlView};
use rnic_policy::kit::report;
use rnic_policy::profile::Configured;
use rnic_policy::{Control, FlowActions, ParamSpec, Params};
use rnic_transports::control::swift::Swift;

/// Events of a batch: with their responses they fit into the second-level cache, as what a NIC has just written would.
const BATCH: usize = 4_096;
/// Two events of a connection a round trip of 200 ticks.
const TICKS_BETWEEN: u64 = 100;

/// Swift with more state, of which every event touches every line.
macro_rules! wide {
    ($name:ident, $bytes:literal, $lines:literal) => {
        #[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        struct $name {
            swift: Swift,
            counters: [[u64; 8]; $lines],
        }

        const _: () = assert!(size_of::<$name>() == $bytes);

        impl Control for $name {
            const NAME: &'static str = Swift::NAME;
            const SUMMARY: &'static str = Swift::SUMMARY;
            const PARAMS: &'static [ParamSpec] = Swift::PARAMS;

            fn start(params: &Params, view: &ControlView) -> (Self, ControlActions) {
                let (swift, actions) = Swift::start(params, view);
                (Self { swift, counters: [[0; 8]; $lines] }, actions)
            }

            fn interest(params: &Params) -> ControlInterest {
                Swift::interest(params)
            }

            #[inline(always)]
            fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions {
                if let ControlEvent::Reported(report) = event {
                    let bucket = (report.rtt().get() / 64 % 8) as usize;
                    self.counters.iter_mut().for_each(|line| line[bucket] += 1);
                }
                self.swift.on_event(event, view, params)
            }

            #[inline(always)]
            fn on_acks<L: StateLanes<Self> + ?Sized>(
                states: &mut L,
                acks: &Acks,
                set: LaneSet,
                params: &Params,
                answers: &mut Answers,
            ) -> LaneSet {
                let done = Swift::on_acks(&mut Narrow(&mut *states, PhantomData::<Self>), acks, set, params, answers);
                for lane in (0..LANES).filter(|lane| done >> lane & 1 != 0) {
                    let bucket = (acks.rtt[lane].get() / 64 % 8) as usize;
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

/// Swift's part of wider states.
struct Narrow<L, S>(L, PhantomData<S>);

wide!(Wide128, 128, 1);
wide!(Wide256, 256, 3);
wide!(Wide512, 512, 7);

/// The datapath's part: makes events, and keeps what travels.
struct Datapath {
    random: RandomStream,
    connections: u64,
    /// Events so far. The first of each connection come in the order of their numbers, and are not counted.
    met: u64,
    /// Time in 1/2^20 ticks.
    now: u64,
    contexts: Vec<(Carried, InForce)>,
    events: Vec<EventRecord>,
    responses: Vec<ResponseRecord>,
}

impl Datapath {
    fn new(connections: u32, first: &FlowActions, form: Form) -> Self {
        let kept = if form == Form::Stateless { connections as usize } else { 1 };
        Self {
            random: RandomStreams::new(1).stream("fae"),
            connections: u64::from(connections),
            met: 0,
            now: 0,
            contexts: vec![(Carried::default(), first.in_force()); kept],
            events: vec![EventRecord::default(); BATCH],
            responses: vec![ResponseRecord::default(); BATCH],
        }
    }

    fn make_events(&mut self) {
        for place in 0..BATCH {
            self.now += (TICKS_BETWEEN << 20) / self.connections;
            let now = (self.now >> 20) as u32;
            let connection = if self.met < self.connections { self.met } else { self.random.below(self.connections) };
            self.met += 1;
            let connection = connection as u32;
            let delay = self.random.between(120, 320) as u32;
            let wait = self.random.below(60) as u32;
            let context = if self.contexts.len() > 1 { connection as usize } else { 0 };
            let (carried, in_force) = self.contexts[context];
            let times = [delay - delay / 2, wait, delay / 2];
            let report = FlowReport {
                acked: self.random.between(1, 8) as u16,
                hops: 3,
                rx_level: self.random.below(16) as u8,
                label: 0x1230,
                ..report(0, Ticks::new(now), times, in_force)
            };
            let event = Event { connection, first: false, queue: 0, report, carried };
            self.events[place] = EventRecord::pack(&event, true);
        }
    }

    fn take_responses(&mut self) {
        if self.contexts.len() > 1 {
            for record in &self.responses {
                let response = record.unpack();
                self.contexts[response.connection as usize] = (response.carried, response.actions.in_force());
            }
        }
    }
}

/// Millions of events a second in the median of `batches` batches, in the best of `rounds` rounds after one that is not
/// counted.
fn measure<P: Program>(program: P, connections: u32, form: Form, (rounds, batches): (u32, usize)) -> f64 {
    let config = ProcessorConfig { form, connections, line_rate: BitRate::gbps(200), mtu: 4_096 };
    let mut processor = Processor::new(program, &config).expect("the program runs in every form");
    let mut datapath = Datapath::new(connections, processor.first(), form);
    let mut best = f64::INFINITY;
    for round in 0..=rounds {
        let mut spent = Vec::with_capacity(batches);
        let batches = if round == 0 { batches.max((connections as usize).div_ceil(BATCH)) } else { batches };
        for _ in 0..batches {
            datapath.make_events();
            let mut place = 0;
            let responses = &mut datapath.responses;
            let begin = Instant::now();
            processor.handle_all(black_box(&datapath.events), |response| {
                responses[place] = response;
                place += 1;
            });
            spent.push(begin.elapsed().as_secs_f64());
            black_box(&datapath.responses);
            datapath.take_responses();
        }
        if round > 0 {
            spent.sort_unstable_by(f64::total_cmp);
            best = best.min(spent[batches / 2]);
        }
    }
    BATCH as f64 / best / 1e6
}

const FORMS: [(&str, Form); 3] =
    [("stateless", Form::Stateless), ("table", Form::Table), ("prefetch", Form::PREFETCHING)];

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { (3, 64) } else { (7, 256) };
    let asked: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let all = [1, 1_000, 10_000, 32_000, 128_000, 500_000, 1_000_000];
    let sizes = if asked.is_empty() { all.as_slice() } else { &asked };
    let params = Params::defaults(Swift::PARAMS);
    let policy = rnic_transports::control::find("swift").expect("it is registered");
    let by_name = Erased(Configured { policy, params });
    println!("million events a second; 64 bytes of state; program by name, then by type");
    println!(
        "{:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "connections", "stateless", "table", "prefetch", "stateless", "table", "prefetch"
    );
    let mut measured = Vec::new();
    for connections in sizes.iter().copied() {
        let named = FORMS.map(|(_, form)| measure(by_name, connections, form, effort));
        let typed = FORMS.map(|(_, form)| measure(Typed::<Swift>::new(params), connections, form, effort));
        let row: Vec<String> = named.iter().chain(&typed).map(|rate| format!("{rate:10.2}")).collect();
        println!("{connections:>12} {}", row.join(" "));
        measured.push((connections, typed));
    }
    if asked.is_empty() {
        verdicts(&measured, &sizes_of_state(&params, effort));
    }
}

/// Connections for which sizes of state are compared.
const COMPARED: [u32; 3] = [1_000, 128_000, 1_000_000];
const STATE_BYTES: [usize; 4] = [64, 128, 256, 512];

/// Prints rates by bytes of state; answers those with prefetch, by size, then by number of connections.
fn sizes_of_state(params: &Params, effort: (u32, usize)) -> [[f64; 3]; 4] {
    println!("bytes of state; program by type; table, then prefetch, then memory alone, per number of connections");
    println!("{:>12} {}", "bytes", COMPARED.map(|size| format!("{size:>10} {:>21}", "")).join(" "));
    STATE_BYTES.map(|bytes| {
        let rates = COMPARED.map(|connections| {
            let rate = |form| match bytes {
                64 => measure(Typed::<Swift>::new(*params), connections, form, effort),
                128 => measure(Typed::<Wide128>::new(*params), connections, form, effort),
                256 => measure(Typed::<Wide256>::new(*params), connections, form, effort),
                _ => measure(Typed::<Wide512>::new(*params), connections, form, effort),
            };
            let alone = memory_alone(connections as usize, bytes / 64, effort);
            (rate(Form::Table), rate(Form::PREFETCHING), alone)
        });
        let row = rates.map(|(table, prefetch, alone)| format!("{table:10.2} {prefetch:10.2} {alone:10.2}"));
        println!("{bytes:>12} {}", row.join(" "));
        rates.map(|(_, prefetch, _)| prefetch)
    })
}

/// Millions of states a second whose `lines` lines are fetched ahead and raised by one.
fn memory_alone(connections: usize, lines: usize, (rounds, batches): (u32, usize)) -> f64 {
    const AHEAD: usize = 16;
    let mut random = RandomStreams::new(2).stream("memory");
    let mut table = memmap2::MmapMut::map_anon((connections * lines * 64).next_multiple_of(2 << 20)).expect("memory");
    // Without huge pages it is slower, as the table would be.
    #[cfg(target_os = "linux")]
    drop(table.advise(memmap2::Advice::HugePage));
    let table: &mut [[u64; 8]] = bytemuck::cast_slice_mut(&mut table);
    table.iter_mut().for_each(|line| line[0] = 1);
    let mut spent = Vec::new();
    for _ in 0..rounds as usize * batches {
        let firsts: Vec<usize> = (0..BATCH).map(|_| random.below(connections as u64) as usize * lines).collect();
        let begin = Instant::now();
        for (index, first) in firsts.iter().copied().enumerate() {
            if let Some(later) = firsts.get(index + AHEAD).copied() {
                (later..later + lines).for_each(|line| prefetch_index(&*table, line));
            }
            table[first..first + lines].iter_mut().for_each(|line| line[0] += 1);
        }
        spent.push(begin.elapsed().as_secs_f64());
    }
    spent.sort_unstable_by(f64::total_cmp);
    BATCH as f64 / spent[spent.len() / 2] / 1e6
}

/// The paper's rows, on this processor.
fn verdicts(by_connections: &[(u32, [f64; 3])], by_size: &[[f64; 3]; 4]) {
    let rates = |wanted| by_connections.iter().find(|(connections, _)| *connections == wanted).expect("it is a row").1;
    let ([_, few_table, few], [_, many_table, many]) = (rates(1_000), rates(128_000));
    let flat = (few / many - 1.0).abs();
    let wide = by_size[3][1];
    let cost = 1.0 - wide / by_size[0][1];
    let line = |row: &str, what: String, holds: bool| {
        println!("{row:>6} {} {what}", if holds { "holds" } else { "FAILS" });
    };
    println!("the paper's rows (figures 22a and 23: one Neoverse-N1; here one core of this machine), program by type");
    line("F-R19", format!("20 M/s with 128,000 connections and prefetch: {many:.1} M/s"), many >= 20.0);
    line("F-R19", format!("flat within 15 % from 1,000 to 128,000: {:.1} %", flat * 100.0), flat <= 0.15);
    let (loss, fall) = (1.0 - many_table / few_table, 1.0 - many / few);
    let what = format!("without prefetch it falls by more: {:.0} %, {:.0} % with", loss * 100.0, fall * 100.0);
    line("F-R19", what, loss > fall);
    line("F-R21", format!("15 M/s with 512 bytes of state: {wide:.1} M/s"), wide >= 15.0);
    line("F-R21", format!("eight times the state costs less than 40 %: {:.0} %", cost * 100.0), cost < 0.4);
}
