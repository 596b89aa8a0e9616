//! Performs one step, and judges its result.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::attack::targets_of;
use super::draw::{Load, Program, Step, Trouble};
use super::role::Role;
use super::stage::Stage;
use super::survivor::SurvivorKind;
use crate::apps::{free_port, wait_for_port};
use crate::cable::Cable;
use crate::leftovers;
use crate::running::Running;

/// The result of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Success, and how the load ended.
    Right(&'static str),
    /// Failure, and the reason.
    Failed(String),
    /// Not run, and the reason.
    Skipped(&'static str),
}

impl Stage {
    /// Performs `step`.
    pub fn perform(&mut self, step: &Step) -> Verdict {
        if step.needs_root() && !self.is_root {
            return Verdict::Skipped("it needs root");
        }
        let before = leftovers::names();
        let mark = format!("SOAK_STEP={}-{}", std::process::id(), step.number);
        let result = self.load_and_trouble(step, &mark).and_then(|how| {
            self.check_survivors(step)?;
            Ok(how)
        });
        let left = self.left_behind(&before, &mark);
        match (result, left) {
            (Ok(how), None) => Verdict::Right(how),
            (Ok(_), Some(left)) => Verdict::Failed(left),
            (Err(why), left) => {
                // A survivor that may be faulty is ended, so that it does not make the next step fail.
                survivor_of(step).into_iter().for_each(|which| self.dismiss(which));
                Verdict::Failed([Some(why), left].into_iter().flatten().collect::<Vec<String>>().join("\n  "))
            }
        }
    }

    /// Starts the load, causes the fault, waits for the end of both.
    fn load_and_trouble(&mut self, step: &Step, mark: &str) -> Result<&'static str, String> {
        // Started first, because programs of a few rounds would complete before the loops run.
        let loops = self.begin_loops(step, mark)?;
        let mut load = self.begin(step, mark)?;
        let start = Instant::now();
        thread::sleep(Duration::from_millis(step.after_ms));
        let trouble = self.make_trouble(step, &mut load, mark)?;
        let how = load.end(step, start)?;
        drop((trouble, loops));
        if let (Trouble::Kill { server: true }, Some(which)) = (step.trouble, survivor_of(step)) {
            // The next step starts another one.
            self.dismiss(which);
        }
        Ok(how)
    }

    fn begin(&mut self, step: &Step, mark: &str) -> Result<Ends, String> {
        let host = if survivor_of(step) == Some(SurvivorKind::FarListener) { Cable::ADDRESSES[0] } else { "127.0.0.1" };
        let listener = match survivor_of(step) {
            Some(which) => {
                let survivor = self.survivor(which)?;
                Some((which, survivor.process.child.id(), survivor.address.clone()))
            }
            None => None,
        };
        let address = listener.as_ref().map(|(_, _, address)| address.clone());
        let listener = listener.map(|(which, id, _)| (which, id));
        match &step.load {
            Load::Perf { over_cable, .. } => {
                let mut command = self.rnic(over_cable.then_some(1));
                command.args(["perf", "--json", "--verify"]).args(address).args(perf_words(step));
                Ok(Ends { client: self.spawn("the client", command, mark)?, server: None, listener, host })
            }
            Load::Program { program, through_memory } => {
                let port = address.unwrap_or_else(|| free_port().to_string());
                let run = |stage: &Self, name, is_server: bool| {
                    let mut command = stage.rnic(None);
                    command.args(["run", "--quiet", "--transport", step.transport]);
                    command.args(if *through_memory { &[] } else { &["--bypass", "off"][..] });
                    command.args(step.network.iter().flat_map(|(option, value)| [*option, *value]));
                    command.arg("--").args(program_words(*program, is_server, &port, step));
                    stage.spawn(name, command, mark)
                };
                let mut server = if listener.is_none() { Some(run(self, "the server", true)?) } else { None };
                if let Some(server) = &mut server {
                    wait_for_port(server, &port)?;
                }
                Ok(Ends { client: run(self, "the client", false)?, server, listener, host })
            }
            Load::Semantics { through_memory } => {
                let (through_memory, transport) = (*through_memory, step.transport.to_owned());
                let role = Role::Semantics { through_memory, transport, seed: step.seed };
                let client = self.spawn("the fuzz", self.role(&role, None, false), mark)?;
                Ok(Ends { client, server: None, listener, host })
            }
        }
    }

    /// Causes the fault of `step`, and ends it when it has a duration; a returned process continues until it is
    /// dropped.
    fn make_trouble(&mut self, step: &Step, load: &mut Ends, mark: &str) -> Result<Option<Running>, String> {
        match step.trouble {
            Trouble::Quiet | Trouble::Busy { .. } => {}
            Trouble::Kill { server } => match self.end_of(load, server)? {
                Some(process) => process.kill(),
                None => return Err("there is no process to kill".to_owned()),
            },
            Trouble::Stop { server, ms } => {
                let mut signal = |stage: &mut Self, signal| match stage.end_of(load, server) {
                    Ok(Some(process)) => process.signal(signal),
                    Ok(None) | Err(_) => load.client.signal(signal),
                };
                signal(self, Signal::STOP);
                thread::sleep(Duration::from_millis(ms));
                signal(self, Signal::CONT);
            }
            Trouble::Cut { end, ms } => {
                let cable = self.cable.as_ref().ok_or("there is no cable")?;
                cable.take_down(end)?;
                thread::sleep(Duration::from_millis(ms));
                cable.bring_up(end)?;
            }
            Trouble::Mtu { bytes, ms } => {
                let cable = self.cable.as_ref().ok_or("there is no cable")?;
                cable.set_mtu(bytes)?;
                thread::sleep(Duration::from_millis(ms));
                cable.set_mtu(Cable::MTU)?;
            }
            Trouble::Attack => {
                let ids = [load.listener.map(|(_, id)| id), Some(load.client.child.id())];
                let ids = ids.into_iter().chain([load.server.as_ref().map(|server| server.child.id())]).flatten();
                let targets = ids.flat_map(|id| targets_of(id, load.host)).collect();
                let end = matches!(load.listener, Some((SurvivorKind::FarListener, _))).then_some(0);
                let role = Role::Attack { ms: 2_000, targets };
                return Ok(Some(self.spawn("the attack", self.role(&role, end, true), mark)?));
            }
        }
        Ok(None)
    }

    /// Starts the busy loops of `step`, if it has any.
    fn begin_loops(&self, step: &Step, mark: &str) -> Result<Vec<Running>, String> {
        let Trouble::Busy { loops } = step.trouble else { return Ok(Vec::new()) };
        let count = loops * thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let spin = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            self.spawn("a busy loop", command, mark)
        };
        (0..count).map(spin).collect()
    }

    /// Returns the process at one end.
    fn end_of<'a>(&'a mut self, load: &'a mut Ends, server: bool) -> Result<Option<&'a mut Running>, String> {
        Ok(match (server, load.listener) {
            (false, _) => Some(&mut load.client),
            (true, Some((which, _))) => Some(&mut self.survivor(which)?.process),
            (true, None) => load.server.as_mut(),
        })
    }

    fn check_survivors(&mut self, step: &Step) -> Result<(), String> {
        match survivor_of(step) {
            Some(which) if self.has_survivor(which) => self.check_survivor(which),
            _ => Ok(()),
        }
    }

    /// Returns one line that names the processes and files that exist now, did not exist `before`, and belong to the
    /// step marked by `mark`; `None` when there are none.
    fn left_behind(&self, before: &std::collections::BTreeSet<String>, mark: &str) -> Option<String> {
        let mut left = self.temporary_files();
        left.extend(leftovers::names().difference(before).cloned());
        let start = Instant::now();
        let mut processes = leftovers::processes_with(mark);
        while !processes.is_empty() && start.elapsed() < EXIT_TIME_MAX {
            thread::sleep(Duration::from_millis(20));
            processes = leftovers::processes_with(mark);
        }
        left.extend(processes.iter().map(|id| format!("process {id}")));
        (!left.is_empty()).then(|| format!("left behind: {}", left.join(", ")))
    }
}

/// The processes of a load.
struct Ends {
    client: Running,
    server: Option<Running>,
    /// The survivor that serves, and its process id.
    listener: Option<(SurvivorKind, u32)>,
    /// Address of the server's machine.
    host: &'static str,
}

impl Ends {
    /// Waits until all processes except survivors have exited, and judges the result.
    fn end(mut self, step: &Step, start: Instant) -> Result<&'static str, String> {
        let all = |ends: &mut Self, judge: fn(&mut Running) -> bool| {
            judge(&mut ends.client) & ends.server.as_mut().is_none_or(judge)
        };
        while !all(&mut self, Running::has_ended) && start.elapsed() < LOAD_TIME_MAX {
            thread::sleep(Duration::from_millis(10));
        }
        let is_victim = |server: bool| step.trouble == Trouble::Kill { server };
        // True when a process was ended by a signal or a panic; only the process killed by the test may be.
        let died = |process: &mut Running| process.status().is_none_or(|how| how.code().is_none_or(|code| code == 101));
        let has_died = (died(&mut self.client) && !is_victim(false))
            || self.server.as_mut().is_some_and(|server| died(server) && !is_victim(true));
        let is_verified = !matches!(step.load, Load::Perf { .. }) || is_verified(&self.client.said());
        let succeeded = all(&mut self, Running::has_succeeded) && is_verified;
        let is_wrong = self.client.said().contains("wrong data") || self.client.said().contains("invalid data");
        match (succeeded, has_died || is_wrong || must_succeed(step)) {
            (true, _) => Ok("data right"),
            (false, false) => Ok("ended by itself"),
            (false, true) => {
                let server = self.server.as_mut().map(Running::tail);
                Err([Some(self.client.tail()), server].into_iter().flatten().collect::<Vec<String>>().join("\n  "))
            }
        }
    }
}

/// Returns the survivor that serves in `step`.
fn survivor_of(step: &Step) -> Option<SurvivorKind> {
    match step.load {
        Load::Perf { over_cable, .. } => {
            Some(if over_cable { SurvivorKind::FarListener } else { SurvivorKind::Listener })
        }
        Load::Program { program: Program::Rping, .. } => Some(SurvivorKind::Rping),
        Load::Program { .. } | Load::Semantics { .. } => None,
    }
}

/// Returns true when a client of `rnic perf` reports that all data were compared and correct.
fn is_verified(said: &str) -> bool {
    let object = said.find('{').map(|at| serde_json::Deserializer::from_str(&said[at..]).into_iter().next());
    matches!(object, Some(Some(Ok(serde_json::Value::Object(report)))) if report.get("verified") == Some(&true.into()))
}

/// Returns true when the load must succeed in spite of the fault: an outage is shorter than the peer timeout.
fn must_succeed(step: &Step) -> bool {
    let is_perf = matches!(step.load, Load::Perf { .. });
    match step.trouble {
        Trouble::Quiet | Trouble::Busy { .. } | Trouble::Mtu { .. } | Trouble::Attack => true,
        Trouble::Kill { .. } => false,
        // Connections of `rnic perf` have a peer timeout of two seconds; the programs request half a second.
        Trouble::Stop { ms, .. } | Trouble::Cut { ms, .. } => ms <= if is_perf { 800 } else { 200 },
    }
}

fn perf_words(step: &Step) -> Vec<String> {
    let Load::Perf { op, size, qps, depth, duration_ms, .. } = &step.load else { return Vec::new() };
    let mut words: Vec<String> =
        step.network.iter().flat_map(|(option, value)| [*option, *value]).map(str::to_owned).collect();
    let values = [("--op", (*op).to_owned()), ("--qps", qps.to_string()), ("--depth", depth.to_string())];
    let values = values.into_iter().chain([
        ("--transport", step.transport.to_owned()),
        ("--duration", format!("{duration_ms}ms")),
        ("--seed", step.seed.to_string()),
    ]);
    words.extend(values.flat_map(|(option, value)| [option.to_owned(), value]));
    if *op != "atomic" {
        words.extend(["--size".to_owned(), (*size).to_owned()]);
    }
    words
}

fn program_words(program: Program, is_server: bool, port: &str, step: &Step) -> Vec<String> {
    let is_slow = step.network.iter().any(|(option, _)| *option == "--delay");
    let rounds = match step.trouble {
        Trouble::Kill { .. } => 100_000_000,
        Trouble::Busy { .. } => 500,
        // Fewer rounds, because rping compares data as part of each round.
        Trouble::Stop { .. } | Trouble::Attack if program == Program::Rping => 4_000,
        Trouble::Stop { .. } | Trouble::Attack if !is_slow => 20_000,
        _ => 2_000,
    };
    let line = match program {
        Program::Pingpong => format!("ibv_rc_pingpong -c -g 0 -p {port} -n {rounds}"),
        Program::PingpongEvents => format!("ibv_rc_pingpong -c -e -g 0 -p {port} -n {rounds}"),
        Program::SharedReceives => format!("ibv_srq_pingpong -c -g 0 -p {port} -n {rounds}"),
        Program::Rping => format!("rping -c -a 127.0.0.1 -p {port} -C {rounds} -V -S 4000"),
    };
    let far = (!is_server && program != Program::Rping).then_some("127.0.0.1");
    line.split_whitespace().chain(far).map(str::to_owned).collect()
}

/// Every load ends within this time, whatever happens: a session of `rnic perf` ends after half a minute without
/// packets.
const LOAD_TIME_MAX: Duration = Duration::from_secs(75);
/// Maximum time until a killed process has exited.
const EXIT_TIME_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_without_a_comparison_is_not_verified() {
        assert!(is_verified("measuring\n{\n  \"ops\": 3,\n  \"verified\": true\n}\nirn over udp\n"));
        assert!(!is_verified("{\"ops\": 3, \"verified\": false}"));
        assert!(!is_verified("rnic: 127.0.0.1:9: is gone"));
    }
}
