//! Loss detection by time beside the engine: the circuit is given the transmissions of a delivery layer of rnic-falcon
//! and the rules of its policy RACK-TLP, and must find the packets that the engine marks to be sent again.
//!
//! All times of the link are multiples of the circuit's unit, so that both compare the same numbers; an age, which is
//! not, is rounded up.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use rnic_base::{AnyRing, Duration, Psn32, RandomStreams, Seq, Time};
use rnic_falcon::delivery::{Arrival, DeliveryConfig, Departure};
use rnic_policy::{Cwnd, RecoveryPolicy};
use rnic_policy::{LossRule, Params, PolicyState, RecoveryActions, RecoveryEvent, WindowView};
use rnic_rtl::spec::falcon::{Rule, TIMES, search};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_transports::recovery;
use rnic_wire::falcon::{PacketType, WindowBases};

use crate::ends::{End, Faults, fate, opposite, run};
use crate::two_ends::link::{End as LinkEnd, Side, Wire};
use crate::two_ends::upper::Counting;
use crate::two_ends::{config, tune};
use crate::{events, rack};

/// Unit of the circuit's times in picoseconds.
const UNIT_PS: u64 = 131_072;

/// First data packet: numbers wrap after a few hundred.
const FIRST: u32 = 0xffff_ff00;

/// Packets of a window, and slots of the circuit's memory.
const SLOTS: u64 = 128;

/// Decision of the policy on an event.
#[derive(Clone, Debug)]
struct Decided {
    /// The rule; `None` of a probe.
    rule: Option<LossRule>,
    /// The oldest packet that is not acknowledged, the next new one, and by distance from the oldest those that have
    /// arrived.
    una: u64,
    next: u64,
    arrived: u128,
    /// The packet to be sent as a probe.
    probe: Option<u64>,
}

thread_local! {
    /// Decisions of the policy since the last look. A policy is functions without surroundings.
    static DECIDED: RefCell<Vec<Decided>> = const { RefCell::new(Vec::new()) };
}

fn rack_tlp() -> RecoveryPolicy {
    recovery::find("rack-tlp").expect("a registered policy")
}

/// RACK-TLP, which notes what it decides.
fn noting(state: &mut PolicyState, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
    let actions = (rack_tlp().on_event)(state, event, view, params);
    let decided = Decided {
        rule: actions.lost,
        una: view.una.get(),
        next: view.next.get(),
        arrived: view.sacked.map_or(0, AnyRing::first_128),
        probe: actions.retransmit.map(|range| range.start.get()),
    };
    // A window in which nothing is outstanding decides nothing.
    if view.una < view.next {
        DECIDED.with_borrow_mut(|all| all.push(decided));
    }
    actions
}

/// The circuit, and the engine's state that it needs.
#[derive(Debug)]
struct Judge {
    model: Option<Model>,
    /// Added to ages, by the test that such a difference is noticed.
    later: u32,
    /// Times of the last transmissions, by slot, in units.
    times: [u32; SLOTS as usize],
    records: Vec<u64>,
    rule: Option<LossRule>,
    una: u64,
    next: u64,
    /// The same as `next`, from the first transmission on.
    newest: Seq,
    arrived: u128,
    /// Packets that the engine must have marked, and has not sent again yet.
    marked: BTreeSet<u64>,
    /// When the next packet becomes lost, if no other arrives.
    due: Option<u64>,
    /// Records, searches, packets found lost, and of them when nothing arrived.
    cycles: u64,
    searches: u64,
    lost: u64,
    by_time: u64,
    reordered: u64,
}

fn units(at: Time) -> u64 {
    assert_eq!(at.as_ps() % UNIT_PS, 0, "{at} is no multiple of the circuit's unit");
    at.as_ps() / UNIT_PS
}

impl Judge {
    fn new(model: Option<Model>, later: u32) -> Self {
        Self {
            model,
            later,
            times: [0; SLOTS as usize],
            records: Vec::new(),
            rule: None,
            una: 0,
            next: 0,
            newest: Seq::start(Psn32::new(FIRST)),
            arrived: 0,
            marked: BTreeSet::new(),
            due: None,
            cycles: 0,
            searches: 0,
            lost: 0,
            by_time: 0,
            reordered: 0,
        }
    }

    /// A data packet leaves.
    fn left(&mut self, now: Time, psn: u32, is_retransmission: bool) {
        let seq = Psn32::new(psn).extend(self.newest).get();
        let time = units(now) as u32 % TIMES;
        self.times[(seq % SLOTS) as usize] = time;
        self.records.extend([1, seq % SLOTS, time.into(), 0, 0, 0, 0, 0, 0, 0]);
        if is_retransmission {
            assert!(self.marked.remove(&seq), "at {now} the engine sends packet {seq} again, which is not found lost");
        } else {
            assert!(self.marked.is_empty(), "at {now} a new packet leaves before the lost ones {:?}", self.marked);
            self.newest += 1;
            self.next = seq + 1;
        }
    }

    /// The policy has decided on an arrival, or on a probe.
    fn decided(&mut self, decided: &Decided) {
        let Decided { una, next, arrived, .. } = *decided;
        self.marked.retain(|seq| *seq >= una && (arrived >> (seq - una)) & 1 == 0);
        (self.una, self.next, self.arrived) = (una, next, arrived);
        if let Some(rule) = decided.rule {
            self.rule = Some(rule);
        }
        if let Some(probe) = decided.probe {
            self.marked.insert(probe);
        }
    }

    /// Searches with the present rule; returns the number of packets that are lost and not marked yet.
    fn search(&mut self, now: Time) -> u64 {
        let Some(rule) = self.rule else { return 0 };
        let end = rule.range.end.get().min(self.next);
        let rule = Rule {
            count: end.saturating_sub(self.una) as u32,
            sent_until: units(rule.sent_until) as u32 % TIMES,
            age: rule.age.as_ps().div_ceil(UNIT_PS) as u32 + self.later,
        };
        let (una, times, time) = (self.una, self.times, units(now));
        let sent = |at: u32| times[((una + u64::from(at)) % SLOTS) as usize];
        let found = search(rule, sent, self.arrived, time as u32 % TIMES);
        let base = una % SLOTS;
        let words = [self.arrived as u64, (self.arrived >> 64) as u64];
        let (now_word, until, age) = (time % u64::from(TIMES), rule.sent_until.into(), rule.age.into());
        let before = self.records.len() / 10;
        self.records.extend([0, 0, now_word, 1, base, rule.count.into(), words[0], words[1], until, age]);
        // One cycle for each packet, one that finds no more, and one for the result.
        for _ in 0..found.visited + 2 {
            self.records.extend([0, 0, now_word, 0, 0, 0, 0, 0, 0, 0]);
        }
        self.cycles += (self.records.len() / 10) as u64;
        self.searches += 1;
        let records = std::mem::take(&mut self.records);
        if let Some(model) = &mut self.model {
            let answers = model.run(&records).expect("no assertion of the circuit fails");
            let answers: Vec<&[u64]> = answers.chunks(6).collect();
            let lost = answers[before..].iter().filter(|words| words[1] == 1).map(|words| words[2] as u32);
            assert_eq!(lost.collect::<Vec<_>>(), found.lost, "at {now}: {rule:?}");
            let last = answers.last().expect("there are cycles");
            assert_eq!((last[3], last[0]), (1, 0), "at {now}: the search is not done");
            assert_eq!((last[4] == 1).then_some(last[5] as u32), found.due, "at {now}: {rule:?}");
        }
        self.due = found.due.map(|due| time + u64::from(due));
        let lost = found.lost.iter().filter(|at| self.marked.insert(una + u64::from(**at))).count() as u64;
        self.lost += lost;
        self.reordered += u64::from(found.due.is_some());
        lost
    }
}

/// The sending end.
struct Sender {
    end: LinkEnd<Counting>,
    judge: Rc<RefCell<Judge>>,
}

impl Sender {
    /// Compares what the engine has done at `now`, before which it had marked `early` packets by its rules, with what
    /// the circuit finds.
    fn judge(&mut self, now: Time, early: u64, is_arrival: bool) {
        let decided = DECIDED.with_borrow_mut(std::mem::take);
        let judge = &mut *self.judge.borrow_mut();
        let marked = self.end.delivery.counters().retransmitted_early - early;
        let is_due = !is_arrival && judge.due.is_some_and(|due| due <= units(now));
        let mut found = 0;
        // The rules that have become due come before a probe.
        if is_due {
            found += judge.search(now);
            judge.by_time += found;
        }
        for one in &decided {
            judge.decided(one);
        }
        if decided.iter().any(|one| one.rule.is_some()) {
            found += judge.search(now);
        }
        assert_eq!(
            marked, found,
            "at {now} (arrival: {is_arrival}) the engine marks {marked} packets, the circuit {found}"
        );
    }
}

impl Side for Sender {
    fn transmit(&mut self, now: Time) -> Option<Departure> {
        let departure = self.end.transmit(now)?;
        if departure.packet.body.packet_type() == PacketType::PushData {
            let psn = departure.packet.body.psn().expect("a data packet has a number").value();
            self.judge.borrow_mut().left(now, psn, departure.is_retransmission);
        }
        Some(departure)
    }

    fn receive(&mut self, now: Time, arrival: &Arrival<'_>) {
        let early = self.end.delivery.counters().retransmitted_early;
        self.end.receive(now, arrival);
        self.judge(now, early, true);
    }

    fn expire(&mut self, now: Time) {
        let early = self.end.delivery.counters().retransmitted_early;
        self.end.expire(now);
        self.judge(now, early, false);
    }

    fn wake(&self, free_at: Time) -> Option<Time> {
        self.end.wake(free_at).map(rounded)
    }
}

/// The receiving end, whose times are multiples of the unit too.
struct Receiver(LinkEnd<Counting>);

impl Side for Receiver {
    fn transmit(&mut self, now: Time) -> Option<Departure> {
        self.0.transmit(now)
    }

    fn receive(&mut self, now: Time, arrival: &Arrival<'_>) {
        self.0.receive(now, arrival);
    }

    fn expire(&mut self, now: Time) {
        self.0.expire(now);
    }

    fn wake(&self, free_at: Time) -> Option<Time> {
        self.0.wake(free_at).map(rounded)
    }
}

/// Returns the first multiple of the unit that is not earlier.
fn rounded(at: Time) -> Time {
    Time::from_ps(at.as_ps().next_multiple_of(UNIT_PS))
}

fn connection() -> DeliveryConfig {
    let mut config = config();
    config.first_sent = WindowBases { data: Psn32::new(FIRST), ..WindowBases::default() };
    (config.fcwnd, config.ncwnd, config.tx_window) = (Cwnd::packets(120), 120, 128);
    // Losses are found by time and by probes alone.
    tune(&mut config, "rto", "1s");
    config.early_attempts_max = u16::MAX;
    config
}

fn run_seed(seed: u64, judge: Judge, faults: Faults, wanted: u64) -> Rc<RefCell<Judge>> {
    let judge = Rc::new(RefCell::new(judge));
    let mut config = connection();
    config.recovery.policy = RecoveryPolicy { on_event: noting, ..config.recovery.policy };
    let mut end = LinkEnd::new(config, Counting::new());
    end.keeps_log = false;
    end.upper.pushes(wanted as u32);
    let mut other = LinkEnd::new(opposite(&config), Counting::new());
    other.keeps_log = false;
    let sender = Sender { end, judge: Rc::clone(&judge) };
    let ends: [End; 2] = [Box::new(sender), Box::new(Receiver(other))];
    let unit = Duration::from_ps(UNIT_PS);
    let mut link = Wire::between(ends, Box::new(fate(RandomStreams::new(seed).stream("link"), faults, unit)));
    // Times of 24 bits wrap after 2 s.
    (link.now, link.packet_time) = (Time::from_ps(UNIT_PS * (u64::from(TIMES) - 20_000)), unit);
    run(&mut link, || judge.borrow().cycles >= wanted);
    judge
}

/// F-11: with packets lost and late, the circuit finds at the same times the packets that the engine marks, and those
/// are sent again; what is late within the reordering window is not.
#[test]
fn f11_the_circuit_finds_the_packets_that_the_engine_sends_again() {
    let has_tools = are_installed(&["verilator", "g++"]);
    let verilated = has_tools.then(|| Verilated::build(&[rack()]).expect("the circuit compiles without warnings"));
    let scenarios = [
        Faults { lost: 10, late: 0, twice: 0 },
        Faults { lost: 2, late: 50, twice: 0 },
        Faults { lost: 30, late: 30, twice: 5 },
    ];
    let wanted = events().div_ceil(scenarios.len() as u64);
    let (mut lost, mut by_time) = (0, 0);
    for (seed, faults) in (71..).zip(scenarios) {
        let model = verilated.as_ref().map(|built| built.start("falcon_rack", 1).expect("the model starts"));
        let judge = run_seed(seed, Judge::new(model, 0), faults, wanted);
        let judge = judge.borrow();
        println!(
            "{faults:?}: {} cycles, {} searches, {} lost, {} of them by time, {} searches with a packet not lost yet",
            judge.cycles, judge.searches, judge.lost, judge.by_time, judge.reordered
        );
        (lost, by_time) = (lost + judge.lost, by_time + judge.by_time);
    }
    assert!(lost > events() / 2_000 && by_time > events() / 20_000, "few losses: {lost}, {by_time} by time");
}

#[test]
#[should_panic(expected = "the engine marks")]
fn f11_an_age_that_is_longer_by_a_unit_is_noticed() {
    run_seed(74, Judge::new(None, 1), Faults { lost: 2, late: 50, twice: 0 }, 40_000);
}
