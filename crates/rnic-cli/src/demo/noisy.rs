//! `rnic demo noisy-neighbour`: a tenant with large messages beside one with small messages, on a shared link.
//!
//! Each tenant is `rnic perf`, which is two processes, so four processes share the link. What the demonstration shows
//! are ratios: absolute figures are those of this machine's software. The median latency without rates is bimodal, as a
//! message finds the queue full or empty, and what else the machine does changes: so all cases are measured in turns,
//! several times, and their medians are shown.

mod page;
mod tenant;

use std::thread;
use std::time::{Duration, Instant};

use rnic_host::perf::WARM_UP_MAX;
use rnic_page::number;
use rnic_reproduce::machine::Machine;
use serde::Serialize;

use crate::args::NoisyArgs;
use crate::failure::Failure;
use crate::output::Folder;
use crate::{console, shell, table};

use tenant::{Tenant, exact_rate, exact_time};

/// Results of the demonstration.
#[derive(Clone, Debug, Serialize)]
struct Neighbours {
    /// Rate of the shared link, in Gbit/s.
    link_gbps: f64,
    /// Duration of each measurement, in seconds.
    duration_s: f64,
    /// Number of measurements of each case, in turns.
    rounds: usize,
    /// Command that repeats the demonstration.
    command: String,
    /// Machine on which it ran.
    machine: Machine,
    /// The small messages alone on the link.
    alone: Small,
    /// Medians of the latencies of the small messages in each round, in microseconds.
    alone_rounds_p50_us: Vec<f64>,
    /// Both tenants, once for each scheduler.
    cases: Vec<Case>,
}

/// Both tenants under one scheduler: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
struct Case {
    /// Name of the scheduler.
    scheduler: String,
    /// Goodput of the large messages, in Gbit/s.
    bulk_gbps: f64,
    small: Small,
    /// Medians of the small messages in each round, in microseconds.
    rounds_p50_us: Vec<f64>,
}

/// Figures of the tenant with small messages.
#[derive(Clone, Copy, Debug, Serialize)]
struct Small {
    /// Median of half the time from a message to its answer, in microseconds.
    p50_us: f64,
    /// 99th percentile of the same.
    p99_us: f64,
    /// Messages per second.
    messages_per_s: f64,
}

/// Runs `rnic demo noisy-neighbour`.
///
/// # Errors
/// When a process cannot be started or fails, or a file cannot be written.
pub fn run(args: &NoisyArgs) -> Result<(), Failure> {
    let folder = Folder::make(&args.out)?;
    console::line(&format!(
        "Two tenants on a shared link of {}: Writes of 64 KiB, and 256 bytes back and forth.\n",
        args.link_rate
    ));
    let (mut alone, mut cases) = (Vec::new(), SCHEDULERS.map(|_| Vec::new()));
    for round in 1..=ROUNDS {
        alone.push(follow("alone", round, || small(args, SCHEDULERS[0]))?);
        for (scheduler, of_case) in SCHEDULERS.into_iter().zip(&mut cases) {
            of_case.push(follow(scheduler, round, || both(args, scheduler))?);
        }
    }
    let neighbours = Neighbours {
        link_gbps: args.link_rate.as_gbps_f64(),
        duration_s: args.duration.as_secs_f64(),
        rounds: ROUNDS,
        command: shell::join(&words(args)),
        machine: Machine::local(),
        alone: Small::median(&alone),
        alone_rounds_p50_us: alone.iter().map(|small| small.p50_us).collect(),
        cases: SCHEDULERS.into_iter().zip(&cases).map(|(scheduler, rounds)| Case::new(scheduler, rounds)).collect(),
    };
    console::result(&console::text(|| neighbours.text()), args.json.then_some(&neighbours));
    let json = serde_json::to_string_pretty(&neighbours).map_err(Failure::input)?;
    folder.write_text("noisy-neighbour.json", &format!("{json}\n"))?;
    let page = folder.write_text("noisy-neighbour.html", &page::page(&neighbours))?;
    let page = std::fs::canonicalize(&page).unwrap_or(page);
    console::line(&format!("The chart: {} (figures: noisy-neighbour.json beside it)", page.display()));
    Ok(())
}

/// Returns the command that repeats the demonstration.
fn words(args: &NoisyArgs) -> Vec<String> {
    let (rate, time) = (exact_rate(args.link_rate), exact_time(args.duration));
    ["rnic", "demo", "noisy-neighbour", "--link-rate", &rate, "--duration", &time].map(str::to_owned).to_vec()
}

fn follow<T>(name: &str, round: usize, measure: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let spinner = console::spinner(&format!("{name}, {round} of {ROUNDS}"));
    let result = measure();
    spinner.finish_and_clear();
    result
}

/// Measures both tenants under a scheduler: the goodput of large messages in Gbit/s, and the small ones. The tenant
/// with large messages starts first and ends last; a measurement in which it ended too early is repeated with more
/// time, because latencies without its load would otherwise be included.
fn both(args: &NoisyArgs, scheduler: &str) -> Result<(f64, Small), Failure> {
    let wall = |span: rnic_base::Duration| Duration::from_secs_f64(span.as_secs_f64());
    let mut span = args.duration + rnic_base::Duration::from_us(2 * HEAD_START.as_micros() as u64) + WARM_UP_MAX;
    for _ in 0..TRIES {
        let start = Instant::now();
        let bulk = Tenant::start(args.link_rate, scheduler, span, &BULK)?;
        thread::sleep(HEAD_START);
        let small = small(args, scheduler)?;
        // The large messages begin after their process has started, so they last at least until then.
        let late = start.elapsed().saturating_sub(wall(span));
        let bulk_gbps = bulk.end()?.number(&["goodput_gbps"])?;
        if late == Duration::ZERO {
            return Ok((bulk_gbps, small));
        }
        span += rnic_base::Duration::from_us(2 * late.as_micros() as u64);
    }
    Err(Failure::input(format!(
        "the small messages took longer than the large ones beside them, {TRIES} times; measure for longer \
         (--duration), on a machine with less load"
    )))
}

/// Options of the tenant with large messages.
const BULK: [&str; 6] = ["--op", "write", "--size", "64KiB", "--depth", "32"];

/// Measures the tenant with small messages. Data is compared as it arrives, because a separate verification round would
/// take longer.
fn small(args: &NoisyArgs, scheduler: &str) -> Result<Small, Failure> {
    let options = ["--op", "send", "--size", "256", "--depth", "1", "--verify"];
    let figures = Tenant::start(args.link_rate, scheduler, args.duration, &options)?.end()?;
    Ok(Small {
        p50_us: figures.number(&["latency_us", "p50"])?,
        p99_us: figures.number(&["latency_us", "p99"])?,
        messages_per_s: figures.number(&["ops_per_s"])?,
    })
}

impl Small {
    /// Returns the median of each figure.
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            p50_us: of(|small| small.p50_us),
            p99_us: of(|small| small.p99_us),
            messages_per_s: of(|small| small.messages_per_s),
        }
    }
}

impl Case {
    fn new(scheduler: &str, rounds: &[(f64, Small)]) -> Self {
        let small: Vec<Small> = rounds.iter().map(|(_, small)| *small).collect();
        Self {
            scheduler: scheduler.to_owned(),
            bulk_gbps: median(rounds.iter().map(|(bulk_gbps, _)| *bulk_gbps)),
            small: Small::median(&small),
            rounds_p50_us: small.iter().map(|small| small.p50_us).collect(),
        }
    }
}

/// Returns the median of `values`, the lower one of two; zero when there are none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

impl Neighbours {
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |name: &str, bulk: Option<f64>, small: &Small, rounds: &[f64]| {
            let (least, most) = rounds.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), p50| (a.min(*p50), b.max(*p50)));
            vec![
                name.to_owned(),
                bulk.map_or_else(|| "-".to_owned(), number::short),
                number::micros(small.p50_us),
                format!("{} to {}", number::micros(least), number::micros(most)),
                number::micros(small.p99_us),
                number::grouped(small.messages_per_s as u64),
            ]
        };
        let alone = row("alone", None, &self.alone, &self.alone_rounds_p50_us);
        let of_case = |case: &Case| row(&case.scheduler, Some(case.bulk_gbps), &case.small, &case.rounds_p50_us);
        let cases = self.cases.iter().map(of_case);
        [alone].into_iter().chain(cases).collect()
    }

    fn text(&self) -> String {
        format!(
            "{}Medians of {} rounds on a shared link of {} Gbit/s; software on {}, not RDMA hardware.\n",
            table::results(&HEADS, self.rows()),
            self.rounds,
            number::short(self.link_gbps),
            self.machine.summary()
        )
    }
}

const HEADS: [&str; 6] =
    ["scheduler", "bulk\nGbit/s", "256 bytes\np50", "p50 of\nrounds", "256 bytes\np99", "messages/s"];

/// Schedulers that are compared: the greedy one of SCR's paper, OpenRNIC's default, and SCR's solution.
const SCHEDULERS: [&str; 3] = ["greedy", "round-robin", "water-filling"];

/// Number of measurements of each case.
const ROUNDS: usize = 3;

/// Time for which the large messages are alone at the beginning: both processes have started by then.
const HEAD_START: Duration = Duration::from_millis(200);

/// Number of attempts to measure small messages while large ones are being sent.
const TRIES: u32 = 4;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command, DemoArgs, OtherDemo};

    pub(super) fn neighbours() -> Neighbours {
        let small = |p50_us: f64| Small { p50_us, p99_us: 3.0 * p50_us, messages_per_s: 5e5 / p50_us };
        let case = |name: &str, bulk_gbps, p50_us| {
            Case::new(name, &[(bulk_gbps, small(p50_us)), (0.0, small(3.0)), (9.0, small(4_000.0))])
        };
        Neighbours {
            link_gbps: 2.0,
            duration_s: 3.0,
            rounds: 3,
            command: "rnic demo noisy-neighbour".to_owned(),
            machine: Machine { cpu: "A CPU".into(), cpus: 2, system: "Linux 6".into(), load_average: Some(0.5) },
            alone: small(20.0),
            alone_rounds_p50_us: vec![20.0, 19.0, 25.0],
            cases: vec![case("greedy", 1.9, 1_060.0), case("round-robin", 1.89, 1_050.0)],
        }
    }

    #[test]
    fn the_table_has_a_row_for_the_tenant_alone_and_one_for_each_scheduler() {
        let text = neighbours().text().replace(|c: char| c.is_whitespace() && c != '\n', " ");
        let ranges = ["19.0 us to 25.0 us", "3.00 us to 4.00 ms"];
        for shown in
            ["alone", "greedy", "round-robin", "1.90", "20.0 us", "1.06 ms", "3 rounds", "A CPU"].iter().chain(&ranges)
        {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }

    #[test]
    fn a_case_shows_the_median_of_each_figure() {
        let small = |figures: [f64; 3]| Small { p50_us: figures[0], p99_us: figures[1], messages_per_s: figures[2] };
        let rounds =
            [(1.0, small([30.0, 900.0, 7.0])), (3.0, small([840.0, 1.0, 9.0])), (2.0, small([20.0, 950.0, 8.0]))];
        let case = Case::new("greedy", &rounds);
        let Small { p50_us, p99_us, messages_per_s } = case.small;
        assert_eq!((case.bulk_gbps, p50_us, p99_us, messages_per_s), (2.0, 30.0, 900.0, 8.0));
        assert_eq!(case.rounds_p50_us, [30.0, 840.0, 20.0]);
        assert_eq!(median([2.0, 1.0].into_iter()), 1.0);
        assert_eq!(median([].into_iter()), 0.0);
    }

    fn parsed(words: &[String]) -> NoisyArgs {
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Demo(DemoArgs { other: Some(OtherDemo::NoisyNeighbour(args)), .. })) => args,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn the_printed_command_repeats_the_demonstration() {
        let of = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for options in ["", " --link-rate 1234567bps --duration 1.5ms", " --link-rate 2.5Gbps --duration 1001ps"] {
            let args = parsed(&of(&format!("rnic demo noisy-neighbour{options}")));
            let again = parsed(&words(&args));
            assert_eq!((args.link_rate, args.duration), (again.link_rate, again.duration), "{options}");
        }
    }
}
