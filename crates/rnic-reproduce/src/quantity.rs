//! Numbers that the code computes without a run, such as sizes and formulas. A check names one and gives its arguments.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Bytes, Duration, Probability};
use rnic_fabric::message_frame_bytes;
use rnic_fabric::workload::Operation;
use rnic_policy::footprint::CONTEXT_BYTES;
use rnic_policy::{Control, FootprintField, Per, Profile, Signals};
use rnic_transports::control::swift_rate::SwiftRate;

use crate::label::label_of;

/// Arguments of a quantity.
pub type Arguments = BTreeMap<String, toml::Value>;

/// A named formula that a check can evaluate without a run.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Name that checks use.
    pub name: &'static str,
    /// Description, with its unit and its arguments.
    pub description: &'static str,
    /// Function that computes the number.
    pub compute: fn(&Arguments) -> Result<f64, String>,
}

/// All quantities that a check can name.
pub const QUANTITIES: &[Quantity] = &[
    Quantity {
        name: "stall-goodput",
        description: "share of the goodput that is left when the pipeline stands still for `latency` at every lost \
                      packet: `loss`, `rate`, `packet`",
        compute: stall_goodput,
    },
    Quantity {
        name: "early-buffer",
        description: "megabytes that a NIC needs if it keeps early packets itself instead of placing them, a full \
                      window each: `transport`, `connections`, `packet`",
        compute: early_buffer,
    },
    Quantity {
        name: "footprint",
        description: "kilobytes that loss recovery keeps on a NIC: `transport`, `connections`, `requests` \
                      (docs/memory.md)",
        compute: footprint,
    },
    Quantity {
        name: "state-bits",
        description: "bits of the same for each connection, what they share dealt out to them: `transport`, \
                      `connections`, `requests`",
        compute: |arguments| Ok(footprint(arguments)? * 8e3 / count(arguments, "connections")?),
    },
    Quantity {
        name: "contexts",
        description: "connections whose contexts fit into the memory of a NIC: `transport` and either `cache`, in \
                      bytes, of which what they share takes its part, or `entries`, for NICs that say no more",
        compute: contexts,
    },
    Quantity {
        name: "header-share",
        description: "percent that headers of a transport take of payload and themselves, beside those of RoCEv2: \
                      `transport`, `op`, `message`, `mtu`",
        compute: header_share,
    },
    Quantity {
        name: "swift-target",
        description: "target of Swift's delay in the network at a rate, in microseconds: `transport` with the control \
                      `swift-rate`, `rate`, `line`",
        compute: swift_target,
    },
    Quantity {
        name: "flows-of-a-thread",
        description: "flows to each of which a thread can send one message a period: `messages` per second, `period`",
        compute: flows_of_a_thread,
    },
];

/// Computes goodput as a fraction of the rate: one packet time divided by the sum of one packet time and the average
/// waiting time per packet.
fn stall_goodput(arguments: &Arguments) -> Result<f64, String> {
    let (loss, latency) = (quantity::<Probability>(arguments, "loss")?, quantity::<Duration>(arguments, "latency")?);
    let (rate, packet) = (quantity::<BitRate>(arguments, "rate")?, quantity::<Bytes>(arguments, "packet")?);
    let packet_us = packet.get() as f64 * 8.0 / (rate.as_gbps_f64() * 1e3);
    Ok(1.0 / (1.0 + loss.as_f64() * latency.as_us_f64() / packet_us))
}

/// Computes the size of the buffer for out-of-order packets: as many packets as the transport's cap, for each
/// connection.
fn early_buffer(arguments: &Arguments) -> Result<f64, String> {
    let profile = transport(arguments)?;
    let cap = profile
        .cap_packets
        .ok_or_else(|| format!("transport `{}` does not limit the number of packets in flight", profile.name))?;
    Ok(f64::from(cap) * count(arguments, "connections")? * quantity::<Bytes>(arguments, "packet")?.get() as f64 / 1e6)
}

/// Sums the fields of a transport's state, each multiplied by the number of its instances.
fn footprint(arguments: &Arguments) -> Result<f64, String> {
    let (connections, requests) = (count(arguments, "connections")?, count(arguments, "requests")?);
    let bits = |field: &FootprintField| {
        let instances = match field.per {
            Per::Connection => connections,
            Per::Wqe => requests,
            Per::Nic => 1.0,
        };
        field.bits as f64 * instances
    };
    Ok(transport(arguments)?.footprint().iter().map(bits).sum::<f64>() / 8e3)
}

/// Computes the number of complete contexts that fit into the cache together with the state that all connections
/// share.
fn contexts(arguments: &Arguments) -> Result<f64, String> {
    let profile = transport(arguments)?;
    match (arguments.contains_key("cache"), arguments.contains_key("entries")) {
        (false, true) => count(arguments, "entries"),
        (true, false) => {
            let bits = quantity::<Bytes>(arguments, "cache")?.get() * 8;
            let context = CONTEXT_BYTES * 8 + profile.footprint_bits(Per::Connection);
            Ok((bits.saturating_sub(profile.footprint_bits(Per::Nic)) / context) as f64)
        }
        _ => Err("the arguments must contain either `cache` or `entries`".to_owned()),
    }
}

/// Computes the share of a transport's additional headers as in FaSR section IV-D: 6 bytes in 1024 + 6 bytes are 0.58
/// %.
fn header_share(arguments: &Arguments) -> Result<f64, String> {
    let (bytes, mtu) = (quantity::<Bytes>(arguments, "message")?.get(), count(arguments, "mtu")? as u32);
    let name = arguments
        .get("op")
        .and_then(toml::Value::as_str)
        .ok_or("the argument `op` is missing; give the name of an operation")?;
    let op = Operation::ALL.iter().find(|(known, _)| *known == name).map(|(_, op)| *op);
    let op = op.ok_or_else(|| format!("there is no operation `{name}`"))?;
    let frames = |profile: &Profile| message_frame_bytes(profile, op, bytes, mtu);
    let added = frames(&transport(arguments)?)?.saturating_sub(frames(&named("roce-gbn", [])?)?) as f64;
    Ok(added / (bytes as f64 + added) * 100.0)
}

/// Computes the delay that the law of `swift-rate` aims at.
fn swift_target(arguments: &Arguments) -> Result<f64, String> {
    let control = transport(arguments)?.control;
    if control.policy.name != SwiftRate::NAME {
        return Err(format!("the argument `transport.control` must be `{}`", SwiftRate::NAME));
    }
    let (rate, line) = (quantity(arguments, "rate")?, quantity(arguments, "line")?);
    Ok(SwiftRate::target(rate, line, &control.params).as_us_f64())
}

/// Computes the number of flows as in SCR (NSDI'25) section 4.3.1: the messages that a thread sends in a period.
fn flows_of_a_thread(arguments: &Arguments) -> Result<f64, String> {
    let (messages, period) = (count(arguments, "messages")?, quantity::<Duration>(arguments, "period")?);
    Ok((messages * period.as_us_f64() / 1e6).floor())
}

/// Reads the transport in the format of plans: a name, or a table with a name and options.
fn transport(arguments: &Arguments) -> Result<Profile, String> {
    match arguments.get("transport") {
        Some(toml::Value::String(name)) => named(name, []),
        Some(toml::Value::Table(table)) => {
            let name =
                table.get("name").and_then(toml::Value::as_str).ok_or("the argument `transport.name` is missing")?;
            let options = table.iter().filter(|(key, _)| *key != "name");
            let options: Vec<(&str, String)> = options.map(|(key, value)| (key.as_str(), label_of(value))).collect();
            named(name, options.iter().map(|(key, value)| (*key, value.as_str())))
        }
        _ => Err("the argument `transport` is missing; give its name".to_owned()),
    }
}

fn named<'o>(name: &str, options: impl IntoIterator<Item = (&'o str, &'o str)> + Clone) -> Result<Profile, String> {
    // A number of a policy that probes does not depend on the network that carries them.
    rnic_transports::select_on(Signals::PROBES, name, options).map_err(|error| error.to_string())
}

fn count(arguments: &Arguments, key: &str) -> Result<f64, String> {
    let number = arguments.get(key).and_then(toml::Value::as_integer).filter(|number| *number >= 0);
    number
        .map(|number| number as f64)
        .ok_or_else(|| format!("the argument `{key}` is missing or is not a whole number"))
}

/// Returns the quantity called `name`.
///
/// # Errors
/// When there is no such quantity; the error lists those that exist.
pub fn find(name: &str) -> Result<&'static Quantity, String> {
    QUANTITIES.iter().find(|quantity| quantity.name == name).ok_or_else(|| {
        let available: Vec<&str> = QUANTITIES.iter().map(|quantity| quantity.name).collect();
        format!("there is no quantity `{name}`; the available quantities are: {}", available.join(", "))
    })
}

fn quantity<T: std::str::FromStr<Err: std::fmt::Display>>(arguments: &Arguments, key: &str) -> Result<T, String> {
    let text = arguments
        .get(key)
        .and_then(toml::Value::as_str)
        .ok_or_else(|| format!("the argument `{key}` is missing; give a quantity with its unit, in quotes"))?;
    text.parse().map_err(|error| format!("{key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FaSR, figure 2: two fifths of the goodput are lost at 400 Gbit/s and 1 % loss, a quarter at 200 Gbit/s.
    #[test]
    fn stall_goodput_follows_the_formula() {
        let arguments = |rate: &str| -> Arguments {
            let pairs = [("loss", "1%"), ("latency", "1.4us"), ("rate", rate), ("packet", "1024B")];
            pairs.iter().map(|(key, value)| ((*key).to_owned(), toml::Value::String((*value).to_owned()))).collect()
        };
        for (rate, left) in [("400Gbps", 0.594), ("200Gbps", 0.745), ("100Gbps", 0.854)] {
            let found = stall_goodput(&arguments(rate)).expect("the arguments are valid");
            assert!((found - left).abs() < 5e-4, "{rate}: {found}");
        }
        let arguments = |transport: &str| -> Arguments {
            let connections = ("connections".to_owned(), toml::Value::Integer(1_000));
            let text = |key: &str, text: &str| (key.to_owned(), toml::Value::String(text.to_owned()));
            [text("transport", transport), text("packet", "1KB"), connections].into()
        };
        assert_eq!(early_buffer(&arguments("irn")), Ok(110.0), "IRN section 5.3");
        assert_eq!(
            early_buffer(&arguments("roce-gbn")),
            Err("transport `roce-gbn` does not limit the number of packets in flight".to_owned())
        );
        let mut irn = arguments("irn");
        irn.insert("requests".to_owned(), toml::Value::Integer(10_000));
        assert_eq!(footprint(&irn), Ok(100.0 + 30.0 + 0.01), "IRN section 6.1: 800 bits, 3 bytes, 10 bytes");
        assert_eq!(
            stall_goodput(&Arguments::new()),
            Err("the argument `loss` is missing; give a quantity with its unit, in quotes".to_owned())
        );
    }

    fn arguments(text: &str) -> Arguments {
        text.parse::<toml::Table>().expect("the text is TOML").into_iter().collect()
    }

    /// FaSR section V-A: 1.4 MB hold 2379 contexts of IRN+, 5223 of SRNIC and, because of its pool, fewer than 5447
    /// of FaSR.
    #[test]
    fn r23_contexts_share_the_memory_with_the_pool() {
        let fit = |transport: &str| contexts(&arguments(&format!("transport = {transport}\ncache = \"1.4MB\"")));
        assert_eq!(fit("\"irn-plus\""), Ok(2_378.0), "ten bytes are shared by all connections");
        assert_eq!(fit("\"srnic\""), Ok(5_223.0));
        assert_eq!(fit("{ name = \"fasr\", pool_blocks = 257, pool_block_bits = 16 }"), Ok(5_441.0));
        assert_eq!(contexts(&arguments("transport = \"roce-gbn\"\nentries = 256")), Ok(256.0));
        let neither = contexts(&arguments("transport = \"roce-gbn\""));
        assert_eq!(neither, Err("the arguments must contain either `cache` or `entries`".to_owned()));
        let unknown = fit("{ name = \"fasr\", pool_bloks = 1 }").expect_err("the option does not exist");
        assert!(unknown.contains("pool_bloks"), "{unknown}");
    }

    /// FaSR section IV-D: 6 bytes of header are a share of 0.58 %.
    #[test]
    fn the_header_share_is_relative_to_payload_and_headers() {
        let share = |transport: &str, op: &str| {
            let text = format!("transport = \"{transport}\"\nop = \"{op}\"\nmessage = \"1MiB\"\nmtu = 1024");
            header_share(&arguments(&text))
        };
        assert_eq!(share("fasr", "send"), Ok(6.0 / 1_030.0 * 100.0));
        assert_eq!(share("roce-gbn", "write"), Ok(0.0));
        assert_eq!(share("irn", "jump"), Err("there is no operation `jump`".to_owned()));
    }

    /// SCR section 4.3.1: 1.8 million messages a second are 36 flows with a message each 20 us.
    #[test]
    fn s_r30_a_thread_serves_36_flows() {
        let flows = |text: &str| flows_of_a_thread(&arguments(text));
        assert_eq!(flows("messages = 1_800_000\nperiod = \"20us\""), Ok(36.0));
        assert_eq!(flows("messages = 1_790_000\nperiod = \"20us\""), Ok(35.0), "a part of a flow is none");
        assert!(flows("messages = 1_800_000").is_err());
    }

    /// SCR appendix A.6, with its rates: the curve from 5 us at 32 Gbit/s to 3 us at 96 Gbit/s.
    #[test]
    fn s_r20_the_target_is_that_of_the_law() {
        let target = |control: &str, rate: u32| {
            let transport = format!(
                "{{ name = \"irn\", control = \"{control}\", {} }}",
                match control {
                    "swift-rate" => "rate_min = \"32Gbps\", rate_max = \"96Gbps\"",
                    _ => "cap_packets = 64",
                }
            );
            let text = format!("transport = {transport}\nrate = \"{rate}Gbps\"\nline = \"100Gbps\"");
            swift_target(&arguments(&text))
        };
        assert_eq!((target("swift-rate", 32), target("swift-rate", 96)), (Ok(5.0), Ok(3.0)));
        assert!(target("swift-rate", 64).is_ok_and(|us| (us - 3.614).abs() < 0.01));
        assert_eq!(target("dcqcn", 64), Err("the argument `transport.control` must be `swift-rate`".to_owned()));
    }

    /// FaSR adds 8 bits for each connection, and 7380 bits that all connections share (docs/memory.md).
    #[test]
    fn shared_state_is_divided_among_connections() {
        let quantity = find("state-bits").expect("the quantity exists");
        let bits = (quantity.compute)(&arguments("transport = \"fasr\"\nconnections = 1000\nrequests = 0"));
        assert!((bits.expect("the arguments are valid") - 15.38).abs() < 1e-9);
    }
}
