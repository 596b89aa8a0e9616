//! Values of options that several commands share.

use clap::ValueEnum;
use rnic_base::BitRate;

/// `KEY=VALUE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Before the first `=`.
    pub key: String,
    /// After it.
    pub value: String,
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Self { key: key.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err("expected KEY=VALUE".to_owned()),
        }
    }
}

/// The settings as the rooms below take them.
pub fn pairs(settings: &[Setting]) -> Vec<(&str, &str)> {
    settings.iter().map(|setting| (setting.key.as_str(), setting.value.as_str())).collect()
}

/// A verbs operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Op {
    /// RDMA Write
    Write,
    /// Send into a posted receive
    Send,
    /// RDMA Read
    Read,
    /// Fetch-and-add on eight bytes
    Atomic,
}

/// What carries the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Wire {
    /// UDP sockets: real packets in real time
    Udp,
    /// The simulated fabric, point to point
    Sim,
}

/// Refuses a rate of zero, at which nothing would ever arrive.
pub fn positive_rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(BitRate::ZERO) => Err("a rate must be above zero".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_split_at_the_first_equals_sign() {
        let read = |text: &str| text.parse::<Setting>().map(|setting| (setting.key, setting.value));
        assert_eq!(read("switch.alpha = 1=2"), Ok(("switch.alpha".into(), "1=2".into())));
        assert!(read("alpha").is_err() && read("=1").is_err());
    }

    #[test]
    fn a_rate_of_zero_is_refused() {
        assert_eq!(positive_rate("1Gbps"), Ok(BitRate::gbps(1)));
        assert!(positive_rate("0").is_err() && positive_rate("fast").is_err());
    }
}
