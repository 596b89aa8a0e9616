//! Generates steps from a seed and a number.

use std::fmt;

use rnic_base::{RandomStream, RandomStreams};

/// One step: a load, a network, a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Number of the step: together with the seed, it is sufficient to repeat the step.
    pub number: u64,
    pub(super) load: Load,
    pub(super) transport: &'static str,
    /// Options of the network, as `rnic perf` and `rnic run` accept them; empty through memory.
    pub(super) network: Vec<(&'static str, &'static str)>,
    pub(super) trouble: Trouble,
    /// Milliseconds from the start of the load to the fault.
    pub(super) after_ms: u64,
    pub(super) seed: u64,
}

/// The work that moves data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// `rnic perf --verify` against the listener on this host, or at the other end of the cable.
    Perf { over_cable: bool, op: &'static str, size: &'static str, qps: u64, depth: u64, duration_ms: u64 },
    /// A pair of programs of the distribution, which check their data.
    Program { program: Program, through_memory: bool },
    /// The semantics fuzz.
    Semantics { through_memory: bool },
}

/// Programs that compare what they receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Program {
    /// `ibv_rc_pingpong -c`.
    Pingpong,
    /// `ibv_rc_pingpong -c -e`, which sleeps until a completion event.
    PingpongEvents,
    /// `ibv_srq_pingpong -c`.
    SharedReceives,
    /// `rping -V`, whose server keeps running.
    Rping,
}

/// The fault in the middle of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// No fault.
    Quiet,
    /// Busy loops: the given number of spinning processes for each processor.
    Busy { loops: u64 },
    /// `kill -9`.
    Kill { server: bool },
    /// SIGSTOP, and SIGCONT after `ms` milliseconds.
    Stop { server: bool, ms: u64 },
    /// One end of the cable is taken down, and up again after `ms` milliseconds.
    Cut { end: usize, ms: u64 },
    /// The MTU of the cable changes to `bytes`, and back after `ms` milliseconds.
    Mtu { bytes: u32, ms: u64 },
    /// Another user of the machine sends invalid input to every socket that it can reach.
    Attack,
}

impl Step {
    /// Generates step `number` of `seed`.
    pub fn draw(seed: u64, number: u64) -> Self {
        let mut random = RandomStreams::new(seed).stream(&format!("soak/step-{number}"));
        let draw = &mut random;
        let load = Load::draw(draw);
        let trouble = Trouble::draw(draw, &load);
        // The fuzz generates a network of its own.
        let has_none = load.through_memory() || matches!(load, Load::Semantics { .. });
        let network = if has_none { Vec::new() } else { network(draw) };
        let transport = one_of(draw, load.transports());
        let after_ms = draw.between(200, 900);
        Self { number, load, transport, network, trouble, after_ms, seed: draw.below(1 << 32) }
    }

    /// Returns true for a step that requires network namespaces or another user's id.
    pub fn needs_root(&self) -> bool {
        self.trouble == Trouble::Attack || matches!(self.load, Load::Perf { over_cable: true, .. })
    }
}

impl Load {
    fn draw(draw: &mut RandomStream) -> Self {
        let through_memory = draw.below(2) == 0;
        match draw.below(8) {
            0..5 => Self::Perf {
                over_cable: draw.below(2) == 0,
                op: one_of(draw, &["write", "send", "read", "atomic"]),
                size: one_of(draw, &["8", "1000", "4KiB", "64KiB", "256KiB"]),
                qps: one_of(draw, &[1, 1, 2, 8]),
                depth: one_of(draw, &[1, 4, 16]),
                duration_ms: draw.between(1_000, 2_500),
            },
            5..7 => Self::Program {
                program: one_of(
                    draw,
                    &[Program::Pingpong, Program::PingpongEvents, Program::SharedReceives, Program::Rping],
                ),
                through_memory,
            },
            _ => Self::Semantics { through_memory },
        }
    }

    fn transports(&self) -> &'static [&'static str] {
        match self {
            Self::Perf { .. } => &TRANSPORTS,
            Self::Program { program: Program::Rping, .. } => &TRANSPORTS[..OFFERED_TOGETHER],
            Self::Program { .. } => &TRANSPORTS,
            // The fuzz does not support `irn-plus`.
            Self::Semantics { .. } => &TRANSPORTS[..TRANSPORTS.len() - 1],
        }
    }

    /// Returns true for a load whose server keeps running.
    fn has_survivor(&self) -> bool {
        matches!(self, Self::Perf { .. } | Self::Program { program: Program::Rping, .. })
    }

    fn through_memory(&self) -> bool {
        match self {
            Self::Perf { .. } => false,
            Self::Program { through_memory, .. } | Self::Semantics { through_memory } => *through_memory,
        }
    }
}

impl Trouble {
    fn draw(draw: &mut RandomStream, load: &Load) -> Self {
        let server = draw.below(2) == 0;
        let stop = Self::Stop { server, ms: one_of(draw, &[50, 200, 800, 3_000]) };
        let common = match draw.below(6) {
            0 => Self::Quiet,
            1 => Self::Busy { loops: draw.between(1, 3) },
            // Servers are killed rarely, so that most of them run for a long time.
            2 => Self::Kill { server: server && (!load.has_survivor() || draw.below(4) == 0) },
            3 | 4 => stop,
            _ => Self::Attack,
        };
        match load {
            Load::Perf { over_cable: true, .. } if draw.below(3) > 0 => match draw.below(2) {
                0 => Self::Cut { end: draw.below(2) as usize, ms: one_of(draw, &[20, 200, 800, 4_000]) },
                _ => Self::Mtu { bytes: one_of(draw, &[576, 1_280, 1_400, 9_000]), ms: draw.between(100, 1_500) },
            },
            // Both ends are one process, so that there is no separate process to kill or to attack.
            Load::Semantics { .. } if matches!(common, Self::Kill { .. } | Self::Attack) => stop,
            _ => common,
        }
    }
}

fn network(draw: &mut RandomStream) -> Vec<(&'static str, &'static str)> {
    let options = [
        ("--loss", one_of(draw, &["", "0.1%", "1%", "1%", "5%"])),
        ("--reorder", one_of(draw, &["", "", "1%", "10%"])),
        ("--delay", one_of(draw, &["", "", "", "200us", "1ms"])),
    ];
    options.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn one_of<T: Copy>(draw: &mut RandomStream, choices: &[T]) -> T {
    choices[draw.below(choices.len() as u64) as usize]
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = |through_memory: bool| if through_memory { "memory" } else { "sockets" };
        match &self.load {
            Load::Perf { over_cable, op, size, qps, depth, .. } => {
                write!(f, "perf {op} {size} x {qps} x {depth}{}", if *over_cable { " over a cable" } else { "" })?;
            }
            Load::Program { program, through_memory } => write!(f, "{program:?}, {}", wire(*through_memory))?,
            Load::Semantics { through_memory } => {
                write!(f, "semantics, {}, seeds from {}", wire(*through_memory), self.seed)?;
            }
        }
        write!(f, ", {}", self.transport)?;
        for (option, value) in &self.network {
            write!(f, ", {} {value}", option.trim_start_matches('-'))?;
        }
        match self.trouble {
            Trouble::Quiet => Ok(()),
            trouble => write!(f, ", {trouble:?} after {} ms", self.after_ms),
        }
    }
}

/// The transports that are intended for sockets.
pub(super) const TRANSPORTS: [&str; 9] =
    ["irn", "roce-gbn", "fasr", "roce-sr", "falcon", "roce-ar", "tcp", "srnic", "irn-plus"];
/// Number of leading transports that a server can offer together; Falcon is offered alone.
pub(super) const OFFERED_TOGETHER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_number_give_the_same_step() {
        assert_eq!(Step::draw(7, 31), Step::draw(7, 31));
        assert_ne!(Step::draw(7, 31), Step::draw(7, 32));
        assert_ne!(Step::draw(7, 31), Step::draw(8, 31));
    }

    #[test]
    fn every_fault_occurs_and_only_where_it_applies() {
        let steps: Vec<Step> = (0..2_000).map(|number| Step::draw(1, number)).collect();
        let mut seen = [0; 7];
        for step in &steps {
            let over_cable = matches!(step.load, Load::Perf { over_cable: true, .. });
            let is_alone = matches!(step.load, Load::Semantics { .. });
            let (index, is_sensible) = match step.trouble {
                Trouble::Quiet => (0, true),
                Trouble::Busy { .. } => (1, true),
                Trouble::Kill { .. } => (2, !is_alone),
                Trouble::Stop { .. } => (3, true),
                Trouble::Cut { .. } => (4, over_cable),
                Trouble::Mtu { .. } => (5, over_cable),
                Trouble::Attack => (6, !is_alone),
            };
            assert!(is_sensible, "{step}");
            assert!(step.network.is_empty() || !step.load.through_memory(), "{step}");
            seen[index] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
        let with = |transport: &str| steps.iter().filter(|step| step.transport == transport).count();
        assert!(TRANSPORTS.iter().all(|transport| with(transport) > 100));
    }
}
