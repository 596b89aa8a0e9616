//! Starts a server and a client, waits until both exit, and judges the result.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::catalogue::{MPIRUN, MPIRUN_ALONE};
use super::{Case, Check, Conditions, Place, needs_of};
use crate::running::Running;

/// Result of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The case succeeded; the duration of the run.
    Passed(Duration),
    /// The case failed; the output of the programs.
    Failed(String),
    /// The case was not run; the reason.
    Skipped(String),
}

/// Runs `case` at `place`.
pub fn run(case: &Case, place: &Place) -> Outcome {
    if place.conditions() == Conditions::Lossy && !case.reliable {
        return Outcome::Skipped("an unreliable service loses messages where packets are lost".to_owned());
    }
    if place.conditions() == Conditions::Confined && case.one_host {
        return Outcome::Skipped("it knows no GIDs, and so reaches its own host only".to_owned());
    }
    for program in needs_of(case) {
        if which(program).is_none() {
            return Outcome::Skipped(format!("{program} is not installed"));
        }
    }
    let deadline = Instant::now() + Duration::from_secs(case.seconds);
    loop {
        let outcome = match Pair::start(case, place) {
            Ok(mut pair) => pair.finish(case),
            Err(error) => Outcome::Failed(error),
        };
        // perftest binds its port long before it listens there, and its client exits when its connection is rejected.
        match outcome {
            Outcome::Failed(why) if why.contains("REJECTED; error: 8") && Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

/// Starts one side of a case at `place`; `line` is the command line, with environment settings in front of the program.
fn launch(name: &'static str, line: &str, place: &Place, case: &Case) -> Result<Running, String> {
    let mut command: Command = place.command(name == "server", case.sockets);
    let (settings, words): (Vec<&str>, Vec<&str>) = split(line);
    command.envs(settings.iter().filter_map(|setting| setting.split_once('=')));
    command.args(words).stdin(Stdio::null());
    Running::spawn(name, command, place.scratch())
}

pub(super) struct Pair {
    server: Option<Running>,
    client: Running,
    start: Instant,
    /// Results of the same work without OpenRNIC, for cases that compare them.
    results: Option<Vec<String>>,
}

impl Pair {
    pub(super) fn start(case: &Case, place: &Place) -> Result<Self, String> {
        let port = case.port.unwrap_or_else(free_port).to_string();
        let host = place.host();
        let fill =
            |line: &str| Ok::<String, String>(fill(line, place)?.replace("{host}", &host).replace("{port}", &port));
        let results = match case.check {
            Check::AsWithout(line) => Some(results_without(&fill(line)?, place)?),
            Check::Exit | Check::Says(_) => None,
        };
        let start = Instant::now();
        let mut server = match case.server {
            "" => None,
            line => Some(launch("server", &fill(line)?, place, case)?),
        };
        if let Some(server) = &mut server {
            wait_for_port(server, &port)?;
        }
        let client = launch("client", &fill(case.client)?, place, case)?;
        Ok(Self { server, client, start, results })
    }

    /// Kills the server or the client with SIGKILL.
    pub(super) fn kill(&mut self, is_server: bool) {
        let victim = if is_server { self.server.as_mut().expect("the case has a server") } else { &mut self.client };
        victim.kill();
    }

    /// Returns the process that was not killed.
    pub(super) fn survivor(&mut self, killed_server: bool) -> &mut Running {
        if killed_server { &mut self.client } else { self.server.as_mut().expect("the case has a server") }
    }

    fn finish(&mut self, case: &Case) -> Outcome {
        let deadline = self.start + Duration::from_secs(case.seconds);
        loop {
            let client = self.client.has_ended();
            let server = self.server.as_mut().is_none_or(Running::has_ended);
            if (client && server) || Instant::now() > deadline {
                break;
            }
            let failed = |status: Option<ExitStatus>| status.is_some_and(|status| !status.success());
            if failed(self.client.status()) || self.server.as_ref().is_some_and(|server| failed(server.status())) {
                // The other end may still print an error message.
                std::thread::sleep(Duration::from_millis(300));
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.judge(case)
    }

    fn judge(&mut self, case: &Case) -> Outcome {
        let succeeded = self.client.has_succeeded() && self.server.as_mut().is_none_or(Running::has_succeeded);
        let output_matches = match case.check {
            Check::Exit => true,
            Check::Says(text) => self.client.said().contains(text),
            Check::AsWithout(_) => Some(results(&self.client.said())) == self.results,
        };
        if succeeded && output_matches {
            return Outcome::Passed(self.start.elapsed());
        }
        let mut why = vec![self.client.tail()];
        why.extend(self.server.as_mut().map(Running::tail));
        why.extend(
            self.results.as_ref().map(|results| format!("results without OpenRNIC:\n    {}", results.join("\n    "))),
        );
        Outcome::Failed(why.join("\n  "))
    }
}

/// Splits a command line into the settings in front of the program, and the program with its arguments.
fn split(line: &str) -> (Vec<&str>, Vec<&str>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let program_index = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
    (words[..program_index].to_vec(), words[program_index..].to_vec())
}

/// Returns a port that is not in use at the moment.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("the listener is bound").port()
}

/// Waits until the server accepts clients, over TCP or (the connection manager) UDP.
pub(crate) fn wait_for_port(server: &mut Running, port: &str) -> Result<(), String> {
    let port: u16 = port.parse().expect("the port is a number");
    let port_text = format!(":{port:04X}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if server.has_ended() {
            return Err(format!("the server ended before a client came\n  {}", server.tail()));
        }
        let id = server.child.id();
        let listens = ["tcp", "tcp6", "udp", "udp6"].iter().any(|table| {
            let sockets = fs::read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default();
            sockets.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&port_text)))
        });
        if listens {
            // The connection manager's port is bound a moment before the program listens on it, and perftest exits on a
            // rejection.
            std::thread::sleep(Duration::from_millis(200));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("the server does not listen\n  {}", server.tail()))
}

/// Returns `line` with Open MPI, scripts and compiled programs substituted for their placeholders.
fn fill(line: &str, place: &Place) -> Result<String, String> {
    let mut line = line.replace("{mpirun}", MPIRUN).replace("{mpirun-alone}", MPIRUN_ALONE);
    for (name, compiler, source) in MPI_PROGRAMS {
        if line.contains(name) {
            let program = place.scratch().join(name.trim_matches(['{', '}']));
            if !program.is_file() {
                compile(compiler, source, &program)?;
            }
            line = line.replace(name, &program.to_string_lossy());
        }
    }
    for (name, text) in SCRIPTS {
        if line.contains(name) {
            let script = place.scratch().join(name.trim_matches(['{', '}']));
            fs::write(&script, text).map_err(|error| error.to_string())?;
            line = line.replace(name, &script.to_string_lossy());
        }
    }
    Ok(line)
}

/// Returns the result lines of the output `said`.
fn results(said: &str) -> Vec<String> {
    said.lines().filter_map(|line| line.strip_prefix("result ")).map(str::to_owned).collect()
}

/// Returns the results of `line`, run without OpenRNIC.
fn results_without(line: &str, place: &Place) -> Result<Vec<String>, String> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or("an empty command line")?;
    let output = Command::new(program).args(words).env("HOME", place.scratch()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match results(&said) {
        results if output.status.success() && !results.is_empty() => Ok(results),
        _ => Err(format!(
            "the run without OpenRNIC failed or printed no results ({}): {said}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Compiles `source` of the folder `apps`.
fn compile(compiler: &str, source: &str, to: &std::path::Path) -> Result<(), String> {
    let source = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/apps")).join(source);
    let output = Command::new(compiler).args(["-O2", "-o"]).arg(to).arg(source).output();
    let output = output.map_err(|error| format!("{compiler}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Programs for MPI: placeholder, compiler and source.
const MPI_PROGRAMS: [(&str, &str, &str); 3] = [
    ("{collective}", "mpicc", "collective.c"),
    ("{collective-mpich}", "mpicc.mpich", "collective.c"),
    ("{collective-times}", "mpicc", "collective_times.c"),
];

/// Scripts that run applications.
const SCRIPTS: [(&str, &str); 4] = [
    ("{lammps}", include_str!("../../apps/lammps.sh")),
    ("{gromacs}", include_str!("../../apps/gromacs.sh")),
    ("{hpcc}", include_str!("../../apps/hpcc.sh")),
    ("{redis}", include_str!("../../apps/redis.sh")),
];

fn which(program: &str) -> Option<std::path::PathBuf> {
    if program.contains('{') {
        return Some(program.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}
