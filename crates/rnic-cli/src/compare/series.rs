//! The time series of two runs over each other: for each kind of objects the highest value and the mean of all, and the
//! same object in both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::panic;
use std::path::Path;

use rnic_fabric::record::{Metric, ObjectKind, RecordedSample, read_recording};
use rnic_page::{Plot, Plots, Quantity, TimeSeries};

use crate::failure::Failure;

/// The file of a run's time series.
const FILE: &str = "series.parquet";

/// Maximum number of times of a chart.
const TIMES_MAX: u64 = 2_000;

/// Maximum number of objects of a kind that are shown one by one: those with the highest values.
const OBJECTS_MAX: usize = 50;

/// Returns the charts of the folders `a` and `b`; none when one of them has no time series.
///
/// # Errors
/// When a file is not a recording.
pub fn plots(a: &Path, b: &Path) -> Result<Plots, Failure> {
    let files = [a, b].map(|folder| folder.join(FILE));
    if !files.iter().all(|file| file.exists()) {
        return Ok(Plots::default());
    }
    let [a, b] = files.map(|file| Side::read(&file));
    Ok(Overlay::new([a?, b?]).plots())
}

/// A value of a recording, without its name.
struct Value {
    at_ps: u64,
    /// Number of the object.
    object: u32,
    metric: Metric,
    value: f32,
}

/// The recording of a run, without its flows: their numbers do not mean the same in two runs.
#[derive(Default)]
struct Side {
    objects: BTreeMap<(u8, String), u32>,
    values: Vec<Value>,
}

impl Side {
    fn read(file: &Path) -> Result<Self, Failure> {
        let opened = File::open(file).map_err(|error| Failure::file(file, error))?;
        let mut side = Self::default();
        // A damaged file is one line: without the message of a panic that the reader has caught.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        let read = read_recording(opened, |sample| side.add(sample));
        panic::set_hook(hook);
        read.map_err(|error| Failure::file(file, error))?;
        Ok(side)
    }

    fn add(&mut self, sample: RecordedSample) {
        if sample.kind == ObjectKind::Flow {
            return;
        }
        let next = self.objects.len() as u32;
        let object = *self.objects.entry((sample.kind as u8, sample.name)).or_insert(next);
        let (at_ps, metric, value) = (sample.at.as_ps(), sample.metric, sample.value as f32);
        self.values.push(Value { at_ps, object, metric, value });
    }

    /// Returns the shortest time between two samples of one series, and the time of the last sample.
    fn span(&self) -> (u64, u64) {
        let times: BTreeSet<u64> = self.values.iter().map(|value| value.at_ps).collect();
        let steps = times.iter().zip(times.iter().skip(1)).map(|(first, second)| second - first);
        (steps.min().unwrap_or(u64::MAX), times.last().copied().unwrap_or(0))
    }

    /// Returns the series of each object with values of `metric`: one value for each interval of `step`.
    fn series(&self, metric: Metric, step: u64, times: usize) -> BTreeMap<u32, Vec<f32>> {
        let mut sums: BTreeMap<u32, Vec<(f32, u32)>> = BTreeMap::new();
        for value in self.values.iter().filter(|value| value.metric == metric) {
            let index = (value.at_ps.div_ceil(step).max(1) - 1) as usize;
            let cells = sums.entry(value.object).or_insert_with(|| vec![(0.0, 0); times]);
            let cell = &mut cells[index.min(times - 1)];
            *cell = (cell.0 + value.value, cell.1 + 1);
        }
        let merged = |(sum, count): (f32, u32)| match count {
            0 => f32::NAN,
            _ if metric.is_increase() => sum,
            _ => sum / count as f32,
        };
        sums.into_iter().map(|(object, cells)| (object, cells.into_iter().map(merged).collect())).collect()
    }
}

/// Two recordings on the same times.
struct Overlay {
    sides: [Side; 2],
    /// Time between two values, in picoseconds: that of the recording with the longer interval, or more.
    step: u64,
    times: usize,
}

impl Overlay {
    fn new(sides: [Side; 2]) -> Self {
        let [a, b] = [sides[0].span(), sides[1].span()];
        let end = a.1.max(b.1).max(1);
        let longer = [a.0, b.0].into_iter().filter(|step| *step != u64::MAX).max().unwrap_or(end);
        let step = longer.saturating_mul(end.div_ceil(longer).div_ceil(TIMES_MAX)).max(1);
        Self { sides, step, times: end.div_ceil(step) as usize }
    }

    fn plots(&self) -> Plots {
        let order = [
            (ObjectKind::Traffic, "All flows over time"),
            (ObjectKind::Link, "Links over time"),
            (ObjectKind::Switch, "Switches over time"),
            (ObjectKind::Host, "Hosts over time"),
        ];
        Plots(order.into_iter().filter_map(|(kind, title)| self.plot(kind, title)).collect())
    }

    fn plot(&self, kind: ObjectKind, title: &str) -> Option<Plot> {
        let quantities: Vec<_> = Metric::ALL.iter().filter_map(|metric| self.quantity(kind, *metric)).collect();
        if quantities.is_empty() {
            return None;
        }
        let us = |index: u64| (index * self.step) as f64 / 1e6;
        let (x, scale) = if us(self.times as u64) > 10_000.0 { ("ms", 1e-3) } else { ("us", 1.0) };
        let times = (1..=self.times as u64).map(|index| us(index) * scale).collect();
        let mut caption = "A and B at the same times. Drag to zoom, in all charts.".to_owned();
        if kind != ObjectKind::Traffic {
            caption += " The highest value and the mean of all are shown first; choose an object to see it in both.";
        }
        Some(Plot { title: title.to_owned(), caption, x: x.to_owned(), times, quantities, shown: Some(4) })
    }

    fn quantity(&self, kind: ObjectKind, metric: Metric) -> Option<Quantity> {
        let of = self.sides.each_ref().map(|side| {
            let mut series = side.series(metric, self.step, self.times);
            let of_kind = side.objects.iter().filter(|((of, _), _)| *of == kind as u8);
            of_kind.filter_map(|((_, name), number)| Some((name.clone(), series.remove(number)?))).collect()
        });
        let [a, b]: [BTreeMap<String, Vec<f32>>; 2] = of;
        let is_zero = a.values().chain(b.values()).flatten().all(|value| value.is_nan() || *value == 0.0);
        if is_zero {
            return None;
        }
        let mut series = Vec::new();
        if kind != ObjectKind::Traffic {
            for (name, side) in [("A", &a), ("B", &b)] {
                series.push(self.combined(&format!("highest, {name}"), side, |values| values.fold(f32::NAN, f32::max)));
            }
            for (name, side) in [("A", &a), ("B", &b)] {
                series.push(self.combined(&format!("mean, {name}"), side, |values| {
                    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
                    sum / count as f32
                }));
            }
        }
        for name in highest(&a, &b) {
            for (side, of) in [("A", &a), ("B", &b)] {
                let values = of.get(&name).cloned();
                series.extend(values.map(|values| TimeSeries { name: format!("{name}, {side}"), first: 0, values }));
            }
        }
        let about = metric.about().to_owned();
        Some(Quantity { name: metric.name().to_owned(), unit: metric.unit().to_owned(), about, series })
    }

    /// Returns one series for all objects: `combine` makes one value of theirs at a time, of which there is at least
    /// one.
    fn combined(
        &self,
        name: &str,
        of: &BTreeMap<String, Vec<f32>>,
        combine: impl Fn(&mut dyn Iterator<Item = f32>) -> f32,
    ) -> TimeSeries {
        let at = |index: usize| {
            let mut values = of.values().map(|values| values[index]).filter(|value| !value.is_nan()).peekable();
            if values.peek().is_some() { combine(&mut values) } else { f32::NAN }
        };
        TimeSeries { name: name.to_owned(), first: 0, values: (0..self.times).map(at).collect() }
    }
}

/// Returns the names of the objects with the highest values in one of the two, highest first.
fn highest(a: &BTreeMap<String, Vec<f32>>, b: &BTreeMap<String, Vec<f32>>) -> Vec<String> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let peak = |name: &String| {
        [a, b].into_iter().filter_map(|of| of.get(name)).flatten().copied().fold(f32::NEG_INFINITY, f32::max)
    };
    let mut peaks: Vec<(f32, &String)> = names.into_iter().map(|name| (peak(name), name)).collect();
    peaks.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    peaks.into_iter().take(OBJECTS_MAX).map(|(_, name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use rnic_base::Time;

    use super::*;

    /// Returns a recording of two links and all flows: of link n, n times `scale` bytes wait, and each has one loss a
    /// sample.
    fn side(interval_us: u64, samples: u64, scale: f64) -> Side {
        let mut side = Side::default();
        for step in 1..=samples {
            let at = Time::from_us(step * interval_us);
            let mut add = |kind, name: &str, metric, value| {
                side.add(RecordedSample { at, kind, name: name.to_owned(), flow: None, metric, value });
            };
            for link in 1..=2_u32 {
                let name = format!("link-{link}");
                add(ObjectKind::Link, &name, Metric::QueueBytes, f64::from(link) * scale);
                add(ObjectKind::Link, &name, Metric::Lost, 1.0);
                add(ObjectKind::Link, &name, Metric::Paused, 0.0);
            }
            add(ObjectKind::Traffic, "flows", Metric::Arrived, scale);
            add(ObjectKind::Flow, "link-1>link-2", Metric::InFlight, 3.0);
        }
        side
    }

    fn values<'p>(plot: &'p Plot, quantity: &str, series: &str) -> &'p [f32] {
        let quantity = plot.quantities.iter().find(|of| of.name == quantity).expect("it is shown");
        &quantity.series.iter().find(|of| of.name == series).expect("it has this series").values
    }

    /// The recording with the longer interval decides: increases are added, others are averaged. Flows are left out.
    #[test]
    fn recordings_with_other_intervals_have_the_same_times() {
        let plots = Overlay::new([side(10, 4, 100.0), side(5, 8, 10.0)]).plots();
        let titles: Vec<&str> = plots.0.iter().map(|plot| plot.title.as_str()).collect();
        assert_eq!(titles, ["All flows over time", "Links over time"]);
        let links = &plots.0[1];
        assert_eq!(links.times, [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(values(links, "queue_bytes", "highest, A"), [200.0; 4]);
        assert_eq!(values(links, "queue_bytes", "mean, A"), [150.0; 4]);
        assert_eq!(values(links, "queue_bytes", "highest, B"), [20.0; 4]);
        assert_eq!(values(links, "queue_bytes", "link-1, B"), [10.0; 4]);
        assert_eq!(values(links, "lost", "link-2, A"), [1.0; 4]);
        assert_eq!(values(links, "lost", "link-2, B"), [2.0; 4]);
        assert_eq!(values(&plots.0[0], "arrived_gbps", "flows, A"), [100.0; 4]);
        assert!(links.quantities.iter().all(|quantity| quantity.name != "paused"), "it is always zero");
    }

    /// A run that ends earlier has no values afterwards, and long recordings become shorter.
    #[test]
    fn runs_of_other_lengths_and_long_runs_fit_the_chart() {
        let plots = Overlay::new([side(10, 2, 1.0), side(10, 3, 1.0)]).plots();
        let short = values(&plots.0[0], "arrived_gbps", "flows, A");
        assert!(short[..2] == [1.0, 1.0] && short[2].is_nan(), "{short:?}");
        let long = Overlay::new([side(1, 5_000, 1.0), side(1, 10, 1.0)]).plots();
        assert_eq!(long.0[0].times.len(), 1_667);
        assert_eq!(values(&long.0[1], "lost", "link-1, A")[0], 3.0);
        assert_eq!(Overlay::new([Side::default(), Side::default()]).plots().0.len(), 0);
    }
}
