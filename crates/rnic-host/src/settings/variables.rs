//! The table of variables: name, meaning, and parser of the value.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use rnic_base::limits::{MTU_MAX, MTU_MIN};
use rnic_base::{BitRate, Bytes};
use rnic_engine::{RATE_LIMIT_MIN, WEIGHT_MAX};
use rnic_transports::programs;

use crate::config::NicConfig;
use crate::messages::MessagesConfig;
use crate::protection::Protection;

use super::{Progress, Settings, SettingsError};

/// A user setting.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Name of the option of `rnic run`, without the dashes.
    pub option: &'static str,
    /// Placeholder for its value in help texts.
    pub value: &'static str,
    /// Default value, as users write it.
    pub default: &'static str,
    /// Meaning of the setting.
    pub meaning: &'static str,
    /// Reads a value into the settings, or returns a description of valid values.
    read: fn(&mut Settings, &str) -> Result<(), String>,
}

impl Variable {
    /// Reads `value` into `settings`.
    ///
    /// # Errors
    /// When the value is invalid.
    pub fn set(&self, settings: &mut Settings, value: &str) -> Result<(), SettingsError> {
        let refused = |reason| SettingsError::Value { name: self.name, value: value.to_owned(), reason };
        (self.read)(settings, value).map_err(refused)
    }

    /// Returns whether several values may be given, joined by commas.
    pub fn is_list(&self) -> bool {
        self.name == "RNIC_SET"
    }
}

/// All environment variables that are settings.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "RNIC_TRANSPORT",
        option: "transport",
        value: "NAME",
        default: "irn",
        meaning: "Transport of reliable connections (see `rnic list`); both ends need the same. If several are given, \
                  separated by commas, rdma_cm connections use the first that the other end has too. The first may \
                  be a program file (*.rnicp)",
        read: |settings, text| {
            let mut names = text.split(',').map(|name| name.trim().to_owned());
            settings.transport = names.next().unwrap_or_default();
            settings.fallbacks = names.collect();
            name_transport_of_program(settings)?;
            settings.names_transport = true;
            if settings.fallbacks.len() >= TRANSPORTS_MAX {
                return Err(format!("expected at most {TRANSPORTS_MAX} transports"));
            }
            Ok(())
        },
    },
    Variable {
        name: "RNIC_SET",
        option: "set",
        value: "KEY=VALUE",
        default: "",
        meaning: "Options of the transport, such as rto_high=2ms; see `rnic list`",
        read: read_options,
    },
    Variable {
        name: "RNIC_KEY",
        option: "key",
        value: "[esp:]FILE",
        default: "not encrypted",
        meaning: "Encrypt and authenticate packets of transport falcon with keys derived from the secret in FILE: 32 \
                  random bytes, or 64 hexadecimal digits. The format is PSP, or with esp: IPsec's ESP; psp256: and \
                  esp256: use keys of 256 bits. Both ends need the same secret and prefix",
        read: |settings, text| {
            if text.trim().is_empty() {
                return Err(
                    "no file with a secret is given; name one, or unset the variable to send unencrypted packets"
                        .to_owned(),
                );
            }
            settings.protection = Some(Protection::from_option(Path::new(text.trim()))?);
            Ok(())
        },
    },
    Variable {
        name: MESSAGES,
        option: "messages",
        value: "off|on|grants",
        default: "off",
        meaning: "Exchange messages with the NICs of peers that do so, too: probes of round trips, which \
                  control=swift-rate and paths=probed need, reports of the time that packets wait for this process, \
                  and back-pressure when too many wait. With grants, also limits for those that send to this \
                  process. With RNIC_KEY they are sealed",
        read: |settings, text| {
            settings.messages = match text.trim() {
                "off" => None,
                "on" => Some(MessagesConfig::default()),
                "grants" => Some(MessagesConfig { grants: true, ..MessagesConfig::default() }),
                _ => return Err("expected off, on or grants".to_owned()),
            };
            Ok(())
        },
    },
    Variable {
        name: "RNIC_LOSS",
        option: "loss",
        value: "P",
        default: "0",
        meaning: "Probability that a packet is dropped, independent for each packet that a process sends",
        read: |settings, text| put(&mut settings.impairment.loss, text),
    },
    Variable {
        name: "RNIC_REORDER",
        option: "reorder",
        value: "P",
        default: "0",
        meaning: "Probability that a packet is overtaken by later ones",
        read: |settings, text| put(&mut settings.impairment.reorder, text),
    },
    Variable {
        name: "RNIC_DUPLICATE",
        option: "duplicate",
        value: "P",
        default: "0",
        meaning: "Probability that a packet arrives twice",
        read: |settings, text| put(&mut settings.impairment.duplicate, text),
    },
    Variable {
        name: "RNIC_CORRUPT",
        option: "corrupt",
        value: "P",
        default: "0",
        meaning: "Probability that a packet arrives with one wrong bit, which the receiver's ICRC detects",
        read: |settings, text| put(&mut settings.impairment.corrupt, text),
    },
    Variable {
        name: "RNIC_TRIM",
        option: "trim",
        value: "P",
        default: "0",
        meaning: "Probability that a packet of IRN's format arrives without its payload, as from a switch that trims, \
                  independent for each packet that a process receives. Transports whose receivers do not pull lose it",
        read: |settings, text| put(&mut settings.impairment.trim, text),
    },
    Variable {
        name: "RNIC_MARK",
        option: "mark",
        value: "P",
        default: "0",
        meaning: "Probability that a packet with data arrives with a congestion mark (ECN), independent for each \
                  packet that a process receives",
        read: |settings, text| put(&mut settings.impairment.mark, text),
    },
    Variable {
        name: "RNIC_DELAY",
        option: "delay",
        value: "TIME",
        default: "0",
        meaning: "Additional delay of every packet",
        read: |settings, text| put(&mut settings.impairment.delay, text),
    },
    Variable {
        name: "RNIC_JITTER",
        option: "jitter",
        value: "TIME",
        default: "0",
        meaning: "Maximum of a further delay, drawn at random for each packet",
        read: |settings, text| put(&mut settings.impairment.jitter, text),
    },
    Variable {
        name: "RNIC_RATE",
        option: "rate",
        value: "RATE",
        default: "no limit",
        meaning: "Rate of the slowest link of the path, framing included",
        read: read_rate,
    },
    Variable {
        name: "RNIC_IMPAIR_PATHS",
        option: "impair-paths",
        value: "LIST",
        default: "all",
        meaning: "Source ports whose packets are dropped, delayed and so on: 0 is the port of most packets, 1 to 16 \
                  are further ones, which paths=probed and Falcon's flows use. Numbers and ranges, such as 0,4-6",
        read: |settings, text| put(&mut settings.impairment.paths, text),
    },
    Variable {
        name: "RNIC_RATE_LIMIT",
        option: "rate-limit",
        value: "RATE",
        default: "no limit",
        meaning: "Limit of each queue pair, framing included: the rate at which its data is taken out of memory",
        read: read_rate_limit,
    },
    Variable {
        name: "RNIC_LINK_RATE",
        option: "link-rate",
        value: "RATE",
        default: "no shared link",
        meaning: "Rate of one link that all processes of the user in the network namespace share, framing included; no \
                  packet is lost at it. All of them need the same",
        read: read_link_rate,
    },
    Variable {
        name: "RNIC_WEIGHT",
        option: "weight",
        value: "N",
        default: "1, if it shares",
        meaning: "Weight of the process among those that share the link, from 1 to 1000: schedulers that hold queue \
                  pairs to a capacity (water-filling, static) divide the link by it",
        read: read_weight,
    },
    Variable {
        name: "RNIC_SCHEDULE",
        option: "schedule",
        value: "NAME",
        default: "that of the transport",
        meaning: "Scheduler of the queue pairs (see `rnic list`); the same as --set schedule=NAME",
        read: read_schedule,
    },
    Variable {
        name: SCHEDULE_THREADS,
        option: "schedule-threads",
        value: "0|1|2",
        default: "0",
        meaning: "Threads on which a scheduler that sets rates (water-filling, static) runs, beside the one that sends \
                  and receives; 0 runs it there. For machines with processors to spare",
        read: |settings, text| {
            settings.schedule_threads = match text.trim() {
                "0" => 0,
                "1" => 1,
                "2" => 2,
                _ => return Err("expected 0, 1 or 2".to_owned()),
            };
            Ok(())
        },
    },
    Variable {
        name: "RNIC_SEED",
        option: "seed",
        value: "N",
        default: "1",
        meaning: "Seed that determines which packets are dropped, reordered, duplicated, corrupted, delayed, trimmed \
                  and marked",
        read: |settings, text| {
            let seed = text.trim().parse().map_err(|_| "expected a whole number from 0 to 2^64-1".to_owned());
            settings.impairment.seed = seed?;
            Ok(())
        },
    },
    Variable {
        name: "RNIC_MTU",
        option: "mtu",
        value: "BYTES",
        default: "path MTU",
        meaning: "Maximum payload of a packet on the wire, in bytes; a multiple of 4. Both ends need the same",
        read: read_mtu,
    },
    Variable {
        name: "RNIC_PCAP",
        option: "pcap",
        value: "FILE",
        default: "no capture",
        meaning: "Write a capture of sent and received packets, for Wireshark. %p stands for the process number; \
                  without it, a process that finds FILE in use inserts its number before the extension",
        read: |settings, text| {
            settings.capture = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Variable {
        name: "RNIC_LATENCIES",
        option: "latencies",
        value: "on|off",
        default: "off",
        meaning: "Measure where each operation spends its time, for `rnic top` and Prometheus: before its turn, behind \
                  the window, and from its first packet to its completion",
        read: |settings, text| switch(&mut settings.latencies, text),
    },
    Variable {
        name: "RNIC_PEERS",
        option: "peers",
        value: "rnic|roce",
        default: "rnic",
        meaning: "Type of the peers: OpenRNIC processes (rnic), or RoCEv2 adapters and Linux's rdma_rxe (roce). With \
                  roce one process alone uses port 4791, and the transport is roce-gbn",
        read: |settings, text| {
            settings.real_roce_peers = match text.trim() {
                "rnic" => false,
                "roce" => true,
                _ => return Err("expected rnic or roce".to_owned()),
            };
            Ok(())
        },
    },
    Variable {
        name: "RNIC_LIDS",
        option: "lids",
        value: "refused|loopback",
        default: "refused",
        meaning: "Meaning of an address without a GID, as programs for InfiniBand use it (qperf): an error, as on any \
                  Ethernet adapter, or this host",
        read: |settings, text| {
            settings.lids_are_loopback = match text.trim() {
                "refused" => false,
                "loopback" => true,
                _ => return Err("expected refused or loopback".to_owned()),
            };
            Ok(())
        },
    },
    Variable {
        name: "RNIC_BYPASS",
        option: "bypass",
        value: "on|off",
        default: "on",
        meaning: "Use shared memory instead of UDP between processes on one host, unless impairment or a capture is \
                  requested",
        read: |settings, text| switch(&mut settings.bypass, text),
    },
    Variable {
        name: "RNIC_PROGRESS",
        option: "progress",
        value: "MODE",
        default: "auto",
        meaning: "Progress while the program does not call the library: auto (by a thread, and by a signal to threads \
                  that spin on memory), thread (no signals), off (none)",
        read: read_progress,
    },
    Variable {
        name: "RNIC_SEGMENTATION",
        option: "segmentation",
        value: "on|off",
        default: "on",
        meaning: "Let the kernel split trains into packets (GSO), if it can",
        read: |settings, text| switch(&mut settings.segmentation, text),
    },
    Variable {
        name: "RNIC_RECEIVE_OFFLOAD",
        option: "receive-offload",
        value: "on|off",
        default: "on",
        meaning: "Let the kernel deliver packets in trains (GRO), if it can",
        read: |settings, text| switch(&mut settings.receive_offload, text),
    },
    Variable {
        name: "RNIC_QUIET",
        option: "quiet",
        value: "on|off",
        default: "off",
        meaning: "Do not print the line about the device, nor later events, on standard error",
        read: |settings, text| switch(&mut settings.quiet, text),
    },
];

/// Name of the variable of the number of threads of schedulers.
pub(super) const SCHEDULE_THREADS: &str = "RNIC_SCHEDULE_THREADS";

/// Name of the variable of messages between NICs.
pub(super) const MESSAGES: &str = "RNIC_MESSAGES";

/// Maximum number of transports in a list: as many as fit into a connection request.
const TRANSPORTS_MAX: usize = 4;

fn put<T: FromStr<Err: ToString>>(setting: &mut T, text: &str) -> Result<(), String> {
    *setting = text.parse().map_err(|error: T::Err| error.to_string())?;
    Ok(())
}

fn switch(setting: &mut bool, text: &str) -> Result<(), String> {
    *setting = match text.trim() {
        "on" => true,
        "off" => false,
        _ => return Err("expected on or off".to_owned()),
    };
    Ok(())
}

/// Replaces a program file that is given as the first transport by the name of the transport that the program needs,
/// which the other end knows, and by the option that names the file.
fn name_transport_of_program(settings: &mut Settings) -> Result<(), String> {
    if let Some(file) = settings.fallbacks.iter().find(|name| programs::is_file(name)) {
        return Err(format!("{file} is not the first transport; only the first one may be a program file"));
    }
    if programs::is_file(&settings.transport) {
        let profile = rnic_transports::select(&settings.transport, []).map_err(|error| error.to_string())?;
        let path = std::mem::replace(&mut settings.transport, profile.name.to_owned());
        settings.options.push(("program".to_owned(), path));
    }
    Ok(())
}

fn read_options(settings: &mut Settings, text: &str) -> Result<(), String> {
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let option = part.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        let option = option.filter(|(key, value)| !key.is_empty() && !value.is_empty());
        settings
            .options
            .push(option.ok_or_else(|| "expected KEY=VALUE, or several of these separated by commas".to_owned())?);
    }
    Ok(())
}

fn read_rate(settings: &mut Settings, text: &str) -> Result<(), String> {
    let rate: BitRate = text.parse().map_err(|error: rnic_base::UnitError| error.to_string())?;
    if rate == BitRate::ZERO {
        return Err("the rate must be above zero".to_owned());
    }
    settings.impairment.rate = Some(rate);
    Ok(())
}

fn read_rate_limit(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.rate_limit = Some(rate_of_device(text)?);
    Ok(())
}

fn read_link_rate(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.link_rate = Some(rate_of_device(text)?);
    Ok(())
}

/// Parses a rate that the device can keep.
fn rate_of_device(text: &str) -> Result<BitRate, String> {
    let rate: BitRate = text.parse().map_err(|error: rnic_base::UnitError| error.to_string())?;
    let (min, max) = (RATE_LIMIT_MIN, NicConfig::default().line_rate);
    if (min..=max).contains(&rate) { Ok(rate) } else { Err(format!("expected a rate between {min} and {max}")) }
}

fn read_weight(settings: &mut Settings, text: &str) -> Result<(), String> {
    let weight = text.trim().parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    settings.weight = Some(weight.ok_or_else(|| format!("expected a whole number from 1 to {WEIGHT_MAX}"))?);
    Ok(())
}

fn read_schedule(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.options.push(("schedule".to_owned(), text.trim().to_owned()));
    Ok(())
}

fn read_mtu(settings: &mut Settings, text: &str) -> Result<(), String> {
    let bytes = text.parse::<Bytes>().map_err(|error| error.to_string())?.get();
    let mtu = u32::try_from(bytes).ok().filter(|mtu| (MTU_MIN..=MTU_MAX).contains(mtu) && mtu.is_multiple_of(4));
    settings.mtu_max_bytes =
        Some(mtu.ok_or_else(|| format!("expected a multiple of 4 between {MTU_MIN} and {MTU_MAX}"))?);
    Ok(())
}

fn read_progress(settings: &mut Settings, text: &str) -> Result<(), String> {
    let mode = Progress::ALL.into_iter().find(|mode| mode.name() == text.trim());
    settings.progress = mode.ok_or_else(|| "expected auto, thread or off".to_owned())?;
    Ok(())
}

/// Returns an error for a name that is probably mistyped; other names that begin with `RNIC_` are ignored.
pub(super) fn reject_mistyped(name: &str) -> Result<(), SettingsError> {
    if !name.starts_with("RNIC_") {
        return Ok(());
    }
    match VARIABLES.iter().find(|variable| is_one_edit_apart(variable.name, name)) {
        Some(variable) => Err(SettingsError::Unknown { found: name.to_owned(), meant: variable.name }),
        None => Ok(()),
    }
}

/// Returns whether `a` and `b` differ by one added, removed or replaced character.
fn is_one_edit_apart(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let same_front = short.iter().zip(long).take_while(|(x, y)| x == y).count();
    match long.len() - short.len() {
        0 => same_front == long.len() || short[same_front + 1..] == long[same_front + 1..],
        1 => short[same_front..] == long[same_front + 1..],
        _ => false,
    }
}
