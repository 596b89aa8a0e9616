//! The HTML page of the report.

use std::collections::BTreeSet;
use std::slice::from_ref;

use maud::{Markup, html};
use rnic_page::Page;
use rnic_page::number::{seconds, short, with_unit};

use super::Report;
use super::figure::figure;
use crate::experiment::{Band, Experiment};
use crate::judge::conditions;
use crate::judge::{Row, Stat, Verdict};
use crate::origin::Origin;
use crate::work::{Layout, Size};

/// Returns the complete page.
pub(super) fn page(report: &Report<'_>) -> String {
    let rows = report.rows();
    let all: Vec<&Row> = rows.iter().flatten().collect();
    let headline = headline(&all);
    let content = html! {
        (lead(report, &all))
        (tally(&all))
        (summary(&all))
        @for (layout, rows) in report.work.layouts.iter().zip(&rows) { (section(report, layout, rows)) }
        (footer(report))
    };
    let overline = "OpenRNIC, papers reproduced".to_owned();
    Page { title: format!("{headline} (OpenRNIC)"), overline, headline, content }.to_html()
}

fn headline(rows: &[&Row]) -> String {
    let judged = rows.iter().filter(|row| !matches!(row.verdict, Verdict::LeftOut(_))).count();
    let inside = rows.iter().filter(|row| row.verdict == Verdict::Inside).count();
    let what = if judged == 1 { "claim" } else { "claims" };
    if inside == judged && judged > 0 {
        return format!("{inside} of {judged} {what} of the papers hold here");
    }
    let rest = judged - inside;
    let verb = if rest == 1 { "does" } else { "do" };
    format!("{inside} of {judged} {what} of the papers hold here, {rest} {verb} not")
}

fn lead(report: &Report<'_>, rows: &[&Row]) -> Markup {
    // Includes the origins of the plotted numbers.
    let shown = report.work.layouts.iter().map(|layout| layout.selected.experiment.origin());
    let origins: BTreeSet<Origin> = rows.iter().map(|row| row.origin).chain(shown).collect();
    html! {
        p {
            "Every number of OpenRNIC's on this page is "
            @for (index, origin) in origins.iter().enumerate() {
                @if index > 0 { @if index + 1 < origins.len() { ", " } @else { ", or " } }
                (origin_description(report, *origin))
            }
            ". Beside it stands what the paper says, and the band that counts as agreement, with the reason for its "
            "width. A row is judged by its mean "
            "over the seeds, unless it says otherwise; the least and the largest stand behind it."
        }
        @if report.work.size == Size::Fast {
            p {
                strong { "This is the small version" }
                ": shorter runs of the same experiments. What it leaves out is said in each row."
            }
        }
    }
}

/// Describes an origin in full.
fn origin_description(report: &Report<'_>, origin: Origin) -> Markup {
    match origin {
        Origin::Simulated => html! {
            strong { "simulated" } ", by a packet-level network with OpenRNIC's transport engine at its ends"
        },
        Origin::Computed => html! { "computed from OpenRNIC's code" },
        Origin::Searched => html! { "counted in a search of many cases" },
        Origin::Measured => html! { strong { "measured" } " on " (report.conditions().unwrap_or_default()) },
    }
}

fn tally(rows: &[&Row]) -> Markup {
    let count = |is: fn(&Verdict) -> bool| rows.iter().filter(|row| is(&row.verdict)).count();
    let unjudged = count(|verdict| matches!(verdict, Verdict::Unjudged(_)));
    let left_out = count(|verdict| matches!(verdict, Verdict::LeftOut(_)));
    html! {
        div.tally {
            div { b.inside-count { (count(|verdict| *verdict == Verdict::Inside)) } span { "inside their band" } }
            div { b { (count(|verdict| *verdict == Verdict::Outside)) } span { "outside" } }
            @if unjudged > 0 { div { b { (unjudged) } span { "cannot be judged" } } }
            @if left_out > 0 { div { b { (left_out) } span { "left out at this size" } } }
        }
    }
}

fn summary(rows: &[&Row]) -> Markup {
    html! {
        table.rows {
            thead { (heads(&["row", "experiment", "what", "found", "band", "verdict"])) }
            tbody { @for row in rows {
                tr {
                    td.row { (row.row) }
                    td.id { a href=(format!("#{}", anchor(&row.experiment))) { (row.experiment) } }
                    td { (row.what) }
                    td.brief { (brief(row)) }
                    td.brief { (row.band) }
                    td { (verdict(row)) }
                }
            } }
        }
    }
}

fn brief(row: &Row) -> String {
    let text = |stat: Stat| with_unit(stat.chosen(row.seed), &row.unit) + row.origin.mark();
    row.value.map_or("\u{2013}".to_owned(), text)
}

fn section(report: &Report<'_>, layout: &Layout<'_>, rows: &[Row]) -> Markup {
    let experiment = layout.selected.experiment;
    html! {
        section id=(anchor(&experiment.id)) {
            p.overline { (experiment.id) ", " (experiment.figure) }
            h2 { (experiment.question) }
            p { (experiment.caption) }
            @for plot in &experiment.plot { (figure(layout, report.samples, plot)) }
            (details(experiment, rows))
            @if !experiment.deviations.is_empty() {
                h3 { "Where this differs from the paper" }
                ul { @for deviation in &experiment.deviations { li { (with_code(deviation)) } } }
            }
            (facts(report, layout))
        }
    }
}

/// Converts text in backticks to code elements.
fn with_code(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn heads(names: &[&str]) -> Markup {
    html! { tr { @for name in names { th { (name) } } } }
}

fn details(experiment: &Experiment, rows: &[Row]) -> Markup {
    let found_head = format!("found, {}", experiment.origin().words());
    html! {
        table.rows {
            thead { (heads(&["row", "what", &found_head, "the paper says", "band, and why so wide", "verdict"])) }
            tbody { @for row in rows {
                tr {
                    td.row { (row.row) }
                    td { (row.what) }
                    td.found {
                        (found(row))
                        @if row.origin != experiment.origin() { small { (row.origin.words()) } }
                    }
                    td { (row.paper) }
                    td { (row.band) small { (row.why) } }
                    td { (verdict(row)) }
                }
            } }
        }
    }
}

fn found(row: &Row) -> Markup {
    let Some(stat) = row.value else { return html! { "\u{2013}" } };
    html! {
        strong { (with_unit(stat.mean, &row.unit)) }
        (strip(&stat, stat.chosen(row.seed), row.band))
        @if stat.count > 1 { small { (short(stat.min)) " to " (short(stat.max)) " over " (stat.count) " seeds" } }
        @if let Some(note) = row.seed.note() { small { (note) } }
        @if !row.at.is_empty() { small { (row.at) } }
    }
}

/// Draws the band as a bar, with the judged value as a mark.
fn strip(stat: &Stat, judged: f64, band: Band) -> Markup {
    let ends = [band.min, band.max, Some(judged), Some(stat.min), Some(stat.max)];
    let finite: Vec<f64> = ends.into_iter().flatten().filter(|end| end.is_finite()).collect();
    let least = finite.iter().copied().fold(f64::INFINITY, f64::min);
    let most = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !judged.is_finite() || most <= least {
        return html! {};
    }
    let margin = (most - least) * 0.12;
    let (from, to) = (least - margin, most + margin);
    let place = |value: f64| (value - from) / (to - from) * STRIP_WIDTH;
    let (left, right) = (band.min.map_or(0.0, place), band.max.map_or(STRIP_WIDTH, place));
    let class = if band.holds(judged) { "within" } else { "beyond" };
    let number = |value: f64| format!("{value:.1}");
    let view = format!("0 0 {STRIP_WIDTH} 12");
    let width = number((right - left).max(1.5));
    html! {
        svg.band width=(STRIP_WIDTH) height="12" viewBox=(view) role="img" aria-label=(format!("band {band}")) {
            rect.scale x="0" y="5" width=(STRIP_WIDTH) height="2" {}
            rect.accepted x=(number(left)) y="2" width=(width) height="8" {}
            g class=(class) {
                line.range x1=(number(place(stat.min))) x2=(number(place(stat.max))) y1="6" y2="6" {}
                circle.bar cx=(number(place(judged))) cy="6" r="4" {}
            }
        }
    }
}

/// Returns the class of a verdict in the style sheet.
pub(crate) fn verdict_class(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Inside => "inside",
        Verdict::Outside => "outside",
        Verdict::Unjudged(_) => "unjudged",
        Verdict::LeftOut(_) => "left-out",
    }
}

fn verdict(row: &Row) -> Markup {
    let class = verdict_class(&row.verdict);
    let reason = match &row.verdict {
        Verdict::Inside => None,
        Verdict::Outside => row.note_on_known(),
        Verdict::Unjudged(reason) | Verdict::LeftOut(reason) => Some(reason.clone()),
    };
    html! {
        span class=(format!("verdict {class}")) { (row.verdict.name()) }
        @if let Some(reason) = reason { small { (reason) } }
    }
}

fn facts(report: &Report<'_>, layout: &Layout<'_>) -> Markup {
    let experiment = layout.selected.experiment;
    let mut keys: Vec<&str> = layout.runs().map(|(.., key)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    let samples: Vec<_> = keys.iter().filter_map(|key| report.samples.get(*key)).collect();
    let work: f64 = samples.iter().map(|sample| sample.wall_s).sum();
    let failed = samples.iter().filter(|sample| sample.failure.is_some()).count();
    let seeds: Vec<String> = layout.seeds.iter().map(u64::to_string).collect();
    let is_fast = report.work.size == Size::Fast;
    let flag = if is_fast { " --fast" } else { "" };
    html! {
        dl {
            dt { "repeat with" } dd { code { "rnic reproduce " (experiment.id) (flag) } }
            @if let Some(conditions) = conditions(report.work, from_ref(layout), report.samples) {
                dt { "measured on" } dd { (conditions) }
            }
            @if !keys.is_empty() {
                dt { "runs" } dd {
                    (keys.len()) ", " (seconds(work)) " of one processor in all; "
                    "a run that another figure needs too is made once"
                    @if failed > 0 { "; " strong.outside { (failed) " failed" } }
                }
                dt { "seeds" } dd { (seeds.join(", ")) }
            }
            @if let (true, Some(why)) = (is_fast, &experiment.fast.why) { dt { "small version" } dd { (why) } }
        }
    }
}

fn footer(report: &Report<'_>) -> Markup {
    html! {
        footer {
            dl {
                dt { "command" } dd { code { (report.command) } }
                dt { "wall time" }
                dd {
                    (seconds(report.wall_s)) ", with " (report.work.runs.len()) " runs, " (report.kept)
                    " of them kept from earlier commands"
                }
                dt { "machine" } dd { (report.machine) }
                dt { "sources" }
                dd { code { (crate::SOURCES) } ", the fingerprint of the code that the runs depend on" }
                dt { "raw numbers" }
                dd { code { "runs.csv" } " and " code { "runs.parquet" } " beside this page" }
            }
        }
    }
}

fn anchor(id: &str) -> String {
    id.replace('/', "-")
}

/// Width of the picture of a band, in pixels.
const STRIP_WIDTH: f64 = 130.0;
