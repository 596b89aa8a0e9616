//! A recording as a Parquet file: a long table, for notebooks.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{Batch, Metric, Object, ObjectKind, RecordError, Recording, Sample};

/// Columns of the file.
const SCHEMA: &str = "message sample {
    required int64 time_ps (INTEGER(64, false));
    required binary kind (STRING);
    required binary name (STRING);
    optional int32 flow (INTEGER(32, false));
    required binary metric (STRING);
    required double value;
}";

/// A recording that is written to a Parquet file while the run lasts. Its rows are in groups of 131,072 samples or
/// more; a group has one series after the other, each in order of time.
pub struct ParquetRecording<W: Write + Send> {
    /// `None` after the file has been completed.
    file: Option<SerializedFileWriter<W>>,
    kinds: Vec<ByteArray>,
    metrics: Vec<ByteArray>,
    /// Names of the objects of earlier calls, by index.
    names: Vec<ByteArray>,
    /// Samples that are not written yet.
    waiting: Vec<Sample>,
    /// Samples of a group, series after series.
    sorted: Vec<Sample>,
}

impl<W: Write + Send> ParquetRecording<W> {
    /// Starts a file on `output`, which should be buffered.
    ///
    /// # Errors
    /// When `output` fails.
    ///
    /// # Panics
    /// Never: the schema is a constant.
    pub fn new(output: W) -> Result<Self, ParquetError> {
        let schema = Arc::new(parse_message_type(SCHEMA).expect("the constant schema is valid"));
        // Statistics take a comparison for every text. Times differ by the same step in most rows, so differences are
        // shorter than a dictionary.
        let properties = WriterProperties::builder()
            .set_statistics_enabled(EnabledStatistics::None)
            .set_column_dictionary_enabled(ColumnPath::from("time_ps"), false)
            .set_column_encoding(ColumnPath::from("time_ps"), Encoding::DELTA_BINARY_PACKED);
        let file = SerializedFileWriter::new(output, schema, Arc::new(properties.build()))?;
        let text = |text: &'static str| ByteArray::from(text);
        Ok(Self {
            file: Some(file),
            kinds: ObjectKind::ALL.iter().map(|kind| text(kind.name())).collect(),
            metrics: Metric::ALL.iter().map(|metric| text(metric.name())).collect(),
            names: Vec::new(),
            // Memory that is not used costs nothing, and a larger piece of it would be a copy.
            waiting: Vec::with_capacity(GROUP_ROWS * 2),
            sorted: Vec::new(),
        })
    }

    /// Writes all waiting samples as one group of rows: series after series, because equal texts and zeros in
    /// succession take hardly any space.
    fn write_group(&mut self, objects: &[Object]) -> Result<(), ParquetError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let known = self.names.len();
        self.names.extend(objects[known..].iter().map(|object| ByteArray::from(object.name.as_bytes().to_vec())));
        sort(&self.waiting, &mut self.sorted, objects.len());
        let (samples, names) = (self.sorted.iter(), &self.names);
        let object = |sample: &Sample| &objects[sample.object as usize];
        let mut group = file.next_row_group()?;
        macro_rules! column {
            ($type:ty, $values:expr, $present:expr) => {{
                let values: Vec<_> = $values.collect();
                let mut column = group.next_column()?.expect("the schema has as many columns as are written");
                column.typed::<$type>().write_batch(&values, $present, None)?;
                column.close()?;
            }};
        }
        column!(Int64Type, samples.clone().map(|sample| sample.at.as_ps().cast_signed()), None);
        column!(ByteArrayType, samples.clone().map(|sample| self.kinds[object(sample).kind as usize].clone()), None);
        column!(ByteArrayType, samples.clone().map(|sample| names[sample.object as usize].clone()), None);
        let is_flow: Vec<i16> = samples.clone().map(|sample| i16::from(object(sample).flow.is_some())).collect();
        let flows = samples.clone().filter_map(|sample| object(sample).flow).map(u32::cast_signed);
        column!(Int32Type, flows, Some(&is_flow));
        column!(ByteArrayType, samples.clone().map(|sample| self.metrics[sample.metric as usize].clone()), None);
        column!(DoubleType, samples.clone().map(|sample| sample.value), None);
        group.close()?;
        self.waiting.clear();
        Ok(())
    }
}

impl<W: Write + Send + 'static> Recording for ParquetRecording<W> {
    fn write(&mut self, objects: &[Object], batch: Batch) -> Result<(), RecordError> {
        self.waiting.extend(batch.samples());
        if self.waiting.len() >= GROUP_ROWS {
            self.write_group(objects)?;
        }
        Ok(())
    }

    fn finish(&mut self, objects: &[Object]) -> Result<(), RecordError> {
        if !self.waiting.is_empty() {
            self.write_group(objects)?;
        }
        if let Some(file) = self.file.take() {
            file.close()?;
        }
        Ok(())
    }
}

/// Puts `samples` into `sorted` in the order of objects and metrics, those of a series in order of time: counts how
/// many samples each series has, which is quicker than a sort.
fn sort(samples: &[Sample], sorted: &mut Vec<Sample>, objects: usize) {
    let series = |sample: &Sample| sample.object as usize * Metric::ALL.len() + sample.metric as usize;
    let mut places = vec![0u32; objects * Metric::ALL.len()];
    samples.iter().for_each(|sample| places[series(sample)] += 1);
    let mut next = 0;
    for place in &mut places {
        next += core::mem::replace(place, next);
    }
    let Some(first) = samples.first() else { return };
    // All of them are replaced.
    sorted.resize(samples.len(), *first);
    for sample in samples {
        let place = &mut places[series(sample)];
        sorted[*place as usize] = *sample;
        *place += 1;
    }
}

/// Number of rows that are written together: they take some 10 MB. A run waits at its end for the last group.
const GROUP_ROWS: usize = 1 << 17;
