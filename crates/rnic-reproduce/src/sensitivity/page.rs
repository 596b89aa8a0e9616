//! The HTML page of a sensitivity study.

use maud::{Markup, html};
use rnic_page::Page;
use rnic_page::number::{short, with_unit};

use super::table::setting;
use super::{Design, Effect, Finding, Sensitivity, Study};
use crate::experiment::{Axis, Band};
use crate::judge::Verdict;
use crate::report::verdict_class;
use crate::work::Size;

pub(super) fn page(report: &Sensitivity<'_>) -> String {
    let findings = || report.studies.iter().flat_map(|(_, findings)| findings);
    let moved = findings().filter(|finding| {
        let (inside, judged) = finding.holds();
        inside > 0 && inside < judged
    });
    let headline = format!(
        "{} of {} rows are inside their band in some settings of the open parameters, and outside in others",
        moved.count(),
        findings().count()
    );
    let content = html! {
        p {
            "Open parameters are those that a paper does not state. Each row was judged again with other values of "
            "them. A line goes from the least to the largest value of the row where only that parameter changes; the "
            "bar behind it is the band that counts as agreement, and the mark is the value with the plan's parameters."
        }
        @if report.size == Size::Fast { p { strong { "This is the small version" } ": shorter runs." } }
        @for (study, findings) in report.studies { (section(study, findings)) }
        footer { dl {
            dt { "command" } dd { code { (report.command) } }
            dt { "runs" } dd { (report.runs) }
            dt { "machine" } dd { (report.machine) }
            dt { "sources" } dd { code { (crate::SOURCES) } }
        } }
    };
    let overline = "OpenRNIC, sensitivity of rows to open parameters".to_owned();
    Page { title: "Sensitivity (OpenRNIC)".to_owned(), overline, headline, content }.to_html()
}

fn section(study: &Study, findings: &[Finding]) -> Markup {
    let experiment = &study.experiments[0];
    html! {
        section {
            p.overline { (experiment.id) ", " (experiment.figure) }
            h2 { (experiment.question) }
            p { (design_text(study)) }
            table.rows {
                thead { tr {
                    th { "open parameter" } th { "other values" } th { "what the paper says, and why these" }
                } }
                tbody { @for open in study.open() { (parameter(open)) } }
            }
            @for finding in findings { (row(finding)) }
        }
    }
}

fn design_text(study: &Study) -> String {
    let settings = study.settings();
    match study.design() {
        Design::Each => format!("{settings} settings: one parameter at a time, the others as in the plan."),
        Design::Morris => {
            format!("{settings} settings, on random trajectories on which each parameter changes once (Morris).")
        }
    }
}

fn parameter(open: &Axis) -> Markup {
    html! { tr { td { (open.label) } td { (open.labels().join(", ")) } td { (open.why) } } }
}

fn row(finding: &Finding) -> Markup {
    let row = &finding.row;
    let (inside, judged) = finding.holds();
    html! {
        h3 { (row.row) ": " (row.what) }
        p {
            "The paper: " (row.paper) ". Band: " (row.band) ". Inside in " strong { (inside) " of " (judged) }
            " settings."
        }
        (picture(finding))
        table.rows {
            thead { tr { th { "setting" } th { "found" } th { "verdict" } } }
            tbody {
                (outcome("as in the plan", finding.value(), &row.unit, &row.verdict))
                @for one in &finding.outcomes { (outcome(&setting(one), one.value, &row.unit, &one.verdict)) }
            }
        }
    }
}

fn outcome(setting: &str, value: Option<f64>, unit: &str, verdict: &Verdict) -> Markup {
    let class = verdict_class(verdict);
    html! {
        tr {
            td { (setting) }
            td.brief { (value.map_or_else(|| "\u{2013}".to_owned(), |value| with_unit(value, unit))) }
            td {
                span class=(format!("verdict {class}")) { (verdict.name()) }
                @if let Verdict::Unjudged(reason) | Verdict::LeftOut(reason) = verdict { small { (reason) } }
            }
        }
    }
}

/// Draws the range of each parameter's effect over the band, the largest effect on top.
fn picture(finding: &Finding) -> Markup {
    let ranges: Vec<(&Effect, (f64, f64))> =
        finding.effects.iter().filter_map(|effect| Some((effect, effect.range?))).collect();
    let Some(base) = finding.value() else { return html! {} };
    let scale = Scale::new(finding.row.band, base, &ranges);
    let height = ROW_HEIGHT * ranges.len() as f64 + AXIS_HEIGHT;
    let bottom = height - AXIS_HEIGHT;
    let view = format!("0 0 {WIDTH} {height}");
    let number = |value: f64| format!("{value:.1}");
    let (left, right) = scale.band(finding.row.band);
    html! {
        figure.full { div.pictures { div.picture style={ "flex-basis: " (WIDTH) "px" } {
            svg.band viewBox=(view) role="img" aria-label=(format!("effects on {}", finding.row.row)) {
                rect.accepted x=(number(left)) y="0" width=(number((right - left).max(1.5))) height=(number(bottom)) {}
                line.axis x1=(number(scale.place(base))) x2=(number(scale.place(base))) y1="0" y2=(number(bottom)) {}
                @for (index, (effect, (least, most))) in ranges.iter().enumerate() {
                    @let y = ROW_HEIGHT * (index as f64 + 0.5);
                    text.name x=(number(NAME_WIDTH - 12.0)) y=(number(y + 4.0)) text-anchor="end" { (effect.parameter) }
                    g.c0 {
                        line.range x1=(number(scale.place(*least))) x2=(number(scale.place(*most)))
                            y1=(number(y)) y2=(number(y)) {}
                        @for end in [least, most] { circle.bar cx=(number(scale.place(*end))) cy=(number(y)) r="4" {} }
                    }
                }
                line.axis x1=(number(NAME_WIDTH)) x2=(WIDTH) y1=(number(bottom)) y2=(number(bottom)) {}
                @for value in scale.ticks(base) {
                    text.tick x=(number(scale.place(value))) y=(number(height - 4.0))
                        text-anchor=(scale.anchor(value)) { (short(value)) }
                }
            }
        } } }
    }
}

/// Horizontal scale of a picture.
struct Scale {
    from: f64,
    to: f64,
}

impl Scale {
    /// Returns a scale that holds all ranges, and the ends of the band that are near them.
    fn new(band: Band, base: f64, ranges: &[(&Effect, (f64, f64))]) -> Self {
        let ends = ranges.iter().map(|(_, range)| *range);
        let (mut from, mut to) = ends.fold((base, base), |(from, to), (least, most)| (from.min(least), to.max(most)));
        let near = (to - from).max(base.abs()).max(f64::MIN_POSITIVE);
        for end in [band.min, band.max].into_iter().flatten() {
            if end > from - near && end < to + near {
                (from, to) = (from.min(end), to.max(end));
            }
        }
        if from == to {
            (from, to) = (from - near / 2.0, to + near / 2.0);
        }
        Self { from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        NAME_WIDTH + MARGIN + share * (WIDTH - NAME_WIDTH - 2.0 * MARGIN)
    }

    /// Returns the ends of the band.
    fn band(&self, band: Band) -> (f64, f64) {
        (band.min.map_or(NAME_WIDTH, |min| self.place(min)), band.max.map_or(WIDTH, |max| self.place(max)))
    }

    /// Returns the values that are written below the axis: `base`, and the ends that are not near it.
    fn ticks(&self, base: f64) -> Vec<f64> {
        let is_clear = |end: &f64| (self.place(*end) - self.place(base)).abs() > TICK_WIDTH;
        [self.from, self.to].into_iter().filter(is_clear).chain([base]).collect()
    }

    fn anchor(&self, value: f64) -> &'static str {
        match value {
            value if value == self.from => "start",
            value if value == self.to => "end",
            _ => "middle",
        }
    }
}

/// Width of a picture, and of the names in it, in pixels.
const WIDTH: f64 = 980.0;
const NAME_WIDTH: f64 = 430.0;
const MARGIN: f64 = 14.0;
/// Distance of values below the axis at which they do not overlap.
const TICK_WIDTH: f64 = 64.0;
/// Height of a parameter, and of the axis.
const ROW_HEIGHT: f64 = 26.0;
const AXIS_HEIGHT: f64 = 24.0;
