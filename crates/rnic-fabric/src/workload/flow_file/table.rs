//! CSV: a header with the names of the columns, in any order, then one flow per line.
//!
//! Units are in the values (`1.5us`) or in the name of the column (`start_us`, `start (us)`), never assumed; a size
//! without a unit is in bytes. Columns are separated by commas, semicolons or tabs, and may be quoted.

use csv::{ReaderBuilder, StringRecord, Trim};
use rnic_base::similar;

use super::{Fields, FlowFile, TraceFlow, check_count, check_ends};
use crate::workload::Operation;
use crate::workload::text::{ReadError, lines, shown};

/// A column that is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Start,
    Source,
    Destination,
    Bytes,
    Op,
}

impl Column {
    const ALL: [(Self, &[&str]); 5] = [
        (Self::Start, &["start", "start_time", "time", "arrival", "arrival_time", "timestamp", "begin"]),
        (Self::Source, &["src", "source", "from", "sender", "src_host", "source_host", "src_id"]),
        (Self::Destination, &["dst", "destination", "dest", "to", "receiver", "dst_host", "dest_host", "dst_id"]),
        (Self::Bytes, &["bytes", "size", "length", "flow_size", "flow_bytes"]),
        (Self::Op, &["op", "operation"]),
    ];

    /// Returns the units that its name may end with, in upper or lower case, and how they are written in a value.
    fn units(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Start => {
                &[("s", "s"), ("sec", "s"), ("seconds", "s"), ("ms", "ms"), ("us", "us"), ("ns", "ns"), ("ps", "ps")]
            }
            Self::Bytes => &[
                ("bytes", "B"),
                ("b", "B"),
                ("kb", "KB"),
                ("mb", "MB"),
                ("gb", "GB"),
                ("kib", "KiB"),
                ("mib", "MiB"),
                ("gib", "GiB"),
            ],
            _ => &[],
        }
    }

    /// Returns the column that is called `name`, and the unit of its values if the name has one.
    fn of(name: &str) -> Option<(Self, &'static str)> {
        let plain = name.to_lowercase().replace([' ', '-', '.', '(', '[', '/'], "_").replace([')', ']'], "");
        let words: Vec<&str> = plain.split('_').filter(|word| !word.is_empty()).collect();
        let is = |names: &[&str], words: &[&str]| names.contains(&words.join("_").as_str());
        if let Some((column, _)) = Self::ALL.iter().find(|(_, names)| is(names, &words)) {
            return Some((*column, ""));
        }
        let (last, stem) = words.split_last()?;
        let (column, _) = Self::ALL.iter().find(|(_, names)| is(names, stem))?;
        let (_, unit) = column.units().iter().find(|(name, _)| name == last)?;
        Some((*column, unit))
    }
}

/// The place of a column in the file, and the unit of its values.
type Place = (usize, &'static str);

/// The columns of a file.
struct Columns {
    start: Place,
    source: usize,
    destination: usize,
    bytes: Place,
    op: Option<usize>,
}

/// The raw text of a record, for the columns of errors.
#[derive(Clone, Copy)]
struct Raw<'t> {
    text: &'t str,
    line: usize,
    delimiter: u8,
}

impl Raw<'_> {
    /// Returns an error about field `index`.
    fn error(self, index: usize, what: impl Into<String>) -> ReadError {
        let (mut field, mut is_quoted) = (0, false);
        let line = self.text.lines().next().unwrap_or_default();
        let mut column = 1;
        for (place, character) in (1..).zip(line.chars()) {
            if field == index && !character.is_whitespace() {
                column = place;
                break;
            }
            is_quoted ^= character == '"';
            field += usize::from(!is_quoted && character == char::from(self.delimiter));
        }
        ReadError::at(self.line, column, what)
    }
}

pub(super) fn read(text: &str, hosts: u32) -> Result<FlowFile, ReadError> {
    let head = lines(text).next().map_or("", |line| line.text);
    let delimiter = [b',', b';', b'\t'].into_iter().find(|delimiter| head.as_bytes().contains(delimiter));
    let delimiter = delimiter.unwrap_or(b',');
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .comment(Some(b'#'))
        .trim(Trim::All)
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let (mut record, mut columns, mut file) = (StringRecord::new(), None, FlowFile::default());
    let fields = Fields { hosts, example: LINE_FORMAT };
    while reader.read_record(&mut record).map_err(|error| ReadError::whole(error.to_string()))? {
        let at = record.position().map_or((0, 0), |position| (position.byte() as usize, position.line() as usize));
        let raw = Raw { text: text.get(at.0..).unwrap_or_default(), line: at.1, delimiter };
        if record.iter().all(str::is_empty) {
            continue;
        }
        match &columns {
            None => columns = Some(header(&record, raw, &mut file.notes)?),
            Some(columns) => {
                check_count(file.flows.len()).map_err(|what| raw.error(0, what))?;
                file.flows.push(flow(&record, raw, columns, fields)?);
            }
        }
    }
    Ok(file)
}

fn header(record: &StringRecord, raw: Raw<'_>, notes: &mut Vec<String>) -> Result<Columns, ReadError> {
    let mut found: [Option<Place>; Column::ALL.len()] = [None; Column::ALL.len()];
    let mut unused = Vec::new();
    for (index, name) in record.iter().enumerate() {
        let Some((column, unit)) = Column::of(name) else {
            unused.push(name);
            continue;
        };
        if let Some((first, _)) = found[column as usize] {
            let what = format!("`{}` and `{}` are the same column; remove one", shown(&record[first]), shown(name));
            return Err(raw.error(index, what));
        }
        found[column as usize] = Some((index, unit));
    }
    let need = |column: Column| {
        let names = Column::ALL[column as usize].1;
        found[column as usize].ok_or_else(|| {
            let meant = unused.iter().map(|name| similar_name(name, names)).find(|hint| !hint.is_empty());
            let meant = meant.unwrap_or_default();
            raw.error(0, format!("the header has no column `{}`{meant}; {LINE_FORMAT}", names[0]))
        })
    };
    let columns = Columns {
        start: need(Column::Start)?,
        source: need(Column::Source)?.0,
        destination: need(Column::Destination)?.0,
        bytes: need(Column::Bytes)?,
        op: found[Column::Op as usize].map(|(index, _)| index),
    };
    if !unused.is_empty() {
        let names: Vec<_> = unused.iter().take(NAMES_SHOWN_MAX).map(|name| format!("`{}`", shown(name))).collect();
        notes.push(format!("columns without an effect: {}", names.join(", ")));
    }
    Ok(columns)
}

/// Returns a hint when `name` is similar to one of `names`: the name in the file, and what it may mean.
fn similar_name(name: &str, names: &[&str]) -> String {
    let stem = name.split(['_', ' ', '(']).next().unwrap_or_default();
    [name, stem]
        .iter()
        .map(|word| similar::hint(word, names.iter().copied()))
        .find(|hint| !hint.is_empty())
        .map_or_else(String::new, |hint| {
            format!("; it has `{}`{}", shown(name), hint.trim_start_matches(';').replacen(" did", ", did", 1))
        })
}

fn flow(record: &StringRecord, raw: Raw<'_>, columns: &Columns, fields: Fields) -> Result<TraceFlow, ReadError> {
    let get = |index: usize| {
        record
            .get(index)
            .ok_or_else(|| raw.error(0, format!("the line has only {} fields; {LINE_FORMAT}", record.len())))
    };
    let with_unit = |(index, unit): Place| {
        let text = get(index)?;
        let is_bare = text.ends_with(|last: char| last.is_ascii_digit() || last == '.');
        Ok::<_, ReadError>(if is_bare { format!("{text}{unit}") } else { text.to_owned() })
    };
    let at = |index: usize| move |what: String| raw.error(index, what);
    let src = fields.host(get(columns.source)?).map_err(at(columns.source))?;
    let dst = fields.host(get(columns.destination)?).map_err(at(columns.destination))?;
    check_ends(src, dst).map_err(at(columns.destination))?;
    let start = fields.start(&with_unit(columns.start)?).map_err(at(columns.start.0))?;
    let bytes = fields.bytes(&with_unit(columns.bytes)?).map_err(at(columns.bytes.0))?;
    let op = match columns.op {
        None => Operation::WriteImmediate,
        Some(index) => {
            let name = get(index)?;
            let known = Operation::ALL.iter().filter(|(_, op)| !op.is_atomic());
            let found = known.clone().find(|(known, _)| *known == name).map(|(_, op)| *op);
            found.ok_or_else(|| {
                let names: Vec<_> = known.map(|(name, _)| *name).collect();
                raw.error(index, format!("unknown operation `{}`; use {}", shown(name), names.join(", ")))
            })?
        }
    };
    Ok(TraceFlow { start, src, dst, bytes, op })
}

/// Part of error messages: the format of a file.
pub(super) const LINE_FORMAT: &str =
    "a file has a header such as start_us,src,dst,bytes and lines such as 1.5,0,3,65536";
const NAMES_SHOWN_MAX: usize = 8;
