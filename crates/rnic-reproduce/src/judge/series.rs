//! Series: numbers that a run has for each time slice.

use crate::experiment::{Measure, Span};
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
        let missing = || format!("its report has no series `{path}`: give the plan a `run.slice`, and name a host");
        let found = |path: &str| path.split('.').try_fold(&sample.report, |value, part| value.get(part));
        let slice_us = found("slices.slice_us").and_then(serde_json::Value::as_f64).ok_or_else(missing)?;
        let values = found(path).and_then(serde_json::Value::as_array).ok_or_else(missing)?;
        Ok(Self { slice_us, values: values.iter().filter_map(serde_json::Value::as_f64).collect() })
    }

    /// Returns the mean of the slices that lie in `span`, or of all.
    fn mean(&self, span: Option<Span>) -> Result<f64, String> {
        let Some(span) = span else { return mean(&self.values).ok_or_else(|| "no slice was whole".to_owned()) };
        // Includes a slice that begins exactly where the span does, regardless of rounding in the quotient.
        let from = (span.from.as_us_f64() / self.slice_us - ROUNDING).ceil() as usize;
        let until = (span.until.as_us_f64() / self.slice_us + ROUNDING).floor() as usize;
        let there = self.values.get(from..until).and_then(mean);
        there.ok_or_else(|| format!("it has no slices from {} until {}", span.from, span.until))
    }
}

/// Computes `measure` from the series that it names.
pub(super) fn read(sample: &Sample, path: &str, measure: &Measure) -> Result<f64, String> {
    let series = Series::of(sample, path)?;
    let value = series.mean(measure.between)?;
    let by = measure.relative_to.map_or(Ok(1.0), |span| series.mean(Some(span)))?;
    Ok(value / by * measure.scale)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_count_that_lie_in_the_span() {
        let series = Series { slice_us: 100.0, values: vec![1.0, 2.0, 4.0, 8.0, 16.0] };
        let span = |from: &str, until: &str| Span::try_from([from.to_owned(), until.to_owned()]).ok();
        assert_eq!(series.mean(None), Ok(6.2));
        assert_eq!(series.mean(span("100us", "300us")), Ok(3.0));
        assert_eq!(series.mean(span("50us", "399us")), Ok(3.0), "those at the edges are not whole");
        assert_eq!(series.mean(span("0.4ms", "0.5ms")), Ok(16.0));
        for (from, until) in [("110us", "190us"), ("0us", "600us"), ("1s", "2s")] {
            let told = series.mean(span(from, until)).expect_err("there are none");
            assert!(told.starts_with("it has no slices from "), "{told}");
        }
        assert_eq!(span("2ms", "1ms"), None);
        assert!(Series { slice_us: 1.0, values: Vec::new() }.mean(None).is_err());
    }
}
