//! The rows of a recording's file.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader as _, SerializedFileReader};
use parquet::record::Row;
use parquet::record::RowAccessor as _;

use rnic_base::Time;

use super::{Metric, ObjectKind};

/// A row of a recording's file.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedSample {
    /// Time of the sample.
    pub at: Time,
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Name of the object.
    pub name: String,
    /// Number of the flow, when the object is a flow.
    pub flow: Option<u32>,
    /// The sampled quantity.
    pub metric: Metric,
    /// Value, in the unit of the metric.
    pub value: f64,
}

/// The reason why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not Parquet, or has other columns.
    #[error("is not a recording of `rnic sim`: {0}")]
    Format(#[from] ParquetError),
    /// The file cannot be decoded.
    #[error("is damaged; run the simulation again with --out")]
    Damaged,
    /// The file has too many rows.
    #[error("has {rows} rows; at most {most} can be read: choose a longer record.interval, or less in record.what")]
    TooLong {
        /// Rows of the file.
        rows: u64,
        /// Maximum number.
        most: u64,
    },
    /// The recording is of another version.
    #[error("row {row}: unknown {noun} `{word}`; the recording is of another version of rnic")]
    Unknown {
        /// Row number, from 1.
        row: u64,
        /// The column.
        noun: &'static str,
        /// The value that is not known.
        word: String,
    },
}

/// Rows that can be read.
pub const ROWS_READ_MAX: u64 = 1 << 24;

/// Reads the recording in `file`; `each` takes its rows, in the order of the file.
///
/// # Errors
/// When `file` is not a recording, is damaged, or has more than [`ROWS_READ_MAX`] rows.
pub fn read_recording(file: impl ChunkReader + 'static, each: impl FnMut(RecordedSample)) -> Result<(), ReadError> {
    // The library panics for some damaged files: their pages are decoded as their headers say. What `each` has taken
    // until then is dropped by the caller, who gets an error.
    catch_unwind(AssertUnwindSafe(|| read(file, each))).unwrap_or(Err(ReadError::Damaged))
}

fn read(file: impl ChunkReader + 'static, mut each: impl FnMut(RecordedSample)) -> Result<(), ReadError> {
    let reader = SerializedFileReader::new(file)?;
    let rows = u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(u64::MAX);
    if rows > ROWS_READ_MAX {
        return Err(ReadError::TooLong { rows, most: ROWS_READ_MAX });
    }
    for (row, number) in reader.get_row_iter(None)?.zip(1..=rows) {
        each(sample(&row?, number)?);
    }
    Ok(())
}

fn sample(row: &Row, number: u64) -> Result<RecordedSample, ReadError> {
    let unknown = |noun, word: &str| ReadError::Unknown {
        row: number,
        noun,
        word: word.chars().take(40).flat_map(char::escape_debug).collect(),
    };
    let (kind, metric) = (row.get_string(1)?, row.get_string(4)?);
    Ok(RecordedSample {
        at: Time::from_ps(row.get_ulong(0)?),
        kind: *ObjectKind::ALL.iter().find(|known| known.name() == kind).ok_or_else(|| unknown("kind", kind))?,
        name: row.get_string(2)?.clone(),
        flow: row.get_uint(3).ok(),
        metric: *Metric::ALL.iter().find(|known| known.name() == metric).ok_or_else(|| unknown("metric", metric))?,
        value: row.get_double(5)?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::record::{Object, ParquetRecording, Recording as _, Sample};

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("one thread").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn file() -> Vec<u8> {
        let memory = Memory::default();
        let mut recording = ParquetRecording::new(memory.clone()).expect("it is written");
        let object = |kind, name: &str, flow| Object { kind, name: name.to_owned(), flow };
        let objects = [object(ObjectKind::Link, "a>b", None), object(ObjectKind::Flow, "a>c", Some(7))];
        let samples: Vec<Sample> = (1..=3)
            .flat_map(|step| {
                let at = Time::from_us(step);
                [(0, Metric::QueueBytes, step as f64), (1, Metric::InFlight, 4.0)]
                    .map(|(object, metric, value)| Sample { at, object, metric, value })
            })
            .collect();
        recording.write(&objects, samples.into()).expect("it is written");
        recording.finish(&objects).expect("it is complete");
        drop(recording);
        Arc::into_inner(memory.0).expect("the recording is dropped").into_inner().expect("one thread")
    }

    fn rows_of(bytes: Vec<u8>) -> Result<Vec<RecordedSample>, ReadError> {
        let mut rows = Vec::new();
        read_recording(bytes::Bytes::from(bytes), |row| rows.push(row)).map(|()| rows)
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let rows = rows_of(file()).expect("it is a recording");
        assert_eq!(rows.len(), 6);
        let queue: Vec<f64> = rows.iter().filter(|row| row.metric == Metric::QueueBytes).map(|row| row.value).collect();
        assert_eq!(queue, [1.0, 2.0, 3.0]);
        let flow = rows.iter().find(|row| row.kind == ObjectKind::Flow).expect("a flow");
        assert_eq!((flow.name.as_str(), flow.flow, flow.at), ("a>c", Some(7), Time::from_us(1)));
    }

    /// A file of a later version, one that is cut off, and one that is no recording, are one line each.
    #[test]
    fn other_files_are_errors() {
        let whole = file();
        let cut = whole[..whole.len() / 2].to_vec();
        for bytes in [Vec::new(), b"time,value\n1,2\n".to_vec(), cut] {
            let error = rows_of(bytes).expect_err("no recording").to_string();
            assert!(error.starts_with("is not a recording of `rnic sim`: ") && !error.contains('\n'), "{error}");
        }
        let mut later = whole;
        let at = later.windows(11).position(|word| word == b"queue_bytes").expect("the word is in a dictionary");
        later[at..at + 11].copy_from_slice(b"queue_bites");
        let error = rows_of(later).expect_err("an unknown metric").to_string();
        assert!(error.contains("unknown metric `queue_bites`"), "{error}");
    }

    /// Damaged files are errors or have other values.
    #[test]
    fn damaged_files_do_no_harm() {
        let whole = file();
        let mut random = rnic_base::RandomStreams::new(1).stream("damage");
        let mut damaged = 0;
        for _ in 0..10_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(8) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.bits() as u8;
            }
            bytes.truncate(bytes.len() - (random.below(4) * random.below(40)) as usize);
            match rows_of(bytes) {
                Ok(rows) => assert!(rows.len() <= 6, "{} rows of 6", rows.len()),
                Err(error) => {
                    assert!(!error.to_string().contains(char::is_control), "{error}");
                    damaged += u32::from(matches!(error, ReadError::Damaged));
                }
            }
        }
        assert!(damaged > 0, "no file made the library panic: catching is not tested");
    }
}
