//! Results of the runs of a plan: `runs.json` in the folder of a simulation or a sweep.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rnic_fabric::{Plan, Report};
use serde::{Deserialize, Serialize};

use crate::SOURCES;
use crate::axis::Axis;
use crate::estimate::Estimate;
use crate::input::read_text;
use crate::run::{Sample, quantiles};

/// Name of the file in a folder of results.
pub const FILE: &str = "runs.json";

/// The runs of a plan at some points, each with several seeds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSet {
    /// Version of this format.
    format: u32,
    /// Version of the command, and fingerprint of its sources.
    pub build: String,
    /// Command that repeats the runs.
    pub command: String,
    /// Plan, without the values of the axes.
    pub plan: String,
    /// Keys that vary.
    pub axes: Vec<Axis>,
    /// Runs at each point.
    pub points: Vec<PointRuns>,
}

/// The runs at one point.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointRuns {
    /// Value of each axis.
    pub at: Vec<String>,
    /// One run for each seed.
    pub runs: Vec<SeedRun>,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedRun {
    /// Seed.
    pub seed: u64,
    /// Numbers of the report, by their paths.
    pub fields: BTreeMap<String, f64>,
    /// Distributions by name: the value at each share of [`crate::run::levels`].
    pub quantiles: BTreeMap<String, Vec<f64>>,
    /// Reason why there is no valid result.
    pub failure: Option<String>,
}

impl SeedRun {
    /// Returns the result in `sample`, of a run with `seed`.
    pub fn new(seed: u64, sample: &Sample) -> Self {
        Self {
            seed,
            fields: fields(&sample.report),
            quantiles: sample.quantiles.clone(),
            failure: sample.failure.clone(),
        }
    }

    /// Returns the result in `report`, of a run of `plan`.
    pub fn of_report(report: &Report, plan: &Plan) -> Self {
        let failure = report.check().err().map(|failure| failure.violations.join("; "));
        let quantiles = quantiles(report, plan);
        Self { seed: report.seed, fields: fields(&report.to_json()), quantiles, failure }
    }
}

/// Returns the numbers of a report that describe its result.
fn fields(report: &serde_json::Value) -> BTreeMap<String, f64> {
    let mut fields = BTreeMap::new();
    numbers("", report, &mut |path, value| {
        fields.insert(path, value);
    });
    // They differ between runs of the same plan and seed, or do not describe a result.
    for path in ["seed", "wall_s"] {
        fields.remove(path);
    }
    fields
}

/// Passes every number in `value` to `add`, with its path.
pub(crate) fn numbers(path: &str, value: &serde_json::Value, add: &mut impl FnMut(String, f64)) {
    match value {
        serde_json::Value::Number(number) => add(path.to_owned(), number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                numbers(&format!("{path}{dot}{name}"), value, add);
            }
        }
        _ => {}
    }
}

impl PointRuns {
    /// Returns the values of `field`, with their seeds, of the runs that have it.
    pub fn values(&self, field: &str) -> Vec<(u64, f64)> {
        let valid = self.runs.iter().filter(|run| run.failure.is_none());
        valid.filter_map(|run| Some((run.seed, *run.fields.get(field)?))).collect()
    }

    /// Returns the mean of `field` over seeds.
    pub fn estimate(&self, field: &str) -> Option<Estimate> {
        let values: Vec<f64> = self.values(field).into_iter().map(|(_, value)| value).collect();
        Estimate::of(&values)
    }

    /// Returns the distribution called `name`, averaged over seeds share by share; `None` without one.
    pub fn quantiles(&self, name: &str) -> Option<Vec<f64>> {
        let all: Vec<&Vec<f64>> = self.runs.iter().filter_map(|run| run.quantiles.get(name)).collect();
        let shares = all.iter().map(|values| values.len()).min()?;
        let mean = |share: usize| all.iter().map(|values| values[share]).sum::<f64>() / all.len() as f64;
        Some((0..shares).map(mean).collect())
    }
}

impl RunSet {
    pub(crate) fn new(command: &str, plan: &str, axes: Vec<Axis>, points: Vec<PointRuns>) -> Self {
        let build = format!("{} ({SOURCES})", env!("CARGO_PKG_VERSION"));
        Self { format: FORMAT, build, command: command.to_owned(), plan: plan.to_owned(), axes, points }
    }

    /// Returns the set with one run of `plan`.
    pub fn of_one(command: &str, plan: &str, run: SeedRun) -> Self {
        Self::new(command, plan, Vec::new(), vec![PointRuns { at: Vec::new(), runs: vec![run] }])
    }

    /// Reads the set in `folder`.
    ///
    /// # Errors
    /// When the folder has none, or its file is not valid.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Err(format!(
                "has no {FILE}; it must be a folder that `rnic sim --out` or `rnic sweep --out` wrote"
            ));
        }
        let text = read_text(&path, BYTES_MAX).map_err(|error| format!("{FILE}: {error}"))?;
        Self::parse(&text).map_err(|error| format!("{FILE}: {error}"))
    }

    /// Reads the content of a `runs.json`.
    ///
    /// # Errors
    /// When it is not valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let set: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if set.format != FORMAT {
            return Err(format!("format {}, but this version reads format {FORMAT}", set.format));
        }
        if let Err(error) = set.plan.parse::<toml::Table>() {
            return Err(format!("the plan is not TOML: {}", error.message().replace('\n', " ")));
        }
        if set.points.iter().any(|point| point.at.len() != set.axes.len()) {
            return Err("a point does not have a value for each axis".to_owned());
        }
        Ok(set)
    }

    /// Returns the names of all fields that every run has.
    pub fn fields(&self) -> Vec<String> {
        let mut runs = self.points.iter().flat_map(|point| &point.runs).filter(|run| run.failure.is_none());
        let Some(first) = runs.next() else { return Vec::new() };
        let rest: Vec<&SeedRun> = runs.collect();
        first.fields.keys().filter(|field| rest.iter().all(|run| run.fields.contains_key(*field))).cloned().collect()
    }

    /// Returns the reasons of the runs without a valid result, with point and seed.
    pub fn failures(&self) -> Vec<String> {
        let runs = self.points.iter().flat_map(|point| point.runs.iter().map(move |run| (point, run)));
        let failure = |(point, run): (&PointRuns, &SeedRun)| {
            let at = self.name_of(&point.at);
            Some(format!("{at}seed {}: {}", run.seed, run.failure.as_ref()?))
        };
        runs.filter_map(failure).collect()
    }

    fn name_of(&self, at: &[String]) -> String {
        self.axes.iter().zip(at).map(|(axis, value)| format!("{}={value}, ", axis.key)).collect()
    }

    /// Writes a long table: the value of each axis (`links_rate` for `links.rate`), seed, field, value.
    ///
    /// # Errors
    /// When `output` fails.
    pub fn write_parquet(&self, output: impl Write + Send) -> Result<(), ParquetError> {
        let column = |axis: &Axis| format!("required binary {} (STRING);", axis.key.replace('.', "_"));
        let axes: String = self.axes.iter().map(column).collect();
        let schema = format!(
            "message number {{ {axes} required int64 seed (INTEGER(64, false)); required binary field (STRING); \
             required double value; }}"
        );
        let schema = Arc::new(parse_message_type(&schema)?);
        let mut file = SerializedFileWriter::new(output, schema, Arc::new(WriterProperties::default()))?;
        for point in &self.points {
            let rows: Vec<(u64, &str, f64)> = point
                .runs
                .iter()
                .flat_map(|run| run.fields.iter().map(|(field, value)| (run.seed, field.as_str(), *value)))
                .collect();
            let mut group = file.next_row_group()?;
            macro_rules! column {
                ($type:ty, $values:expr) => {{
                    let values: Vec<_> = $values.collect();
                    let mut column = group.next_column()?.expect("the schema has as many columns as are written");
                    column.typed::<$type>().write_batch(&values, None, None)?;
                    column.close()?;
                }};
            }
            for value in &point.at {
                column!(ByteArrayType, rows.iter().map(|_| value.as_str().into()));
            }
            column!(Int64Type, rows.iter().map(|(seed, ..)| seed.cast_signed()));
            column!(ByteArrayType, rows.iter().map(|(_, field, _)| (*field).into()));
            column!(DoubleType, rows.iter().map(|(.., value)| *value));
            group.close()?;
        }
        file.close().map(drop)
    }
}

/// Present version of the format.
const FORMAT: u32 = 1;
/// Maximum size of the file.
const BYTES_MAX: u64 = 1 << 30;
