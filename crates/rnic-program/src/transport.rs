//! Transport programs: two functions, their state and parameters, and how a flow starts.

use crate::bundle::Bundle;
use crate::fields::{DescriptionError, Fields, Initial, Parameter, StateField, Text, Unit};
use crate::graph::Graph;
use crate::interface::{Actions, Incoming, Periodic, Rate, Ticks};
use crate::record::{Lowering, RecordError, Recorder, Value};
use crate::value::Offset;

/// Name of the parameter that makes receivers notify senders of congestion marks.
pub const CNP_INTERVAL: &str = "cnp_interval";

/// Limit that decides when a flow sends (Tonic section 3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Whenever the window permits.
    Window,
    /// By a rate: credit grows with time.
    Rate,
    /// By tokens that the receiver grants.
    Token,
}

/// Treatment of packets that arrive out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Receiver {
    /// The receiver places them and reports them.
    #[default]
    Places,
    /// The receiver drops them and requests the first missing one, as RoCEv2 does.
    Drops,
}

/// Initial settings of a flow. A rate of zero means the rate of the link.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Window in segments.
    pub window: Initial,
    /// Sending rate.
    pub rate: Initial,
    /// Duration of the retransmission timer, in ticks.
    pub timer: Initial,
}

/// A program as described in files, registries and reports.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Name: lower case, digits and hyphens.
    pub name: Text,
    /// One line, with the source.
    pub summary: Text,
    /// Credit scheme.
    pub scheme: Scheme,
    /// Receiver that the program needs.
    pub receiver: Receiver,
    /// Initial settings of a flow.
    pub start: Start,
    /// State of a flow.
    pub state: Vec<StateField>,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Number of lines of source code without blank lines and comments; zero if unknown.
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
    /// Checks the whole description.
    ///
    /// # Errors
    /// When a name, width, bound or initial value is invalid.
    pub fn check(&self) -> Result<(), DescriptionError> {
        self.check_fields(&self.name, &self.summary)?;
        if self.parameters.iter().any(|known| known.name == CNP_INTERVAL && known.unit != Unit::Time) {
            return Err(DescriptionError::NoTime(CNP_INTERVAL));
        }
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
    /// The function that runs for each packet from the receiver.
    pub incoming: Graph,
    /// The function that runs periodically for each flow.
    pub periodic: Graph,
}

/// A transport program, native or loaded. The callers pass a state block of at least [`Description::state_bytes`] bytes
/// and as many parameters as described; implementations may panic otherwise.
pub trait Transport: Send + Sync {
    /// Returns the description.
    fn description(&self) -> Description;

    /// Processes a packet from the receiver.
    fn incoming(&self, packet: &Incoming, parameters: &[u64], state: &mut [u8], actions: &mut Actions);

    /// Runs the periodic function of a flow.
    fn periodic(&self, visit: &Periodic, parameters: &[u64], state: &mut [u8], actions: &mut Actions);

    /// Returns the graphs of both functions.
    ///
    /// # Errors
    /// When a function cannot be represented as a graph: a construct without gates, or one that is too long or too
    /// deep.
    fn graphs(&self, lowering: Lowering) -> Result<Graphs, RecordError>;

    /// Returns which parts of its surroundings the program uses: the others cost nothing.
    ///
    /// # Errors
    /// As [`Transport::graphs`].
    fn needs(&self) -> Result<Needs, RecordError>;

    /// Returns how the program is carried out.
    fn executor(&self) -> Executor {
        Executor::Native
    }
}

/// Way to carry out a program; figures that were measured with it name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Executor {
    /// Code that rustc has made of it.
    Native,
    /// An interpreter.
    Interpreted,
    /// Machine code that was made of its graph when it was loaded.
    Compiled,
}

impl Executor {
    /// Returns its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Interpreted => "interpreted",
            Self::Compiled => "compiled",
        }
    }
}

/// A value of a flow that a program may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// The field of the state at this position.
    State(usize),
    /// The window.
    Window,
    /// The sending rate.
    Rate,
    /// The duration of the retransmission timer.
    Timer,
}

/// A setting and the value that it must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The setting.
    pub setting: Setting,
    /// Value that a new flow has.
    pub value: Initial,
}

/// Parts of the template that a program uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needs {
    /// The map of acknowledged segments.
    pub acked: bool,
    /// The map of marked segments.
    pub marked: bool,
    /// The number of newly acknowledged segments.
    pub newly: bool,
    /// True if the program sets the sending rate.
    pub rate: bool,
    /// The conditions under which it [ignores](crate::ignored) acknowledgements; `None` when none are known.
    pub ignored: Option<Vec<Condition>>,
    /// True if it marks segments only when one was trimmed or the timer has expired, so that packets that arrive out of
    /// order cause no retransmissions.
    pub tolerates_reordering: bool,
}

impl Needs {
    /// Everything: for a program without graphs.
    pub const ALL: Self =
        Self { acked: true, marked: true, newly: true, rate: true, ignored: None, tolerates_reordering: false };
}

/// The symbolic form of a function of a transport: its event, parameters, state and actions.
pub type Recorded<E, P, S> =
    fn(&Recorder, &<E as Value>::Form, &<P as Value>::Form, &mut <S as Value>::Form, &mut <Actions as Value>::Form);

type ActionForm = <Actions as Value>::Form;

/// Traces one function of a transport into a graph. Inputs are named `in_`, `cfg_` (parameters), `state_` and `cur_`
/// (current window, rate and timer), outputs `next_` (state) and `act_`.
///
/// # Errors
/// When the function cannot be represented as a graph.
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
    /// The current settings of a flow, which actions may change.
    pub(crate) struct Current {
        /// Window in segments.
        window: Offset,
        /// Sending rate.
        rate: Rate,
        /// Duration of the retransmission timer.
        timer: Ticks,
    }
}
