//! The transport program of a Tonic NIC: credit scheme, initial values and two functions (Tonic, section 3.5).

pub use rnic_program::Scheme;
use rnic_program::{Actions, Due, Fields as _, Map, Transport, U};
pub(crate) use rnic_program::{Incoming, Periodic};

use crate::bits::RingMap;
use crate::shape::{SegmentId, Shape, TICK_SHIFT, Ticks, tick_of};

/// Error: a program that the Tonic NIC cannot run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InstallError {
    /// The description of the program's inputs, outputs and state is invalid.
    #[error(transparent)]
    Description(#[from] rnic_program::fields::DescriptionError),
    /// The number of parameter values is wrong.
    #[error("the program has {needed} parameters, but {given} values were given")]
    Parameters {
        /// Number of values given.
        given: usize,
        /// Number of parameters of the program.
        needed: usize,
    },
}

/// A program with the values of its parameters.
pub struct Installed {
    transport: &'static dyn Transport,
    parameters: Vec<u64>,
    scheme: Scheme,
    state_bits: u32,
    initial_state: Vec<u8>,
    initial: Actions,
    /// Positions in a state block of the fields that are times at which the periodic function has to run.
    due_times: Vec<usize>,
    /// Positions in a state block of the fields that are numbers of sent segments at which the periodic function has to
    /// run.
    due_counts: Vec<usize>,
}

impl Installed {
    /// Prepares a program. A flow whose initial rate is zero starts at `link_rate`, in bytes per 2^16 cycles.
    ///
    /// # Errors
    /// When the description is invalid, or the number of parameter values is wrong.
    pub fn new(transport: &'static dyn Transport, parameters: Vec<u64>, link_rate: u32) -> Result<Self, InstallError> {
        let description = transport.description();
        description.check()?;
        if parameters.len() != description.parameters.len() {
            return Err(InstallError::Parameters { given: parameters.len(), needed: description.parameters.len() });
        }
        let mut initial = description.initial_actions(&parameters);
        if initial.rate == 0 {
            initial.rate = U::new(u64::from(link_rate));
        }
        Ok(Self {
            scheme: description.scheme,
            state_bits: description.state_bits(),
            initial_state: description.initial_state(&parameters),
            initial,
            due_times: description.deadlines(Due::Time),
            due_counts: description.deadlines(Due::Sent),
            transport,
            parameters,
        })
    }

    /// Returns the credit scheme that the program uses.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the number of bits of a flow's state.
    pub fn state_bits(&self) -> u32 {
        self.state_bits
    }

    /// Returns the state block of a new flow.
    pub fn initial_state(&self) -> &[u8] {
        &self.initial_state
    }

    /// Returns the window, rate and timer of a new flow.
    pub(crate) fn initial(&self) -> Actions {
        self.initial
    }

    /// Runs the function for packets, which updates `state`.
    #[inline]
    pub(crate) fn incoming(&self, packet: &Incoming, state: &mut [u8], actions: &mut Actions) {
        self.transport.incoming(packet, &self.parameters, state, actions);
    }

    /// Runs the periodic function, which updates `state`.
    #[inline]
    pub(crate) fn periodic(&self, visit: &Periodic, state: &mut [u8], actions: &mut Actions) {
        self.transport.periodic(visit, &self.parameters, state, actions);
    }

    /// Returns the first cycle in which the periodic function may change anything, given the program's state; `None` if
    /// never.
    pub(crate) fn due(&self, state: &[u8], now: u64, total_sent: SegmentId) -> Option<u64> {
        let field = |position: usize| {
            let bytes = &state[position..position + 4];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        // Zero stands for no deadline, of both kinds.
        let is_due = |count: u32| count != 0 && SegmentId::new(count).distance_to(total_sent) >= 0;
        if self.due_counts.iter().any(|position| is_due(field(*position))) {
            return Some(now);
        }
        let times = self.due_times.iter().map(|position| field(*position)).filter(|time| *time != 0);
        times.map(|time| cycle_of(Ticks::new(time), now)).min()
    }
}

impl core::fmt::Debug for Installed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Installed").field("scheme", &self.scheme).field("parameters", &self.parameters).finish()
    }
}

/// Returns the first cycle, not before `now`, in which the time `tick` has come.
pub(crate) fn cycle_of(tick: Ticks, now: u64) -> u64 {
    let ahead = tick_of(now).distance_to(tick);
    if ahead <= 0 {
        return now;
    }
    ((now >> TICK_SHIFT) + ahead as u64) << TICK_SHIFT
}

/// Converts a segment id, or a time, to the type that programs use.
#[inline]
pub(crate) fn number(id: SegmentId) -> U<24> {
    U::new(u64::from(id.value()))
}

/// Converts a map to the form that programs read, which begins with `start`, the first segment of the window.
#[inline]
pub(crate) fn view(map: &RingMap, start: SegmentId, shape: &Shape) -> Map {
    Map::new(map.from_head(shape.position(start), shape.window()))
}

/// The outputs of a program, limited to the ranges of the NIC; circuits limit their outputs in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// Range to mark: the first segment, and the first one after the range.
    pub(crate) mark: Option<(SegmentId, SegmentId)>,
    pub(crate) window: u16,
    pub(crate) rate: u32,
    pub(crate) restart: bool,
    pub(crate) timer: Ticks,
}

impl Answer {
    /// Limits `actions` to the permitted ranges. Durations of half the range of ticks or more would lie in the past.
    pub(crate) fn new(actions: &Actions, shape: &Shape) -> Self {
        let id = |number: U<24>| SegmentId::new(number.get() as u32);
        Self {
            mark: actions.mark.then(|| (id(actions.from), id(actions.to))),
            window: actions.window.get().min(u64::from(shape.window())) as u16,
            rate: if shape.scheme() == Scheme::Rate { actions.rate.get() as u32 } else { 0 },
            restart: actions.restart,
            timer: Ticks::new((actions.timer.get() as u32).min(TIMER_MAX)),
        }
    }

    /// Returns the segments to mark, among `count` segments from `start`, as a map.
    pub(crate) fn range(&self, start: SegmentId, count: u32, shape: &Shape) -> RingMap {
        let Some((from, to)) = self.mark else { return RingMap::EMPTY };
        let first = start.distance_to(from).max(0);
        let end = start.distance_to(to).min(i64::from(count));
        if first >= end {
            return RingMap::EMPTY;
        }
        RingMap::range(shape.position(start.plus(first as u32)), (end - first) as u32, shape.window())
    }
}

/// Maximum timer in ticks: times are compared in serial arithmetic, so a timer is shorter than half the range (1.3 s).
pub const TIMER_MAX: u32 = (1 << 23) - 1;
