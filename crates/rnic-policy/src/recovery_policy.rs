//! Type-erased recovery policies: algorithms written in Rust, and transport programs.

use rnic_base::{Duration, Seq};

use rnic_program::{Fields as _, Receiver};

use crate::field::FootprintField;
use crate::params::{Configured, ParamSpec, Params};
use crate::program::{CNP_INTERVAL, ProgramPolicy};
use crate::recovery::{Interest, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView};
use crate::state::PolicyState;

/// A type-erased [`Recovery`] algorithm, as registries store and engines call it.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryPolicy {
    /// See [`Recovery::NAME`].
    pub name: &'static str,
    /// See [`Recovery::SUMMARY`].
    pub summary: &'static str,
    /// See [`Recovery::PARAMS`].
    pub params: &'static [ParamSpec],
    /// See [`Recovery::PLACEMENT`].
    pub placement: Placement,
    /// See [`Recovery::REPORTS_GAPS`].
    pub reports_gaps: bool,
    /// See [`Recovery::TIMES_PACKETS`].
    pub times_packets: bool,
    /// See [`Recovery::FOOTPRINT`].
    pub footprint: &'static [FootprintField],
    /// Bytes of private state per window.
    pub state_bytes: usize,
    /// See [`Recovery::start`].
    pub start: fn(&Params) -> PolicyState,
    /// See [`Recovery::initial_rto`].
    pub initial_rto: fn(&Params) -> Option<Duration>,
    /// See [`Recovery::longest_rto`].
    pub longest_rto: fn(&Params) -> Option<Duration>,
    /// See [`Recovery::interest`].
    pub interest: fn(&Params) -> Interest,
    /// See [`Recovery::on_event`].
    pub on_event: fn(&mut PolicyState, &RecoveryEvent, &WindowView<'_>, &Params) -> RecoveryActions,
    /// See [`Recovery::times_last_sent`].
    pub times_last_sent: fn(&Params) -> bool,
    /// See [`Recovery::tolerates_reordering`].
    pub tolerates_reordering: fn(&Params) -> bool,
    /// The transport program that is used instead of `start`, `initial_rto`, `longest_rto` and `on_event`, and that
    /// also controls congestion.
    pub program: Option<&'static ProgramPolicy>,
}

impl RecoveryPolicy {
    /// Builds the type-erased policy of `T`.
    pub const fn of<T: Recovery>() -> Self {
        Self {
            name: T::NAME,
            summary: T::SUMMARY,
            params: T::PARAMS,
            placement: T::PLACEMENT,
            reports_gaps: T::REPORTS_GAPS,
            times_packets: T::TIMES_PACKETS,
            footprint: T::FOOTPRINT,
            state_bytes: size_of::<T>(),
            start: |params| PolicyState::of(T::start(params)),
            initial_rto: T::initial_rto,
            longest_rto: T::longest_rto,
            interest: T::interest,
            on_event: |state, event, view, params| state.get_mut::<T>().on_event(event, view, params),
            times_last_sent: T::times_last_sent,
            tolerates_reordering: T::tolerates_reordering,
            program: None,
        }
    }

    /// Builds the policy of a transport program; the receiver acknowledges as the program's description requires.
    pub fn of_program(name: &'static str, program: &'static ProgramPolicy) -> Self {
        let placement = match program.description().receiver {
            Receiver::Places => Placement::PlaceOutOfOrder,
            Receiver::Drops => Placement::Drop,
        };
        let specs: &'static [ParamSpec] = Vec::leak(program.specs());
        let description = program.description();
        Self {
            name,
            summary: crate::parameters::leak(&description.summary),
            params: specs,
            placement,
            reports_gaps: true,
            times_packets: false,
            footprint: Vec::leak(program.footprint()),
            state_bytes: description.state_bytes(),
            start: |_| PolicyState::default(),
            initial_rto: |_| None,
            longest_rto: |_| None,
            interest: |_| Interest::Recovering,
            on_event: |_, _, _, _| RecoveryActions::default(),
            times_last_sent: |_| false,
            tolerates_reordering: |_| false,
            program: Some(program),
        }
    }

    /// Returns whether packets that arrive out of order cause no retransmissions with these parameters, or not at once.
    pub fn allows_reordering(&self, params: &Params) -> bool {
        match self.program {
            Some(program) => program.tolerates_reordering(),
            None => (self.tolerates_reordering)(params),
        }
    }

    /// Returns whether `self` and `other`, policies of the same name, run the same program, or both none.
    pub fn is_of(&self, other: &Self) -> bool {
        match (self.program, other.program) {
            (Some(one), Some(other)) => core::ptr::eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Converts the parameter values `params` to the words that the functions below use.
    pub fn words(&self, params: &Params) -> Params {
        self.program.map_or(*params, |program| program.words(params))
    }

    /// Returns the state of a window without packets in flight.
    pub fn new_state(&self, words: &Params) -> PolicyState {
        self.program.map_or_else(|| (self.start)(words), |program| program.start(words))
    }

    /// Returns [`RecoveryActions::recovering`] as it is before the first answer.
    pub fn starts_recovering(&self, words: &Params) -> bool {
        self.program.is_some_and(|program| program.starts_with_acknowledgements(words))
    }

    /// Records that acknowledgements are events from now on, because one that was none has advanced the window from
    /// `una` on.
    pub fn note_start(&self, state: &mut PolicyState, una: Seq) {
        if self.program.is_some() {
            ProgramPolicy::note_start(state, una);
        }
    }

    /// Returns the initial timeout; `None` means that the timer never runs.
    pub fn first_timeout(&self, words: &Params) -> Option<Duration> {
        self.program.map_or_else(|| (self.initial_rto)(words), |program| program.first(words).timeout)
    }

    /// Returns the longest timeout; `None` means unlimited.
    pub fn longest_timeout(&self, words: &Params) -> Option<Duration> {
        self.program.map_or_else(|| (self.longest_rto)(words), |_| None)
    }

    /// Passes an event to the policy and returns its actions.
    #[inline]
    pub fn answer(
        &self,
        state: &mut PolicyState,
        event: &RecoveryEvent,
        view: &WindowView<'_>,
        words: &Params,
    ) -> RecoveryActions {
        match self.program {
            None => (self.on_event)(state, event, view, words),
            Some(program) => program.on_event(state, event, view, words),
        }
    }

    /// Returns the interval in which receivers send at most one CNP, if the policy is a program that needs them.
    pub fn cnp_interval(&self, params: &Params) -> Option<Duration> {
        self.program?.value(CNP_INTERVAL, params).map(Duration::from_ps)
    }

    /// Returns the type-erased policy of `T` with the defaults of its parameters.
    pub const fn configured<T: Recovery>() -> Configured<Self> {
        Configured { policy: Self::of::<T>(), params: Params::defaults(T::PARAMS) }
    }
}
