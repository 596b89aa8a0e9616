//! `rnic compare`: two simulations or sweeps beside each other.

mod page;
mod series;

use std::path::Path;

use rnic_page::{Plots, number};
use rnic_reproduce::compare::{Comparison, FieldComparison, PointComparison};
use rnic_reproduce::machine::Machine;
use rnic_reproduce::run_set::RunSet;

use crate::args::CompareArgs;
use crate::console;
use crate::failure::Failure;
use crate::output::Folder;
use crate::sweep::{estimate_text, shown_fields};
use crate::table;

/// Runs `rnic compare`.
///
/// # Errors
/// Folders without results, or results that have nothing in common.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let read = |folder: &Path| RunSet::read(folder).map_err(|error| Failure::file(folder, error));
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let fields = if args.json { args.fields.clone() } else { usual(&a, &b, &args.fields) };
    let comparison = Comparison::new(&a, &b, &fields).map_err(Failure::Input)?;
    let names = [&args.a, &args.b].map(|folder| folder.display().to_string());
    let series = if args.out.is_some() { series::plots(&args.a, &args.b)? } else { Plots::default() };
    console::result(&console::text(|| text(&comparison, &names)), args.json.then_some(&comparison));
    if let Some(out) = &args.out {
        let shown = Comparison::new(&a, &b, &usual(&a, &b, &args.fields)).map_err(Failure::Input)?;
        let (sets, machine) = ([&a, &b], &Machine::local());
        let source = page::Source { comparison: &shown, sets, series: &series, names: &names, machine };
        let page = Folder::make(out)?.write_text("compare.html", &page::page(&source))?;
        console::line(&format!("wrote {}", page.display()));
    }
    Ok(())
}

/// Returns the fields to show: those that were asked for, or the usual ones that both have.
fn usual(a: &RunSet, b: &RunSet, wanted: &[String]) -> Vec<String> {
    let of_b = shown_fields(b, wanted);
    shown_fields(a, wanted).into_iter().filter(|field| of_b.contains(field)).collect()
}

/// Column heads of the table of numbers.
const HEADS: [&str; 5] = ["field", "A", "B", "B / A", "p"];

fn text(comparison: &Comparison, names: &[String; 2]) -> String {
    let mut text = format!("A: {}\nB: {}\n\n", names[0], names[1]);
    if comparison.differences.is_empty() {
        text += "Plan and build are the same.\n\n";
    } else {
        let rows = differences(comparison);
        text += &table::results(&["differs", "A", "B"], rows);
        text.push('\n');
    }
    text += &table::results(&HEADS, numbers(comparison));
    let seeds = comparison.points.iter().map(|point| point.seeds_in_common).min().unwrap_or(0);
    if seeds < 2 {
        text += "one seed: what is significant cannot be judged (`rnic sim --seeds 5`)\n";
    } else {
        text += "* significant at 95 %, all rows considered together\n";
    }
    if comparison.points_apart > 0 {
        text += &format!("{} points are in only one of the two\n", comparison.points_apart);
    }
    text
}

/// Returns the rows of the table of differences.
fn differences(comparison: &Comparison) -> Vec<Vec<String>> {
    let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let row = |difference: &rnic_reproduce::compare::Difference| {
        vec![difference.key.clone(), cell(&difference.values[0]), cell(&difference.values[1])]
    };
    comparison.differences.iter().map(row).collect()
}

/// Returns the rows of the table of numbers.
fn numbers(comparison: &Comparison) -> Vec<Vec<String>> {
    let rows = |point: &PointComparison| -> Vec<Vec<String>> {
        let at = point.at.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        point.fields.iter().map(|field| row(&at, field)).collect()
    };
    comparison.points.iter().flat_map(rows).collect()
}

fn row(at: &str, field: &FieldComparison) -> Vec<String> {
    let [a, b] = &field.means;
    let ratio = if a.mean == 0.0 { "-".to_owned() } else { number::fixed(b.mean / a.mean, 3) };
    let mark = if field.is_significant { "*" } else { "" };
    let p = field.p_value.map_or_else(|| "-".to_owned(), |p| format!("{}{mark}", number::fixed(p, 4)));
    let name = if at.is_empty() { field.field.clone() } else { format!("{}, {at}", field.field) };
    vec![name, estimate_text(a), estimate_text(b), ratio, p]
}
