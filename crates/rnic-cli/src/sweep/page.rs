//! The page of a sweep: each field over the keys that vary, and distributions.

use rnic_base::{BitRate, Bytes, Duration, Probability};
use rnic_page::{
    Axis, Bar, BarChart, BarGroup, Colour, Facts, Figure, LineChart, Page, Series, Spacing, Width, number,
};
use rnic_reproduce::machine::Machine;
use rnic_reproduce::run::levels;
use rnic_reproduce::run_set::{PointRuns, RunSet};

use super::estimate_text;

/// Maximum number of points whose distributions are drawn over each other.
const DISTRIBUTIONS_MAX: usize = 8;

/// Returns the HTML page.
pub fn page(set: &RunSet, fields: &[String], machine: &Machine) -> String {
    let x = axis_of_lines(set);
    let mut figures: Vec<Figure> = fields.iter().map(|field| figure(set, field, x)).collect();
    figures.extend(distributions(set));
    let seeds = set.points.first().map_or(0, |point| point.runs.len());
    let keys: Vec<&str> = set.axes.iter().map(|axis| axis.key.as_str()).collect();
    let (title, headline) = match keys.as_slice() {
        [] => ("seeds".to_owned(), format!("One plan, {seeds} seeds")),
        keys => (keys.join(", "), format!("{} over {seeds} seeds", keys.join(" and "))),
    };
    let lead = format!(
        "{} points, {} runs, all simulated. Lines and bars are means; vertical lines and the lines over bars are 95 % \
         confidence intervals of the mean.",
        set.points.len(),
        set.points.len() * seeds
    );
    let page = Page {
        title: format!("Sweep: {title}"),
        overline: "OpenRNIC sweep".to_owned(),
        headline,
        content: Page::figures(&lead, &figures, &facts(set, fields, machine)),
    };
    page.to_html()
}

/// Returns the axis whose values are numbers, if there is one: the one with the most values.
fn axis_of_lines(set: &RunSet) -> Option<usize> {
    let numeric = |index: &usize| {
        let values = &set.axes[*index].values;
        values.len() > 2 && values.iter().all(|value| quantity(value).is_some())
    };
    (0..set.axes.len()).filter(numeric).max_by_key(|index| set.axes[*index].values.len())
}

/// Returns the number in a value of a plan, in the unit of its kind.
fn quantity(text: &str) -> Option<f64> {
    let text = text.trim_matches('"');
    let number = text.parse::<f64>().ok();
    let rate = || text.parse::<BitRate>().ok().map(BitRate::as_gbps_f64);
    let time = || text.parse::<Duration>().ok().map(Duration::as_us_f64);
    let bytes = || text.parse::<Bytes>().ok().map(|bytes| bytes.get() as f64);
    let share = || text.parse::<Probability>().ok().map(|share| share.as_f64());
    number.or_else(rate).or_else(time).or_else(bytes).or_else(share)
}

fn figure(set: &RunSet, field: &str, x: Option<usize>) -> Figure {
    let picture = match x {
        Some(axis) => lines(set, field, axis).draw(),
        None => bars(set, field).draw(),
    };
    Figure { title: field.to_owned(), caption: String::new(), width: Width::Half, pictures: vec![picture] }
}

/// Returns the values of all axes except `without`, as a label.
fn label(set: &RunSet, point: &PointRuns, without: Option<usize>) -> String {
    let others = set.axes.iter().zip(&point.at).enumerate().filter(|(index, _)| Some(*index) != without);
    others.map(|(_, (axis, value))| named(&axis.key, value)).collect::<Vec<_>>().join(", ")
}

/// Returns a value with the last part of its key, which says enough in a legend; names stand alone.
fn named(key: &str, value: &str) -> String {
    match key.rsplit('.').next().unwrap_or(key) {
        "name" | "kind" | "transport" => value.to_owned(),
        key => format!("{key} {value}"),
    }
}

fn lines(set: &RunSet, field: &str, axis: usize) -> LineChart {
    let mut series: Vec<Series> = Vec::new();
    let mut highest = vec![0.0];
    for point in &set.points {
        let (Some(x), Some(estimate)) = (quantity(&point.at[axis]), point.estimate(field)) else { continue };
        let name = label(set, point, Some(axis));
        let index = series.iter().position(|line| line.label == name).unwrap_or(series.len());
        if index == series.len() {
            series.push(Series::new(name, Colour::of_entry(index), Vec::new()));
        }
        let half = estimate.half_width.unwrap_or(0.0);
        highest.push(estimate.mean + half);
        series[index].points.push((x, estimate.mean));
        series[index].ranges.push((x, (estimate.mean - half).max(0.0), estimate.mean + half));
    }
    for line in &mut series {
        line.points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    }
    let ticks: Vec<(f64, String)> =
        set.axes[axis].values.iter().filter_map(|value| Some((quantity(value)?, value.clone()))).collect();
    let (least, most) = ticks.iter().fold((f64::MAX, 0f64), |(least, most), (x, _)| (least.min(*x), most.max(*x)));
    let spacing = if least > 0.0 && most / least >= 8.0 { Spacing::Log } else { Spacing::Linear };
    LineChart {
        description: format!("{field} by {}", set.axes[axis].key),
        title: String::new(),
        x: Axis::of_points(set.axes[axis].key.clone(), &ticks, spacing),
        y: Axis::of_values(field, highest, Spacing::FromZero),
        reference: None,
        series,
        width: 460.0,
    }
}

fn bars(set: &RunSet, field: &str) -> BarChart {
    let bar = |(index, point): (usize, &PointRuns)| {
        let estimate = point.estimate(field)?;
        let range = estimate.half_width.map(|half| ((estimate.mean - half).max(0.0), estimate.mean + half));
        let text = estimate_text(&estimate);
        let colour = Colour::of_entry(index);
        Some(Bar { label: label(set, point, None), value: estimate.mean, range, text, colour, is_hatched: false })
    };
    let bars = set.points.iter().enumerate().filter_map(bar).collect();
    let description = format!("{field} at each point");
    BarChart { description, title: String::new(), groups: vec![BarGroup::new("", bars)], width: 460.0 }
}

/// Returns the distributions of completion times, when there are few points.
fn distributions(set: &RunSet) -> Vec<Figure> {
    if set.points.len() > DISTRIBUTIONS_MAX {
        return Vec::new();
    }
    let named =
        [("fct_us", "Flow completion time", "microseconds, logarithmic"), ("slowdown", "Slowdown", "logarithmic")];
    let figure = |(name, title, axis): (&str, &str, &str)| {
        let points = set.points.iter().enumerate();
        let lines: Vec<_> = points
            .filter_map(|(index, point)| {
                Some((label(set, point, None), Colour::of_entry(index), point.quantiles(name)?))
            })
            .collect();
        distribution(title, axis, lines)
    };
    named.into_iter().filter_map(figure).collect()
}

/// Returns a figure of distributions over each other; `None` without any.
pub fn distribution(title: &str, axis: &str, lines: Vec<(String, Colour, Vec<f64>)>) -> Option<Figure> {
    if lines.is_empty() {
        return None;
    }
    let values = lines.iter().flat_map(|(.., values)| values.iter().copied());
    let chart = LineChart {
        description: format!("{title}: share of flows at or below a value"),
        title: String::new(),
        x: Axis::of_values(axis, values, Spacing::Log),
        y: Axis::of_values("% of flows", [100.0], Spacing::FromZero),
        reference: None,
        series: lines
            .into_iter()
            .map(|(label, colour, values)| {
                let shares = levels().into_iter().map(|level| level * 100.0);
                Series::new(label, colour, values.into_iter().zip(shares).collect())
            })
            .collect(),
        width: 460.0,
    };
    let caption = "The mean over seeds of each percentile.".to_owned();
    Some(Figure { title: title.to_owned(), caption, width: Width::Half, pictures: vec![chart.draw()] })
}

fn facts(set: &RunSet, fields: &[String], machine: &Machine) -> Vec<Facts> {
    let heads = set.axes.iter().map(|axis| axis.key.clone()).chain(fields.iter().cloned()).collect();
    let row = |point: &PointRuns| {
        let cell = |field: &String| point.estimate(field).map_or_else(|| "-".to_owned(), |found| estimate_text(&found));
        point.at.iter().cloned().chain(fields.iter().map(cell)).collect()
    };
    let pair = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    let mut facts = vec![
        Facts { title: "Results".to_owned(), heads, rows: set.points.iter().map(row).collect() },
        Facts {
            title: "Conditions".to_owned(),
            heads: Vec::new(),
            rows: vec![
                pair("command", &set.command),
                pair("build", &set.build),
                pair("machine", &machine.summary()),
                pair("runs", &number::grouped(set.points.iter().map(|point| point.runs.len() as u64).sum())),
            ],
        },
        Facts { title: "Plan".to_owned(), heads: Vec::new(), rows: vec![vec![set.plan.clone()]] },
    ];
    let failures = set.failures();
    if !failures.is_empty() {
        let rows = failures.into_iter().map(|failure| vec![failure]).collect();
        facts.insert(0, Facts { title: "Failed runs".to_owned(), heads: Vec::new(), rows });
    }
    facts
}
