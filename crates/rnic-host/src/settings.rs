//! What people set: the `RNIC_*` variables, which programs that know nothing of us are started with.
//!
//! One table ([`VARIABLES`]) says what there is. `rnic run` makes its options from it, `rnic doctor` prints it, and the
//! library under unmodified programs reads it by [`Settings::from_environment`]. A mistake is an error that names the
//! variable, never a default in its place.

mod capture;
mod describe;
mod offloads;
mod variables;

use std::fmt;
use std::path::PathBuf;

use rnic_base::Probability;

pub use capture::CaptureFile;
pub use variables::{VARIABLES, Variable};

use crate::config::NicConfig;
use crate::defaults::{ROCE_TRANSPORT, TransportChoice};
use crate::impair::Impairment;
use crate::protection::Protection;
use crate::sys;

/// What a program was started with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Name of the transport of reliable connections: the first of those that are offered.
    pub transport: String,
    /// Others that will do, where the other end lacks it; see [`Settings::fallback_choices`].
    pub fallbacks: Vec<String>,
    /// Somebody has named a transport.
    pub names_transport: bool,
    /// Its options.
    pub options: Vec<(String, String)>,
    /// The bad network, on what every process sends.
    pub impairment: Impairment,
    /// Largest wire MTU: payload bytes of a full packet; `None` is as much as the path carries.
    pub mtu_max_bytes: Option<u32>,
    /// What Falcon's packets are protected with.
    pub protection: Option<Protection>,
    /// Where to capture; see [`Settings::open_capture`].
    pub capture: Option<PathBuf>,
    /// Peers are adapters of other makes.
    pub real_roce_peers: bool,
    /// An address without a GID is this host.
    pub lids_are_loopback: bool,
    /// Processes on one host may go past UDP.
    pub bypass: bool,
    /// Who works when the program does not call the library.
    pub progress: Progress,
    /// Let the kernel cut trains into packets, if it can.
    pub segmentation: bool,
    /// Let the kernel hand over trains of packets, if it can.
    pub receive_offload: bool,
    /// Say neither at the start what the device is, nor later what a [`crate::Notice`] says.
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
            mtu_max_bytes: None,
            protection: None,
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

/// Who drives the device while the program does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// A thread; and a signal to threads of the program that burn time outside of the library.
    #[default]
    Auto,
    /// A thread alone: no signal ever interrupts the program.
    Thread,
    /// Nobody: things happen when the program calls the library.
    Off,
}

impl Progress {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Thread, Self::Off];

    /// As people write it.
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

/// What is wrong with a setting: one line, with where it stands and what would do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// A variable has a value that it cannot have.
    #[error("{name}={value}: {reason}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it says.
        value: String,
        /// What is wrong with it, and what would do.
        reason: String,
    },
    /// A variable that does not exist but looks as if somebody meant one that does.
    #[error("{found} is no setting; did you mean {meant}? `rnic doctor` lists all of them")]
    Unknown {
        /// What was set.
        found: String,
        /// What is near.
        meant: &'static str,
    },
    /// The transport, or one of its options, does not exist or cannot be so.
    #[error("RNIC_TRANSPORT={transport}{}: {reason}; `rnic list` has what there is", options_part(options))]
    Transport {
        /// The transport that was asked for.
        transport: String,
        /// The options that were asked for, as one writes them.
        options: String,
        /// What is wrong.
        reason: String,
    },
    /// The capture cannot be written.
    #[error("RNIC_PCAP={path}: {reason}; name a file in a folder that you may write to")]
    Capture {
        /// Where.
        path: String,
        /// What the system says.
        reason: String,
    },
}

fn options_part(options: &str) -> String {
    if options.is_empty() { String::new() } else { format!(" RNIC_SET={options}") }
}

impl Settings {
    /// What the environment of this process says. A program that runs with another user's rights than its caller's
    /// (set-user-ID, file capabilities) takes nothing from it: the caller would choose which files it writes.
    ///
    /// # Errors
    /// When a variable has an illegal value, or one is set that is nearly a name of ours.
    pub fn from_environment() -> Result<Self, SettingsError> {
        if sys::has_more_rights_than_caller() {
            return Ok(Self::default());
        }
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self::from_variables(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// What `variables` say; those that do not begin with `RNIC_` are somebody else's.
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
                None => variables::refuse_near_miss(name)?,
            }
        }
        settings.settle_transport();
        settings.check()?;
        Ok(settings)
    }

    /// Takes in what the environment has for `variable`.
    pub(crate) fn put(&mut self, variable: &Variable, value: &str) -> Result<(), SettingsError> {
        // An empty variable is how shells unset one for a single command. Not so a key: who meant to have one would
        // send in clear.
        if value.is_empty() && variable.name != "RNIC_KEY" { Ok(()) } else { variable.set(self, value) }
    }

    /// Real RoCEv2 peers speak one transport alone: it is taken when the list has it, or nobody has named one.
    fn settle_transport(&mut self) {
        if self.real_roce_peers && (!self.names_transport || self.fallbacks.iter().any(|name| name == ROCE_TRANSPORT)) {
            ROCE_TRANSPORT.clone_into(&mut self.transport);
            self.fallbacks.clear();
        }
    }

    /// What no single variable can say: that they fit together.
    fn check(&self) -> Result<(), SettingsError> {
        let choice = self.transport_choice()?;
        let fallbacks = self.fallback_choices()?;
        let is_falcon = |choice: &TransportChoice| choice.profile.protocol.falcon().is_some();
        if !fallbacks.is_empty() && fallbacks.iter().chain([&choice]).any(is_falcon) {
            return Err(SettingsError::Transport {
                transport: self.transport_list(),
                options: String::new(),
                reason: "falcon cannot be one of several: its queue pairs are made of something else".to_owned(),
            });
        }
        if self.protection.is_some() && choice.profile.protocol.falcon().is_none() {
            return Err(SettingsError::Transport {
                transport: self.transport.clone(),
                options: String::new(),
                reason: "RNIC_KEY protects packets of falcon only".to_owned(),
            });
        }
        if self.real_roce_peers && self.transport != ROCE_TRANSPORT {
            return Err(SettingsError::Transport {
                transport: self.transport.clone(),
                options: String::new(),
                reason: format!("adapters of other makes (RNIC_PEERS=roce) speak {ROCE_TRANSPORT} only"),
            });
        }
        Ok(())
    }

    /// All transports that are offered, as people write them.
    pub fn transport_list(&self) -> String {
        [std::slice::from_ref(&self.transport), &self.fallbacks].concat().join(",")
    }

    /// Transports for connections whose other end lacks the first one, best first. Options are the first one's.
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

    /// The transport of reliable connections, with the timeouts of this room.
    ///
    /// # Errors
    /// When there is no such transport, or an option is not one of its.
    pub fn transport_choice(&self) -> Result<TransportChoice, SettingsError> {
        let options: Vec<(&str, &str)> =
            self.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let choice = match self.real_roce_peers && self.transport == ROCE_TRANSPORT {
            true => TransportChoice::for_roce_peers(&options),
            false => TransportChoice::named(&self.transport, &options),
        };
        choice.map_err(|error| SettingsError::Transport {
            transport: self.transport.clone(),
            options: self.options_text(),
            reason: error.to_string(),
        })
    }

    /// `config`, with what is set: impairment, wire MTU, offloads, and a name for what is drawn from the seed.
    pub fn to_nic_config(&self, config: NicConfig) -> NicConfig {
        NicConfig {
            name: self.stream_name(&config.name),
            mtu_max_bytes: self.mtu_max_bytes.unwrap_or(config.mtu_max_bytes),
            real_roce_peers: self.real_roce_peers,
            marks_congestion: self.heeds_marks(),
            bypass: self.allows_bypass(),
            segmentation: self.segmentation,
            receive_offload: self.receive_offload,
            carries_falcon: self.carries_falcon(),
            protection: self.protection.clone(),
            impairment: self.impairment,
            ..config
        }
    }

    /// Whether reliable connections speak Falcon.
    fn carries_falcon(&self) -> bool {
        self.transport_choice().is_ok_and(|choice| choice.profile.protocol.falcon().is_some())
    }

    /// Returns whether reliable connections send, and heed, notifications of congestion.
    fn heeds_marks(&self) -> bool {
        self.transport_choice().is_ok_and(|choice| choice.heeds_marks())
    }

    /// Whether processes on one host may go past UDP: not when packets shall be impaired or seen.
    pub fn allows_bypass(&self) -> bool {
        self.bypass && self.impairment.is_none() && self.capture.is_none()
    }

    /// Both ends of a connection have the same seed; they must not lose the same packets. What tells processes apart,
    /// and is the same when somebody repeats a run, is their command line and their rank in a parallel job.
    fn stream_name(&self, device: &str) -> String {
        let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let rank = RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
        format!("{device}/{}/{rank}", String::from_utf8_lossy(&command))
    }

    fn options_text(&self) -> String {
        self.options.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }

    /// Whether packets are left to chance, so that the seed says something.
    fn leaves_to_chance(&self) -> bool {
        let Impairment { loss, corrupt, duplicate, reorder, jitter, .. } = self.impairment;
        [loss, corrupt, duplicate, reorder].iter().any(|chance: &Probability| !chance.is_never())
            || jitter > rnic_base::Duration::ZERO
    }
}

/// What unmodified programs get when nobody says anything else.
const DEFAULT_TRANSPORT: &str = "irn";

/// Bytes that wait for a slow link: more than transports have in flight, for what gets lost is up to `RNIC_LOSS`.
const RATE_QUEUE_BYTES: u64 = 16 << 20;

/// How Open MPI, PMIx, MPICH and Slurm tell a process its rank.
const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
