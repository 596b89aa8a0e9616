//! The transport program of a template: credit scheme, initial values and two functions (Tonic, section 3.5).

pub use rnic_program::Scheme;
use rnic_program::{Actions, Due, Fields as _, Map, Transport, U};
pub(crate) use rnic_program::{Incoming, Periodic};

use crate::bits::RingMap;
use crate::shape::{SegmentId, Shape, TICK_SHIFT, Ticks, tick_of};

/// Error: a program that a template cannot run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InstallError {
    /// A fault of its description.
    #[error(transparent)]
    Description(#[from] rnic_program::fields::DescriptionError),
    /// Too few or too many values of parameters.
    #[error("{given} values of parameters for a program that has {needed}")]
    Parameters {
        /// Values given.
        given: usize,
        /// Parameters of the program.
        needed: usize,
    },
}

/// A program with the values of its parameters, as a template runs it.
pub struct Installed {
    transport: &'static dyn Transport,
    parameters: Vec<u64>,
    scheme: Scheme,
    state_bits: u32,
    initial_state: Vec<u8>,
    initial: Actions,
    /// Positions in a state block of times at which the periodic function has work.
    due_times: Vec<usize>,
    /// Positions of numbers of generated segments at which it has.
    due_counts: Vec<usize>,
}

impl Installed {
    /// Prepares a program. A flow whose initial rate is zero starts at `link_rate`, in bytes per 2^16 cycles.
    ///
    /// # Errors
    /// When the description is not that of a program, or there are not as many parameters as it has.
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

    /// Returns the credit scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the bits of a flow's state.
    pub fn state_bits(&self) -> u32 {
        self.state_bits
    }

    /// Returns the state block of a new flow.
    pub fn initial_state(&self) -> &[u8] {
        &self.initial_state
    }

    /// Returns window, rate and timer of a new flow.
    pub(crate) fn initial(&self) -> Actions {
        self.initial
    }

    /// Runs the function for packets; `state` is updated.
    #[inline]
    pub(crate) fn incoming(&self, packet: &Incoming, state: &mut [u8], actions: &mut Actions) {
        self.transport.incoming(packet, &self.parameters, state, actions);
    }

    /// Runs the function for visits; `state` is updated.
    #[inline]
    pub(crate) fn periodic(&self, visit: &Periodic, state: &mut [u8], actions: &mut Actions) {
        self.transport.periodic(visit, &self.parameters, state, actions);
    }

    /// Returns the cycle from which a visit may change something, given the program's state; `None` for never.
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

/// Returns a segment id, or a time, as programs see it.
#[inline]
pub(crate) fn number(id: SegmentId) -> U<24> {
    U::new(u64::from(id.value()))
}

/// Returns a map as programs see it: from `start`, the first segment of the window.
#[inline]
pub(crate) fn view(map: &RingMap, start: SegmentId, shape: &Shape) -> Map {
    Map::new(map.from_head(shape.position(start), shape.window()))
}

/// The answer of a program, within the bounds of the template: circuits do the same to its outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// First segment to mark, and the first one behind those to mark.
    pub(crate) mark: Option<(SegmentId, SegmentId)>,
    pub(crate) window: u16,
    pub(crate) rate: u32,
    pub(crate) restart: bool,
    pub(crate) timer: Ticks,
}

impl Answer {
    /// Bounds `actions`. Durations of half the circle or more would lie in the past.
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

    /// Returns the segments to mark among `count` segments from `start`, as a map.
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

/// Longest timer, in ticks: times are compared serially, so a timer lasts less than half the circle (1.3 s).
pub const TIMER_MAX: u32 = (1 << 23) - 1;
