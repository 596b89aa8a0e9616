//! `rnic doctor`: reports what `rnic run` would use on this machine, and why.

mod libraries;
mod network;
mod system;

use rnic_host::{Settings, VARIABLES};
use rnic_reproduce::machine::Machine;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::{console, table};

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// No problem found.
    Ok,
    /// Works, but not as well as it could, or differently than expected.
    Note,
    /// Does not work in this configuration.
    Fails,
}

/// One check and its result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    /// Advice on how to fix the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), advice: None }
    }

    fn note(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, state: State::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn fails(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, state: State::Fails, found: found.into(), advice: Some(advice.into()) }
    }
}

/// A GID: an address that programs can use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Gid {
    index: usize,
    gid: String,
    address: String,
    interface: String,
    mtu_bytes: u32,
    /// Payload bytes of a full packet; `None` when the MTU of the interface is too small.
    wire_mtu_bytes: Option<u32>,
}

/// A setting, with its value in the environment and its default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Setting {
    name: &'static str,
    /// Value in the environment, if it is set.
    value: Option<String>,
    default: &'static str,
    meaning: &'static str,
}

/// The JSON object that `rnic doctor --json` prints.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Diagnosis {
    works: bool,
    device: &'static str,
    /// Description that the device would print on standard error; `None` when the settings are invalid.
    description: Option<String>,
    checks: Vec<Check>,
    gids: Vec<Gid>,
    settings: Vec<Setting>,
    machine: Machine,
}

/// Runs `rnic doctor`.
///
/// # Errors
/// When a problem prevents programs from working.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let diagnosis = diagnose();
    console::result(&diagnosis.text(), args.json.then_some(&diagnosis));
    let failing: Vec<&str> =
        diagnosis.checks.iter().filter(|check| check.state == State::Fails).map(|check| check.name).collect();
    if failing.is_empty() {
        Ok(())
    } else {
        Err(Failure::Check(format!("`rnic run` does not work on this machine; failed checks: {}", failing.join(", "))))
    }
}

fn diagnose() -> Diagnosis {
    let settings = Settings::from_environment();
    let mut checks = libraries::checks();
    checks.push(match &settings {
        Ok(settings) => Check::ok("settings", settings_text(settings)),
        Err(error) => Check::fails("settings", error.to_string(), "correct or unset the variable"),
    });
    let gids = network::gids();
    checks.extend(network::checks(&gids));
    checks.extend(system::checks());
    Diagnosis {
        works: checks.iter().all(|check| check.state != State::Fails),
        device: DEVICE,
        description: settings.ok().map(|settings| settings.describe(DEVICE, settings.wire())),
        checks,
        gids,
        settings: VARIABLES.iter().map(setting).collect(),
        machine: Machine::local(),
    }
}

fn settings_text(settings: &Settings) -> String {
    let bad = settings.impairment_parts();
    let network = if bad.is_empty() { "no impairment".to_owned() } else { bad.join(", ") };
    format!("transport {}, {network}", settings.transport)
}

fn setting(variable: &rnic_host::Variable) -> Setting {
    let value = std::env::var(variable.name).ok().filter(|value| !value.is_empty());
    Setting { name: variable.name, value, default: variable.default, meaning: variable.meaning }
}

impl Diagnosis {
    fn text(&self) -> String {
        let verdict =
            if self.works { "Works: try `rnic run -- ibv_devinfo`." } else { "Does not work: see FAILS below." };
        let mut text = format!("{verdict}\n");
        text += &self.description.as_ref().map(|line| format!("{line}\n")).unwrap_or_default();
        text.push('\n');
        let mut rows = Vec::new();
        for check in &self.checks {
            let mark = match check.state {
                State::Ok => "ok",
                State::Note => "note",
                State::Fails => "FAILS",
            };
            rows.push(vec![mark.to_owned(), check.name.to_owned(), check.found.clone()]);
            rows.extend(check.advice.iter().map(|advice| vec![String::new(), String::new(), format!("-> {advice}")]));
        }
        text += &table::explained(0, rows);
        text += "\nGIDs of port 1:\n";
        let rows = self.gids.iter().map(|gid| {
            let packets = gid.wire_mtu_bytes.map_or("too narrow".to_owned(), |bytes| format!("{bytes} byte packets"));
            vec![gid.index.to_string(), gid.gid.clone(), gid.interface.clone(), packets]
        });
        text += &table::explained(2, rows.collect());
        text += "\nSettings (environment, or options of `rnic run`; its --help explains them):\n";
        let rows = self.settings.iter().filter_map(|setting| {
            Some(vec![setting.name.to_owned(), setting.value.clone()?, setting.meaning.to_owned()])
        });
        let others = self.settings.iter().filter(|setting| setting.value.is_none());
        let others = others.map(|setting| match setting.default {
            "" => setting.name.to_owned(),
            default => format!("{} ({default})", setting.name),
        });
        let others = others.collect::<Vec<_>>().join(", ");
        text += &table::explained(2, rows.chain([vec!["not set".to_owned(), String::new(), others]]).collect());
        text + &format!("\n{}\n", self.machine.summary())
    }
}

/// Name of the device, as programs see it.
const DEVICE: &str = "rnic0";
