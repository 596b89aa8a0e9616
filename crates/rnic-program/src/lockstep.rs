//! Comparison of two forms of a program, event by event.

use core::fmt;

use crate::fields::{Fields as _, Text};
use crate::interface::{Actions, Id};
use crate::law::Law;
use crate::stimuli::Stimuli;
use crate::transport::Transport;

/// Number of events after which parameters, state and settings are drawn anew.
const EVENTS_OF_A_FLOW: u64 = 512;

/// Part of the outputs in which two forms of a program differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The range to retransmit, the window, the rate or the timer.
    Actions,
    /// The next state.
    State,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Actions => "actions",
            Self::State => "states",
        })
    }
}

/// The first event for which two forms of a program have different outputs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{program}`: the {part} differ in event {event} of seed {seed}")]
pub struct Difference {
    /// Name of the program.
    pub program: Text,
    /// Number of the event, from zero.
    pub event: u64,
    /// Seed from which the events were drawn.
    pub seed: u64,
    /// The part that differs.
    pub part: Part,
}

/// Passes `events` random events to `one` and to `other`, three quarters of them to `incoming`, and compares all
/// outputs and states. Both start each event with the same state.
///
/// # Errors
/// The first difference.
pub fn compare(one: &dyn Transport, other: &dyn Transport, seed: u64, events: u64) -> Result<(), Difference> {
    let program = one.description();
    let mut stimuli = Stimuli::new(seed);
    let (mut parameters, mut state) = (program.defaults(), program.initial_state(&program.defaults()));
    let mut actions = program.initial_actions(&parameters);
    for event in 0..events {
        if event % EVENTS_OF_A_FLOW == EVENTS_OF_A_FLOW - 1 {
            parameters = stimuli.parameters(&program.parameters);
            state = stimuli.state(&program);
            actions = stimuli.actions();
        }
        let (mut other_state, mut other_actions) = (state.clone(), actions);
        if event % 4 == 0 {
            let visit = stimuli.periodic();
            one.periodic(&visit, &parameters, &mut state, &mut actions);
            other.periodic(&visit, &parameters, &mut other_state, &mut other_actions);
        } else {
            let packet = stimuli.incoming();
            one.incoming(&packet, &parameters, &mut state, &mut actions);
            other.incoming(&packet, &parameters, &mut other_state, &mut other_actions);
        }
        let differs = |part| Difference { program: program.name.clone(), event, seed, part };
        if actions != other_actions {
            return Err(differs(Part::Actions));
        }
        if state != other_state {
            return Err(differs(Part::State));
        }
        stimuli.apply(&actions);
        actions = Actions { mark: false, from: Id::new(0), to: Id::new(0), restart: false, ..actions };
    }
    Ok(())
}

/// Passes `events` random events to two forms of a law, and compares every output and every state. Both get the same
/// state in each event.
///
/// # Errors
/// The first difference.
pub fn compare_laws(one: &dyn Law, other: &dyn Law, seed: u64, events: u64) -> Result<(), Difference> {
    let law = one.description();
    let ports = law.kind.event_ports();
    let mut stimuli = Stimuli::new(seed);
    let (mut parameters, mut state) = (law.defaults(), law.initial_state(&law.defaults()));
    let mut outputs = vec![0; law.kind.output_words()];
    let mut other_outputs = outputs.clone();
    for event in 0..events {
        if event % EVENTS_OF_A_FLOW == EVENTS_OF_A_FLOW - 1 {
            parameters = stimuli.parameters(&law.parameters);
            state = stimuli.state(&law);
        }
        let mut other_state = state.clone();
        let words = stimuli.words(&ports);
        one.decide(&words, &parameters, &mut state, &mut outputs);
        other.decide(&words, &parameters, &mut other_state, &mut other_outputs);
        let differs = |part| Difference { program: law.name.clone(), event, seed, part };
        if outputs != other_outputs {
            return Err(differs(Part::Actions));
        }
        if state != other_state {
            return Err(differs(Part::State));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Part, compare};

    /// Declares a program in `$module` that waits for `$count` NACKs and sets the window `$window`.
    macro_rules! waiting {
        ($module:ident, $count:tt, $window:tt) => {
            mod $module {
                use crate::prelude::*;

                crate::transport! {
                    /// Counts.
                    program Waiting("waiting") {
                        scheme: window,
                        start: { window: 32, rate: 0, timer: 2000 },
                    }
                    state State {
                        nacks: 8,
                    }
                    parameters Parameters {
                        /// Steps of a NACK.
                        step: 8 = 1 [1..=1],
                    }
                }

                #[program]
                pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
                    if i.nack {
                        s.nacks += p.step;
                    }
                    if s.nacks == $count {
                        s.nacks = u(0);
                        a.window = u($window);
                    }
                }

                #[program]
                pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
                    a.restart = v.expired && s.nacks >= p.step;
                }
            }
        };
    }

    waiting!(usual, 200, 16);
    waiting!(impatient, 199, 16);
    waiting!(wide, 200, 17);

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(compare(&usual::Waiting, &usual::Waiting, 3, 5_000), Ok(()));
        let impatient = compare(&usual::Waiting, &impatient::Waiting, 3, 5_000).expect_err("they differ");
        let wide = compare(&usual::Waiting, &wide::Waiting, 3, 5_000).expect_err("they differ");
        assert_eq!((impatient.part, wide.part), (Part::Actions, Part::Actions));
        assert!(impatient.event < wide.event, "{impatient} and {wide}");
        assert!(wide.to_string().starts_with("`waiting`: the actions differ in event "), "{wide}");
    }
}
