//! The flows of a run as a Parquet file, with one row each, for notebooks.

use std::io::Write;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
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
    optional binary tenant (STRING);
    optional binary traffic (STRING);
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
        let names: Vec<ByteArray> =
            self.tenants.iter().flatten().map(|(name, _)| name.as_bytes().to_vec().into()).collect();
        let groups: Vec<ByteArray> =
            self.groups.iter().flatten().map(|(name, _)| name.as_bytes().to_vec().into()).collect();
        let schema = Arc::new(parse_message_type(SCHEMA).expect("the constant schema is valid"));
        let mut file = SerializedFileWriter::new(output, schema, Arc::new(WriterProperties::default()))?;
        for flows in self.records.chunks(ROW_GROUP_ROWS) {
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
            optional_column::<Int32Type>(&mut group, flows, |flow| flow.request.map(u32::cast_signed))?;
            optional_column::<ByteArrayType>(&mut group, flows, |flow| names.get(flow.tenant? as usize).cloned())?;
            optional_column::<ByteArrayType>(&mut group, flows, |flow| groups.get(flow.group? as usize).cloned())?;
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

/// Writes the next column of a row group: null for a flow without a value.
fn optional_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    flows: &[FlowRecord],
    value: impl Fn(&FlowRecord) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = flows.iter().filter_map(&value).collect();
    let present: Vec<i16> = flows.iter().map(|flow| i16::from(value(flow).is_some())).collect();
    let mut column = group.next_column()?.expect("the schema has as many columns as are written");
    column.typed::<T>().write_batch(&values, Some(&present), None)?;
    column.close()?;
    Ok(())
}

/// Number of rows written together: one of their columns takes 8 MB at most.
const ROW_GROUP_ROWS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::TenantFigures;
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
            tenant: id.checked_sub(8),
            group: None,
        };
        let tenants = ["big", "small"].map(|name| (name.to_owned(), TenantFigures::default()));
        let tenants = Some(tenants.into());
        let report = Report { records: (0..10).map(record).collect(), tenants, ..Report::empty() };
        let mut file = Vec::new();
        report.write_parquet(&mut file).expect("writing to memory succeeds");
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).expect("the output is a Parquet file");
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .expect("the file has rows")
            .map(|row| row.expect("the row is readable"))
            .collect();
        assert_eq!(rows.len(), 10);
        assert_eq!((rows[7].get_uint(0).expect("id"), rows[7].get_ulong(3).expect("bytes")), (7, 1 << 33));
        assert_eq!((rows[7].get_uint(1).expect("src"), rows[7].get_uint(2).expect("dst")), (3, u32::MAX));
        let times = [4, 5, 6].map(|column| rows[7].get_ulong(column).expect("the column is an unsigned integer"));
        assert_eq!(times, [1_000_000, 1_500, 1_000], "start, completion and ideal time in picoseconds");
        assert_eq!(rows[7].get_double(7).expect("slowdown"), 1.5);
        assert_eq!(rows[7].get_uint(8).expect("the flow has a request"), 7);
        assert!(rows[6].get_uint(8).is_err(), "a flow without a request has one");
        assert_eq!(rows[9].get_string(9).expect("the flow has a tenant"), "small");
        assert!(rows[7].get_string(9).is_err(), "a flow without a tenant has one");
    }
}
