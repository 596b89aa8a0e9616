//! `rnic program` for laws: controllers, schedulers and path policies.

use std::fmt::Write as _;
use std::path::Path;

use rnic_program::{Fields as _, Graph, Law, LawKind, Lowering, Stimuli, dot, verilog};
use rnic_transports::laws;
use serde::Serialize;

use super::{CHECKED_EVENTS, Function, circuit, circuit_head, parts, paths};
use crate::args::Form;
use crate::console;
use crate::failure::Failure;

/// A law and its graph.
pub(super) type Found = (&'static dyn Law, Graph);

/// A law, as reports describe it.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) name: String,
    pub(super) summary: String,
    /// Option of a transport that takes the law.
    pub(super) kind: LawKind,
    pub(super) state_bits: u32,
    /// Lines of the source; none when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<u32>,
    pub(super) decide: Function,
}

/// The JSON object of `rnic program check` for a law.
#[derive(Debug, Serialize)]
struct Checked {
    law: Summary,
    events: u64,
}

/// Returns the law of this program with the name of a policy.
///
/// # Errors
/// When its function has no graph.
pub(super) fn find(name: &str) -> Option<Result<Found, Failure>> {
    let law = laws::find(name)?;
    Some(law.graph(Lowering::Joins).map(|graph| (law, graph)).map_err(Failure::input))
}

/// Returns the summaries of the laws of this program, called as the policies that they are.
///
/// # Errors
/// When a function has no graph.
pub(super) fn all() -> Result<Vec<Summary>, Failure> {
    let summarise = |(policy, law): (&str, &'static dyn Law)| {
        let graph = law.graph(Lowering::Joins).map_err(Failure::input)?;
        Ok(Summary { name: policy.to_owned(), ..summary(&(law, graph)) })
    };
    laws::all().map(summarise).collect()
}

fn summary((law, graph): &Found) -> Summary {
    let description = law.description();
    Summary {
        state_bits: description.state_bits(),
        name: description.name.into_owned(),
        summary: description.summary.into_owned(),
        kind: description.kind,
        lines: Some(description.lines).filter(|lines| *lines > 0),
        decide: Function::of(graph),
    }
}

/// Shows the state, the parameters and the longest paths of a law.
pub(super) fn explain(found: &Found, json: bool) {
    let summary = summary(found);
    let description = found.0.description();
    let mut text = format!("{}: {}\n\n", summary.name, summary.summary);
    let _ = writeln!(text, "law for     {0}: use it as the option {0}=FILE of a transport", description.kind.name());
    text += &parts(&description);
    text += &paths("decide", &found.1);
    console::result(&text, json.then_some(&summary));
}

/// Returns the law as a circuit or a picture.
///
/// # Errors
/// For the forms that only WebAssembly modules have.
pub(super) fn emit((law, graph): &Found, form: Form) -> Result<String, Failure> {
    let module = verilog::module_name(&law.description().name, "decide");
    match form {
        Form::Sv => {
            let description = law.description();
            let kind = description.kind.name();
            let head = circuit_head(&format!("The law `{}` for {kind}: {}", description.name, description.summary));
            Ok(head + &circuit(&[(verilog::emit(&module, graph), verilog::uses_library(graph))]))
        }
        Form::Graph => Ok(dot::emit(&module, graph)),
        Form::Description | Form::Header => {
            Err(Failure::input("only transport programs become WebAssembly modules; a law has the forms sv and graph"))
        }
    }
}

/// Checks the law in the file at `path` with random events.
pub(super) fn check(path: &Path, found: &Found, json: bool) {
    let description = found.0.description();
    let ports = description.kind.event_ports();
    let mut stimuli = Stimuli::new(1);
    let mut state = description.initial_state(&description.defaults());
    let mut outputs = vec![0; description.kind.output_words()];
    for _ in 0..CHECKED_EVENTS {
        let parameters = stimuli.parameters(&description.parameters);
        found.0.decide(&stimuli.words(&ports), &parameters, &mut state, &mut outputs);
    }
    let law = summary(found);
    let text = format!(
        "{}: a law for {}, `{}`; {} bits of state, {} levels; {CHECKED_EVENTS} random events, and the contract kit\n",
        path.display(),
        description.kind.name(),
        law.name,
        law.state_bits,
        law.decide.levels,
    );
    console::result(&text, json.then_some(&Checked { law, events: CHECKED_EVENTS }));
}
