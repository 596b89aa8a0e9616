//! A server, a client, and their end.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::catalogue::MPIRUN;
use super::{Case, Check, Conditions, Place, needs_of};

/// How a case ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It did what it should, in so long.
    Passed(Duration),
    /// It did not; what was said.
    Failed(String),
    /// It was not run, and why.
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
    let end = Instant::now() + Duration::from_secs(case.seconds);
    loop {
        let outcome = match Pair::start(case, place) {
            Ok(mut pair) => pair.finish(case),
            Err(error) => Outcome::Failed(error),
        };
        // perftest binds its port long before it listens there, and its client does not survive that it is rejected.
        match outcome {
            Outcome::Failed(why) if why.contains("REJECTED; error: 8") && Instant::now() < end => {}
            outcome => return outcome,
        }
    }
}

/// One running program.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    output: File,
    status: Option<ExitStatus>,
}

impl Running {
    fn start(name: &'static str, line: &str, place: &Place, server: bool) -> Result<Self, String> {
        let output = tempfile::tempfile_in(place.scratch()).map_err(|error| error.to_string())?;
        let copy = |file: &File| file.try_clone().map(Stdio::from).map_err(|error| error.to_string());
        let mut command: Command = place.command(server);
        let (settings, words): (Vec<&str>, Vec<&str>) = split(line);
        command.envs(settings.iter().filter_map(|setting| setting.split_once('=')));
        command.args(words).stdin(Stdio::null()).stdout(copy(&output)?).stderr(copy(&output)?).process_group(0);
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { name, child, output, status: None })
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    /// Everything it has said.
    fn said(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.output.rewind();
        let _ = self.output.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn tail(&mut self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        format!("{} ({}):\n    {}", self.name, self.how(), lines[from..].join("\n    "))
    }

    fn how(&self) -> String {
        self.status.map_or_else(|| "still running".to_owned(), |status| status.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its children too: mpirun has some.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) struct Pair {
    server: Option<Running>,
    client: Running,
    start: Instant,
}

impl Pair {
    pub(super) fn start(case: &Case, place: &Place) -> Result<Self, String> {
        let port = case.port.unwrap_or_else(free_port).to_string();
        let host = place.host();
        let collective = place.scratch().join("collective");
        if case.client.contains("{collective}") && !collective.is_file() {
            compile_collective(&collective)?;
        }
        let fill = |line: &str| {
            line.replace("{host}", &host)
                .replace("{port}", &port)
                .replace("{mpirun}", MPIRUN)
                .replace("{collective}", &collective.to_string_lossy())
        };
        let start = Instant::now();
        let mut server = match case.server {
            "" => None,
            line => Some(Running::start("server", &fill(line), place, true)?),
        };
        if let Some(server) = &mut server {
            wait_for_port(server, &port)?;
        }
        let client = Running::start("client", &fill(case.client), place, false)?;
        Ok(Self { server, client, start })
    }

    /// Kills the server or the client, as nothing but `kill -9` does.
    pub(super) fn kill(&mut self, server: bool) {
        let victim = if server { self.server.as_mut().expect("the case has a server") } else { &mut self.client };
        let _ = victim.child.kill();
        let _ = victim.child.wait();
    }

    /// The other one.
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
            if failed(self.client.status) || self.server.as_ref().is_some_and(|server| failed(server.status)) {
                // The other end may have something to say about it.
                std::thread::sleep(Duration::from_millis(300));
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.judge(case)
    }

    fn judge(&mut self, case: &Case) -> Outcome {
        let succeeded = |running: &mut Running| running.has_ended() && running.status.is_some_and(|how| how.success());
        let right = succeeded(&mut self.client) && self.server.as_mut().is_none_or(succeeded);
        let says = match case.check {
            Check::Exit => true,
            Check::Says(text) => self.client.said().contains(text),
        };
        if right && says {
            return Outcome::Passed(self.start.elapsed());
        }
        let mut why = vec![self.client.tail()];
        why.extend(self.server.as_mut().map(Running::tail));
        Outcome::Failed(why.join("\n  "))
    }
}

/// Settings in front of a program, and the program with its arguments.
fn split(line: &str) -> (Vec<&str>, Vec<&str>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
    (words[..at].to_vec(), words[at..].to_vec())
}

/// A port that nobody uses just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// Waits until the server waits for clients, over TCP or (the connection manager) UDP.
fn wait_for_port(server: &mut Running, port: &str) -> Result<(), String> {
    let port: u16 = port.parse().expect("a number made above");
    let wanted = format!(":{port:04X}");
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if server.has_ended() {
            return Err(format!("the server ended before a client came\n  {}", server.tail()));
        }
        let id = server.child.id();
        let listens = ["tcp", "tcp6", "udp", "udp6"].iter().any(|table| {
            let sockets = fs::read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default();
            sockets.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&wanted)))
        });
        if listens {
            // The connection manager's port is bound a moment before anybody listens at it, and perftest does not
            // survive a rejection.
            std::thread::sleep(Duration::from_millis(200));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("the server does not listen\n  {}", server.tail()))
}

fn compile_collective(to: &std::path::Path) -> Result<(), String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/apps/collective.c");
    let output = Command::new("mpicc").args(["-O2", "-o"]).arg(to).arg(source).output();
    let output = output.map_err(|error| format!("mpicc: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn which(program: &str) -> Option<std::path::PathBuf> {
    if program.contains('{') {
        return Some(program.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Lines that are shown of what a failed program has said.
const TAIL_LINES: usize = 30;
