//! Files of flow sizes: one point per line, `SIZE SHARE`, in the forms in which they are published.
//!
//! Shares are cumulative (of the flows that are no larger), as fractions up to 1 or percentages up to 100 or 100%. The
//! last line decides between fractions and percentages, because it includes all flows. Lines with three fields are
//! those of ns-2, `SIZE COUNT CUMULATIVE`, whose sizes are often packets: they need a unit. Fields are separated by
//! blanks, tabs or commas; `#` starts a comment. Lines of words choose what is not in the numbers:
//!
//! | line | meaning |
//! |---|---|
//! | `interpolation log`, `interpolation linear` | the rule for sizes between two points |
//! | `shares each`, `shares cumulative` | each share is that of its own size, the only ones; or the default |
//! | `unit 1460B` | the sizes count units of this size |
//!
//! The keys `shares` and `size_unit` of a workload do the same for files that must not be changed.

use rnic_base::limits::MESSAGE_BYTES_MAX;
use rnic_base::{Bytes, Probability};

use super::{Point, SHARE_ONE};
use crate::workload::text::{Line, ReadError, lines, shown};

/// The meaning of the shares in a file of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareMeaning {
    /// The share of flows that are no larger.
    Cumulative,
    /// The share of flows of exactly this size.
    Each,
}

/// The meaning of the numbers in a file of sizes, when the file does not say it itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SizesForm {
    /// Meaning of the shares; `None`: that of the file, or cumulative.
    pub shares: Option<ShareMeaning>,
    /// Bytes of one unit of the sizes; `None`: that of the file, or 1.
    pub unit: Option<u64>,
}

/// The lines with numbers.
struct Row<'t> {
    line: Line<'t>,
    size: &'t str,
    share: &'t str,
}

/// Returns the points of a file, and whether sizes between them are distributed over their logarithm.
pub(super) fn read(text: &str, mut form: SizesForm) -> Result<(Vec<Point>, bool), ReadError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(ReadError::whole(format!("the file has {} bytes; the maximum is {FILE_BYTES_MAX}", text.len())));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut rows, mut logarithmic, mut with_counts) = (Vec::new(), None, None);
    for line in lines(text) {
        let fields: Vec<&str> = line.text.split([' ', '\t', ',']).filter(|field| !field.is_empty()).take(4).collect();
        match fields[..] {
            [] => {}
            ["interpolation", "linear"] => logarithmic = Some(false),
            ["interpolation", "log"] => logarithmic = Some(true),
            ["shares", "cumulative"] => form.shares = form.shares.or(Some(ShareMeaning::Cumulative)),
            ["shares", "each"] => form.shares = form.shares.or(Some(ShareMeaning::Each)),
            ["unit", unit] => {
                let bytes: Bytes = unit.parse().map_err(|error| line.error(unit, format!("{error}")))?;
                form.unit = form.unit.or(Some(bytes.get()));
            }
            [size, share] => rows.push(Row { line, size, share }),
            [size, count, share] if count.parse::<f64>().is_ok() => {
                with_counts = with_counts.or(Some(line));
                rows.push(Row { line, size, share });
            }
            _ => {
                let what = format!(
                    "`{}` is neither `SIZE SHARE`, such as `8KB 50%`, nor `interpolation linear` or \
                     `interpolation log`",
                    shown(line.text)
                );
                return Err(line.error(line.text, what));
            }
        }
        if rows.len() > POINTS_MAX {
            return Err(line.error(line.text, format!("the file has more than {POINTS_MAX} points, the maximum")));
        }
    }
    if let (Some(line), None) = (with_counts, form.unit) {
        let what = "lines of three fields, SIZE COUNT CUMULATIVE, do not say whether sizes are bytes or packets; set \
                    the key size_unit = \"1B\" or \"1460B\", or add a line `unit 1B` or `unit 1460B`";
        return Err(line.error(line.text, what));
    }
    let points = match form.shares {
        Some(ShareMeaning::Each) => each(&rows, form)?,
        _ => cumulative(&rows, form)?,
    };
    let is_logarithmic = logarithmic.unwrap_or(false);
    if is_logarithmic && points.first().is_some_and(|point| point.bytes == 0) {
        return Err(ReadError::whole("`interpolation log` needs a first size above zero"));
    }
    Ok((points, is_logarithmic))
}

/// Returns whether the shares are percentages without a percent sign: the last one, of all flows, is 100.
fn are_percentages(rows: &[Row<'_>]) -> bool {
    let last = rows.last().and_then(|row| row.share.parse::<f64>().ok());
    last.is_some_and(|last| last > 1.0) && !rows.iter().any(|row| row.share.ends_with('%'))
}

fn cumulative(rows: &[Row<'_>], form: SizesForm) -> Result<Vec<Point>, ReadError> {
    let are_percentages = are_percentages(rows);
    let mut points = Vec::<Point>::new();
    let (mut sum, mut nonzero, mut out_of_order) = (0u64, 0, None);
    for row in rows {
        let point = point(row, form, are_percentages)?;
        let is_smaller = |last: &Point| last.bytes > point.bytes || last.share > point.share;
        if points.last().is_some_and(is_smaller) {
            out_of_order = out_of_order.or(Some(row.line));
        }
        sum = sum.saturating_add(point.share);
        nonzero += usize::from(point.share > 0);
        points.push(point);
    }
    let last = points.last().map_or(0, |last| last.share);
    let is_complete = last == SHARE_ONE;
    let may_be_each = nonzero > 1 && sum.abs_diff(SHARE_ONE) <= SUM_ERROR_MAX && form.shares.is_none();
    if (!is_complete || out_of_order.is_some()) && may_be_each {
        let what = "the shares add up to 100%, as if each were that of its own size, but a file has cumulative shares \
                    unless the key shares = \"each\", or a line `shares each`, says otherwise; with \"cumulative\" the \
                    last share must be 100%";
        return Err(ReadError::whole(what));
    }
    if let Some(line) = out_of_order {
        let what = "the size or the share is smaller than in the line before; both must not decrease";
        return Err(line.error(line.text, what));
    }
    if !is_complete {
        return Err(ReadError::whole("the distribution is incomplete: its last line must have a share of 100%"));
    }
    Ok(points)
}

fn each(rows: &[Row<'_>], form: SizesForm) -> Result<Vec<Point>, ReadError> {
    // Percentages: fractions that add up to more than one do not exist.
    let sum: f64 = rows.iter().filter_map(|row| row.share.parse::<f64>().ok()).sum();
    let are_percentages = sum > 2.0 && !rows.iter().any(|row| row.share.ends_with('%'));
    let mut sizes = Vec::new();
    for row in rows {
        sizes.push(point(row, form, are_percentages)?);
    }
    sizes.sort_by_key(|point| point.bytes);
    let sum = sizes.iter().fold(0u64, |sum, point| sum.saturating_add(point.share));
    if sum.abs_diff(SHARE_ONE) > SUM_ERROR_MAX {
        let percent = sum as f64 * 100.0 / SHARE_ONE as f64;
        return Err(ReadError::whole(format!(
            "the shares of the sizes must add up to 100%, but their sum is {percent}%"
        )));
    }
    // A step at each size: the share grows, the size does not.
    let (mut points, mut before) = (Vec::new(), 0);
    for Point { bytes, share } in sizes.into_iter().filter(|point| point.share > 0) {
        let after = (before + share).min(SHARE_ONE);
        points.extend([Point { bytes, share: before }, Point { bytes, share: after }]);
        before = after;
    }
    if let Some(last) = points.last_mut() {
        last.share = SHARE_ONE;
    }
    Ok(points)
}

fn point(row: &Row<'_>, form: SizesForm, is_percentage: bool) -> Result<Point, ReadError> {
    let Row { line, size, share } = *row;
    let unit = form.unit.unwrap_or(1);
    if unit != 1 && !size.ends_with(|last: char| last.is_ascii_digit()) {
        return Err(line.error(size, format!("`{}` has a unit, but the sizes of the file are units", shown(size))));
    }
    let bytes = size.parse::<Bytes>().map_err(|error| line.error(size, error.to_string()))?.get();
    let bytes = bytes.saturating_mul(unit);
    let text = if is_percentage { format!("{share}%") } else { share.to_owned() };
    // In a list of shares that grow to 1, the last has one reading.
    let is_one = !is_percentage && share.parse::<f64>().is_ok_and(|share| share == 1.0);
    let probability = if is_one { Ok(Probability::ALWAYS) } else { text.parse() };
    let probability = probability.map_err(|error| line.error(share, format!("{error}")))?;
    // Exact for every share with up to twelve decimal places, because a probability has 63 bits.
    let share = (probability.as_f64() * SHARE_ONE as f64).round() as u64;
    // A size of zero starts the first interval of sizes; no flow has it.
    if bytes > MESSAGE_BYTES_MAX || bytes == 0 && share > 0 {
        let what = format!("the size is out of range; sizes must be 1 to {MESSAGE_BYTES_MAX} bytes");
        return Err(line.error(size, what));
    }
    Ok(Point { bytes, share })
}

/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of points.
const POINTS_MAX: usize = 1 << 16;
/// Maximum deviation of the sum of shares from that of all flows: the error of rounded numbers.
const SUM_ERROR_MAX: u64 = SHARE_ONE / 10_000;
