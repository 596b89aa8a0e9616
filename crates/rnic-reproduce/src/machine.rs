//! Which processor this is: what is measured is true of it alone.

use std::fs;

/// The model of this machine's processor; where the system does not tell, its architecture.
pub fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.split_whitespace().collect::<Vec<_>>().join(" "))
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
}
