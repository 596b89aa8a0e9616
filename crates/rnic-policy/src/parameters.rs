//! Converts parameters of transport programs to parameters of policies.

use rnic_program::Unit;
use rnic_program::fields::{Parameter, Text};

use crate::params::{PARAMS_MAX, ParamSpec, ParamUnit, Params};

/// Returns the factor between the unit of a program's parameter and that of a policy's: times are in nanoseconds in
/// programs and in picoseconds in policies.
const fn scale(unit: Unit) -> u64 {
    match unit {
        Unit::Time | Unit::Nanoseconds => 1_000,
        Unit::Count | Unit::Rate | Unit::Speed => 1,
    }
}

/// Returns the parameters of a program as those of a policy, with names that are never freed.
pub(crate) fn specs(parameters: &[Parameter]) -> Vec<ParamSpec> {
    let spec = |parameter: &Parameter| {
        let scale = scale(parameter.unit);
        let unit = match parameter.unit {
            Unit::Count => ParamUnit::Count,
            Unit::Time | Unit::Nanoseconds => ParamUnit::Duration,
            Unit::Rate | Unit::Speed => ParamUnit::Rate,
        };
        let [min, default, max] = [parameter.min, parameter.default, parameter.max].map(|value| value * scale);
        ParamSpec { unit, default, ..ParamSpec::count(leak(&parameter.name), 0, min, max, leak(&parameter.help)) }
    };
    parameters.iter().map(spec).collect()
}

/// Returns the words that a program gets for the values of a policy's parameters.
pub(crate) fn words(parameters: &[Parameter], params: &Params) -> Params {
    let mut words = Params::defaults(&[]);
    for (index, parameter) in parameters.iter().enumerate().take(PARAMS_MAX) {
        words = words.with(index, parameter.word(params.get(index) / scale(parameter.unit)));
    }
    words
}

/// Returns a text that lives as long as the process: registries name policies so.
pub(crate) fn leak(text: &Text) -> &'static str {
    match text {
        Text::Borrowed(text) => text,
        Text::Owned(text) => String::leak(text.clone()),
    }
}
