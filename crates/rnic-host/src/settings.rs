//! User settings: the `RNIC_*` environment variables, with which unmodified programs are started.
//!
//! One table ([`VARIABLES`]) defines all of them. `rnic run` derives its options from it, `rnic doctor` prints it,
//! and the library that is loaded into unmodified programs reads the settings with [`Settings::from_environment`]. An
//! invalid value is an error that names the variable; it is never replaced by a default.

mod capture;
mod describe;
mod offloads;
mod variables;

use std::fmt;
use std::path::PathBuf;

use rnic_base::{BitRate, Probability};

pub use capture::CaptureFile;
use variables::{MESSAGES, SCHEDULE_THREADS};
pub use variables::{VARIABLES, Variable};

use crate::config::NicConfig;
use crate::defaults::{ROCE_TRANSPORT, TransportChoice};
use crate::impair::Impairment;
use crate::messages::MessagesConfig;
use crate::protection::Protection;
use crate::share::ShareConfig;
use crate::sys;

/// Settings of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Name of the preferred transport of reliable connections, which is offered to peers first.
    pub transport: String,
    /// Other acceptable transports, for peers that do not support the first one; see [`Settings::fallback_choices`].
    pub fallbacks: Vec<String>,
    /// True when the user has named a transport.
    pub names_transport: bool,
    /// Options of the transport.
    pub options: Vec<(String, String)>,
    /// Impairment of the packets that every process sends.
    pub impairment: Impairment,
    /// Operator's limit of the dequeue rate of each queue pair; `None` for none.
    pub rate_limit: Option<BitRate>,
    /// Rate of the link that the processes of the user share; `None` when this process draws from none.
    pub link_rate: Option<BitRate>,
    /// Weight of this process among the processes that share the link; `None` when it is not given.
    pub weight: Option<u16>,
    /// Number of threads on which schedulers that set rates run; with 0 they run on the threads that send and receive.
    pub schedule_threads: usize,
    /// Largest wire MTU (payload bytes of a full packet); `None` uses the largest that the path carries.
    pub mtu_max_bytes: Option<u32>,
    /// Protection of Falcon packets.
    pub protection: Option<Protection>,
    /// Messages with the NICs of peers; `None` exchanges none.
    pub messages: Option<MessagesConfig>,
    /// Measure the parts of the latency of each send request, for monitoring.
    pub latencies: bool,
    /// Path of the capture file; see [`Settings::open_capture`].
    pub capture: Option<PathBuf>,
    /// True when the peers are adapters from other vendors.
    pub real_roce_peers: bool,
    /// True when an address without a GID denotes this host.
    pub lids_are_loopback: bool,
    /// True when packets between processes on one host may go through shared memory instead of UDP.
    pub bypass: bool,
    /// Mechanism that drives the NIC while the program does not call the library.
    pub progress: Progress,
    /// True to let the kernel split buffers into packets (GSO), if it can.
    pub segmentation: bool,
    /// True to let the kernel merge received packets into large buffers (GRO), if it can.
    pub receive_offload: bool,
    /// True to suppress the description of the device at the start, and later the texts of [`crate::Notice`].
    pub quiet: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let NicConfig { real_roce_peers, segmentation, receive_offload, .. } = NicConfig::default();
        Self {
            transport: DEFAULT_TRANSPORT.to_owned(),
            fallbacks: Vec::new(),
            names_transport: false,
            options: Vec::new(),
            impairment: Impairment { rate_queue_bytes: RATE_QUEUE_BYTES, ..Impairment::default() },
            rate_limit: None,
            link_rate: None,
            weight: None,
            schedule_threads: 0,
            mtu_max_bytes: None,
            protection: None,
            messages: None,
            latencies: false,
            capture: None,
            real_roce_peers,
            lids_are_loopback: false,
            bypass: true,
            progress: Progress::Auto,
            segmentation,
            receive_offload,
            quiet: false,
        }
    }
}

/// The mechanism that drives the device while the program does not call the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// A thread drives the device; in addition, threads of the program that use processor time outside the library
    /// are interrupted by a signal to drive it.
    #[default]
    Auto,
    /// Only a thread drives the device: the program is never interrupted by a signal.
    Thread,
    /// None: the device makes progress only when the program calls the library.
    Off,
}

impl Progress {
    /// All modes of driving the NIC.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Thread, Self::Off];

    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Thread => "thread",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error in a setting, displayed as one line that names the setting and the valid values.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// A variable has an invalid value.
    #[error("{name}={value}: {reason}")]
    Value {
        /// Name of the variable.
        name: &'static str,
        /// Value of the variable.
        value: String,
        /// Description of the error, and of valid values.
        reason: String,
    },
    /// A variable that is set does not exist, but its name is similar to one that does.
    #[error("unknown setting {found}; the most similar one is {meant}; `rnic doctor` lists all settings")]
    Unknown {
        /// The name that was set.
        found: String,
        /// Similar name of a setting that exists.
        meant: &'static str,
    },
    /// The transport, or one of its options, does not exist or is invalid.
    #[error(
        "RNIC_TRANSPORT={transport}{}: {reason}; `rnic list` shows all transports and options",
        options_part(options)
    )]
    Transport {
        /// Name of the requested transport.
        transport: String,
        /// The requested options, as users write them.
        options: String,
        /// Description of the error.
        reason: String,
    },
    /// The capture file cannot be written.
    #[error("RNIC_PCAP={path}: {reason}; name a file in a writable folder")]
    Capture {
        /// Path of the file.
        path: String,
        /// Error that the system reported.
        reason: String,
    },
}

fn options_part(options: &str) -> String {
    if options.is_empty() { String::new() } else { format!(" RNIC_SET={options}") }
}

impl Settings {
    /// Returns the settings in the environment of this process. A program that runs with another user's rights than its
    /// caller's (set-user-ID, file capabilities) ignores the environment, because otherwise the caller would choose
    /// which files it writes.
    ///
    /// # Errors
    /// When a variable has an invalid value, or one is set whose name is similar to that of a defined variable.
    pub fn from_environment() -> Result<Self, SettingsError> {
        if sys::has_more_rights_than_caller() {
            return Ok(Self::default());
        }
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self::from_variables(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// Returns the settings in `variables`; those whose names do not begin with `RNIC_` are ignored.
    ///
    /// # Errors
    /// As [`Settings::from_environment`].
    pub fn from_variables(
        variables: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
    ) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        for (name, value) in variables {
            let (name, value) = (name.as_ref(), value.as_ref());
            match VARIABLES.iter().find(|variable| variable.name == name) {
                Some(variable) => settings.put(variable, value)?,
                None => variables::reject_mistyped(name)?,
            }
        }
        settings.settle_transport();
        settings.check()?;
        Ok(settings)
    }

    /// Applies `value`, read from the environment, to the setting `variable`.
    pub(crate) fn put(&mut self, variable: &Variable, value: &str) -> Result<(), SettingsError> {
        // In a shell, an empty value is the way to unset a variable for a single command. A key is an exception: an
        // intended but empty key must not make the process send unencrypted packets.
        if value.is_empty() && variable.name != "RNIC_KEY" { Ok(()) } else { variable.set(self, value) }
    }

    /// Selects the transport for real RoCEv2 peers, which support only one. It is selected when the user's list
    /// contains it, or when the user has named no transport.
    fn settle_transport(&mut self) {
        if self.real_roce_peers && (!self.names_transport || self.fallbacks.iter().any(|name| name == ROCE_TRANSPORT)) {
            ROCE_TRANSPORT.clone_into(&mut self.transport);
            self.fallbacks.clear();
        }
    }

    /// Checks the settings that are invalid only in combination, which cannot be checked for single variables.
    fn check(&self) -> Result<(), SettingsError> {
        let mut schedulers = self.options.iter().filter(|(key, _)| key == "schedule").map(|(_, value)| value);
        if let Some(first) = schedulers.next()
            && let Some(other) = schedulers.find(|name| *name != first)
        {
            return Err(SettingsError::Transport {
                transport: self.transport.clone(),
                options: self.options_text(),
                reason: format!("there are two schedulers, {first} and {other}; name one (RNIC_SCHEDULE, RNIC_SET)"),
            });
        }
        let choice = self.transport_choice()?;
        let fallbacks = self.fallback_choices()?;
        let is_falcon = |choice: &TransportChoice| choice.profile.protocol.falcon().is_some();
        if !fallbacks.is_empty() && fallbacks.iter().chain([&choice]).any(is_falcon) {
            return Err(SettingsError::Transport {
                transport: self.transport_list(),
                options: String::new(),
                reason: "falcon cannot be combined with other transports, because its queue pairs have a different \
                     structure"
                    .to_owned(),
            });
        }
        if self.protection.is_some() && choice.profile.protocol.falcon().is_none() {
            return Err(SettingsError::Transport {
                transport: self.transport.clone(),
                options: String::new(),
                reason: "RNIC_KEY encrypts only packets of falcon; set RNIC_TRANSPORT=falcon, or unset RNIC_KEY"
                    .to_owned(),
            });
        }
        let schedule = &choice.profile.schedule;
        if self.schedule_threads > 0 && !(schedule.policy.uses_events)(&schedule.params) {
            let name = schedule.policy.name;
            let reason = format!(
                "the scheduler {name} sets no rates, so there is nothing to run on threads; set \
                 RNIC_SCHEDULE=water-filling, or unset the threads"
            );
            let value = self.schedule_threads.to_string();
            return Err(SettingsError::Value { name: SCHEDULE_THREADS, value, reason });
        }
        if self.messages.is_some() && self.real_roce_peers {
            let reason =
                "RoCEv2 adapters of other vendors (RNIC_PEERS=roce) know no such messages; unset one of the two";
            return Err(SettingsError::Value { name: MESSAGES, value: "on".to_owned(), reason: reason.to_owned() });
        }
        if self.real_roce_peers && self.transport != ROCE_TRANSPORT {
            return Err(SettingsError::Transport {
                transport: self.transport.clone(),
                options: String::new(),
                reason: format!("RoCEv2 adapters of other vendors (RNIC_PEERS=roce) support only {ROCE_TRANSPORT}"),
            });
        }
        Ok(())
    }

    /// Returns all transports that are offered, as users write them.
    pub fn transport_list(&self) -> String {
        [std::slice::from_ref(&self.transport), &self.fallbacks].concat().join(",")
    }

    /// Returns the transports for connections whose other end does not support the first one, in order of preference.
    /// The options apply to the first one only.
    ///
    /// # Errors
    /// When there is no such transport.
    pub fn fallback_choices(&self) -> Result<Vec<TransportChoice>, SettingsError> {
        let choice = |name: &String| {
            TransportChoice::named(name, &[]).map_err(|error| SettingsError::Transport {
                transport: self.transport_list(),
                options: String::new(),
                reason: error.to_string(),
            })
        };
        self.fallbacks.iter().map(choice).collect()
    }

    /// Returns the transport of reliable connections, with the timeouts of this crate.
    ///
    /// # Errors
    /// When there is no such transport, or it does not have one of the options.
    pub fn transport_choice(&self) -> Result<TransportChoice, SettingsError> {
        let options: Vec<(&str, &str)> =
            self.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let choice = match self.real_roce_peers && self.transport == ROCE_TRANSPORT {
            true => TransportChoice::for_roce_peers(&options),
            false if self.messages.is_some() => TransportChoice::with_messages(&self.transport, &options),
            false => TransportChoice::named(&self.transport, &options),
        };
        choice.map_err(|error| SettingsError::Transport {
            transport: self.transport.clone(),
            options: self.options_text(),
            reason: error.to_string(),
        })
    }

    /// Returns `config` with these settings applied: impairment, wire MTU, offloads, and a name for the random streams
    /// of the seed.
    pub fn to_nic_config(&self, config: NicConfig) -> NicConfig {
        NicConfig {
            name: self.stream_name(&config.name),
            rate_limit: self.rate_limit,
            share: self.share(),
            schedule_threads: self.schedule_threads,
            mtu_max_bytes: self.mtu_max_bytes.unwrap_or(config.mtu_max_bytes),
            real_roce_peers: self.real_roce_peers,
            marks_congestion: self.reacts_to_ecn(),
            bypass: self.allows_bypass(),
            segmentation: self.segmentation,
            receive_offload: self.receive_offload,
            carries_falcon: self.carries_falcon(),
            protection: self.protection.clone(),
            messages: self.messages,
            latencies: self.latencies,
            impairment: self.impairment,
            ..config
        }
    }

    /// Returns the settings by which this process shares a link; `None` if the user has requested none.
    fn share(&self) -> Option<ShareConfig> {
        (self.link_rate.is_some() || self.weight.is_some()).then(|| ShareConfig {
            weight: self.weight.unwrap_or(1),
            link_rate: self.link_rate,
            ..ShareConfig::default()
        })
    }

    /// Returns whether reliable connections use Falcon.
    fn carries_falcon(&self) -> bool {
        self.transport_choice().is_ok_and(|choice| choice.profile.protocol.falcon().is_some())
    }

    /// Returns whether reliable connections send, and react to, congestion notifications.
    fn reacts_to_ecn(&self) -> bool {
        self.transport_choice().is_ok_and(|choice| choice.reacts_to_ecn())
    }

    /// Returns whether packets between processes on one host may bypass UDP through shared memory: not when packets are
    /// to be impaired or captured.
    pub fn allows_bypass(&self) -> bool {
        self.bypass && self.impairment.is_none() && self.capture.is_none()
    }

    /// Returns a name that selects this process's random streams. Both ends of a connection have the same seed, but
    /// their emulated losses must be independent. The command line and the rank in a parallel job identify a process,
    /// and are the same when a run is repeated.
    fn stream_name(&self, device: &str) -> String {
        let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let rank = RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
        format!("{device}/{}/{rank}", String::from_utf8_lossy(&command))
    }

    fn options_text(&self) -> String {
        self.options.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }

    /// Returns whether the impairment is random, so that the seed has an effect.
    fn is_impairment_random(&self) -> bool {
        let Impairment { loss, corrupt, duplicate, reorder, jitter, trim, mark, .. } = self.impairment;
        [loss, corrupt, duplicate, reorder, trim, mark].iter().any(|chance: &Probability| !chance.is_never())
            || jitter > rnic_base::Duration::ZERO
    }
}

/// Default transport of unmodified programs.
const DEFAULT_TRANSPORT: &str = "irn";

/// Bytes that may wait for an emulated slow link: more than transports have in flight, so that packets are dropped
/// according to `RNIC_LOSS` only.
const RATE_QUEUE_BYTES: u64 = 16 << 20;

/// Variables in which Open MPI, PMIx, MPICH and Slurm pass a process its rank.
const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
