//! Numbers that the code computes without a run: sizes, formulas. A check names one and gives it arguments.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Bytes, Duration, Probability};
use rnic_policy::{FootprintField, Per, Profile};

/// Arguments of a quantity.
pub type Arguments = BTreeMap<String, toml::Value>;

/// A number that the code computes.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// What checks call it.
    pub name: &'static str,
    /// What it is, with its unit and its arguments.
    pub what: &'static str,
    /// Computes it.
    pub compute: fn(&Arguments) -> Result<f64, String>,
}

/// Every quantity.
pub const QUANTITIES: &[Quantity] = &[
    Quantity {
        name: "stall-goodput",
        what: "share of the goodput that is left when the pipeline stands still for `latency` at every lost packet: \
               `loss`, `rate`, `packet`",
        compute: stall_goodput,
    },
    Quantity {
        name: "early-buffer",
        what: "megabytes that a NIC needs if it keeps early packets itself instead of placing them, a full window \
               each: `transport`, `connections`, `packet`",
        compute: early_buffer,
    },
    Quantity {
        name: "footprint",
        what: "kilobytes that loss recovery keeps on a NIC: `transport`, `connections`, `requests` (docs/memory.md)",
        compute: footprint,
    },
];

/// One packet time by one packet time and the share of it that is spent waiting.
fn stall_goodput(with: &Arguments) -> Result<f64, String> {
    let (loss, latency) = (quantity::<Probability>(with, "loss")?, quantity::<Duration>(with, "latency")?);
    let (rate, packet) = (quantity::<BitRate>(with, "rate")?, quantity::<Bytes>(with, "packet")?);
    let packet_us = packet.get() as f64 * 8.0 / (rate.as_gbps_f64() * 1e3);
    Ok(1.0 / (1.0 + loss.as_f64() * latency.as_us_f64() / packet_us))
}

/// As many packets for each connection as the cap of the transport lets in early.
fn early_buffer(with: &Arguments) -> Result<f64, String> {
    let profile = transport(with)?;
    let cap = profile.cap_packets.ok_or_else(|| format!("transport `{}` has no cap", profile.name))?;
    Ok(f64::from(cap) * count(with, "connections")? * quantity::<Bytes>(with, "packet")?.get() as f64 / 1e6)
}

/// Every field of the footprint, as often as it is there.
fn footprint(with: &Arguments) -> Result<f64, String> {
    let (connections, requests) = (count(with, "connections")?, count(with, "requests")?);
    let bits = |field: &FootprintField| {
        let times = match field.per {
            Per::Connection => connections,
            Per::Wqe => requests,
            Per::Nic => 1.0,
        };
        field.bits as f64 * times
    };
    Ok(transport(with)?.footprint().iter().map(bits).sum::<f64>() / 8e3)
}

fn transport(with: &Arguments) -> Result<Profile, String> {
    let name = with.get("transport").and_then(toml::Value::as_str).ok_or("give `transport`, by its name")?;
    rnic_transports::select(name, []).map_err(|error| error.to_string())
}

fn count(with: &Arguments, key: &str) -> Result<f64, String> {
    let number = with.get(key).and_then(toml::Value::as_integer).filter(|number| *number >= 0);
    number.map(|number| number as f64).ok_or_else(|| format!("give `{key}`, a number"))
}

/// The quantity called `name`.
///
/// # Errors
/// When there is none; says which there are.
pub fn find(name: &str) -> Result<&'static Quantity, String> {
    QUANTITIES.iter().find(|quantity| quantity.name == name).ok_or_else(|| {
        let there: Vec<&str> = QUANTITIES.iter().map(|quantity| quantity.name).collect();
        format!("there is no quantity `{name}`; there are: {}", there.join(", "))
    })
}

fn quantity<T: std::str::FromStr<Err: std::fmt::Display>>(with: &Arguments, key: &str) -> Result<T, String> {
    let text = with.get(key).and_then(toml::Value::as_str).ok_or_else(|| format!("give `{key}`, with its unit"))?;
    text.parse().map_err(|error| format!("{key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FaSR, figure 2: two fifths are lost at 400 Gbit/s and 1 %, a quarter at 200.
    #[test]
    fn stalls_cost_what_the_formula_says() {
        let with = |rate: &str| -> Arguments {
            let pairs = [("loss", "1%"), ("latency", "1.4us"), ("rate", rate), ("packet", "1024B")];
            pairs.iter().map(|(key, value)| ((*key).to_owned(), toml::Value::String((*value).to_owned()))).collect()
        };
        for (rate, left) in [("400Gbps", 0.594), ("200Gbps", 0.745), ("100Gbps", 0.854)] {
            let found = stall_goodput(&with(rate)).expect("sound arguments");
            assert!((found - left).abs() < 5e-4, "{rate}: {found}");
        }
        let with = |transport: &str| -> Arguments {
            let connections = ("connections".to_owned(), toml::Value::Integer(1_000));
            let text = |key: &str, text: &str| (key.to_owned(), toml::Value::String(text.to_owned()));
            [text("transport", transport), text("packet", "1KB"), connections].into()
        };
        assert_eq!(early_buffer(&with("irn")), Ok(110.0), "IRN section 5.3");
        assert_eq!(early_buffer(&with("roce-gbn")), Err("transport `roce-gbn` has no cap".to_owned()));
        let mut irn = with("irn");
        irn.insert("requests".to_owned(), toml::Value::Integer(10_000));
        assert_eq!(footprint(&irn), Ok(100.0 + 30.0 + 0.01), "IRN section 6.1: 800 bits, 3 bytes, 10 bytes");
        assert_eq!(stall_goodput(&Arguments::new()), Err("give `loss`, with its unit".to_owned()));
    }
}
