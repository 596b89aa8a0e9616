//! Transport programs: two functions, their state and parameters, and how a flow starts.

use crate::bundle::Bundle;
use crate::fields::{DescriptionError, Fields, Initial, Parameter, StateField, Text};
use crate::graph::Graph;
use crate::interface::{Actions, Incoming, Periodic, Rate, Ticks};
use crate::record::{Lowering, RecordError, Recorder, Value};
use crate::value::Offset;

/// Limit that decides when a flow sends (Tonic section 3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// The window alone.
    Window,
    /// A rate: credit grows with time.
    Rate,
    /// Tokens granted by the receiver.
    Token,
}

/// How the receiver treats packets that arrive out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Receiver {
    /// Places and reports them.
    #[default]
    Places,
    /// Drops them and asks for the first missing one, as RoCEv2 does.
    Drops,
}

/// Settings of a new flow. A rate of zero stands for the rate of the link.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Segments of the window.
    pub window: Initial,
    /// Sending rate.
    pub rate: Initial,
    /// Duration of the retransmission timer, in ticks.
    pub timer: Initial,
}

/// A program as files, registries and reports describe it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Name: lower case, digits and hyphens.
    pub name: Text,
    /// One line, with the source.
    pub summary: Text,
    /// Credit scheme.
    pub scheme: Scheme,
    /// Receiver that it needs.
    pub receiver: Receiver,
    /// Settings of a new flow.
    pub start: Start,
    /// State of a flow.
    pub state: Vec<StateField>,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Lines of its source without blank ones and comments; zero when unknown.
    pub lines: u32,
}

impl Fields for Description {
    fn state(&self) -> &[StateField] {
        &self.state
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}

impl Description {
    /// Checks all of it.
    ///
    /// # Errors
    /// When a name, width, bound or initial value is not possible.
    pub fn check(&self) -> Result<(), DescriptionError> {
        self.check_fields(&self.name, &self.summary)?;
        let Start { window, rate, timer } = &self.start;
        self.check_initial("window", window, 9)?;
        self.check_initial("rate", rate, 23)?;
        self.check_initial("timer", timer, 24)
    }

    /// Returns the actions of a new flow: its window, rate and timer.
    pub fn initial_actions(&self, parameters: &[u64]) -> Actions {
        Actions {
            window: Offset::new(self.initial(&self.start.window, parameters)),
            rate: Rate::new(self.initial(&self.start.rate, parameters)),
            timer: Ticks::new(self.initial(&self.start.timer, parameters)),
            ..Actions::default()
        }
    }
}

/// The graphs of both functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graphs {
    /// The function for packets.
    pub incoming: Graph,
    /// The function for visits.
    pub periodic: Graph,
}

/// A transport program, native or loaded. The state block has [`Description::state_bytes`] bytes at least, and there
/// are as many parameters as described; implementations may panic otherwise.
pub trait Transport: Send + Sync {
    /// Returns the description.
    fn description(&self) -> Description;

    /// Reacts to a packet.
    fn incoming(&self, packet: &Incoming, parameters: &[u64], state: &mut [u8], actions: &mut Actions);

    /// Reacts to a visit.
    fn periodic(&self, visit: &Periodic, parameters: &[u64], state: &mut [u8], actions: &mut Actions);

    /// Returns the graphs of both functions.
    ///
    /// # Errors
    /// When a function has no graph: a construct without gates, or one that is too long or too deep.
    fn graphs(&self, lowering: Lowering) -> Result<Graphs, RecordError>;

    /// Returns which costly inputs a function reads: the others need not be prepared.
    ///
    /// # Errors
    /// As [`Transport::graphs`].
    fn reads(&self) -> Result<Reads, RecordError> {
        let Graphs { incoming, periodic } = self.graphs(Lowering::Joins)?;
        let reads = |name| incoming.reads(name) || periodic.reads(name);
        Ok(Reads { acked: reads("in_acked"), marked: reads("in_marked"), newly: reads("in_newly") })
    }
}

/// Inputs of a program that cost time to prepare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reads {
    /// The map of acknowledged segments.
    pub acked: bool,
    /// The map of marked segments.
    pub marked: bool,
    /// The number of newly acknowledged segments.
    pub newly: bool,
}

/// The recorded form of a function of a transport: of its event, parameters, state and actions.
pub type Recorded<E, P, S> =
    fn(&Recorder, &<E as Value>::Form, &<P as Value>::Form, &mut <S as Value>::Form, &mut <Actions as Value>::Form);

type ActionForm = <Actions as Value>::Form;

/// Records one function of a transport as a graph. Inputs are named `in_`, `cfg_` (parameters), `state_` and `cur_`
/// (window, rate and timer as they are), outputs `next_` (state) and `act_`.
///
/// # Errors
/// When the function is not a graph.
pub fn record<E: Bundle, P: Bundle, S: Bundle>(
    lowering: Lowering,
    function: Recorded<E, P, S>,
) -> Result<Graph, RecordError> {
    let g = Recorder::new(lowering);
    let event = E::inputs(&g, "in");
    let parameters = P::inputs(&g, "cfg");
    let mut state = S::inputs(&g, "state");
    let current = Current::inputs(&g, "cur");
    let mut actions = ActionForm {
        mark: g.flag(false),
        from: g.u(0),
        to: g.u(0),
        window: current.window,
        rate: current.rate,
        restart: g.flag(false),
        timer: current.timer,
    };
    function(&g, &event, &parameters, &mut state, &mut actions);
    S::outputs(&g, "next", state);
    Actions::outputs(&g, "act", actions);
    g.finish()
}

crate::bundle! {
    /// The settings of a flow that actions may change.
    pub(crate) struct Current {
        /// Segments of the window.
        window: Offset,
        /// Sending rate.
        rate: Rate,
        /// Duration of the retransmission timer.
        timer: Ticks,
    }
}
