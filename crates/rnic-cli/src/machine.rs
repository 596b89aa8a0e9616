//! Description of this machine, for comparisons of results.

use std::fs;
use std::thread;

use rnic_reproduce::machine::{load_average, processor};
use serde::Serialize;

/// A machine and its load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Number of processors that this process may use.
    pub cpus: usize,
    /// Operating system and its release.
    pub system: String,
    /// Load of all processes in the last minute, in processors; `None` when the system does not report it.
    pub load_average: Option<f64>,
}

impl Machine {
    /// Returns a description of this machine and its present load.
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: processor(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            system: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            load_average: load_average(),
        }
    }

    /// Returns the description as one line for users.
    pub fn summary(&self) -> String {
        let Self { cpu, cpus, system, load_average } = self;
        let load = load_average.map_or_else(String::new, |load| format!(", load average {load:.2}"));
        format!("{cpu}, {cpus} CPUs, {system}{load}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_load_average_says_nothing_of_it() {
        let machine = Machine { cpu: "C".into(), cpus: 2, system: "Linux 6".into(), load_average: None };
        assert_eq!(machine.summary(), "C, 2 CPUs, Linux 6");
    }
}
