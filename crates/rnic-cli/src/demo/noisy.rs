//! `rnic demo noisy-neighbour`: a tenant with large messages beside one with small messages, on a shared link.
//!
//! Each tenant is `rnic perf`, which is two processes, so four processes share the link. What the demonstration shows
//! are ratios: absolute figures are those of this machine's software.

mod page;

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rnic_page::number;
use rnic_reproduce::machine::Machine;
use serde::Serialize;

use crate::args::NoisyArgs;
use crate::failure::Failure;
use crate::output::Folder;
use crate::{console, shell, table};

/// Results of the demonstration.
#[derive(Clone, Debug, Serialize)]
struct Neighbours {
    /// Rate of the shared link, in Gbit/s.
    link_gbps: f64,
    /// Duration of each measurement, in seconds.
    duration_s: f64,
    /// Command that repeats the demonstration.
    command: String,
    /// Machine on which it ran.
    machine: Machine,
    /// The small messages alone on the link.
    alone: Small,
    /// Both tenants, once for each scheduler.
    cases: Vec<Case>,
}

/// Both tenants under one scheduler.
#[derive(Clone, Debug, Serialize)]
struct Case {
    /// Name of the scheduler.
    scheduler: String,
    /// Goodput of the large messages, in Gbit/s.
    bulk_gbps: f64,
    small: Small,
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
    let alone = follow("alone", || small(args, SCHEDULERS[0])?.small())?;
    let known = SCHEDULERS.into_iter().filter(|name| rnic_transports::schedule::find(name).is_some());
    let cases = known.map(|name| follow(name, || case(args, name))).collect::<Result<_, _>>()?;
    let words = ["rnic", "demo", "noisy-neighbour", "--link-rate", &rate_text(args)].map(str::to_owned);
    let neighbours = Neighbours {
        link_gbps: args.link_rate.as_gbps_f64(),
        duration_s: args.duration.as_secs_f64(),
        command: shell::join(&words),
        machine: Machine::local(),
        alone,
        cases,
    };
    console::result(&neighbours.text(), args.json.then_some(&neighbours));
    let json = serde_json::to_string_pretty(&neighbours).map_err(Failure::input)?;
    folder.write_text("noisy-neighbour.json", &format!("{json}\n"))?;
    let page = folder.write_text("noisy-neighbour.html", &page::page(&neighbours))?;
    let page = std::fs::canonicalize(&page).unwrap_or(page);
    console::line(&format!("The chart: {} (figures: noisy-neighbour.json beside it)", page.display()));
    Ok(())
}

/// Returns the rate of the link as users write it.
fn rate_text(args: &NoisyArgs) -> String {
    format!("{}bps", args.link_rate.as_bps())
}

fn follow<T>(name: &str, measure: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let spinner = console::spinner(name);
    let result = measure();
    spinner.finish_and_clear();
    result
}

/// Measures both tenants under a scheduler. The tenant with large messages begins first and ends last.
fn case(args: &NoisyArgs, scheduler: &str) -> Result<Case, Failure> {
    let span = args.duration + rnic_base::Duration::from_ms(2 * HEAD_START.as_millis() as u64);
    let bulk = Tenant::start(args, scheduler, span, &["--op", "write", "--size", "64KiB", "--depth", "32"])?;
    thread::sleep(HEAD_START);
    let small = small(args, scheduler)?.small()?;
    let bulk_gbps = bulk.end()?.number(&["goodput_gbps"])?;
    Ok(Case { scheduler: scheduler.to_owned(), bulk_gbps, small })
}

fn small(args: &NoisyArgs, scheduler: &str) -> Result<Figures, Failure> {
    Tenant::start(args, scheduler, args.duration, &["--op", "send", "--size", "256", "--depth", "1"])?.end()
}

/// A tenant: `rnic perf`, which starts its other end itself.
struct Tenant(Child);

impl Tenant {
    fn start(args: &NoisyArgs, scheduler: &str, span: rnic_base::Duration, options: &[&str]) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::input(format!("cannot start a tenant: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["perf", "--json", "--duration", &format!("{}us", span.as_ps() / 1_000_000)]).args(options);
        command.args(["--set", &format!("schedule={scheduler}")]);
        command.env("RNIC_LINK_RATE", rate_text(args));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map(Self).map_err(failed)
    }

    /// Waits for the end of the measurement, and returns its figures.
    fn end(self) -> Result<Figures, Failure> {
        let output = self.0.wait_with_output().map_err(|error| Failure::input(format!("a tenant is lost: {error}")))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::input(format!("a tenant has failed: {}", why.trim())));
        }
        serde_json::from_slice(&output.stdout).map(Figures).map_err(Failure::input)
    }
}

/// The JSON object that `rnic perf` has printed.
struct Figures(serde_json::Value);

impl Figures {
    fn number(&self, path: &[&str]) -> Result<f64, Failure> {
        let found = path.iter().try_fold(&self.0, |value, key| value.get(key)).and_then(serde_json::Value::as_f64);
        found.ok_or_else(|| Failure::input(format!("a tenant has not reported {}", path.join("."))))
    }

    fn small(&self) -> Result<Small, Failure> {
        Ok(Small {
            p50_us: self.number(&["latency_us", "p50"])?,
            p99_us: self.number(&["latency_us", "p99"])?,
            messages_per_s: self.number(&["ops_per_s"])?,
        })
    }
}

impl Neighbours {
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |name: &str, bulk: Option<f64>, small: &Small| {
            vec![
                name.to_owned(),
                bulk.map_or_else(|| "-".to_owned(), number::short),
                number::micros(small.p50_us),
                number::micros(small.p99_us),
                number::grouped(small.messages_per_s as u64),
            ]
        };
        let alone = row("alone", None, &self.alone);
        let cases = self.cases.iter().map(|case| row(&case.scheduler, Some(case.bulk_gbps), &case.small));
        [alone].into_iter().chain(cases).collect()
    }

    fn text(&self) -> String {
        format!(
            "{}Both tenants on a shared link of {} Gbit/s; software on {}, not RDMA hardware.\n",
            table::results(&HEADS, self.rows()),
            number::short(self.link_gbps),
            self.machine.summary()
        )
    }
}

const HEADS: [&str; 5] = ["scheduler", "bulk\nGbit/s", "256 bytes\np50", "256 bytes\np99", "messages/s"];

/// Schedulers that are compared, as far as they exist: the greedy one of SCR's paper, ours, and its cure.
const SCHEDULERS: [&str; 3] = ["greedy", "round-robin", "water-filling"];

/// Time for which the large messages are alone at the beginning and at the end: both processes have started by then.
const HEAD_START: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn neighbours() -> Neighbours {
        let small = |p50_us: f64| Small { p50_us, p99_us: 3.0 * p50_us, messages_per_s: 5e5 / p50_us };
        let case = |name: &str, bulk_gbps, p50_us| Case { scheduler: name.to_owned(), bulk_gbps, small: small(p50_us) };
        Neighbours {
            link_gbps: 2.0,
            duration_s: 3.0,
            command: "rnic demo noisy-neighbour".to_owned(),
            machine: Machine { cpu: "A CPU".into(), cpus: 2, system: "Linux 6".into(), load_average: Some(0.5) },
            alone: small(20.0),
            cases: vec![case("greedy", 1.9, 1_060.0), case("round-robin", 1.89, 1_050.0)],
        }
    }

    #[test]
    fn the_table_has_a_row_for_the_tenant_alone_and_one_for_each_scheduler() {
        let text = neighbours().text().replace(|c: char| c.is_whitespace() && c != '\n', " ");
        for shown in ["alone", "greedy", "round-robin", "1.90", "20.0 us", "1.06 ms", "A CPU"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}
