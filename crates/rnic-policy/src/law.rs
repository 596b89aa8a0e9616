//! Laws as policies: controllers, schedulers and path policies that are programs (`rnic-program`).
//!
//! A policy is called by functions without data of their own, so each law has a slot, a number that is part of the
//! type of its state: [`InSlot`]. A policy that is written by hand costs nothing more for it.
//!
//! What a law needs follows from its graph: an input that it reads is a signal that the datapath must measure, and an
//! output that it never sets is a service that it does without. Outputs are cut to the contract; the policy of a loaded
//! law therefore never violates it.

mod control;
mod paths;
mod schedule;

use std::sync::{Mutex, OnceLock, PoisonError};

use bytemuck::{Pod, Zeroable};
use rnic_base::{BitRate, Duration, Time};
use rnic_program::fields::STATE_BYTES_MAX;
use rnic_program::interface::SPEED_BPS;
use rnic_program::law::{LawInput, is_unset};
use rnic_program::{Bundle, Fields, Graph, Law, LawDescription, LawKind, LoadError, Lowering, U};

use crate::control::ControlPolicy;
use crate::control::adapt::ADAPTED_STATE_MAX;
use crate::control::signals::Signals;
use crate::parameters;
use crate::params::{ParamSpec, Params};
use crate::paths::PathPolicy;
use crate::schedule::SchedulePolicy;

/// Most laws of a process, those of this project included: each keeps its slot until the process ends, because a queue
/// pair may use it.
pub const LAWS_MAX: usize = 24;

/// Most words of the outputs of a law.
const OUTPUT_WORDS_MAX: usize = 16;

/// Shortest tick, and timeout of a probe, that policies may request.
const SPAN_MIN: Duration = Duration::from_us(1);

/// The laws of this process.
static SLOTS: [OnceLock<Prepared>; LAWS_MAX] = [const { OnceLock::new() }; LAWS_MAX];

/// Held while a slot is taken.
static TAKING: Mutex<()> = Mutex::new(());

/// The reason why a law is not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LawError {
    /// The description or the graph has a fault.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// All slots are taken.
    #[error("the process has {LAWS_MAX} laws already, and can load more after a restart only")]
    Many,
}

/// A law and what is computed from its description once.
struct Prepared {
    law: &'static dyn Law,
    description: LawDescription,
    uses: Uses,
    name: &'static str,
    summary: &'static str,
    specs: &'static [ParamSpec],
    /// True when the law was loaded from a file: it is interpreted.
    is_loaded: bool,
}

/// The state of a queue pair whose policy is the law in slot `N`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct InSlot<const N: usize>(Block);

/// The law's state, and what the NIC keeps beside it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Block {
    /// Dequeue rate in bit/s, of a scheduler that has set one.
    rate: u64,
    bytes: [u8; STATE_BYTES_MAX],
}

// Falcon's adapter keeps its own state behind that of a controller.
const _: () = assert!(size_of::<Block>() <= ADAPTED_STATE_MAX, "no law could control Falcon");

/// A law as a policy of its kind.
#[derive(Clone, Copy, Debug)]
pub enum LawPolicy {
    /// The law is a congestion controller.
    Control(ControlPolicy),
    /// The law is a scheduler.
    Schedule(SchedulePolicy),
    /// A path policy.
    Paths(PathPolicy),
}

impl LawPolicy {
    /// Returns the name of the law.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Control(policy) => policy.name,
            Self::Schedule(policy) => policy.name,
            Self::Paths(policy) => policy.name,
        }
    }

    /// Returns the kind of the law.
    pub const fn kind(&self) -> LawKind {
        match self {
            Self::Control(_) => LawKind::Control,
            Self::Schedule(_) => LawKind::Schedule,
            Self::Paths(_) => LawKind::Paths,
        }
    }
}

/// Makes a policy of `law`, which is called `name`, and takes a slot for it. `is_loaded` marks laws from files, which
/// reports show as interpreted.
///
/// # Errors
/// When the description has a fault, the function has no graph, or all slots are taken.
pub fn policy_of(name: &'static str, law: &'static dyn Law, is_loaded: bool) -> Result<LawPolicy, LawError> {
    let description = law.description();
    description.check().map_err(LoadError::from)?;
    let graph = law.graph(Lowering::Joins).map_err(LoadError::from)?;
    let kind = description.kind;
    let summary = parameters::leak(&description.summary);
    let specs: &'static [ParamSpec] = Vec::leak(parameters::specs(&description.parameters));
    let _guard = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let free = SLOTS.iter().position(|slot| slot.get().is_none()).ok_or(LawError::Many)?;
    let uses = Uses::of(&graph);
    SLOTS[free].get_or_init(|| Prepared { law, description, uses, name, summary, specs, is_loaded });
    Ok(match kind {
        LawKind::Control => LawPolicy::Control(CONTROLLERS[free]()),
        LawKind::Schedule => LawPolicy::Schedule(SCHEDULERS[free]()),
        LawKind::Paths => LawPolicy::Paths(PATHS[free]()),
    })
}

/// Returns whether `name`, that of a policy, is the name of a law that was loaded from a file. Another policy
/// with the same letters has another name in memory.
pub fn is_loaded(name: &'static str) -> bool {
    SLOTS.iter().filter_map(OnceLock::get).any(|law| law.is_loaded && core::ptr::eq(law.name, name))
}

/// Declares the constructors of the policies of all slots.
macro_rules! slots {
    ($($slot:literal)*) => {
        const CONTROLLERS: [fn() -> ControlPolicy; LAWS_MAX] = [$(control::policy::<$slot>,)*];
        const SCHEDULERS: [fn() -> SchedulePolicy; LAWS_MAX] = [$(schedule::policy::<$slot>,)*];
        const PATHS: [fn() -> PathPolicy; LAWS_MAX] = [$(paths::policy::<$slot>,)*];
    };
}

slots!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23);

impl<const N: usize> InSlot<N> {
    /// Returns the law.
    fn law() -> &'static Prepared {
        SLOTS[N].get().expect("a policy of a slot exists only after the slot was taken")
    }

    /// Returns the state of a new queue pair.
    fn new(params: &Params) -> Self {
        let Prepared { description, .. } = Self::law();
        let words = parameters::words(&description.parameters, params);
        let mut block = Block::zeroed();
        let state = description.initial_state(words.words(description.parameters.len()));
        block.bytes[..state.len()].copy_from_slice(&state);
        Self(block)
    }

    /// Passes an event to the law, and returns its outputs.
    fn decide<E: LawInput>(&mut self, event: &E, params: &Params) -> E::Output {
        let Prepared { law, description, .. } = Self::law();
        let words = parameters::words(&description.parameters, params);
        let mut inputs = [0; rnic_program::loaded::WORDS_MAX];
        event.write_words(&mut inputs);
        let mut outputs = [0; OUTPUT_WORDS_MAX];
        let outputs = &mut outputs[..<E::Output as Bundle>::WORDS];
        law.decide(&inputs[..E::WORDS], words.words(description.parameters.len()), &mut self.0.bytes, outputs);
        E::Output::read_words(outputs)
    }
}

/// Signals and services that a law uses, by its graph.
#[derive(Clone, Copy, Debug)]
struct Uses {
    /// Signals that a controller needs.
    signals: Signals,
    /// True for a path law that is called before each packet.
    sending: bool,
    /// True for a path law that may choose another path, or flow, for each packet.
    reorders: bool,
    /// True for a path law that requests probes or ticks.
    probes: bool,
}

impl Uses {
    fn of(graph: &Graph) -> Self {
        let reads = |input: &str| graph.reads(input);
        let sets = |output: &str| !is_unset(graph, output);
        let signals = [
            (Signals::ACKS, reads("in_acked") || reads("in_packets")),
            (Signals::ROUND_TRIP, reads("in_timed") || reads("in_rtt") && !sets("act_probe")),
            (Signals::MARKS, reads("in_marked")),
            (Signals::CNP, reads("in_cnp")),
            (Signals::NACKS, reads("in_lost")),
            (Signals::TIMEOUTS, reads("in_timed_out")),
            (Signals::TICKS, sets("act_tick")),
            (Signals::SENT, reads("in_bytes")),
            (Signals::PROBES, sets("act_probe")),
        ];
        let used = signals.iter().filter(|(_, is_used)| *is_used);
        Self {
            signals: used.fold(Signals::NONE, |all, (signal, _)| all | *signal),
            sending: reads("in_sending"),
            reorders: reads("in_sending") || sets("act_flow"),
            probes: sets("act_probe") || sets("act_tick"),
        }
    }
}

/// Returns the largest number of `N` bits, or `value` if that is less.
fn cut<const N: u32>(value: u64) -> U<N> {
    U::new(value.min(U::<N>::MASK))
}

fn clock(time: Time) -> U<32> {
    U::new(time.since(Time::ZERO).as_ns())
}

fn span(duration: Duration) -> U<24> {
    cut(duration.as_ns())
}

fn speed(rate: BitRate) -> U<24> {
    cut(rnic_program::interface::speed(rate.as_bps()))
}

/// Returns the duration that a law sets, at least [`SPAN_MIN`]; zero stands for none.
fn duration(span: U<24>) -> Option<Duration> {
    (span.get() != 0).then(|| Duration::from_ns(span.get()).max(SPAN_MIN))
}

/// Returns the rate that a law sets, between `min` and `max`; zero stands for none.
fn rate(speed: U<24>, min: BitRate, max: BitRate) -> Option<BitRate> {
    (speed.get() != 0).then(|| BitRate::bps(speed.get() * SPEED_BPS).max(min).min(max))
}

#[cfg(test)]
mod tests;
