//! The plan as deserialized by serde. Only types and units are checked here; `resolve` checks the values together.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;
use std::collections::BTreeMap;

use rnic_base::{BitRate, Bytes, Duration, Probability};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::link::PLAN_TIME_MAX;

/// A quantity with its unit, or a bare number where that is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unit<T>(pub(super) T);

/// A type of quantity that a plan may contain.
pub(super) trait Quantity: FromStr<Err: fmt::Display> {
    /// Returns the reason why a value that was parsed is invalid in every plan.
    fn objection(&self) -> Option<String> {
        None
    }
}

impl Quantity for Duration {
    /// Rejects durations longer than the longest run: times beyond it do not fit into their machine words, and events
    /// at such times would be lost without an error.
    fn objection(&self) -> Option<String> {
        (*self > PLAN_TIME_MAX).then(|| format!("must be at most {PLAN_TIME_MAX}, the longest run: it is {self}"))
    }
}

impl Quantity for Bytes {}
impl Quantity for BitRate {}
impl Quantity for Probability {}
impl Quantity for Fraction {}

impl<'de, T: Quantity> Deserialize<'de> for Unit<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<T: Quantity> Visitor<'_> for Reader<T> {
            type Value = Unit<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity with its unit in quotes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Unit<T>, E> {
                let value: T = text.parse().map_err(E::custom)?;
                value.objection().map_or(Ok(Unit(value)), |objection| Err(E::custom(objection)))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Unit<T>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Unit<T>, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// A quantity, or the word `auto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum OrAuto<T> {
    #[default]
    Auto,
    Given(T),
}

impl<'de, T: Quantity> Deserialize<'de> for OrAuto<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Unit(MaybeAuto(value)) = Unit::<MaybeAuto<T>>::deserialize(deserializer)?;
        Ok(value)
    }
}

struct MaybeAuto<T>(OrAuto<T>);

impl<T: Quantity> Quantity for MaybeAuto<T> {
    fn objection(&self) -> Option<String> {
        match &self.0 {
            OrAuto::Auto => None,
            OrAuto::Given(value) => value.objection(),
        }
    }
}

impl<T: Quantity> FromStr for MaybeAuto<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text.trim() == "auto" {
            return Ok(Self(OrAuto::Auto));
        }
        text.parse().map(|value| Self(OrAuto::Given(value)))
    }
}

/// A fraction such as `1/2`, or an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fraction {
    pub(super) numerator: u64,
    pub(super) denominator: u64,
}

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a fraction such as 1/2, or a whole number");
        let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
        let read = |part: &str| part.trim().parse::<u64>().ok().filter(|part| (1..=1 << 20).contains(part));
        Ok(Self { numerator: read(numerator).ok_or_else(wrong)?, denominator: read(denominator).ok_or_else(wrong)? })
    }
}

/// A transport: a table with its name and its options, or its name alone.
#[derive(Debug)]
pub(super) struct Transport(pub(super) BTreeMap<String, toml::Value>);

impl<'de> Deserialize<'de> for Transport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Transport;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a transport, or a table such as { name = \"irn\", rto_high = \"auto\" }")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Transport, E> {
                Ok(Transport([("name".to_owned(), toml::Value::from(name))].into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Transport, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(table)).map(Transport)
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    #[serde(default)]
    pub(super) name: String,
    pub(super) mtu: Option<u32>,
    pub(super) reads: Option<u32>,
    #[serde(default)]
    pub(super) payload: Payload,
    #[serde(default)]
    pub(super) wire: Wire,
    pub(super) topology: Topology,
    pub(super) links: Links,
    pub(super) switch: Option<Switch>,
    pub(super) transport: Transport,
    pub(super) nic: Option<Nic>,
    pub(super) slow_host: Option<SlowHost>,
    pub(super) workload: Workload,
    #[serde(default)]
    pub(super) fault: Vec<Fault>,
    #[serde(default)]
    pub(super) run: Run,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Payload {
    #[default]
    None,
    Checked,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wire {
    #[default]
    Direct,
    Encoded,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TopologyKind {
    PointToPoint,
    Star,
    FatTree,
    LeafSpine,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Topology {
    pub(super) kind: TopologyKind,
    pub(super) hosts: Option<u32>,
    pub(super) k: Option<u32>,
    pub(super) spines: Option<u32>,
    pub(super) leaves: Option<u32>,
    pub(super) hosts_per_leaf: Option<u32>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Links {
    pub(super) rate: Unit<BitRate>,
    pub(super) delay: Unit<Duration>,
    pub(super) fabric: Option<LinkClass>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkClass {
    pub(super) rate: Option<Unit<BitRate>>,
    pub(super) delay: Option<Unit<Duration>>,
    #[serde(default)]
    pub(super) spines: Vec<Unit<BitRate>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Multipath {
    #[default]
    Ecmp,
    Wcmp,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SwitchModel {
    InputQueued,
    SharedBuffer,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    pub(super) model: SwitchModel,
    pub(super) buffer: Unit<Bytes>,
    pub(super) alpha: Option<Unit<Fraction>>,
    #[serde(default)]
    pub(super) multipath: Multipath,
    pub(super) pfc: Option<Pfc>,
    pub(super) ecn: Option<Ecn>,
    pub(super) csig: Option<Csig>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Csig {
    #[serde(default = "yes")]
    pub(super) enabled: bool,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Pfc {
    #[serde(default = "yes")]
    pub(super) enabled: bool,
    #[serde(default)]
    pub(super) threshold: OrAuto<Bytes>,
    #[serde(default)]
    pub(super) headroom: OrAuto<Bytes>,
}

fn yes() -> bool {
    true
}

/// The queue depth that is measured before a packet is marked.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EcnDepth {
    #[default]
    Output,
    VirtualQueue,
    Input,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Ecn {
    #[serde(default = "yes")]
    pub(super) enabled: bool,
    pub(super) kmin: Unit<Bytes>,
    pub(super) kmax: Unit<Bytes>,
    pub(super) pmax: Unit<Probability>,
    #[serde(default)]
    pub(super) depth: EcnDepth,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WqeFetch {
    #[default]
    OnDemand,
    Ahead,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Nic {
    #[serde(default = "yes")]
    pub(super) enabled: bool,
    pub(super) qpc_cache: Option<Unit<Bytes>>,
    pub(super) qpc_entries: Option<u32>,
    pub(super) second_entries: Option<u32>,
    pub(super) second_latency: Option<Unit<Duration>>,
    pub(super) bus_latency: Option<Unit<Duration>>,
    pub(super) bus_rate: Option<Unit<BitRate>>,
    pub(super) bus_reads: Option<u32>,
    pub(super) wqe_fetch: Option<WqeFetch>,
    pub(super) wqe_batch: Option<u32>,
    pub(super) bitmap_latency: Option<Unit<Duration>>,
    pub(super) cycle: Option<Unit<Duration>>,
    pub(super) qp_cycle: Option<Unit<Duration>>,
    pub(super) receive_buffer: Option<Unit<Bytes>>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct SlowHost {
    pub(super) hosts: Option<String>,
    pub(super) rate: Unit<BitRate>,
    pub(super) from: Option<Unit<Duration>>,
    pub(super) until: Option<Unit<Duration>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WorkloadKind {
    Manual,
    Poisson,
    Incast,
    Permutation,
    ClosedLoop,
    OpenLoop,
    Collective,
    Nvme,
    Trace,
}

impl WorkloadKind {
    /// Returns the name that plans use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Poisson => "poisson",
            Self::Incast => "incast",
            Self::Permutation => "permutation",
            Self::ClosedLoop => "closed-loop",
            Self::OpenLoop => "open-loop",
            Self::Collective => "collective",
            Self::Nvme => "nvme",
            Self::Trace => "trace",
        }
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) kind: WorkloadKind,
    pub(super) load: Option<Unit<Probability>>,
    pub(super) sizes: Option<String>,
    pub(super) size: Option<Unit<Bytes>>,
    pub(super) duration: Option<Unit<Duration>>,
    pub(super) senders: Option<u32>,
    pub(super) bytes: Option<Unit<Bytes>>,
    pub(super) from: Option<u32>,
    pub(super) to: Option<u32>,
    pub(super) jitter: Option<Unit<Duration>>,
    pub(super) repeats: Option<u32>,
    pub(super) interval: Option<Unit<Duration>>,
    pub(super) start: Option<Unit<Duration>>,
    pub(super) background: Option<Background>,
    pub(super) op: Option<String>,
    pub(super) message: Option<Unit<Bytes>>,
    pub(super) depth: Option<u32>,
    pub(super) queue_pairs: Option<u32>,
    pub(super) connections: Option<u32>,
    pub(super) clients: Option<u32>,
    pub(super) servers: Option<u32>,
    pub(super) count: Option<u32>,
    pub(super) collective: Option<String>,
    pub(super) ranks: Option<u32>,
    pub(super) shuffle: Option<bool>,
    pub(super) file: Option<String>,
    pub(super) drive: Option<Drive>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Background {
    pub(super) load: Unit<Probability>,
    pub(super) sizes: String,
    pub(super) duration: Option<Unit<Duration>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FaultKind {
    Drop,
    Burst,
    Reorder,
    Duplicate,
    Corrupt,
    Delay,
    Down,
    Slow,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Target {
    Data,
    Acks,
    #[default]
    All,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) links: Option<String>,
    #[serde(default)]
    pub(super) packets: Target,
    pub(super) probability: Option<Unit<Probability>>,
    pub(super) end: Option<Unit<Probability>>,
    pub(super) loss: Option<Unit<Probability>>,
    pub(super) length: Option<u32>,
    pub(super) delay: Option<Unit<Duration>>,
    pub(super) displacement: Option<u32>,
    pub(super) jitter: Option<Unit<Duration>>,
    pub(super) rate: Option<Unit<BitRate>>,
    pub(super) from: Option<Unit<Duration>>,
    pub(super) until: Option<Unit<Duration>>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) limit: Option<Unit<Duration>>,
    pub(super) stall_after: Option<Unit<Duration>>,
    pub(super) warmup: Option<Unit<Duration>>,
    pub(super) cooldown: Option<Unit<Duration>>,
    pub(super) slice: Option<Unit<Duration>>,
}

/// The drive of an NVMe workload.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Drive {
    pub(super) read_rate: Unit<BitRate>,
    pub(super) read_latency: Unit<Duration>,
    pub(super) write_rate: Unit<BitRate>,
    pub(super) write_latency: Unit<Duration>,
    pub(super) queue_depth: u32,
    pub(super) reads: Option<String>,
    #[serde(default)]
    pub(super) local: bool,
}
