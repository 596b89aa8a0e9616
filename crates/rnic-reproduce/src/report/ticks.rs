//! Axis of a plot: converts values to positions between 0 and 1, and places the ticks.

use crate::experiment::Scale;
use crate::number::short;

/// An axis of a plot: its range, spacing and ticks.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    scale: Scale,
    /// Value and text of each tick; an empty text leaves a line without a label.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Returns an axis with round ticks that contains all of `values`, from zero when it is linear and `from_zero`.
    pub(super) fn of_values(values: impl Iterator<Item = f64>, scale: Scale, from_zero: bool) -> Self {
        let finite: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let is_log = scale == Scale::Log && finite.iter().all(|value| *value > 0.0) && !finite.is_empty();
        let least = finite.iter().copied().fold(f64::INFINITY, f64::min);
        let most = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match (finite.is_empty(), is_log) {
            (true, _) => Self::linear(0.0, 1.0),
            (_, true) => Self::decades(least, most),
            (_, false) => Self::linear(if from_zero { least.min(0.0) } else { least }, most),
        }
    }

    /// Returns a linear axis that ends at round numbers.
    fn linear(least: f64, most: f64) -> Self {
        let step = round_step((most - least).max(most.abs() * 1e-6).max(1e-12) / TICKS);
        let (from, to) = ((least / step).floor() * step, (most / step * (1.0 - 1e-9)).ceil() * step);
        let to = if to > from { to } else { from + step };
        let count = ((to - from) / step).round() as u32;
        let label = |index: u32| {
            let value = from + step * f64::from(index);
            let decimals = (-step.log10().floor()).max(0.0) as usize;
            (value, format!("{value:.decimals$}"))
        };
        Self { from, to, scale: Scale::Linear, ticks: (0..=count).map(label).collect() }
    }

    /// Returns a logarithmic axis with ticks at powers of ten, or at 1, 2 and 5 of each decade when there are few
    /// decades.
    fn decades(least: f64, most: f64) -> Self {
        let decades = (most / least).log10();
        let parts: &[f64] = match decades {
            d if d < 1.2 => &[1.0, 2.0, 3.0, 5.0, 7.0],
            d if d < 2.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let first = least.log10().floor() as i32;
        let last = most.log10().ceil() as i32;
        let all = (first..=last).flat_map(|decade| parts.iter().map(move |part| part * 10f64.powi(decade)));
        let all: Vec<f64> = all.collect();
        let from = all.iter().copied().rfind(|tick| *tick <= least * 1.000_1).unwrap_or(least);
        let to = all.iter().copied().find(|tick| *tick >= most * 0.999_9).unwrap_or(most);
        let ticks = all.into_iter().filter(|tick| (from..=to).contains(tick)).map(|tick| (tick, plain(tick)));
        Self { from, to, scale: Scale::Log, ticks: ticks.collect() }
    }

    /// Returns an axis with a tick at each of `points`, in the order of their position; labels that would overlap are
    /// left out.
    pub(super) fn of_points(points: &[(f64, String)], scale: Scale, pixels: f64) -> Self {
        let least = points.iter().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let scale = if least > 0.0 { scale } else { Scale::Linear };
        let to = if most > least { most } else { least + 1.0 };
        let mut axis = Self { from: least, to, scale, ticks: points.to_vec() };
        let places: Vec<f64> = axis.ticks.iter().map(|(value, _)| axis.place(*value)).collect();
        thin(axis.ticks.iter_mut().map(|(_, label)| label).zip(places), pixels);
        axis
    }

    /// Returns the position of `value`, from 0 to 1 between the ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln(),
        }
    }

    /// Returns the lower end of the axis.
    pub(super) fn from(&self) -> f64 {
        self.from
    }
}

/// Empties labels that would overlap the previous one; positions are from 0 to 1 over the given width in pixels.
pub(super) fn thin<'l>(labels: impl Iterator<Item = (&'l mut String, f64)>, pixels: f64) {
    let mut free_from = f64::NEG_INFINITY;
    for (label, place) in labels {
        let half = label.chars().count() as f64 * LETTER / 2.0;
        if place * pixels - half < free_from {
            label.clear();
        } else {
            free_from = place * pixels + half + LETTER;
        }
    }
}

fn plain(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { short(value).trim_end_matches('0').to_owned() }
}

/// Returns the smallest of 1, 2 or 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let decade = 10f64.powf(least.log10().floor());
    let part = [1.0, 2.0, 5.0, 10.0].into_iter().find(|part| part * decade >= least * 0.999).unwrap_or(10.0);
    part * decade
}

/// Approximate number of ticks.
const TICKS: f64 = 5.0;
/// Width of a letter of a tick's label, in pixels.
const LETTER: f64 = 6.6;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn linear_axes_end_at_round_numbers() {
        let axis = Axis::of_values([3.0, 47.0].into_iter(), Scale::Linear, true);
        assert_eq!(labels(&axis), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!((axis.place(0.0), axis.place(25.0), axis.place(50.0)), (0.0, 0.5, 1.0));
        let one = Axis::of_values([0.37].into_iter(), Scale::Linear, true);
        assert_eq!(labels(&one), ["0.0", "0.1", "0.2", "0.3", "0.4"]);
    }

    #[test]
    fn logarithmic_axes_have_the_values_between_round_ticks() {
        let axis = Axis::of_values([30.0, 4_000.0].into_iter(), Scale::Log, true);
        assert_eq!(labels(&axis), ["20", "50", "100", "200", "500", "1000", "2000", "5000"]);
        assert!((axis.place(5_000.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn labels_that_would_touch_are_left_out() {
        let points: Vec<(f64, String)> = (0..100).map(|x| (f64::from(x), x.to_string())).collect();
        let axis = Axis::of_points(&points, Scale::Linear, 300.0);
        assert_eq!(axis.ticks.len(), 100);
        let shown = labels(&axis).into_iter().filter(|label| !label.is_empty()).count();
        assert!((5..30).contains(&shown), "{shown}");
    }
}
