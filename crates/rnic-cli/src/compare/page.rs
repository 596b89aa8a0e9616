//! The page of a comparison: what differs, the numbers, and distributions and time series over each other.

use rnic_page::{Colour, Facts, Figure, Page, Plots};
use rnic_reproduce::compare::{Comparison, PointComparison};
use rnic_reproduce::machine::Machine;
use rnic_reproduce::run_set::RunSet;

use super::{HEADS, differences, numbers};
use crate::sweep::distribution;

/// Maximum number of points whose distributions are drawn.
const POINTS_MAX: usize = 12;

/// Source of a page.
#[derive(Debug)]
pub struct Source<'s> {
    /// The comparison.
    pub comparison: &'s Comparison,
    /// The two sets of runs.
    pub sets: [&'s RunSet; 2],
    /// Time series of both over each other, if both have any.
    pub series: &'s Plots,
    /// Folders of the two.
    pub names: &'s [String; 2],
    /// Machine on which the command ran.
    pub machine: &'s Machine,
}

/// Returns the HTML page.
pub fn page(source: &Source<'_>) -> String {
    let comparison = source.comparison;
    let significant = comparison.points.iter().flat_map(|point| &point.fields).filter(|field| field.is_significant);
    let count = comparison.points.iter().map(|point| point.fields.len()).sum::<usize>();
    let figures: Vec<Figure> =
        comparison.points.iter().take(POINTS_MAX).flat_map(|point| figures(source, point)).collect();
    let lead = format!(
        "A is {}, B is {}. Values are means over seeds with half of their 95 % confidence interval; p is the \
         probability of such a difference if there were none, and * marks those that are significant, all rows \
         considered together.",
        source.names[0], source.names[1]
    );
    let owned = |heads: &[&str]| heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>();
    let pair = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    let [a, b] = source.sets;
    let facts = [
        Facts { title: "Numbers".to_owned(), heads: owned(&HEADS), rows: numbers(comparison) },
        Facts { title: "What differs".to_owned(), heads: owned(&["", "A", "B"]), rows: differences(comparison) },
        Facts {
            title: "Conditions".to_owned(),
            heads: Vec::new(),
            rows: vec![
                pair("command of A", &a.command),
                pair("command of B", &b.command),
                pair("machine", &source.machine.summary()),
            ],
        },
    ];
    let facts: Vec<Facts> = facts.into_iter().filter(|facts| !facts.rows.is_empty()).collect();
    let has_one_seed = comparison.points.iter().all(|point| point.seeds_in_common < 2);
    let headline = if has_one_seed {
        "One seed: what is significant cannot be judged".to_owned()
    } else {
        format!("{} of {count} numbers differ significantly", significant.count())
    };
    let page = Page {
        title: "Comparison".to_owned(),
        overline: "OpenRNIC comparison".to_owned(),
        headline,
        content: Page::figures_and_plots(&lead, &figures, source.series, &facts),
    };
    page.to_html()
}

fn figures(source: &Source<'_>, point: &PointComparison) -> Vec<Figure> {
    let at = point.at.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ");
    let named =
        [("fct_us", "Flow completion time", "microseconds, logarithmic"), ("slowdown", "Slowdown", "logarithmic")];
    let figure = |(name, title, axis): (&str, &str, &str)| {
        let of = |side: usize, colour| {
            let values = source.sets[side].points[point.indices[side]].quantiles(name)?;
            Some((["A", "B"][side].to_owned(), colour, values))
        };
        let title = if at.is_empty() { title.to_owned() } else { format!("{title}, {at}") };
        distribution(&title, axis, [of(0, Colour::COOL), of(1, Colour::WARM)].into_iter().flatten().collect())
    };
    named.into_iter().filter_map(figure).collect()
}
