//! Settings of the messages between NICs.

use core::num::NonZeroU64;

use rnic_base::{BitRate, Duration};
use rnic_wire::Qpn;

use super::cadence::{Modes, PERIODS};
use super::limit::Bounds;
use super::pressure;

/// Selection of the queue pairs to which a receiver grants sending rates (SCR mechanism S-25).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GrantScope {
    /// None: no grants are sent.
    #[default]
    Off,
    /// The queue pairs that the driver has chosen ([`crate::Messages::grant_to`]).
    Chosen,
    /// All queue pairs that receive data.
    All,
}

/// Limit of the rate at which a NIC responds to the messages of one peer, although they carry the right cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerLimit {
    /// Time after which another response is permitted.
    pub interval: Duration,
    /// Maximum number of answers sent at once.
    pub burst: u64,
}

impl AnswerLimit {
    /// The limit on a real network: 936 answers per second, at most 60 at once. Announcements have a separate limit.
    pub const HOSTILE: Self = Self { interval: Duration::from_ps(1_000_000_000_000 / (1_000 - 64)), burst: 60 };

    /// No limit, for a network whose NICs are all known: simulations.
    pub const NONE: Self = Self { interval: Duration::from_ps(1), burst: u32::MAX as u64 };
}

impl Default for AnswerLimit {
    fn default() -> Self {
        Self::HOSTILE
    }
}

/// Settings of the messages that a NIC exchanges with its peers.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeConfig {
    /// Times at which the NIC reports its load to each peer (SCR mechanism S-7).
    pub modes: Modes,
    /// Period of reports and grants.
    pub period: Duration,
    /// Round trip of a path until one is measured.
    pub round_trip: Duration,
    /// Queue pairs to which rates are granted.
    pub credits: GrantScope,
    /// Number of bytes queued for the host above which senders are notified (SCR mechanism S-26); `None` sends no
    /// back-pressure.
    pub pressure_bytes: Option<u64>,
    /// Interval between probes of the path of each queue pair that sends; `None` to send only probes that policies
    /// request (SCR mechanism S-8).
    pub probe_interval: Option<Duration>,
    /// Time after which an unanswered probe of the driver counts as lost.
    pub probe_timeout: Duration,
    /// Minimum timeout of probes that policies request: between NICs in processes, a response is delayed until the
    /// other process is scheduled.
    pub probe_timeout_min: Duration,
    /// Round trips of the queue pair that are added to this shortest time.
    pub probe_timeout_round_trips: u64,
    /// Minimum time between two probes that the path policies of this NIC send to one peer NIC, whatever the number of
    /// queue pairs, because the peer limits its answers. The driver does not probe these queue pairs in addition.
    /// `None` for no limit.
    pub path_probe_spacing: Option<Duration>,
    /// True if labels are source ports from which data is accepted only after the peer has announced them (rule 6 of
    /// [`super::peer`]).
    pub takes_labels: bool,
    /// Rate of the link in front of the port, which grants divide, and at which limits by messages start; `None` for
    /// the rate of the engine.
    pub shared_line: Option<BitRate>,
    /// Lowest rate that is granted, and to which a peer can limit a queue pair; `None` for 1 % of the link, divided by
    /// the queue pairs to the peer.
    pub floor: Option<BitRate>,
    /// Growth of a rate in each round trip after back-pressure.
    pub step: BitRate,
    /// Rate limit of the answers to a peer.
    pub answers: AnswerLimit,
    /// Seed of the random jitter, and of the cookies if the driver does not supply cookies.
    pub seed: u64,
    /// Supplies cookies that cannot be predicted, or none, and then no messages are exchanged with the peer; `None` in
    /// simulations.
    pub draw_cookie: Option<fn() -> Option<NonZeroU64>>,
    /// Maps the number of a peer's queue pair to the number of its NIC ([`crate::NicId`]).
    pub nic_of: fn(Qpn) -> u16,
    /// True if a queue pair exchanges messages only after [`crate::Messages::agree`]: peers that do not support the
    /// messages receive none.
    pub waits_for_agreement: bool,
    /// Time between two greetings of a peer; `None` for 64 periods.
    pub greeting_interval: Option<Duration>,
    /// True if no period starts while nothing arrives and no grant is valid, and if peers that send no data receive no
    /// periodic reports, so that an idle process can sleep.
    pub rests_when_idle: bool,
    /// Maximum delay in the host of a peer that is believed.
    pub host_delay_max: Duration,
    /// True when messages wait for the host as packets do, so that the round trips of probes contain the hosts' delays.
    pub probes_wait_for_hosts: bool,
}

impl Default for ExchangeConfig {
    /// Everything off, with the timing of a data centre.
    fn default() -> Self {
        Self {
            modes: Modes::default(),
            period: Duration::from_us(20),
            round_trip: Duration::from_us(20),
            credits: GrantScope::Off,
            pressure_bytes: None,
            probe_interval: None,
            probe_timeout: Duration::from_us(100),
            probe_timeout_min: Duration::ZERO,
            probe_timeout_round_trips: 0,
            path_probe_spacing: None,
            takes_labels: false,
            shared_line: None,
            floor: None,
            step: Bounds::STEP,
            answers: AnswerLimit::default(),
            seed: 0,
            draw_cookie: None,
            nic_of: |_| 0,
            waits_for_agreement: false,
            greeting_interval: None,
            rests_when_idle: false,
            host_delay_max: HOST_DELAY_MAX,
            probes_wait_for_hosts: false,
        }
    }
}

/// Maximum delay in the host of a peer that is believed, unless a driver chooses otherwise: more than the latency of
/// any bus, and no reason to send slower for longer.
const HOST_DELAY_MAX: Duration = Duration::from_ms(1);

impl ExchangeConfig {
    /// Returns the settings with all times limited to 1 us to 10 s: with a period of zero, a timeout would be due again
    /// immediately.
    pub(super) fn bounded(self) -> Self {
        let [shortest, longest] = PERIODS;
        let bound = |time: Duration| time.clamp(shortest, longest);
        Self {
            period: bound(self.period),
            round_trip: bound(self.round_trip),
            probe_interval: self.probe_interval.map(bound),
            probe_timeout: bound(self.probe_timeout),
            path_probe_spacing: self.path_probe_spacing.map(bound),
            ..self
        }
    }

    /// Bytes that may wait before back-pressure is sent, unless a driver chooses otherwise.
    pub const PRESSURE_BYTES: u64 = pressure::THRESHOLD_BYTES;
}
