//! Conversion of values to positions in a picture, and the choice of round numbers for ticks.

use crate::number;

/// One axis of a chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// Quantity on the axis, with its unit.
    pub label: String,
    /// Smallest value.
    pub from: f64,
    /// Largest value.
    pub to: f64,
    /// True for a logarithmic axis: equal distances are equal factors.
    pub is_log: bool,
}

impl Axis {
    /// Returns a linear axis from zero to a round number at or above `to`.
    pub fn from_zero(label: impl Into<String>, to: f64) -> Self {
        let to = if to > 0.0 { to } else { 1.0 };
        Self { label: label.into(), from: 0.0, to, is_log: false }
    }

    /// Returns a logarithmic axis over the decades that contain `from` to `to`.
    pub fn decades(label: impl Into<String>, from: f64, to: f64) -> Self {
        let from = 10f64.powf(from.max(f64::MIN_POSITIVE).log10().floor());
        let to = 10f64.powf(to.max(from).log10().ceil()).max(from * 10.0);
        Self { label: label.into(), from, to, is_log: true }
    }

    /// Returns the position of `value` on the axis, from 0 to 1; outside that interval when `value` is outside the
    /// axis.
    pub fn place(&self, value: f64) -> f64 {
        if self.is_log {
            let value = value.max(self.from);
            return (value.log10() - self.from.log10()) / (self.to.log10() - self.from.log10());
        }
        (value - self.from) / (self.to - self.from)
    }

    /// Returns about `count` round values with their texts; on a logarithmic axis, the powers of ten.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if self.is_log {
            let (first, last) = (self.from.log10().round() as i32, self.to.log10().round() as i32);
            let stride = usize::try_from(last - first).unwrap_or(0).div_ceil(count.max(1)).max(1);
            return (first..=last).step_by(stride).map(|power| 10f64.powi(power)).map(|v| (v, decade(v))).collect();
        }
        let step = round_step((self.to - self.from) / count.max(1) as f64);
        let decimals = usize::try_from(-(step.log10().floor() as i64)).unwrap_or(0);
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        let value = |index: i64| index as f64 * step;
        (first..=last).map(|index| (value(index), linear_text(value(index), decimals))).collect()
    }
}

fn linear_text(value: f64, decimals: usize) -> String {
    if decimals == 0 { number::grouped(value.round() as u64) } else { format!("{value:.decimals$}") }
}

fn decade(value: f64) -> String {
    if value >= 1.0 { number::grouped(value.round() as u64) } else { format!("{value}") }
}

/// Returns the smallest of 1, 2, 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= least * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, count: usize) -> Vec<String> {
        axis.ticks(count).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(texts(&Axis::from_zero("s", 97.0), 5), ["0", "20", "40", "60", "80"]);
        assert_eq!(texts(&Axis::from_zero("s", 0.31), 4), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(texts(&Axis::from_zero("s", 1.0), 4), ["0.0", "0.5", "1.0"]);
    }

    #[test]
    fn nothing_to_show_is_still_an_axis() {
        assert_eq!(texts(&Axis::from_zero("s", 0.0), 2), ["0.0", "0.5", "1.0"]);
        assert_eq!(Axis::from_zero("s", 0.0).place(0.0), 0.0);
    }

    #[test]
    fn log_axes_hold_whole_decades() {
        let axis = Axis::decades("us", 3.0, 4_200.0);
        assert_eq!(texts(&axis, 8), ["1", "10", "100", "1000", "10\u{202f}000"]);
        assert_eq!(axis.place(100.0), 0.5);
        assert_eq!(axis.place(0.0), 0.0, "zero has no logarithm; it lies at the edge");
    }
}
