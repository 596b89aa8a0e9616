//! The raw numbers in long form, for spreadsheets and notebooks: experiment, variant, point, seed, run, field, value,
//! and origin.

use std::io::Write;
use std::sync::Arc;

use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde::Serialize;

use crate::judge::Samples;
use crate::origin::Origin;
use crate::run_set::numbers;
use crate::work::Work;

/// Reason why raw numbers could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// Error of the CSV writer.
    #[error("cannot write the CSV file: {0}")]
    Csv(#[from] csv::Error),
    /// Error of the Parquet writer.
    #[error("cannot write the Parquet file: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Error from writing to the output.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// One number of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Line {
    experiment: String,
    variant: String,
    point: String,
    seed: u64,
    run: String,
    field: String,
    value: f64,
    origin: Origin,
}

/// Returns every number of every run, in the order of experiments, variants, positions and seeds.
pub(super) fn lines(work: &Work<'_>, samples: &Samples) -> Vec<Line> {
    let mut lines = Vec::new();
    for layout in &work.layouts {
        let origin = layout.selected.experiment.origin();
        for (variant, position, seed, run) in layout.runs() {
            let Some(sample) = samples.get(run) else { continue };
            let point = layout.axis_position_name(position);
            let mut add = |field: String, value: f64| {
                let experiment = layout.selected.experiment.id.clone();
                let (variant, point, run) = (variant.to_owned(), point.clone(), run.to_owned());
                lines.push(Line { experiment, variant, point, seed, run, field, value, origin });
            };
            numbers("", &sample.report, &mut add);
            add("run_wall_s".to_owned(), sample.wall_s);
        }
    }
    lines
}

pub(super) fn write_csv(lines: &[Line], output: impl Write) -> Result<(), RawError> {
    let mut writer = csv::Writer::from_writer(output);
    lines.iter().try_for_each(|line| writer.serialize(line))?;
    Ok(writer.flush()?)
}

const SCHEMA: &str = "message number {
    required binary experiment (STRING);
    required binary variant (STRING);
    required binary point (STRING);
    required int64 seed (INTEGER(64, false));
    required binary run (STRING);
    required binary field (STRING);
    required double value;
    required binary origin (STRING);
}";

pub(super) fn write_parquet(lines: &[Line], output: impl Write + Send) -> Result<(), RawError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut file = SerializedFileWriter::new(output, schema, Arc::new(WriterProperties::default()))?;
    for lines in lines.chunks(ROW_GROUP_LINES) {
        let mut group = file.next_row_group()?;
        let texts: [fn(&Line) -> &String; 3] = [|line| &line.experiment, |line| &line.variant, |line| &line.point];
        for text in texts {
            column::<ByteArrayType>(&mut group, lines, |line| text(line).as_str().into())?;
        }
        column::<Int64Type>(&mut group, lines, |line| line.seed.cast_signed())?;
        column::<ByteArrayType>(&mut group, lines, |line| line.run.as_str().into())?;
        column::<ByteArrayType>(&mut group, lines, |line| line.field.as_str().into())?;
        column::<DoubleType>(&mut group, lines, |line| line.value)?;
        column::<ByteArrayType>(&mut group, lines, |line| line.origin.name().into())?;
        group.close()?;
    }
    file.close()?;
    Ok(())
}

/// Writes the next column of a row group.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    lines: &[Line],
    value: impl Fn(&Line) -> T::T,
) -> Result<(), RawError> {
    let values: Vec<T::T> = lines.iter().map(value).collect();
    let mut column = group.next_column()?.expect("the schema has as many columns as are written");
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()?;
    Ok(())
}

/// Number of lines per row group; these take some ten megabytes.
const ROW_GROUP_LINES: usize = 1 << 18;
