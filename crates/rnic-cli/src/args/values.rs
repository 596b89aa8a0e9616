//! Values of options that several commands share.

use clap::ValueEnum;
use rnic_base::limits::{MESSAGE_BYTES_MAX, MTU_MAX, MTU_MIN};
use rnic_base::{BitRate, Bytes, Duration, Probability};

/// A setting `KEY=VALUE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Text before the first `=`.
    pub key: String,
    /// Text after the first `=`.
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

/// Returns the settings as pairs of key and value.
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
    /// Read of blocks of the peer's namespace, by NVMe over Falcon
    NvmeRead,
    /// Write of blocks of the peer's namespace, by NVMe over Falcon
    NvmeWrite,
}

impl Op {
    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Send => "send",
            Self::Read => "read",
            Self::Atomic => "atomic",
            Self::NvmeRead => "nvme-read",
            Self::NvmeWrite => "nvme-write",
        }
    }

    /// Returns `true` if the operation is an NVMe command.
    pub const fn is_nvme(self) -> bool {
        matches!(self, Self::NvmeRead | Self::NvmeWrite)
    }
}

/// Medium over which packets are sent: UDP sockets or a simulated link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Wire {
    /// UDP sockets: real packets in real time
    Udp,
    /// The simulated fabric, point to point
    Sim,
}

impl Wire {
    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Sim => "sim",
        }
    }
}

/// The kind of peer at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Peers {
    /// Another process of this program
    Rnic,
    /// RoCEv2 packets without extensions, as adapters of other vendors use them
    Roce,
}

/// Parses the probability that a packet is lost; less than 1, because some packets must arrive.
pub fn probability_below_one(text: &str) -> Result<Probability, String> {
    let share = text.parse::<Probability>().map_err(|error| error.to_string())?;
    if share == Probability::ALWAYS {
        return Err("the share must be below 100%; for example, 1% or 0.01 is one packet in a hundred".to_owned());
    }
    Ok(share)
}

/// Parses the length of a message in bytes: at most the largest that the verbs allow.
pub fn message_bytes(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<Bytes>().map_err(|error| error.to_string())?.get();
    let fits = u32::try_from(bytes).ok().filter(|bytes| u64::from(*bytes) <= MESSAGE_BYTES_MAX);
    fits.ok_or_else(|| "the size must be at most 1GiB".to_owned())
}

/// Parses the number of payload bytes of a full packet, limited to sizes that both the simulator and the host driver
/// can carry.
pub fn mtu_bytes(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<Bytes>().map_err(|error| error.to_string())?.get();
    let fits = u32::try_from(bytes).ok().filter(|mtu| (MTU_MIN..=MTU_MAX).contains(mtu) && mtu.is_multiple_of(4));
    fits.ok_or_else(|| format!("expected a multiple of 4 between {MTU_MIN} and {MTU_MAX}"))
}

/// Parses a time; zero is an error, because nothing can be measured in it.
pub fn positive_time(text: &str) -> Result<Duration, String> {
    match text.parse::<Duration>() {
        Ok(Duration::ZERO) => Err("the time must be above zero".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a rate; zero is an error, because no packet would ever arrive.
pub fn positive_rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(BitRate::ZERO) => Err("the rate must be above zero".to_owned()),
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
    fn sizes_have_bounds() {
        assert_eq!((message_bytes("64KiB"), message_bytes("0"), mtu_bytes("1KiB")), (Ok(65_536), Ok(0), Ok(1_024)));
        assert_eq!(message_bytes("1GiB"), Ok(1 << 30));
        for wrong in ["1073741825", "5GiB", "much"] {
            assert!(message_bytes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "255", "1022", "9000", "64us"] {
            assert!(mtu_bytes(wrong).is_err(), "{wrong}");
        }
        assert!(positive_time("0s").is_err() && positive_time("1ms").is_ok());
    }

    #[test]
    fn a_rate_of_zero_is_refused() {
        assert_eq!(positive_rate("1Gbps"), Ok(BitRate::gbps(1)));
        assert!(positive_rate("0").is_err() && positive_rate("fast").is_err());
    }
}
