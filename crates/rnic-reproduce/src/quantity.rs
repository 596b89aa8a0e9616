//! Numbers that the code computes without a run, such as sizes and formulas. A check names one and gives its arguments.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Bytes, Duration, Probability};
use rnic_fabric::message_frames;
use rnic_fabric::workload::Operation;
use rnic_policy::footprint::CONTEXT_BYTES;
use rnic_policy::{FootprintField, Per, Profile};

use crate::label::label_of;

/// Arguments of a quantity.
pub type Arguments = BTreeMap<String, toml::Value>;

/// A number that the code computes.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Name that checks use.
    pub name: &'static str,
    /// Description, with its unit and its arguments.
    pub what: &'static str,
    /// Function that computes the number.
    pub compute: fn(&Arguments) -> Result<f64, String>,
}

/// All quantities that a check can name.
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
    Quantity {
        name: "state-bits",
        what: "bits of the same for each connection, what they share dealt out to them: `transport`, `connections`, \
               `requests`",
        compute: |with| Ok(footprint(with)? * 8e3 / count(with, "connections")?),
    },
    Quantity {
        name: "contexts",
        what: "connections whose contexts fit into the memory of a NIC: `transport` and either `cache`, in bytes, of \
               which what they share takes its part, or `entries`, for NICs that say no more",
        compute: contexts,
    },
    Quantity {
        name: "header-share",
        what: "percent that headers of a transport take of payload and themselves, beside those of RoCEv2: \
               `transport`, `op`, `message`, `mtu`",
        compute: header_share,
    },
];

/// Computes goodput as a fraction: one packet time divided by the sum of one packet time and the average waiting time
/// per packet.
fn stall_goodput(with: &Arguments) -> Result<f64, String> {
    let (loss, latency) = (quantity::<Probability>(with, "loss")?, quantity::<Duration>(with, "latency")?);
    let (rate, packet) = (quantity::<BitRate>(with, "rate")?, quantity::<Bytes>(with, "packet")?);
    let packet_us = packet.get() as f64 * 8.0 / (rate.as_gbps_f64() * 1e3);
    Ok(1.0 / (1.0 + loss.as_f64() * latency.as_us_f64() / packet_us))
}

/// Computes the buffer for out-of-order packets: the transport's packet cap, for each connection.
fn early_buffer(with: &Arguments) -> Result<f64, String> {
    let profile = transport(with)?;
    let cap = profile.cap_packets.ok_or_else(|| format!("transport `{}` has no cap", profile.name))?;
    Ok(f64::from(cap) * count(with, "connections")? * quantity::<Bytes>(with, "packet")?.get() as f64 / 1e6)
}

/// Sums the fields of the footprint, each multiplied by the number of its instances.
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

/// Computes the number of complete contexts that fit into the cache beside the state that all connections share.
fn contexts(with: &Arguments) -> Result<f64, String> {
    let profile = transport(with)?;
    match (with.contains_key("cache"), with.contains_key("entries")) {
        (false, true) => count(with, "entries"),
        (true, false) => {
            let bits = quantity::<Bytes>(with, "cache")?.get() * 8;
            let context = CONTEXT_BYTES * 8 + profile.footprint_bits(Per::Connection);
            Ok((bits.saturating_sub(profile.footprint_bits(Per::Nic)) / context) as f64)
        }
        _ => Err("give either `cache` or `entries`".to_owned()),
    }
}

/// Computes the share of additional headers as FaSR section IV-D does: 6 bytes of 1024 and 6 are 0.58 %.
fn header_share(with: &Arguments) -> Result<f64, String> {
    let (bytes, mtu) = (quantity::<Bytes>(with, "message")?.get(), count(with, "mtu")? as u32);
    let name = with.get("op").and_then(toml::Value::as_str).ok_or("give `op`, by its name")?;
    let op = Operation::ALL.iter().find(|(known, _)| *known == name).map(|(_, op)| *op);
    let op = op.ok_or_else(|| format!("there is no operation `{name}`"))?;
    let frames = |profile: &Profile| message_frames(profile, op, bytes, mtu);
    let added = frames(&transport(with)?)?.saturating_sub(frames(&named("roce-gbn", [])?)?) as f64;
    Ok(added / (bytes as f64 + added) * 100.0)
}

/// Reads the transport as plans do: a name, or a table of a name and options.
fn transport(with: &Arguments) -> Result<Profile, String> {
    match with.get("transport") {
        Some(toml::Value::String(name)) => named(name, []),
        Some(toml::Value::Table(table)) => {
            let name = table.get("name").and_then(toml::Value::as_str).ok_or("give `transport.name`")?;
            let options = table.iter().filter(|(key, _)| *key != "name");
            let options: Vec<(&str, String)> = options.map(|(key, value)| (key.as_str(), label_of(value))).collect();
            named(name, options.iter().map(|(key, value)| (*key, value.as_str())))
        }
        _ => Err("give `transport`, by its name".to_owned()),
    }
}

fn named<'o>(name: &str, options: impl IntoIterator<Item = (&'o str, &'o str)> + Clone) -> Result<Profile, String> {
    rnic_transports::select(name, options).map_err(|error| error.to_string())
}

fn count(with: &Arguments, key: &str) -> Result<f64, String> {
    let number = with.get(key).and_then(toml::Value::as_integer).filter(|number| *number >= 0);
    number.map(|number| number as f64).ok_or_else(|| format!("give `{key}`, a number"))
}

/// Returns the quantity called `name`.
///
/// # Errors
/// When there is none; the error lists the existing ones.
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

    fn arguments(text: &str) -> Arguments {
        text.parse::<toml::Table>().expect("TOML").into_iter().collect()
    }

    /// FaSR section V-A: 1.4 MB hold 2379 contexts of IRN+, 5223 of SRNIC and, beside a pool, fewer than 5447 of FaSR.
    #[test]
    fn r23_contexts_share_the_memory_with_the_pool() {
        let fit = |transport: &str| contexts(&arguments(&format!("transport = {transport}\ncache = \"1.4MB\"")));
        assert_eq!(fit("\"irn-plus\""), Ok(2_378.0), "and ten bytes for all");
        assert_eq!(fit("\"srnic\""), Ok(5_223.0));
        assert_eq!(fit("{ name = \"fasr\", pool_blocks = 257, pool_block_bits = 16 }"), Ok(5_441.0));
        assert_eq!(contexts(&arguments("transport = \"roce-gbn\"\nentries = 256")), Ok(256.0));
        let neither = contexts(&arguments("transport = \"roce-gbn\""));
        assert_eq!(neither, Err("give either `cache` or `entries`".to_owned()));
        let unknown = fit("{ name = \"fasr\", pool_bloks = 1 }").expect_err("no such option");
        assert!(unknown.contains("pool_bloks"), "{unknown}");
    }

    /// FaSR section IV-D: 6 bytes take 0.58 %.
    #[test]
    fn headers_are_a_share_of_what_they_come_with() {
        let share = |transport: &str, op: &str| {
            let text = format!("transport = \"{transport}\"\nop = \"{op}\"\nmessage = \"1MiB\"\nmtu = 1024");
            header_share(&arguments(&text))
        };
        assert_eq!(share("fasr", "send"), Ok(6.0 / 1_030.0 * 100.0));
        assert_eq!(share("roce-gbn", "write"), Ok(0.0));
        assert_eq!(share("irn", "jump"), Err("there is no operation `jump`".to_owned()));
    }

    /// 8 bits each, and 7380 for all (docs/memory.md).
    #[test]
    fn what_is_shared_is_dealt_out() {
        let quantity = find("state-bits").expect("it is there");
        let bits = (quantity.compute)(&arguments("transport = \"fasr\"\nconnections = 1000\nrequests = 0"));
        assert!((bits.expect("sound") - 15.38).abs() < 1e-9);
    }
}
