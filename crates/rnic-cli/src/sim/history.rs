//! The time series of a run, for the report's charts: as many points as a page can hold.
//!
//! The file of a recording has every sample. The page has at most [`POINTS_MAX`] values: when there are more, two
//! neighbouring samples become one, again and again.

use std::fs::File;
use std::io::BufWriter;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rnic_base::Time;
use rnic_fabric::record::{Batch, Metric, Object, ObjectKind, ParquetRecording, RecordError, Recording, Sample};
use rnic_page::{Plot, Plots, Quantity, TimeSeries};

/// Maximum number of values of a page, which a browser draws within a second.
const POINTS_MAX: usize = 1 << 20;

/// Maximum number of flows of a page.
const FLOWS_MAX: u32 = 200;

/// Writes a recording to its file, and keeps what the page shows: in a thread, so that the simulation does not wait.
pub struct Recorder {
    /// Samples on their way to the thread; `None` after the end.
    batches: Option<SyncSender<NewBatch>>,
    writer: Option<JoinHandle<Written>>,
    /// Number of objects that the thread has.
    objects: usize,
    history: History,
}

/// Samples, and the objects that are new with them.
struct NewBatch {
    objects: Vec<Object>,
    samples: Batch,
}

/// Result of the thread: the series of the page, and the error that ended the recording.
type Written = (History, Result<(), RecordError>);

impl Recorder {
    /// Creates a recorder that writes `file`.
    pub fn new(file: ParquetRecording<BufWriter<File>>) -> Self {
        let (batches, waiting) = sync_channel(BATCHES_WAITING);
        let writer = thread::spawn(move || write(file, &waiting));
        Self { batches: Some(batches), writer: Some(writer), objects: 0, history: History::default() }
    }

    /// Returns the time series for the page.
    pub fn into_history(self) -> History {
        self.history
    }

    /// Waits for the thread, which ends when it has written everything, or when it cannot write.
    fn join(&mut self) -> Result<(), RecordError> {
        self.batches = None;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let (history, written) = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.history = history;
        written
    }
}

impl Recording for Recorder {
    fn write(&mut self, objects: &[Object], samples: Batch) -> Result<(), RecordError> {
        let new = objects[self.objects..].to_vec();
        self.objects = objects.len();
        let batch = NewBatch { objects: new, samples };
        match self.batches.as_ref().map(|batches| batches.send(batch)) {
            Some(Ok(())) => Ok(()),
            // The thread has ended, and says why.
            _ => self.join(),
        }
    }

    fn finish(&mut self, _: &[Object]) -> Result<(), RecordError> {
        self.join()
    }
}

fn write(mut file: ParquetRecording<BufWriter<File>>, batches: &Receiver<NewBatch>) -> Written {
    let (mut history, mut objects) = (History::default(), Vec::new());
    for batch in batches {
        objects.extend(batch.objects);
        history.add(&objects, &batch.samples);
        if let Err(error) = file.write(&objects, batch.samples) {
            return (history, Err(error));
        }
    }
    let finished = file.finish(&objects);
    (history, finished)
}

/// Number of batches that may wait for the thread.
const BATCHES_WAITING: usize = 16;

/// Time series of a run.
#[derive(Debug)]
pub struct History {
    objects: Vec<Object>,
    /// Times in microseconds, at the end of what a value stands for.
    times: Vec<f64>,
    /// Values of each metric of each object that has any.
    values: Vec<Values>,
    /// By object and metric: index in `values`, plus 1; 0 for none.
    places: Vec<u32>,
    points: usize,
    /// Number of samples that are merged into one value, and the number that the last value has.
    merged: usize,
    in_last: usize,
    flows: u32,
    /// True when the run has more flows than the page.
    leaves_flows_out: bool,
    points_max: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            times: Vec::new(),
            values: Vec::new(),
            places: Vec::new(),
            points: 0,
            merged: 1,
            in_last: 1,
            flows: 0,
            leaves_flows_out: false,
            points_max: POINTS_MAX,
        }
    }
}

/// Values of one metric of one object, at consecutive times.
#[derive(Debug)]
struct Values {
    first: usize,
    values: Vec<Merged>,
}

/// One value or several of the same object and metric.
#[derive(Clone, Copy, Default, Debug)]
struct Merged {
    sum: f32,
    /// Number of samples; 0 for none.
    count: u32,
}

impl Merged {
    fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, count: self.count + other.count }
    }
}

/// Returns the index of a metric of an object in the table of places.
fn place(object: u32, metric: Metric) -> usize {
    object as usize * Metric::ALL.len() + metric as usize
}

impl History {
    /// Adds samples.
    fn add(&mut self, objects: &[Object], batch: &Batch) {
        self.objects.extend_from_slice(&objects[self.objects.len()..]);
        self.places.resize(self.objects.len() * Metric::ALL.len(), 0);
        let mut last = None;
        for sample in batch.samples() {
            if last.replace(sample.at) != Some(sample.at) {
                self.begin(sample.at);
            }
            self.add_sample(&sample);
        }
        self.fit();
    }

    /// Merges values until the page can hold them.
    fn fit(&mut self) {
        while self.points > self.points_max {
            self.merge();
        }
    }

    /// Begins the samples of another time.
    fn begin(&mut self, at: Time) {
        self.fit();
        let us = at.as_ps() as f64 / 1e6;
        if self.in_last < self.merged && !self.times.is_empty() {
            self.in_last += 1;
            self.times.pop();
            self.times.push(us);
        } else {
            self.times.push(us);
            self.in_last = 1;
        }
    }

    fn add_sample(&mut self, sample: &Sample) {
        let index = self.times.len() - 1;
        let key = place(sample.object, sample.metric);
        if self.places[key] == 0 {
            if self.objects[sample.object as usize].kind == ObjectKind::Flow && !self.admit_flow(sample.object) {
                return;
            }
            self.values.push(Values { first: index, values: Vec::new() });
            self.places[key] = self.values.len() as u32;
        }
        let series = &mut self.values[self.places[key] as usize - 1];
        let wanted = index - series.first + 1;
        self.points += wanted.saturating_sub(series.values.len());
        series.values.resize(wanted.max(series.values.len()), Merged::default());
        let value = &mut series.values[index - series.first];
        *value = value.plus(Merged { sum: sample.value as f32, count: 1 });
    }

    /// Returns whether the page has this flow, which has no series of this metric yet.
    fn admit_flow(&mut self, object: u32) -> bool {
        if Metric::ALL.iter().any(|metric| self.places[place(object, *metric)] > 0) {
            return true;
        }
        let is_admitted = self.flows < FLOWS_MAX;
        self.flows += u32::from(is_admitted);
        self.leaves_flows_out |= !is_admitted;
        is_admitted
    }

    /// Makes one of every two neighbouring times.
    fn merge(&mut self) {
        let count = self.times.len();
        self.times = (0..count.div_ceil(2)).map(|pair| self.times[(2 * pair + 1).min(count - 1)]).collect();
        self.in_last += if count.is_multiple_of(2) { self.merged } else { 0 };
        self.merged *= 2;
        self.points = 0;
        for series in &mut self.values {
            let shift = series.first % 2;
            let pairs = (series.values.len() + shift).div_ceil(2);
            let at = |index: usize| index.checked_sub(shift).and_then(|index| series.values.get(index)).copied();
            let merged = |pair| at(2 * pair).unwrap_or_default().plus(at(2 * pair + 1).unwrap_or_default());
            series.values = (0..pairs).map(merged).collect();
            series.first /= 2;
            self.points += pairs;
        }
    }

    /// Returns the charts: one for each kind of objects. A quantity that is always zero is left out.
    pub fn plots(&self) -> Plots {
        let order = [ObjectKind::Traffic, ObjectKind::Link, ObjectKind::Switch, ObjectKind::Host, ObjectKind::Flow];
        Plots(order.into_iter().filter_map(|kind| self.plot(kind)).collect())
    }

    fn plot(&self, kind: ObjectKind) -> Option<Plot> {
        let quantities: Vec<_> = Metric::ALL.iter().filter_map(|metric| self.quantity(kind, *metric)).collect();
        if quantities.is_empty() {
            return None;
        }
        let title = match kind {
            ObjectKind::Traffic => "All flows over time",
            ObjectKind::Link => "Links over time",
            ObjectKind::Switch => "Switches over time",
            ObjectKind::Host => "Hosts over time",
            ObjectKind::Flow => "Flows over time",
        };
        let mut caption =
            "Drag to zoom into a time, in all charts; the five highest series are shown first.".to_owned();
        if self.merged > 1 {
            caption += &format!(" {} samples are merged into one here; series.parquet has each.", self.merged);
        }
        if kind == ObjectKind::Flow && self.leaves_flows_out {
            caption += &format!(" The first {FLOWS_MAX} flows; series.parquet has all.");
        }
        let (x, scale) =
            if self.times.last().is_some_and(|last| *last > 10_000.0) { ("ms", 1e-3) } else { ("us", 1.0) };
        let times = self.times.iter().map(|us| us * scale).collect();
        Some(Plot { title: title.to_owned(), caption, x: x.to_owned(), times, quantities, shown: None })
    }

    fn quantity(&self, kind: ObjectKind, metric: Metric) -> Option<Quantity> {
        let value = |merged: &Merged| match merged.count {
            0 => f32::NAN,
            _ if metric.is_increase() => merged.sum,
            count => merged.sum / count as f32,
        };
        let of_kind = self.objects.iter().zip(0..).filter(|(object, _)| object.kind == kind);
        let series: Vec<_> = of_kind
            .filter_map(|(object, index)| {
                let values = self.values.get((self.places[place(index, metric)] as usize).checked_sub(1)?)?;
                let name = match object.flow {
                    Some(flow) => format!("{flow}: {}", object.name),
                    None => object.name.clone(),
                };
                Some(TimeSeries { name, first: values.first, values: values.values.iter().map(value).collect() })
            })
            .collect();
        let is_zero = series.iter().flat_map(|series| &series.values).all(|value| value.is_nan() || *value == 0.0);
        if is_zero {
            return None;
        }
        let about = metric.about().to_owned();
        Some(Quantity { name: metric.name().to_owned(), unit: metric.unit().to_owned(), about, series })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(points_max: usize, times: u64) -> History {
        let objects = [
            Object { kind: ObjectKind::Host, name: "host-0".into(), flow: None },
            Object { kind: ObjectKind::Flow, name: "host-0>host-1".into(), flow: Some(7) },
        ];
        let mut series = History { points_max, ..History::default() };
        for step in 1..=times {
            let at = Time::from_us(step);
            let sample = |object, metric, value| Sample { at, object, metric, value };
            let mut samples = vec![
                sample(0, Metric::Arrived, step as f64),
                sample(0, Metric::Retransmitted, 1.0),
                sample(0, Metric::Timeouts, 0.0),
            ];
            // The flow begins with the third sample.
            samples.extend((step > 2).then(|| sample(1, Metric::InFlight, 4.0)));
            series.add(&objects, &samples.into());
        }
        series
    }

    fn values<'p>(plots: &'p Plots, plot: usize, name: &str) -> &'p TimeSeries {
        let quantity = plots.0[plot].quantities.iter().find(|quantity| quantity.name == name).expect("it is shown");
        &quantity.series[0]
    }

    #[test]
    fn each_kind_has_a_chart_and_a_quantity_that_is_always_zero_has_none() {
        let plots = history(POINTS_MAX, 4).plots();
        assert_eq!(
            plots.0.iter().map(|plot| plot.title.as_str()).collect::<Vec<_>>(),
            ["Hosts over time", "Flows over time"]
        );
        assert_eq!(values(&plots, 0, "arrived_gbps").values, [1.0, 2.0, 3.0, 4.0]);
        assert!(plots.0[0].quantities.iter().all(|quantity| quantity.name != "timeouts"));
        let flow = values(&plots, 1, "in_flight_packets");
        assert_eq!((flow.name.as_str(), flow.first, &flow.values[..]), ("7: host-0>host-1", 2, &[4.0, 4.0][..]));
    }

    /// With many samples, rates are averaged and increases are added; nothing is lost or counted twice.
    #[test]
    fn many_samples_are_merged() {
        let series = history(40, 1_000);
        assert!(series.points <= 40);
        let plots = series.plots();
        let times = &plots.0[0].times;
        assert_eq!((times.len(), times[0]), (8, 128.0));
        assert_eq!(times[7], 1_000.0);
        let arrived = &values(&plots, 0, "arrived_gbps").values;
        assert_eq!(arrived[0], 64.5, "the mean of 1 to 128");
        let retransmitted = &values(&plots, 0, "retransmitted").values;
        assert_eq!(retransmitted.iter().sum::<f32>(), 1_000.0);
        assert_eq!(retransmitted[0], 128.0);
        assert!(values(&plots, 1, "in_flight_packets").values.iter().all(|value| *value == 4.0));
        assert!(plots.0[0].caption.contains("128 samples are merged into one"), "{}", plots.0[0].caption);
    }
}
