//! Axes: conversion of values to positions in a picture, and the choice of round numbers for ticks.

use crate::number;

/// Spacing of the values on an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spacing {
    /// Linear, from the smallest to the largest value.
    Linear,
    /// Linear, with zero on the axis.
    FromZero,
    /// Logarithmic: equal distances are equal factors. For values that have no logarithm, [`Self::FromZero`].
    Log,
}

/// One axis of a chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// Quantity on the axis, with its unit; may be empty.
    pub(crate) label: String,
    from: f64,
    to: f64,
    is_log: bool,
    /// Value and text of each tick.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Returns an axis that contains all of `values` and has ticks at round numbers, the first and the last of them at
    /// its ends.
    pub fn of_values(label: impl Into<String>, values: impl IntoIterator<Item = f64>, spacing: Spacing) -> Self {
        let finite: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let least = finite.iter().copied().fold(f64::INFINITY, f64::min);
        let most = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let label = label.into();
        match spacing {
            _ if finite.is_empty() => Self::linear(label, 0.0, 1.0),
            Spacing::Log if least > 0.0 => Self::log(label, least, most),
            Spacing::Linear => Self::linear(label, least, most),
            Spacing::Log | Spacing::FromZero => Self::linear(label, least.min(0.0), most.max(0.0)),
        }
    }

    /// Returns an axis with a tick at each of `points`, which are ordered by their value.
    pub fn of_points(label: impl Into<String>, points: &[(f64, String)], spacing: Spacing) -> Self {
        let least = points.iter().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let to = if most > least { most } else { least + 1.0 };
        let is_log = spacing == Spacing::Log && least > 0.0;
        Self { label: label.into(), from: least, to, is_log, ticks: points.to_vec() }
    }

    fn linear(label: String, least: f64, most: f64) -> Self {
        let step = round_step((most - least).max(most.abs() * 1e-6).max(1e-12) / LINEAR_TICKS);
        let (from, to) = ((least / step).floor() * step, (most / step * (1.0 - 1e-9)).ceil() * step);
        let to = if to > from { to } else { from + step };
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        // Longer texts do not fit beside a vertical axis.
        let (scale, unit) = match from.abs().max(to.abs()) {
            most if most >= 1e11 => (1e9, " G"),
            most if most >= 1e8 => (1e6, " M"),
            most if most >= 1e5 => (1e3, " k"),
            _ => (1.0, ""),
        };
        let decimals = if unit.is_empty() { decimals } else { (-(step / scale).log10().floor()).max(0.0) as usize };
        let tick = |index: u32| from + step * f64::from(index);
        let text = |value: f64| match value {
            0.0 => "0".to_owned(),
            value => number::fixed(value / scale, decimals) + unit,
        };
        let ticks = (0..=((to - from) / step).round() as u32).map(|index| {
            let value = tick(index);
            (value, if unit.is_empty() { number::fixed(value, decimals) } else { text(value) })
        });
        Self { label, from, to, is_log: false, ticks: ticks.collect() }
    }

    /// Returns a logarithmic axis with ticks at powers of ten, and between them when there are few decades.
    fn log(label: String, least: f64, most: f64) -> Self {
        let parts: &[f64] = match (most / least).log10() {
            decades if decades < 1.2 => &[1.0, 2.0, 3.0, 5.0, 7.0],
            decades if decades < 2.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let decades = least.log10().floor() as i32..=most.log10().ceil() as i32;
        let all: Vec<f64> =
            decades.flat_map(|decade| parts.iter().map(move |part| part * 10f64.powi(decade))).collect();
        let from = all.iter().copied().rfind(|tick| *tick <= least * 1.000_1).unwrap_or(least);
        let to = all.iter().copied().find(|tick| *tick > from && *tick >= most * 0.999_9).unwrap_or(most);
        let text = |tick: f64| if tick >= 1.0 { number::fixed(tick, 0) } else { trimmed(&number::short(tick)) };
        let ticks = all.into_iter().filter(|tick| (from..=to).contains(tick)).map(|tick| (tick, text(tick)));
        Self { label, from, to, is_log: true, ticks: ticks.collect() }
    }

    /// Returns the axis with `suffix` appended to the text of every tick.
    #[must_use]
    pub fn with_suffix(mut self, suffix: &str) -> Self {
        self.ticks.iter_mut().for_each(|(_, text)| text.push_str(suffix));
        self
    }

    /// Returns the position of `value` on the axis, from 0 to 1; outside that interval when `value` is outside the
    /// axis. Values without a logarithm are at the lower end of a logarithmic axis.
    pub(crate) fn position(&self, value: f64) -> f64 {
        if self.is_log {
            return (value.max(self.from) / self.from).ln() / (self.to / self.from).ln();
        }
        (value - self.from) / (self.to - self.from)
    }

    /// Returns the position and the text of each tick.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().map(|(value, text)| (self.position(*value), text.as_str()))
    }

    /// Returns [`Self::ticks`] for a horizontal axis that is `pixels` long; texts that would overlap the previous one
    /// are empty.
    pub(crate) fn ticks_along(&self, pixels: f64) -> impl Iterator<Item = (f64, &str)> {
        let mut free_from = f64::NEG_INFINITY;
        self.ticks().map(move |(position, text)| {
            let half = text.chars().count() as f64 * LETTER_WIDTH / 2.0;
            if position * pixels - half < free_from {
                return (position, "");
            }
            free_from = position * pixels + half + LETTER_WIDTH;
            (position, text)
        })
    }
}

fn trimmed(number: &str) -> String {
    number.trim_end_matches('0').to_owned()
}

/// Returns the smallest of 1, 2, 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    let part = [1.0, 2.0, 5.0, 10.0].into_iter().find(|part| part * decade >= least * 0.999).unwrap_or(10.0);
    part * decade
}

/// Approximate number of ticks of a linear axis.
const LINEAR_TICKS: f64 = 5.0;
/// Width of a character of a tick's text, in pixels: an average, rounded up.
const LETTER_WIDTH: f64 = 6.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_ticks_are_in_thousands_or_millions() {
        let texts = |most| {
            let axis = Axis::of_values("", [most], Spacing::FromZero);
            axis.ticks().map(|(_, text)| text.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts(250_000.0)[..3], ["0", "50 k", "100 k"]);
        assert_eq!(texts(1_500_000_000.0).last().map(String::as_str), Some("1500 M"));
        assert!(texts(80_000.0).iter().all(|text| !text.contains('k')));
    }

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_axes_end_at_round_numbers() {
        let axis = Axis::of_values("s", [3.0, 47.0], Spacing::FromZero);
        assert_eq!(texts(&axis), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!((axis.position(0.0), axis.position(25.0), axis.position(50.0)), (0.0, 0.5, 1.0));
        assert_eq!(texts(&Axis::of_values("s", [0.37], Spacing::FromZero)), ["0.0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(texts(&Axis::of_values("s", [31.0, 33.0], Spacing::Linear))[0], "31.0");
        assert_eq!(texts(&Axis::of_values("s", [97.0], Spacing::FromZero).with_suffix("%"))[1], "20%");
    }

    #[test]
    fn an_axis_without_values_has_ticks() {
        let axis = Axis::of_values("s", [], Spacing::Log);
        assert_eq!(texts(&axis), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(Axis::of_values("s", [0.0], Spacing::FromZero).position(0.0), 0.0);
    }

    #[test]
    fn logarithmic_axes_have_round_ticks() {
        let axis = Axis::of_values("us", [30.0, 4_000.0], Spacing::Log);
        assert_eq!(texts(&axis), ["20", "50", "100", "200", "500", "1000", "2000", "5000"]);
        assert!((axis.position(5_000.0) - 1.0).abs() < 1e-12);
        let axis = Axis::of_values("us", [3.0, 4_200.0], Spacing::Log);
        assert_eq!(texts(&axis), ["1", "10", "100", "1000", "10\u{202f}000"]);
        assert!((axis.position(100.0) - 0.5).abs() < 1e-12);
        assert_eq!(axis.position(0.0), 0.0, "zero is not at the lower end");
        assert_eq!(texts(&Axis::of_values("us", [0.02, 0.3], Spacing::Log))[..2], ["0.02", "0.03"]);
    }

    #[test]
    fn one_value_makes_a_logarithmic_axis() {
        assert_eq!(texts(&Axis::of_values("us", [1.0], Spacing::Log)), ["1", "2"]);
    }

    #[test]
    fn texts_that_would_touch_are_left_out() {
        let points: Vec<(f64, String)> = (0..100).map(|x| (f64::from(x), x.to_string())).collect();
        let axis = Axis::of_points("s", &points, Spacing::Linear);
        assert_eq!(axis.ticks_along(300.0).count(), 100);
        let shown = axis.ticks_along(300.0).filter(|(_, text)| !text.is_empty()).count();
        assert!((5..30).contains(&shown), "{shown}");
    }
}
