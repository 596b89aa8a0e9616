//! Time series of a run: a long table with one row for each sample of each metric of each object.
//!
//! [`TimeSeries::record_to`](crate::simulation::TimeSeries::record_to) starts a recording. Samples are taken between
//! the windows of a run, so they are the same for every number of parts, and they change neither the run nor its trace
//! hash. Counters are sampled as their increase since the previous sample, shares and rates as averages over that time.
//! To add a metric, add a line to `metrics!`, and take its sample in `simulation/record.rs`.

mod parquet_file;
mod reader;

use core::any::Any;
use std::sync::Arc;

use rnic_base::{Duration, Time};

pub use parquet_file::ParquetRecording;
pub use reader::{ROWS_READ_MAX, ReadError, RecordedSample, read_recording};

/// Parameters of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordPlan {
    /// Time between two samples, above zero.
    pub interval: Duration,
    /// Kinds of objects that are recorded.
    pub kinds: Vec<ObjectKind>,
}

impl RecordPlan {
    /// Returns whether objects of `kind` are recorded.
    pub fn has(&self, kind: ObjectKind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// Kind of a recorded object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ObjectKind {
    /// One direction of a link, with the queue of the switch that sends on it.
    Link,
    /// A switch.
    Switch,
    /// A host.
    Host,
    /// A flow, with the queue pair that sends it.
    Flow,
    /// All flows of a class: `requests`, `background`, or `flows` when there is one class.
    Traffic,
}

impl ObjectKind {
    /// All kinds, in the order of the enumeration.
    pub const ALL: [Self; 5] = [Self::Link, Self::Switch, Self::Host, Self::Flow, Self::Traffic];

    /// Returns the word for the kind in a recording.
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Switch => "switch",
            Self::Host => "host",
            Self::Flow => "flow",
            Self::Traffic => "traffic",
        }
    }
}

/// A recorded object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Name of the object: that of the node; for a link and a flow, the names of both ends, `host-3>edge-1`.
    pub name: String,
    /// Number of the flow, as in the table of flows, when the object is a flow.
    pub flow: Option<u32>,
}

macro_rules! metrics {
    ($($(#[doc = $about:literal])+ $variant:ident = $name:literal, $unit:literal;)+) => {
        /// A sampled quantity.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Metric {$(
            $(#[doc = $about])+
            $variant,
        )+}

        impl Metric {
            /// All metrics.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name of the metric in a recording.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the unit of its values.
            pub fn unit(self) -> &'static str {
                match self { $(Self::$variant => $unit),+ }
            }

            /// Returns its description, one line of Markdown.
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),+)),+ }.trim()
            }
        }
    };
}

metrics! {
    /// Part of the time in which the link carried a frame, including preamble and gap.
    Utilisation = "utilisation", "share";
    /// Part of the time in which the receiving end had paused the link (PFC).
    Paused = "paused", "share";
    /// Bytes that wait in the switch for the link, at the time of the sample.
    QueueBytes = "queue_bytes", "bytes";
    /// Bytes that waited in the switch for the link, averaged over time.
    QueueMean = "queue_mean_bytes", "bytes";
    /// Packets lost to faults on the link; of a NIC on sockets, to the impairment of its process.
    Lost = "lost", "packets";
    /// Bytes that wait in the switch, at the time of the sample.
    BufferBytes = "buffer_bytes", "bytes";
    /// Packets dropped because the switch had no buffer for them.
    Dropped = "dropped", "packets";
    /// Packets that the switch marked (ECN).
    Marked = "marked", "packets";
    /// Packets whose payload the switch cut.
    Trimmed = "trimmed", "packets";
    /// Pause frames (XOFF) that the switch sent.
    PausesSent = "pauses_sent", "frames";
    /// Payload that arrived, without duplicates: when it arrives, not when a message completes.
    Arrived = "arrived_gbps", "Gbit/s";
    /// Packets that were retransmitted.
    Retransmitted = "retransmitted", "packets";
    /// Packets that arrived with a congestion mark.
    MarksReceived = "marks_received", "packets";
    /// Retransmission timeouts that caused an action.
    Timeouts = "timeouts", "timeouts";
    /// Packets that the queue pair may have in flight: the lower of the congestion window and the transport's limit.
    Window = "window_packets", "packets";
    /// Packets in flight, at the time of the sample.
    InFlight = "in_flight_packets", "packets";
    /// Rate at which the queue pair may send, at the time of the sample; no row when it has no limit.
    Rate = "rate_gbps", "Gbit/s";
    /// Last measured round-trip time; no row before the first.
    RoundTrip = "round_trip_us", "us";
    /// Flows in progress, at the time of the sample.
    Flows = "flows", "flows";
    /// Packets with data that a NIC on sockets sent for the first time.
    Sent = "sent", "packets";
    /// Packets that a NIC on sockets received and discarded.
    Discarded = "discarded", "packets";
    /// Bytes of packets that a NIC on sockets sent, headers and retransmissions included.
    SentRate = "sent_gbps", "Gbit/s";
    /// Bytes of packets that a NIC on sockets received, headers and duplicates included.
    ReceivedRate = "received_gbps", "Gbit/s";
}

impl Metric {
    /// Returns whether values are increases of a counter since the previous sample: they are added when samples are
    /// merged, and others are averaged.
    pub fn is_increase(self) -> bool {
        matches!(
            self,
            Self::Lost
                | Self::Dropped
                | Self::Marked
                | Self::Trimmed
                | Self::PausesSent
                | Self::Retransmitted
                | Self::MarksReceived
                | Self::Timeouts
                | Self::Sent
                | Self::Discarded
        )
    }
}

/// A row of a recording.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Time of the sample: all events before it have been processed.
    pub at: Time,
    /// Index of the object in the list of objects.
    pub object: u32,
    /// The sampled quantity.
    pub metric: Metric,
    /// Value, in the unit of the metric.
    pub value: f64,
}

/// The samples of one time or several.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Batch {
    /// Times, and the number of `others` up to each.
    times: Vec<(Time, usize)>,
    /// Object and metric of the values of each time: the same in all batches of a run.
    series: Arc<[(u32, Metric)]>,
    /// Values of one time after the other.
    values: Vec<f64>,
    /// Samples of other series, in order of time.
    others: Vec<Sample>,
}

impl Batch {
    /// Creates a batch of `values`, for each of `times` one of each of `series`, and of `others`.
    pub(crate) fn new(
        times: Vec<(Time, usize)>,
        series: Arc<[(u32, Metric)]>,
        values: Vec<f64>,
        others: Vec<Sample>,
    ) -> Self {
        debug_assert_eq!(series.len() * times.len(), values.len());
        Self { times, series, values, others }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.values.len() + self.others.len()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the samples, in order of time.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        self.times.iter().enumerate().flat_map(|(index, &(at, end))| {
            let count = self.series.len();
            let values = self.series.iter().zip(&self.values[index * count..][..count]);
            let values = values.map(move |(&(object, metric), &value)| Sample { at, object, metric, value });
            let start = index.checked_sub(1).map_or(0, |before| self.times[before].1);
            values.chain(self.others[start..end].iter().copied())
        })
    }
}

impl From<Vec<Sample>> for Batch {
    /// Creates the batch of one or several times, in their order.
    fn from(others: Vec<Sample>) -> Self {
        let last = others.last().map(|sample| (sample.at, others.len()));
        Self { times: last.into_iter().collect(), others, ..Self::default() }
    }
}

/// The reason why a recording ended before its run.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Writing failed.
    #[error("cannot write the recording: {0}")]
    Write(#[from] parquet::errors::ParquetError),
    /// The recording has as many rows as a recording may have.
    #[error("{0} rows are the most that a recording may have; choose a longer record.interval, or less in record.what")]
    Full(u64),
}

/// The destination of a recording.
pub trait Recording: Any + Send {
    /// Takes samples, in the order of their times. `objects` are all objects up to now; their indices do not change.
    ///
    /// # Errors
    /// When the samples could not be written: the recording ends then, and the run continues.
    fn write(&mut self, objects: &[Object], batch: Batch) -> Result<(), RecordError>;

    /// Completes the recording, after the last sample, or after [`Self::write`] has failed.
    ///
    /// # Errors
    /// When it could not be completed.
    fn finish(&mut self, objects: &[Object]) -> Result<(), RecordError>;
}

/// Maximum number of rows of a recording: some gigabytes.
pub const ROWS_MAX: u64 = 200_000_000;
