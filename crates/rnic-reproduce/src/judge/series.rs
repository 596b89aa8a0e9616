//! Series: numbers that a run reports for each time slice.

use core::ops::Range;

use rnic_base::Duration;

use super::largest;
use crate::experiment::{Band, Measure, Span};
use crate::run::Sample;

/// A series of a report: one number for each time slice.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Series {
    /// Length of a slice, in microseconds.
    pub(crate) slice_us: f64,
    /// One number for each slice.
    pub(crate) values: Vec<f64>,
}

impl Series {
    /// Returns the series called `path`, if the run has it.
    pub(crate) fn of(sample: &Sample, path: &str) -> Result<Self, String> {
        let missing = || format!("the report has no series `{path}`; set `run.slice` in the plan, and name a host");
        let found = |path: &str| path.split('.').try_fold(&sample.report, |value, part| value.get(part));
        let slice_us = found("slices.slice_us").and_then(serde_json::Value::as_f64).ok_or_else(missing)?;
        let values = found(path).and_then(serde_json::Value::as_array).ok_or_else(missing)?;
        let number = |(slice, value): (usize, &serde_json::Value)| {
            value.as_f64().ok_or_else(|| format!("slice {slice} of the series `{path}` has no number"))
        };
        Ok(Self { slice_us, values: values.iter().enumerate().map(number).collect::<Result<_, _>>()? })
    }

    /// Returns the mean of the slices that lie in `span`, or of all slices when it is absent.
    fn mean(&self, span: Option<Span>) -> Result<f64, String> {
        let Some(span) = span else {
            return mean(&self.values).ok_or_else(|| "no slice of the run is complete".to_owned());
        };
        let slices = self.slices(span)?;
        Ok(mean(&self.values[slices]).unwrap_or(f64::NAN))
    }

    /// Returns the indexes of the slices that lie in `span`; there is at least one.
    fn slices(&self, span: Span) -> Result<Range<usize>, String> {
        // Includes a slice that begins exactly at the start of the span, even if the quotient is rounded.
        let from = (span.from.as_us_f64() / self.slice_us - SLICE_TOLERANCE).ceil() as usize;
        let until = (span.until.as_us_f64() / self.slice_us + SLICE_TOLERANCE).floor() as usize;
        if from < until && until <= self.values.len() {
            return Ok(from..until);
        }
        Err(format!("the run has no complete slices from {} to {}", span.from, span.until))
    }

    /// Returns the largest deviation from `target` in the slices that lie in `span`, in percent of the target.
    pub(super) fn deviation(&self, target: f64, span: Span) -> Result<f64, String> {
        let slices = self.slices(span)?;
        let deviations = self.values[slices].iter().map(|value| ((value - target) / target).abs() * 100.0);
        Ok(largest(deviations).unwrap_or(f64::NAN))
    }

    /// Returns the slope per microsecond of the least-squares line through the slices that lie in `span`.
    pub(super) fn slope(&self, span: Span) -> Result<f64, String> {
        let slices = self.slices(span)?;
        let middle = (slices.len() - 1) as f64 / 2.0;
        let (mut product, mut square) = (0.0, 0.0);
        for (value, index) in self.values[slices].iter().zip(0u32..) {
            let offset = f64::from(index) - middle;
            product += offset * value;
            square += offset * offset;
        }
        if square == 0.0 {
            return Err(format!("a slope needs two complete slices from {} to {}", span.from, span.until));
        }
        Ok(product / square / self.slice_us)
    }
}

/// Returns the time in microseconds after the start of `span` from which each of `series` lies in its band, to the end
/// of `span` or for `lasting`; infinite if there is none.
pub(super) fn settling_us(series: &[(Series, Band)], span: Span, lasting: Option<Duration>) -> Result<f64, String> {
    let Some((first, _)) = series.first() else { return Err("there is no limit".to_owned()) };
    let slices = first.slices(span)?;
    for (other, _) in series {
        other.slices(span)?;
    }
    let holds = |slice: usize| series.iter().all(|(series, band)| band.holds(series.values[slice]));
    let needed =
        lasting.map(|lasting| ((lasting.as_us_f64() / first.slice_us - SLICE_TOLERANCE).ceil() as usize).max(1));
    let mut settled_from = None;
    for slice in slices.clone() {
        if !holds(slice) {
            settled_from = None;
            continue;
        }
        let from = *settled_from.get_or_insert(slice);
        if needed.is_some_and(|needed| slice + 1 - from >= needed) {
            break;
        }
    }
    // A time shorter than `lasting` before the end of the span does not count.
    let is_long_enough = |from: &usize| needed.is_none_or(|needed| slices.end - from >= needed);
    let from = settled_from.filter(is_long_enough);
    Ok(from.map_or(f64::INFINITY, |from| from as f64 * first.slice_us - span.from.as_us_f64()).max(0.0))
}

/// Computes `measure` from the series that it names.
pub(super) fn read(sample: &Sample, path: &str, measure: &Measure) -> Result<f64, String> {
    let series = Series::of(sample, path)?;
    let value = series.mean(measure.between)?;
    let divisor = measure.relative_to.map_or(Ok(1.0), |span| series.mean(Some(span)))?;
    Ok(value / divisor * measure.scale)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

const SLICE_TOLERANCE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slices_inside_the_span_are_counted() {
        let series = Series { slice_us: 100.0, values: vec![1.0, 2.0, 4.0, 8.0, 16.0] };
        let span = |from: &str, until: &str| Span::try_from([from.to_owned(), until.to_owned()]).ok();
        assert_eq!(series.mean(None), Ok(6.2));
        assert_eq!(series.mean(span("100us", "300us")), Ok(3.0));
        assert_eq!(series.mean(span("50us", "399us")), Ok(3.0), "incomplete slices at the edges were counted");
        assert_eq!(series.mean(span("0.4ms", "0.5ms")), Ok(16.0));
        for (from, until) in [("110us", "190us"), ("0us", "600us"), ("1s", "2s")] {
            let error = series.mean(span(from, until)).expect_err("the span has no complete slices");
            assert!(error.starts_with("the run has no complete slices from "), "{error}");
        }
        assert_eq!(span("2ms", "1ms"), None);
        assert!(Series { slice_us: 1.0, values: Vec::new() }.mean(None).is_err());
    }

    fn span(from: &str, until: &str) -> Span {
        Span::try_from([from.to_owned(), until.to_owned()]).expect("the span is valid")
    }

    #[test]
    fn a_series_settles_when_its_limits_hold_to_the_end() {
        let series = |values: &[f64]| Series { slice_us: 10.0, values: values.to_vec() };
        let above = |min: f64| Band { min: Some(min), max: None };
        let jain = (series(&[1.0, 0.5, 0.96, 0.9, 0.97, 0.99, 1.0, 0.2]), above(0.95));
        let sum = (series(&[0.0, 99.0, 99.0, 99.0, 90.0, 98.0, 98.0, 98.0]), above(97.0));
        let both = [jain, sum];
        let settling = |series: &[(Series, Band)], span, lasting| settling_us(series, span, lasting);
        // From the start of slice 5, 40 us after the start of slice 1.
        assert_eq!(settling(&both, span("10us", "70us"), None), Ok(40.0));
        assert_eq!(settling(&both, span("15us", "70us"), None), Ok(35.0));
        assert_eq!(settling(&both[..1], span("10us", "70us"), None), Ok(30.0));
        assert_eq!(settling(&both, span("10us", "80us"), None), Ok(f64::INFINITY), "the last slice is outside");
        let lasting = |us| Some(Duration::from_us(us));
        assert_eq!(settling(&both, span("10us", "80us"), lasting(20)), Ok(40.0));
        assert_eq!(settling(&both, span("10us", "80us"), lasting(5)), Ok(10.0));
        assert_eq!(settling(&both, span("10us", "80us"), lasting(25)), Ok(f64::INFINITY), "only 20 us");
        assert_eq!(settling(&both, span("50us", "70us"), None), Ok(0.0), "it holds from the start");
        assert_eq!(settling(&both, span("60us", "70us"), lasting(20)), Ok(f64::INFINITY), "the span is too short");
        assert!(settling(&both, span("10us", "90us"), None).is_err());
        assert!(settling(&[], span("10us", "70us"), None).is_err());
    }

    #[test]
    fn the_slope_is_that_of_the_slices_in_the_span() {
        let series = Series { slice_us: 10.0, values: vec![50.0, 1.0, 3.0, 5.0, 7.0, 90.0] };
        assert_eq!(series.slope(span("10us", "50us")), Ok(0.2));
        // 1, 3 and 8: offsets -1, 0 and 1 give 7 / 2 for each slice.
        let bent = Series { slice_us: 10.0, values: vec![1.0, 3.0, 8.0] };
        assert_eq!(bent.slope(span("0us", "30us")), Ok(0.35));
        assert!(series.slope(span("10us", "20us")).is_err(), "one slice has no slope");
        assert!(series.slope(span("10us", "70us")).is_err());
    }

    #[test]
    fn the_largest_deviation_in_the_span_counts() {
        let series = Series { slice_us: 10.0, values: vec![10.0, 79.0, 80.0, 84.0, 40.0] };
        assert_eq!(series.deviation(80.0, span("10us", "40us")), Ok(5.0));
        assert_eq!(series.deviation(80.0, span("10us", "50us")), Ok(50.0));
        assert!(series.deviation(80.0, span("10us", "60us")).is_err());
        let with_nan = Series { slice_us: 10.0, values: vec![79.0, f64::NAN, 40.0] };
        assert!(with_nan.deviation(80.0, span("0us", "30us")).is_ok_and(f64::is_nan));
    }
}
