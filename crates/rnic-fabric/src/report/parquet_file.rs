//! The flows of a run as a Parquet file, with one row each, for notebooks.

use std::io::Write;
use std::sync::Arc;

use parquet::data_type::{DataType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::{FlowRecord, Report};

/// The reason why a Parquet file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the Parquet file: {0}")]
pub struct ParquetError(#[from] parquet::errors::ParquetError);

/// Columns of the file: times in picoseconds, as in the simulation; the slowdown is included for convenience.
const SCHEMA: &str = "message flow {
    required int32 id (INTEGER(32, false));
    required int32 src (INTEGER(32, false));
    required int32 dst (INTEGER(32, false));
    required int64 bytes (INTEGER(64, false));
    required int64 start_ps (INTEGER(64, false));
    required int64 fct_ps (INTEGER(64, false));
    required int64 ideal_ps (INTEGER(64, false));
    required double slowdown;
    optional int32 request (INTEGER(32, false));
}";

impl Report {
    /// Writes the completed flows to `output`, which should be buffered.
    ///
    /// # Errors
    /// When `output` fails.
    ///
    /// # Panics
    /// Never: the schema is a constant.
    pub fn write_parquet(&self, output: impl Write + Send) -> Result<(), ParquetError> {
        let schema = Arc::new(parse_message_type(SCHEMA).expect("a constant schema is sound"));
        let mut file = SerializedFileWriter::new(output, schema, Arc::new(WriterProperties::default()))?;
        for flows in self.records.chunks(ROW_GROUP) {
            let mut group = file.next_row_group()?;
            let numbers: [fn(&FlowRecord) -> u32; 3] = [|flow| flow.id, |flow| flow.src, |flow| flow.dst];
            for number in numbers {
                column::<Int32Type>(&mut group, flows, |flow| number(flow).cast_signed())?;
            }
            column::<Int64Type>(&mut group, flows, |flow| flow.bytes.cast_signed())?;
            column::<Int64Type>(&mut group, flows, |flow| flow.start.as_ps().cast_signed())?;
            column::<Int64Type>(&mut group, flows, |flow| flow.fct.as_ps().cast_signed())?;
            column::<Int64Type>(&mut group, flows, |flow| flow.ideal.as_ps().cast_signed())?;
            column::<DoubleType>(&mut group, flows, FlowRecord::slowdown)?;
            request_column(&mut group, flows)?;
            group.close()?;
        }
        file.close()?;
        Ok(())
    }
}

/// Writes the next column of a row group.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    flows: &[FlowRecord],
    value: impl Fn(&FlowRecord) -> T::T,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = flows.iter().map(value).collect();
    let mut column = group.next_column()?.expect("the schema has as many columns as are written");
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()?;
    Ok(())
}

/// Writes the column of requests: null for a flow that belongs to no request.
fn request_column(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    flows: &[FlowRecord],
) -> Result<(), ParquetError> {
    let values: Vec<i32> = flows.iter().filter_map(|flow| flow.request.map(u32::cast_signed)).collect();
    let present: Vec<i16> = flows.iter().map(|flow| i16::from(flow.request.is_some())).collect();
    let mut column = group.next_column()?.expect("the schema has as many columns as are written");
    column.typed::<Int32Type>().write_batch(&values, Some(&present), None)?;
    column.close()?;
    Ok(())
}

/// Number of rows written together: a column of them takes 8 MB at most.
const ROW_GROUP: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use rnic_base::{Duration, Time};

    #[test]
    fn what_is_written_reads_back() {
        let record = |id: u32| FlowRecord {
            id,
            src: 3,
            dst: u32::MAX,
            bytes: 1 << 33,
            start: Time::from_us(1),
            fct: Duration::from_ps(1_500),
            ideal: Duration::from_ps(1_000),
            request: (id % 2 == 1).then_some(id),
        };
        let report = Report { records: (0..10).map(record).collect(), ..Report::empty() };
        let mut file = Vec::new();
        report.write_parquet(&mut file).expect("memory does not fail");
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).expect("a Parquet file");
        let rows: Vec<_> = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
        assert_eq!(rows.len(), 10);
        assert_eq!((rows[7].get_uint(0).expect("id"), rows[7].get_ulong(3).expect("bytes")), (7, 1 << 33));
        assert_eq!((rows[7].get_uint(1).expect("src"), rows[7].get_uint(2).expect("dst")), (3, u32::MAX));
        let times = [4, 5, 6].map(|column| rows[7].get_ulong(column).expect("a time"));
        assert_eq!(times, [1_000_000, 1_500, 1_000], "start, completion and ideal time in picoseconds");
        assert_eq!(rows[7].get_double(7).expect("slowdown"), 1.5);
        assert_eq!(rows[7].get_uint(8).expect("a request"), 7);
        assert!(rows[6].get_uint(8).is_err(), "no request");
    }
}
