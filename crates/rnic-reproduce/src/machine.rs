//! Describes the processor, the build and the load of the machine: measured results are valid only for them.

use std::fs;
use std::thread;

use serde::Serialize;

/// Build settings that determine how fast this program runs.
pub const BUILD: &str =
    if cfg!(debug_assertions) { concat!(env!("RNIC_BUILD"), ", with debug assertions") } else { env!("RNIC_BUILD") };

/// A machine and its load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Number of processors that this process may use.
    pub cpus: usize,
    /// Operating system and its release.
    pub system: String,
    /// Load of all processes in the last minute, in processors; `None` if the system does not report it.
    pub load_average: Option<f64>,
}

impl Machine {
    /// Returns a description of this machine and its present load.
    pub fn local() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: processor(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
            system: format!("Linux {}", release.trim()),
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

/// Returns the model of this machine's processor; when the system does not report it, its architecture.
fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Returns the processor and build to which a measurement belongs: `SOME CPU (opt-level 3, rustc 1.95.0, sse2)`.
pub fn processor_and_build() -> String {
    format!("{} ({BUILD})", processor())
}

/// Returns the load of all processes in the last minute, in processors; `None` when the system does not report it.
pub fn load_average() -> Option<f64> {
    load(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn load(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_model_is_read_from_cpuinfo() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some(R)  CPU @ 2.5GHz\n";
        assert_eq!(model(cpuinfo).as_deref(), Some("Some(R) CPU @ 2.5GHz"));
        assert_eq!(model("processor : 0\n"), None);
    }

    #[test]
    fn the_load_is_the_first_number_of_loadavg() {
        assert_eq!(load("0.42 0.30 0.20 1/100 7\n"), Some(0.42));
        assert_eq!(load(""), None);
    }

    #[test]
    fn the_summary_omits_an_unknown_load_average() {
        let machine = Machine { cpu: "C".into(), cpus: 2, system: "Linux 6".into(), load_average: None };
        assert_eq!(machine.summary(), "C, 2 CPUs, Linux 6");
    }

    #[test]
    fn the_build_names_optimisation_and_compiler() {
        assert!(BUILD.starts_with("opt-level ") && BUILD.contains(", rustc 1."), "{BUILD}");
        assert_eq!(BUILD.contains("assertions"), cfg!(debug_assertions));
    }
}
