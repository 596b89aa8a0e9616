//! Describes the processor, the build and the load of the machine: measured results are valid only for them.

use std::fs;

/// Build settings that determine how fast this program runs.
pub const BUILD: &str =
    if cfg!(debug_assertions) { concat!(env!("RNIC_BUILD"), ", with debug assertions") } else { env!("RNIC_BUILD") };

/// Returns the model of this machine's processor; when the system does not report it, its architecture.
pub fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Returns the processor and build to which a measurement belongs: `SOME CPU (opt-level 3, rustc 1.95.0, sse2)`.
pub fn here() -> String {
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
    fn the_model_is_a_line_of_the_kernels() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some(R)  CPU @ 2.5GHz\n";
        assert_eq!(model(cpuinfo).as_deref(), Some("Some(R) CPU @ 2.5GHz"));
        assert_eq!(model("processor : 0\n"), None);
    }

    #[test]
    fn the_load_is_the_first_number_of_the_kernels() {
        assert_eq!(load("0.42 0.30 0.20 1/100 7\n"), Some(0.42));
        assert_eq!(load(""), None);
    }

    #[test]
    fn a_build_says_how_it_was_optimised_and_by_what() {
        assert!(BUILD.starts_with("opt-level ") && BUILD.contains(", rustc 1."), "{BUILD}");
        assert_eq!(BUILD.contains("assertions"), cfg!(debug_assertions));
    }
}
