//! The results as an HTML page.

use rnic_page::{Bar, BarChart, BarGroup, Colour, Facts, Figure, Page, Width, number};

use super::{Case, HEADS, Neighbours, Small};

/// Returns the HTML page.
pub(super) fn page(neighbours: &Neighbours) -> String {
    let link = number::short(neighbours.link_gbps);
    let page = Page {
        title: "A noisy neighbour".to_owned(),
        overline: format!("OpenRNIC: two tenants on a shared link of {link} Gbit/s"),
        headline: headline(neighbours),
        content: Page::figures(
            SUMMARY,
            &[latency(neighbours), goodput(neighbours)],
            &[
                Facts {
                    title: "Results".to_owned(),
                    heads: HEADS.map(str::to_owned).to_vec(),
                    rows: neighbours.rows(),
                },
                conditions(neighbours),
            ],
        ),
    };
    page.to_html()
}

const SUMMARY: &str = "One tenant writes 64 KiB messages, 32 at a time; the other sends 256 bytes and waits for the \
                       answer. Each is two processes with NICs of their own, and all four queue for one link, in which \
                       no packet is lost. A scheduler orders the queue pairs of one NIC; only one that holds its NIC \
                       to a share of the link keeps the queue in front of the link short.";

fn headline(neighbours: &Neighbours) -> String {
    let slowdown = |case: &Case| case.small.p50_us / neighbours.alone.p50_us.max(f64::MIN_POSITIVE);
    let text = |case: &Case| format!("{:.1} times with {}", slowdown(case), case.scheduler);
    let all: Vec<String> = neighbours.cases.iter().map(text).collect();
    format!("Time of 256 bytes beside 64 KiB Writes, compared with alone: {}", all.join(", "))
}

fn colour(scheduler: &str) -> Colour {
    match scheduler {
        "greedy" => Colour::WARM,
        "round-robin" => Colour::THIRD,
        _ => Colour::COOL,
    }
}

fn chart(description: &str, bars: Vec<Bar>) -> BarChart {
    let groups = vec![BarGroup::new("", bars)];
    BarChart { description: description.to_owned(), title: String::new(), groups, width: 460.0 }
}

fn latency(neighbours: &Neighbours) -> Figure {
    let bar = |label: &str, Small { p50_us, p99_us, .. }: &Small| Bar {
        label: label.to_owned(),
        value: *p50_us,
        range: Some((*p50_us, *p99_us)),
        text: format!("{} / {}", number::micros(*p50_us), number::micros(*p99_us)),
        colour: colour(label),
        is_hatched: false,
    };
    let cases = neighbours.cases.iter().map(|case| bar(&case.scheduler, &case.small));
    let bars = [bar("alone", &neighbours.alone)].into_iter().chain(cases).collect();
    Figure {
        title: "Latency of 256 bytes".to_owned(),
        caption: format!(
            "Half of the time from a message to its answer. Bars show the median, the lines on them end at the 99th \
             percentile; both are medians of {} rounds.",
            neighbours.rounds
        ),
        width: Width::Half,
        pictures: vec![chart("Latency of small messages alone and under each scheduler", bars).draw()],
    }
}

fn goodput(neighbours: &Neighbours) -> Figure {
    let bar = |case: &Case| Bar {
        label: case.scheduler.clone(),
        value: case.bulk_gbps,
        range: None,
        text: format!("{} Gbit/s", number::short(case.bulk_gbps)),
        colour: colour(&case.scheduler),
        is_hatched: false,
    };
    Figure {
        title: "Goodput of 64 KiB Writes".to_owned(),
        caption: format!(
            "Payload by time, from before the small messages until after them. Headers and acknowledgements take the \
             rest of the {} Gbit/s.",
            number::short(neighbours.link_gbps)
        ),
        width: Width::Half,
        pictures: vec![
            chart("Goodput of large messages under each scheduler", neighbours.cases.iter().map(bar).collect()).draw(),
        ],
    }
}

fn conditions(neighbours: &Neighbours) -> Facts {
    let Neighbours { link_gbps, duration_s, rounds, command, machine, .. } = neighbours;
    let pair = |name: &str, value: String| vec![name.to_owned(), value];
    Facts {
        title: "Conditions".to_owned(),
        heads: Vec::new(),
        rows: vec![
            pair("command", command.clone()),
            pair("link", format!("{} Gbit/s, shared by four processes, UDP over loopback", number::short(*link_gbps))),
            pair("duration", format!("{} s each, {rounds} times in turns", number::short(*duration_s))),
            pair("machine", machine.summary()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::neighbours;
    use super::*;

    #[test]
    fn the_page_states_the_slowdown_and_uses_no_external_resource() {
        let html = page(&neighbours());
        for said in ["53.0 times with greedy", "52.5 times with round-robin", "<svg", "A CPU", "99th percentile"] {
            assert!(html.contains(said), "{said}");
        }
        assert!(!html.contains("http:") && !html.contains("https:") && !html.contains("<script"));
    }
}
