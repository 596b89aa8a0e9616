//! Transports: from the options in a plan to a checked profile.

use std::collections::BTreeMap;

use rnic_policy::{AdaptivePlace, Profile, Signals};

use super::{Plan, PlanError, TopologyPlan, fitted};
use crate::switch::{SwitchPlan, TAG_LEN};

/// Returns the name of the transport with these options.
pub(super) fn name_of(options: &BTreeMap<String, toml::Value>) -> Result<&str, PlanError> {
    let name = options.get("name").and_then(toml::Value::as_str);
    name.ok_or_else(|| PlanError::value("transport.name", "is missing; name a transport, such as \"irn\""))
}

/// Selects the transport `name` for a network that provides the signals `network`: its frames are longer by a tag when
/// switches write tags.
pub(super) fn select(network: Signals, name: &str, options: &[(&str, &str)]) -> Result<Profile, PlanError> {
    let mut profile = rnic_transports::select_on(network, name, options.iter().copied())?;
    if profile.protocol.measures().has(Signals::CSIG) {
        profile.extra_header += TAG_LEN;
    }
    Ok(profile)
}

/// Selects the transport and applies the options, after replacing the words that stand for numbers of this plan.
pub(super) fn resolve(
    name: &str,
    options: &BTreeMap<String, toml::Value>,
    network: Signals,
    plan: &Plan,
    switches: &[SwitchPlan],
) -> Result<Profile, PlanError> {
    let mut texts = Vec::new();
    for (key, value) in options.iter().filter(|(key, _)| *key != "name") {
        let text = match (key.as_str(), value) {
            ("cap_packets", toml::Value::String(word)) if word == "bdp" => plan.bdp_packets().to_string(),
            ("rto_high" | "rto", toml::Value::String(word)) if word == "auto" => {
                format!("{}ps", plan.auto_timeout().as_ps())
            }
            (_, toml::Value::String(text)) => text.clone(),
            (_, toml::Value::Integer(number)) => number.to_string(),
            (_, toml::Value::Boolean(switch)) => switch.to_string(),
            _ => {
                let what = "must be a string, an integer, true or false".to_owned();
                return Err(PlanError::Key { key: format!("transport.{key}"), line: None, what });
            }
        };
        texts.push((key.as_str(), text));
    }
    let texts: Vec<_> = texts.iter().map(|(key, text)| (*key, text.as_str())).collect();
    let mut profile = select(network, name, &texts)?;
    fitted::fit_timeouts(&mut profile, |name| options.contains_key(name), plan, switches)?;
    Ok(profile)
}

/// Checks that `profile` can be simulated in the network of `plan`.
pub(super) fn check(profile: &Profile, plan: &Plan) -> Result<(), PlanError> {
    if profile.protocol.falcon().is_some_and(|shape| shape.fae_place == AdaptivePlace::Thread) {
        let what = "must be `datapath` in a simulation, because the timing of a thread is not repeatable";
        return Err(PlanError::value("transport.fae_place", what));
    }
    let is_stamped = plan.topology != TopologyPlan::PointToPoint && plan.switch.is_some_and(|switch| switch.csig);
    if profile.protocol.measures().has(Signals::CSIG) && !is_stamped {
        return Err(PlanError::value(
            "switch.csig",
            "is missing; the transport needs CSIG tags, which no switch writes",
        ));
    }
    Ok(profile.check().map_err(rnic_transports::SelectError::from)?)
}
