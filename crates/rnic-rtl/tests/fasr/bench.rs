//! An SR module in simulation, whose events, outputs and cycles are compared with those of a specification.

use std::collections::VecDeque;

use rnic_base::{RandomStream, RandomStreams};
use rnic_rtl::spec::fasr::sr::{Clock, Outcome};
use rnic_rtl::spec::fasr::{Context, Event, Kind, Lane, Pack, Timer, UNITS};
use rnic_rtl::verilated::Model;

/// Records in a batch for the circuit.
const BATCH: usize = 4_096;

/// Words of the outputs: ready, ack, retransmission, context, timer, done and the rest.
const OUTPUT_WORDS: usize = 17;

/// Contents of the memory of contexts for a queue pair.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pair {
    pub context: Context,
    pub next: u32,
    pub timer: Timer,
}

/// An event, and what is expected of it.
pub struct Job {
    pub event: Event,
    pub before: Pair,
    pub after: Context,
    pub outcome: Outcome,
    /// The bitmap after the event.
    pub lane: Option<Lane>,
    /// Free blocks and a bit for each unit in use, before the event.
    pub free: u8,
    pub units: u64,
}

/// Outputs that belong to a job.
#[derive(Default)]
struct Found {
    acks: Vec<Vec<u64>>,
    retransmissions: Vec<Vec<u64>>,
    timers: Vec<Vec<u64>>,
    context: Option<Vec<u64>>,
    update_cycles: Option<u64>,
}

/// A cycle of the circuit: the number of its job, and what is expected of the handshake.
#[derive(Clone, Copy)]
struct Slot {
    job: Option<u64>,
    is_first: bool,
    is_ready: bool,
    ends: bool,
}

/// The job that the circuit works on.
struct Current {
    number: u64,
    cycle: u32,
    cycles: u32,
    inputs: Option<Vec<u64>>,
    clock: Clock,
}

pub struct Bench {
    model: Model,
    seed: u64,
    random: RandomStream,
    records: Vec<u64>,
    slots: Vec<Slot>,
    jobs: VecDeque<(Job, Found)>,
    /// Number of the first job in the queue.
    first: u64,
    current: Option<Current>,
    pub clock: Clock,
    /// One cycle in this many stands still; zero for none.
    pub stalls: u64,
    /// Number of cycles, and of events.
    pub cycles: u64,
    pub events: u64,
}

impl Bench {
    pub fn new(model: Model, seed: u64) -> Self {
        Self {
            model,
            seed,
            random: RandomStreams::new(seed).stream("cycles"),
            records: Vec::new(),
            slots: Vec::new(),
            jobs: VecDeque::new(),
            first: 0,
            current: None,
            clock: Clock { now: 0, rto: 100, extension: 220 },
            stalls: 16,
            cycles: 0,
            events: 0,
        }
    }

    /// Passes an event to the circuit, as soon as it is ready or some cycles later.
    pub fn pass(&mut self, job: Job) {
        let old = self
            .jobs
            .back()
            .filter(|_| self.current.is_some())
            .map(|(job, _)| (job.event.qp, job.outcome.written == job.outcome.cycles, job.before.context));
        while !self.cycle(Some(&job.event)) {}
        // The memory is read while the job before is written.
        let was_busy = self.slots.last().is_some_and(|slot| slot.ends);
        let read = match old {
            Some((qp, true, context)) if was_busy && qp == job.event.qp => context,
            _ => job.before.context,
        };
        let context = Pack::from(&read).words();
        let inputs = [context, vec![job.before.next.into()], Pack::from(&job.before.timer).words()].concat();
        let number = self.first + self.jobs.len() as u64;
        self.current =
            Some(Current { number, cycle: 1, cycles: job.outcome.cycles, inputs: Some(inputs), clock: self.clock });
        self.jobs.push_back((job, Found::default()));
        self.events += 1;
        if self.slots.len() >= BATCH {
            self.compare();
        }
    }

    /// One cycle; returns whether the event was accepted.
    fn cycle(&mut self, event: Option<&Event>) -> bool {
        let random = &mut self.random;
        let go = self.stalls == 0 || random.below(self.stalls) != 0;
        let offers = event.is_some() && (self.stalls == 0 || random.below(8) != 0);
        let ends = self.current.as_ref().is_some_and(|current| go && current.cycle == current.cycles);
        let is_ready = self.current.is_none() || ends;
        let clock = self.current.as_ref().map_or(self.clock, |current| current.clock);
        let inputs = self.current.as_mut().and_then(|current| current.inputs.take());
        let is_first = inputs.is_some();
        // Inputs that are not valid are random.
        let inputs = inputs.unwrap_or_else(|| (0..4).map(|_| random.bits()).collect());
        let event = match event.filter(|_| offers) {
            Some(event) => Pack::from(event).words(),
            None => vec![random.bits(), random.bits()],
        };
        self.records.extend([u64::from(go), u64::from(offers)]);
        self.records.extend(event);
        self.records.extend(inputs);
        self.records.extend([clock.now, clock.rto, clock.extension].map(u64::from));
        let job = self.current.as_ref().map(|current| current.number);
        self.slots.push(Slot { job, is_first, is_ready, ends });
        self.cycles += 1;
        if let Some(current) = self.current.as_mut().filter(|_| go) {
            current.cycle += 1;
        }
        if ends {
            self.current = None;
        }
        is_ready && offers
    }

    fn compare(&mut self) {
        let answers = self.model.run(&self.records).unwrap_or_default();
        for (at, slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            let words = answers.get(at * OUTPUT_WORDS..(at + 1) * OUTPUT_WORDS).unwrap_or_default();
            let Some(number) = slot.job else {
                let found = [0, 1, 4, 6, 9, 11].map(|at| words.get(at).copied());
                assert_eq!(
                    found,
                    [1, 0, 0, 0, 0, 0].map(Some),
                    "seed {}: an idle circuit is ready, and silent",
                    self.seed
                );
                continue;
            };
            let (job, found) = &mut self.jobs[(number - self.first) as usize];
            let what = |text: &str| {
                format!(
                    "seed {}, event {number}: {text}: {:?} from {:?} to {:?}, {:?}",
                    self.seed, job.event, job.before, job.after, job.outcome
                )
            };
            assert!(!words.is_empty(), "{}", what("the circuit has ended"));
            if slot.is_first {
                assert_eq!((words[15], words[16]), (job.free.into(), job.units), "{}", what("free blocks, units"));
            }
            assert_eq!((words[0], words[11]), (slot.is_ready.into(), slot.ends.into()), "{}", what("ready, done"));
            if words[1] == 1 {
                found.acks.push(words[2..4].to_vec());
                found.update_cycles = Some(words[12]);
            }
            if words[4] == 1 {
                found.retransmissions.push(words[5..6].to_vec());
            }
            if words[6] == 1 {
                found.context = Some(words[7..9].to_vec());
            }
            if words[9] == 1 {
                found.timers.push(words[10..11].to_vec());
            }
            if slot.ends {
                check(job, found, &words[13..15], &what);
                self.jobs.pop_front();
                self.first += 1;
            }
        }
        self.records.clear();
    }

    pub fn finish(mut self) {
        while self.current.is_some() {
            self.cycle(None);
        }
        self.compare();
        assert!(self.jobs.is_empty());
    }
}

fn check(job: &Job, found: &Found, lane: &[u64], what: &dyn Fn(&str) -> String) {
    let are_equal = |expected: Vec<Pack>, found: &[Vec<u64>]| {
        expected.len() == found.len() && expected.iter().zip(found).all(|(expected, found)| expected.is_equal(found))
    };
    let Outcome { ack, retransmissions, timer, update_cycles, .. } = &job.outcome;
    assert!(are_equal(ack.iter().map(Pack::from).collect(), &found.acks), "{}", what("acknowledgement"));
    let expected = retransmissions.iter().map(Pack::from).collect();
    assert!(are_equal(expected, &found.retransmissions), "{} {:x?}", what("retransmissions"), found.retransmissions);
    assert!(are_equal(timer.iter().map(Pack::from).collect(), &found.timers), "{}", what("timer"));
    let context = found.context.as_ref();
    assert!(
        context.map_or(job.after == job.before.context, |context| Pack::from(&job.after).is_equal(context)),
        "{} {context:x?}",
        what("context")
    );
    let is_of_timer = matches!(job.event.kind, Kind::Extend | Kind::Arm);
    assert!(!is_of_timer || context.is_none(), "{}", what("a write of more than the timer"));
    if let Some(cycles) = update_cycles {
        assert_eq!(found.update_cycles, Some((*cycles).into()), "{}", what("cycles until RCV-NXT is known"));
    }
    if let Some(expected) = job.lane.filter(|_| !matches!(job.event.kind, Kind::Release)) {
        assert!(Pack::from(&expected).is_equal(lane), "{} {expected:?} {lane:x?}", what("bitmap"));
    }
    assert!(job.units >> UNITS == 0);
}
