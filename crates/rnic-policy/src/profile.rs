//! Profiles: a transport is a composition of policies and protocol options, under a name.

use std::borrow::Cow;

use rnic_base::limits::OUTSTANDING_PACKETS_MAX;
use rnic_base::{AnyRing, BitRate, Duration};
use rnic_program::Executor;

use crate::control::adapt::ADAPTED_STATE_MAX;
use crate::control::signals::Signals;
use crate::control::{ControlInterest, ControlPolicy};
use crate::falcon::{
    AdaptiveForm, AdaptivePlace, FALCON_PARAMS, FalconErrors, FalconIsolation, FalconOrdering, FalconShape,
};
use crate::law;
use crate::params::{Configured, FLOOR, ParamError, ParamOwner, ParamSpec, Params};
use crate::paths::{FLOWS_MAX, PathPolicy};
use crate::recovery::Placement;
use crate::recovery_policy::RecoveryPolicy;
use crate::schedule::SchedulePolicy;

/// The wire protocol of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Standard RoCEv2.
    Roce,
    /// RoCEv2 with IRN's extensions.
    Irn,
    /// RoCEv2 with FaSR's extensions.
    Fasr,
    /// Falcon: a different packet format, and separate entry points of the engine.
    Falcon(FalconShape),
}

impl Protocol {
    /// Returns the options of Falcon connections; `None` for the RoCE family.
    #[inline]
    pub const fn falcon(&self) -> Option<&FalconShape> {
        match self {
            Self::Falcon(shape) => Some(shape),
            Self::Roce | Self::Irn | Self::Fasr => None,
        }
    }

    /// Returns the signals that a controller receives with this protocol. Only Falcon's acknowledgements carry the
    /// time of reception and the level of the receiver's buffers, and only they have space for the values that
    /// switches write into packets (CSIG), where switches do so.
    pub const fn measures(&self) -> Signals {
        let common_signals = Signals::ACKS
            .with(Signals::ROUND_TRIP)
            .with(Signals::MARKS)
            .with(Signals::CNP)
            .with(Signals::NACKS)
            .with(Signals::TIMEOUTS)
            .with(Signals::TICKS)
            .with(Signals::SENT);
        match self {
            Self::Falcon(shape) => {
                let csig_signals = if shape.csig { Signals::CSIG } else { Signals::NONE };
                common_signals.with(Signals::HOST_DELAY).with(Signals::HOPS).with(csig_signals)
            }
            Self::Roce | Self::Irn | Self::Fasr => common_signals,
        }
    }
}

/// The assignment of sequence numbers to requests and responses in one direction; the papers differ in this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceSpaces {
    /// Responses use the sequence numbers of their requests: RoCE.
    Shared,
    /// Requests and responses are numbered, acknowledged and recovered separately: IRN's sPSN and rPSN (section 5.4).
    Split,
    /// Responses are numbered, acknowledged and recovered together with the responder's own requests. FaSR (section
    /// IV-D: a Read is a Write that the responder schedules).
    Scheduled,
}

/// Condition under which a receiver sends an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckRule {
    /// For every packet: IRN (section 5.2).
    EveryPacket,
    /// When the sender requests it: at the end of a message and at a fixed packet interval.
    OnRequest,
}

/// The storage for the bitmaps of out-of-order packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Store {
    /// Ring bitmaps of each queue pair.
    #[default]
    Rings,
    /// One pool for all queue pairs of a NIC (FaSR section III-C).
    Pool(PoolShape),
    /// Ring bitmaps in host memory, accessed across the bus (SRNIC).
    Host,
}

/// The size of a shared pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// Level 1: number of queue pairs that can recover selectively at the same time.
    pub units: u32,
    /// Level 2: number of bitmap blocks.
    pub blocks: u32,
    /// Size of a block in bits.
    pub block_bits: u32,
}

impl PoolShape {
    /// The paper's values: enough for a bandwidth-delay product of 500 packets and 2 % loss (FaSR section III-D).
    pub const FASR: Self = Self { units: 20, blocks: 70, block_bits: 10 };
}

/// Maximum number of queue pairs whose recovery state fits into a shared pool: the range of a queue pair's pointer.
pub const POOL_UNITS_MAX: u32 = 4_095;

/// Maximum number of blocks in a pool.
pub const POOL_BLOCKS_MAX: u32 = 32_768;

/// Maximum size of a block in bits: one machine word in this implementation.
pub const POOL_BLOCK_BITS_MAX: u32 = 64;

/// A transport: all properties of a connection except its verbs semantics.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Name in plans, tables and on the wire during connection set-up.
    pub name: &'static str,
    /// One line for `rnic list`.
    pub summary: &'static str,
    /// Format of the packets on the wire.
    pub protocol: Protocol,
    /// Sequence spaces.
    pub spaces: SequenceSpaces,
    /// Acknowledgement rule.
    pub acks: AckRule,
    /// With [`AckRule::OnRequest`]: maximum number of packets between two requested acknowledgements.
    pub ack_every_packets: u32,
    /// Static bound on the packets in flight (IRN's BDP-FC, section 3.2); `None` leaves only `window_bits`.
    pub cap_packets: Option<u32>,
    /// Width of the bitmaps, for recovery policies that need bitmaps.
    pub window_bits: u32,
    /// Storage of the bitmaps of received or acknowledged packets.
    pub store: Store,
    /// Delay between the detection of a loss and the earliest retransmission: the packet has to be fetched from host
    /// memory (IRN section 6.3, mechanism I-26).
    pub retransmit_fetch: Duration,
    /// Bytes that the fabric adds to every frame of a reliable connection (IRN section 6.3, the worst case of headers).
    pub extra_header: u32,
    /// True when a Write waits until earlier Writes of its queue pair to the same remote addresses have arrived, so
    /// that none of their packets, when retransmitted, overwrites its data (IRN section 5.3.4). Relevant where
    /// out-of-order packets are placed.
    pub fence_overlaps: bool,
    /// True when acknowledgements carry the number of posted receives, and a requester does not exceed it (InfiniBand
    /// Architecture volume 1, section 9.7.7.2; IRN section 5.4).
    pub end_to_end_credits: bool,
    /// Number of packets that may be sent before the receiver grants any, where receivers pull: each packet that
    /// arrives, with or without its payload, earns the grant of another one, which the receiver sends at the rate of
    /// its link; a packet that arrives without its payload is answered by a NACK that names it (NDP, SIGCOMM'17,
    /// section 3; Tonic's tokens, mechanism T-16). `None` where senders need no grants.
    pub pulls: Option<u32>,
    /// Number of flows, at most [`FLOWS_MAX`], that a queue pair uses at the same time for
    /// messages that may be delivered in any order; 1 for one flow that delivers everything in order (Tonic, appendix
    /// A). Both ends need the same number. `None` where a queue pair has no such flows.
    pub flows: Option<u8>,
    /// See [`MEASURED_TIMEOUTS`].
    pub measured_timeouts: bool,
    /// True when the NICs exchange messages, so that policies can probe paths ([`Signals::PROBES`]). Set by
    /// [`Profile::set_network`].
    pub probes: bool,
    /// Loss recovery.
    pub recovery: Configured<RecoveryPolicy>,
    /// Congestion control.
    pub control: Configured<ControlPolicy>,
    /// Path selection.
    pub paths: Configured<PathPolicy>,
    /// Scheduling.
    pub schedule: Configured<SchedulePolicy>,
}

/// Options of the profile itself, in addition to those of its policies.
pub const PROFILE_PARAMS: &[ParamSpec] = &[
    ParamSpec::count(
        "cap_packets",
        0,
        0,
        OUTSTANDING_PACKETS_MAX,
        "packets in flight at most (IRN's BDP-FC); 0 lifts the cap",
    ),
    ParamSpec::count(
        "ack_every_packets",
        64,
        1,
        1 << 16,
        "request an acknowledgement after this many packets, and at the end of each message",
    ),
    ParamSpec::duration("retransmit_fetch", Duration::ZERO, "time to fetch a packet for retransmission (IRN 6.3: 2us)"),
    ParamSpec::bytes("extra_header", 0, 0, 256, "bytes added to every simulated frame (IRN 6.3: 16B)"),
    ParamSpec::switch("fence_overlaps", false, "a Write waits for earlier ones to the same addresses (IRN 5.3.4)"),
    ParamSpec::switch(
        "end_to_end_credits",
        false,
        "receivers report the number of posted receives, senders respect it (IBA 9.7.7.2)",
    ),
];

/// Option of all profiles: uses measured values instead of fixed times, for networks of unknown properties. Timeouts
/// follow the round trips of acknowledged packets, and back off (RFC 6298); before a timeout, the first and last
/// packets of the outstanding range are retransmitted once (RFC 8985); a window shrinks when much or all of it is
/// lost; and a peer is declared dead when no packet has been received from it for the total duration of all retries.
/// Without this option, timeouts are as given by the transport's own options.
pub const MEASURED_TIMEOUTS: ParamSpec = ParamSpec::switch(
    "measured_timeouts",
    false,
    "timeouts from round trips (RFC 6298), and a probe before them (RFC 8985)",
);

/// Options of profiles whose windows share a pool, in the order of [`PoolShape`]'s fields.
pub const POOL_PARAMS: &[ParamSpec] = &[
    ParamSpec::count("pool_units", 20, 1, POOL_UNITS_MAX as u64, "queue pairs of a NIC that can recover selectively"),
    ParamSpec::count("pool_blocks", 70, 1, POOL_BLOCKS_MAX as u64, "blocks of bitmaps that these queue pairs share"),
    ParamSpec::count("pool_block_bits", 10, 1, POOL_BLOCK_BITS_MAX as u64, "bits of a block"),
];

/// Option of profiles whose receivers pull.
pub const PULL_WINDOW: ParamSpec = ParamSpec::count(
    "pull_window",
    16,
    1,
    PULL_WINDOW_MAX,
    "packets that may be sent before the receiver grants any (NDP 3.2)",
);

/// Maximum number of packets that may be sent before the receiver grants any.
pub const PULL_WINDOW_MAX: u64 = 1 << 14;

/// Option of profiles whose queue pairs may use several flows.
pub const FLOWS: ParamSpec = ParamSpec::count(
    "flows",
    1,
    1,
    FLOWS_MAX as u64,
    "flows that deliver Writes and Reads in any order, both ends alike; 1 keeps the order (Tonic A)",
);

/// Parameter of programs that is the rate of the link.
const LINE_RATE: &str = "line_rate";

/// Reason why a composition is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// Out-of-order placement needs headers that allow each packet to be placed independently of others, and sequence
    /// numbers that only data packets use.
    #[error("transport `{0}`: out-of-order placement requires IRN's or FaSR's headers and split sequence spaces")]
    PlacementNeedsIrn(&'static str),
    /// The path policy reorders and the recovery policy treats every gap as a loss.
    #[error(
        "transport `{0}`: recovery `{1}` treats every gap as a loss, but path policy `{2}` reorders packets; set a \
         NACK threshold or use a single path"
    )]
    ReorderingCausesRetransmission(&'static str, &'static str, &'static str),
    /// The cap exceeds the width of the bitmaps.
    #[error(
        "transport `{0}`: cap_packets={1} exceeds the largest supported bitmap of {max} packets",
        max = AnyRing::BITS_MAX
    )]
    CapExceedsWindow(&'static str, u32),
    /// The loss counts of FaSR's receivers are carried only in FaSR's own acknowledgements.
    #[error("transport `{0}`: a shared pool and FaSR's headers can only be used together; select both or neither")]
    PoolNeedsFasr(&'static str),
    /// The adaptive engine delivers only reports to its controller, and the adapter that turns them into events needs
    /// eight bytes of the state block.
    #[error(
        "transport `{0}`: controller `{1}` cannot run in Falcon's adaptive engine: it does not process flow reports, \
         and its state exceeds the {max} bytes that the event adapter allows",
        max = ADAPTED_STATE_MAX
    )]
    ControlWithoutReports(&'static str, &'static str),
    /// The controller needs signals that the transport does not measure.
    #[error("transport `{0}`: controller `{1}` needs {2}, which this transport does not measure")]
    NotMeasured(&'static str, &'static str, Signals),
    /// The controller needs values that switches write into packets, and no switch of the network writes them.
    #[error(
        "transport `{0}`: controller `{1}` needs {2}, which no switch of this network writes; only simulations with \
         [switch.csig] have it"
    )]
    NotStamped(&'static str, &'static str, Signals),
    /// The policy needs probes, and no messages are exchanged between NICs.
    #[error(
        "transport `{0}`: {1} `{2}` needs probes, which require messages between NICs: enable these by [scr] in a \
         plan, or by --messages on (RNIC_MESSAGES=on) on sockets; Falcon does not support probes"
    )]
    NoProbes(&'static str, &'static str, &'static str),
    /// With a stateless adaptive engine, the policy's state is exchanged between datapath and engine, and must fit into
    /// the engine's record; this policy's state does not.
    #[error(
        "transport `{0}`: controller `{1}` needs memory for its state, so fae_form=stateless is not possible; use \
         table or prefetching"
    )]
    StateDoesNotTravel(&'static str, &'static str),
    /// The latency of a thread cannot be configured.
    #[error(
        "transport `{0}`: fae_interface and fae_work have no effect when the adaptive engine runs on a thread \
         (fae_place=thread); leave them at 0"
    )]
    ThreadWithLatency(&'static str),
    /// The share of a connection is fixed in only one type of isolation.
    #[error("transport `{0}`: isolation_packets={1} has an effect only with isolation=static; set both or neither")]
    NoFixedShares(&'static str, u32),
    /// Without order, no request is the first that fails.
    #[error(
        "transport `{0}`: errors=verbs fails all requests after the first failed one, which ordering=unordered does \
         not define; omit errors, or set ordering=weak"
    )]
    VerbsErrorsNeedOrder(&'static str),
    /// Only Falcon's windows store the transmit time of each packet.
    #[error(
        "transport `{0}`: recovery `{1}` needs the transmit time of each packet, which only Falcon's windows store"
    )]
    NoTransmitTimes(&'static str, &'static str),
    /// Falcon's connections send one packet at a time, round robin, so settings for longer turns have no meaning.
    #[error(
        "transport `{0}`: connections are served round robin, one packet at a time, so the scheduler `{1}`, which sets \
         turns, has no effect; choose one that sets rates, such as water-filling, or remove it"
    )]
    NothingToSchedule(&'static str, &'static str),
    /// A flow that carries no packets never reports, and its share of the initial window remains in the connection's
    /// window.
    #[error(
        "transport `{0}`: path policy `{1}` sends every packet on the first flow, so flows={2} has no effect; choose \
         largest-window, spray or scatter, or set flows=1"
    )]
    FlowsNeedChoice(&'static str, &'static str, u8),
    /// Falcon's receivers send no NACKs for gaps.
    #[error(
        "transport `{0}`: recovery `{1}` relies on NACKs for gaps, which Falcon's receivers do not send; choose \
         another, such as rack-tlp or ooo-distance"
    )]
    RecoveryByNacks(&'static str, &'static str),
    /// Only FaSR's headers allow a response to be a packet of the responder's own sequence space.
    #[error(
        "transport `{0}`: responses in the responder's own sequence space and FaSR's headers can only be used \
         together"
    )]
    ScheduledNeedsFasr(&'static str),
    /// FaSR does not specify credits, and many of its response packets have no space for them.
    #[error("transport `{0}`: FaSR has no end-to-end credits; remove the option end_to_end_credits")]
    NoCredits(&'static str),
    /// Pulls and NACKs of trimmed packets exist only in IRN's packets, and a receiver answers each packet.
    #[error(
        "transport `{0}`: receivers that pull need IRN's headers, split sequence spaces, an acknowledgement for every \
         packet, a recovery policy whose receiver places out-of-order packets, and no end-to-end credits"
    )]
    PullsNeedIrn(&'static str),
    /// Credits count the messages of one sequence; messages between NICs grant rates to, and probe the path of, one.
    #[error(
        "transport `{0}`: flows={1} can be used neither with end_to_end_credits nor with messages between NICs ([scr], \
         --messages on); remove them, or set flows=1"
    )]
    FlowsAreIndependent(&'static str, u8),
    /// A program controls congestion itself.
    #[error(
        "transport `{0}`: the program `{1}` controls congestion itself, so the controller `{2}` would have no effect; \
         leave control at line-rate"
    )]
    ProgramControls(&'static str, &'static str, &'static str),
    /// Falcon's windows do not keep the state that is passed to a program.
    #[error(
        "transport `{0}`: the program `{1}` cannot run on Falcon, whose loss recovery uses the transmit times of \
         packets; use it with tonic-* or another transport of the RoCE family"
    )]
    ProgramOnFalcon(&'static str, &'static str),
    /// Every packet is acknowledged, whether or not the sender requests it.
    #[error(
        "transport `{0}`: the receiver acknowledges every packet, so ack_every_packets={1} has no effect; leave it \
         at 1"
    )]
    AckEveryNeedsRequests(&'static str, u32),
}

impl Profile {
    /// Returns the receiver's treatment of out-of-order packets: the one the recovery policy needs.
    #[inline]
    pub fn placement(&self) -> Placement {
        self.recovery.policy.placement
    }

    /// Returns the number of flows ([`Profile::flows`]).
    #[inline]
    pub fn flow_count(&self) -> u8 {
        self.flows.unwrap_or(1)
    }

    /// Returns the largest number of packets in flight, independent of the controller.
    #[inline]
    pub fn in_flight_max(&self) -> u64 {
        let cap = self.cap_packets.map_or(OUTSTANDING_PACKETS_MAX, u64::from);
        match self.placement() {
            Placement::PlaceOutOfOrder | Placement::PlaceWrites => {
                cap.min(u64::from(AnyRing::with_bits(self.window_bits).bits()))
            }
            Placement::Drop => cap,
        }
    }

    /// Sets the option `name` from text: an option of the profile itself, or a parameter of one of its policies.
    ///
    /// # Errors
    /// When neither the profile nor one of its policies has an option of this name, or the value is invalid.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ParamError> {
        if name == MEASURED_TIMEOUTS.name {
            self.measured_timeouts = MEASURED_TIMEOUTS.parse(text)? != 0;
            return Ok(());
        }
        if name == PULL_WINDOW.name
            && let Some(window) = &mut self.pulls
        {
            *window = PULL_WINDOW.parse(text)? as u32;
            return Ok(());
        }
        if name == FLOWS.name
            && let Some(flows) = &mut self.flows
        {
            *flows = FLOWS.parse(text)? as u8;
            return Ok(());
        }
        if let Protocol::Falcon(shape) = &mut self.protocol {
            if shape.set(name, text)? {
                return Ok(());
            }
        } else if let Some(spec) = PROFILE_PARAMS.iter().find(|spec| spec.name == name) {
            let value = spec.parse(text)?;
            match name {
                "cap_packets" => {
                    self.cap_packets = (value != 0).then_some(value as u32);
                    self.window_bits = self.cap_packets.unwrap_or(AnyRing::BITS_MAX);
                }
                "retransmit_fetch" => self.retransmit_fetch = Duration::from_ps(value),
                "extra_header" => self.extra_header = value as u32,
                "fence_overlaps" => self.fence_overlaps = value != 0,
                "end_to_end_credits" => self.end_to_end_credits = value != 0,
                "ack_every_packets" => self.ack_every_packets = value as u32,
                _ => unreachable!("`{name}` is declared in PROFILE_PARAMS and not set here"),
            }
            return Ok(());
        }
        if let Store::Pool(shape) = &mut self.store
            && let Some(spec) = POOL_PARAMS.iter().find(|spec| spec.name == name)
        {
            let value = spec.parse(text)? as u32;
            *match name {
                "pool_units" => &mut shape.units,
                "pool_blocks" => &mut shape.blocks,
                "pool_block_bits" => &mut shape.block_bits,
                _ => unreachable!("`{name}` is declared in POOL_PARAMS and not set here"),
            } = value;
            return Ok(());
        }
        let of_recovery = self.recovery.params.set(self.recovery.policy.params, name, text)?;
        let of_control =
            self.control.policy.params.iter().any(|spec| spec.name == name && self.is_set_in_control(spec));
        let of_paths = self.paths.policy.params.iter().any(|spec| spec.name == name && self.is_in_use(spec));
        let of_schedule = self.schedule.policy.params.iter().any(|spec| spec.name == name && self.is_in_use(spec));
        let found = of_control && self.control.params.set(self.control.policy.params, name, text)?
            || of_recovery
            || of_paths && self.paths.params.set(self.paths.policy.params, name, text)?
            || of_schedule && self.schedule.params.set(self.schedule.policy.params, name, text)?;
        if found {
            return Ok(());
        }
        let known: Vec<&str> = self.options().map(|(spec, _)| spec.name).collect();
        Err(ParamError::Unknown { name: name.to_owned(), known: known.join(", ") })
    }

    /// Sets the signals that the network and messages between NICs provide in addition to those that the ends measure
    /// on their own. A transport whose packets have no space for a signal omits it; policies on Falcon cannot probe.
    pub fn set_network(&mut self, available: Signals) {
        if let Protocol::Falcon(shape) = &mut self.protocol {
            shape.csig = available.has(Signals::CSIG);
        } else {
            self.probes = available.has(Signals::PROBES);
        }
    }

    /// Returns the signals that policies receive with this transport.
    pub fn measures(&self) -> Signals {
        let probes = if self.probes { Signals::PROBES } else { Signals::NONE };
        self.protocol.measures().with(probes)
    }

    /// Does the same as [`Profile::set`], for a value the user has not chosen: a default of the program that runs the
    /// transport.
    ///
    /// # Errors
    /// See [`Profile::set`].
    pub fn set_default(&mut self, name: &str, text: &str) -> Result<(), ParamError> {
        let given_flags = self.protocol.falcon().map(|shape| (shape.resources_given, shape.errors_given));
        self.set(name, text)?;
        if let (Protocol::Falcon(shape), Some(given_flags)) = (&mut self.protocol, given_flags) {
            (shape.resources_given, shape.errors_given) = given_flags;
        }
        Ok(())
    }

    /// Returns whether setting the option with the name of `spec`, a parameter of the control policy, sets it in the
    /// control policy.
    fn is_set_in_control(&self, spec: &ParamSpec) -> bool {
        if !self.is_in_use(spec) {
            return false;
        }
        match spec.owner {
            ParamOwner::Policy => !self.is_of_recovery(spec),
            ParamOwner::Both => true,
            ParamOwner::Recovery => self.is_of_recovery(spec),
        }
    }

    /// Returns whether a parameter of a policy has an effect: only Falcon's adaptive engine receives reports of
    /// flows, only Falcon's path policies choose flows instead of labels, and Falcon's turns are one packet.
    fn is_in_use(&self, spec: &ParamSpec) -> bool {
        match self.protocol.falcon() {
            Some(_) => !spec.needs_labels && !spec.needs_turns,
            None => !spec.needs_reports,
        }
    }

    /// Returns whether the scheduling policy is used: Falcon's connections send one packet per turn, in a separate
    /// ring, and are scheduled only by rates.
    pub fn uses_scheduler(&self) -> bool {
        self.protocol.falcon().is_none() || (self.schedule.policy.uses_events)(&self.schedule.params)
    }

    /// Returns whether the recovery policy has a parameter with the name of `spec`.
    fn is_of_recovery(&self, spec: &ParamSpec) -> bool {
        self.recovery.policy.params.iter().any(|own| own.name == spec.name)
    }

    /// Returns every option with its current value.
    pub fn options(&self) -> impl Iterator<Item = (&'static ParamSpec, u64)> {
        let own = [
            self.cap_packets.map_or(0, u64::from),
            u64::from(self.ack_every_packets),
            self.retransmit_fetch.as_ps(),
            u64::from(self.extra_header),
            u64::from(self.fence_overlaps),
            u64::from(self.end_to_end_credits),
        ];
        let pool = match self.store {
            Store::Pool(PoolShape { units, blocks, block_bits }) => [units, blocks, block_bits].map(u64::from).into(),
            Store::Rings | Store::Host => Vec::new(),
        };
        let of = |specs: &'static [ParamSpec], params: Params| {
            specs.iter().enumerate().map(move |(index, spec)| (spec, params.get(index)))
        };
        let (own, falcon): (Vec<_>, Vec<_>) = match self.protocol.falcon() {
            None => (PROFILE_PARAMS.iter().zip(own).collect(), Vec::new()),
            Some(shape) => (Vec::new(), FALCON_PARAMS.iter().zip(shape.values()).collect()),
        };
        // A parameter that both policies have is listed for recovery.
        let is_listed = |(spec, _): &(&ParamSpec, u64)| match spec.owner {
            ParamOwner::Policy => self.is_in_use(spec),
            ParamOwner::Both => self.is_in_use(spec) && !self.is_of_recovery(spec),
            ParamOwner::Recovery => false,
        };
        own.into_iter()
            .chain(falcon)
            .chain([(&MEASURED_TIMEOUTS, u64::from(self.measured_timeouts))])
            .chain(self.pulls.map(|window| (&PULL_WINDOW, u64::from(window))))
            .chain(self.flows.map(|flows| (&FLOWS, u64::from(flows))))
            .chain(POOL_PARAMS.iter().zip(pool))
            .chain(of(self.recovery.policy.params, self.recovery.params))
            .chain(of(self.control.policy.params, self.control.params).filter(is_listed))
            .chain(of(self.paths.policy.params, self.paths.params).filter(|(spec, _)| self.is_in_use(spec)))
            .chain(of(self.schedule.policy.params, self.schedule.params).filter(|(spec, _)| self.is_in_use(spec)))
    }

    /// Returns the timeout from which the time limit for a peer that does not respond is derived: the longest
    /// retransmission timeout; with Falcon, the minimum of the timeout that its adaptive engine computes, because the
    /// configured timeout is in force only until the engine has responded. `None` where there is no timeout.
    pub fn silence_unit(&self) -> Option<Duration> {
        let is_falcon = self.protocol.falcon().is_some();
        let timeouts: Vec<_> = self.options().filter(|(spec, _)| spec.is_timeout()).collect();
        let minimum = timeouts.iter().find(|(spec, _)| is_falcon && spec.name == FLOOR).map(|(_, value)| *value);
        let maximum = timeouts.iter().map(|(_, value)| *value).max();
        minimum.or(maximum).filter(|timeout| *timeout > 0).map(Duration::from_ps)
    }

    /// Checks for invalid combinations.
    ///
    /// # Errors
    /// The first rule that is violated.
    pub fn check(&self) -> Result<(), ProfileError> {
        let places_out_of_order = self.placement().keeps_out_of_order();
        if places_out_of_order && (self.protocol == Protocol::Roce || self.spaces == SequenceSpaces::Shared) {
            return Err(ProfileError::PlacementNeedsIrn(self.name));
        }
        if matches!(self.store, Store::Pool(_)) != (self.protocol == Protocol::Fasr) {
            return Err(ProfileError::PoolNeedsFasr(self.name));
        }
        if (self.spaces == SequenceSpaces::Scheduled) != (self.protocol == Protocol::Fasr) {
            return Err(ProfileError::ScheduledNeedsFasr(self.name));
        }
        if self.end_to_end_credits && self.protocol == Protocol::Fasr {
            return Err(ProfileError::NoCredits(self.name));
        }
        self.check_pulls()?;
        if self.flow_count() > 1 && (self.end_to_end_credits || self.probes) {
            return Err(ProfileError::FlowsAreIndependent(self.name, self.flow_count()));
        }
        let Configured { policy, params } = &self.control;
        let missing = (policy.interest)(params).needs.without(self.measures());
        if missing == Signals::CSIG && self.protocol.falcon().is_some() {
            return Err(ProfileError::NotStamped(self.name, policy.name, missing));
        }
        if missing == Signals::PROBES {
            return Err(ProfileError::NoProbes(self.name, "controller", policy.name));
        }
        let paths = &self.paths.policy;
        if paths.probes && !self.probes {
            return Err(ProfileError::NoProbes(self.name, "path policy", paths.name));
        }
        if !missing.is_empty() {
            return Err(ProfileError::NotMeasured(self.name, policy.name, missing));
        }
        let recovery = &self.recovery;
        if let Some(shape) = self.protocol.falcon() {
            self.check_adaptive(shape)?;
            if !recovery.policy.times_packets {
                return Err(ProfileError::RecoveryByNacks(self.name, recovery.policy.name));
            }
            if shape.flows > 1 && !self.paths.policy.reorders {
                return Err(ProfileError::FlowsNeedChoice(self.name, self.paths.policy.name, shape.flows));
            }
            if shape.ordering == FalconOrdering::Unordered && shape.errors == FalconErrors::Verbs {
                return Err(ProfileError::VerbsErrorsNeedOrder(self.name));
            }
            let has_shares = shape.isolation == FalconIsolation::Static;
            if !has_shares && shape.isolation_packets != FalconShape::DEFAULT.isolation_packets {
                return Err(ProfileError::NoFixedShares(self.name, shape.isolation_packets));
            }
        } else if recovery.policy.times_packets {
            return Err(ProfileError::NoTransmitTimes(self.name, recovery.policy.name));
        }
        if self.paths.policy.reorders && !recovery.policy.allows_reordering(&recovery.params) {
            return Err(ProfileError::ReorderingCausesRetransmission(
                self.name,
                recovery.policy.name,
                self.paths.policy.name,
            ));
        }
        self.check_program()?;
        if self.acks == AckRule::EveryPacket && self.ack_every_packets != 1 {
            return Err(ProfileError::AckEveryNeedsRequests(self.name, self.ack_every_packets));
        }
        match self.cap_packets {
            Some(cap) if places_out_of_order && cap > AnyRing::BITS_MAX => {
                Err(ProfileError::CapExceedsWindow(self.name, cap))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a transport program in combination with a controller, or on Falcon.
    fn check_program(&self) -> Result<(), ProfileError> {
        let recovery = &self.recovery.policy;
        if recovery.program.is_none() {
            return Ok(());
        }
        if self.protocol.falcon().is_some() {
            return Err(ProfileError::ProgramOnFalcon(self.name, recovery.name));
        }
        let control = &self.control.policy;
        if control.state_bytes > 0 || (control.interest)(&self.control.params) != ControlInterest::default() {
            return Err(ProfileError::ProgramControls(self.name, recovery.name, control.name));
        }
        Ok(())
    }

    /// Returns the names of the programs that decide and were loaded from files, joined by commas; none if there are
    /// none.
    pub fn loaded_programs(&self) -> Option<Cow<'static, str>> {
        let policy = &self.recovery.policy;
        let transport = policy.program.filter(|program| program.is_loaded()).map(|_| policy.name);
        let laws = [self.control.policy.name, self.schedule.policy.name, self.paths.policy.name];
        let mut names = transport.into_iter().chain(laws.into_iter().filter(|name| law::is_loaded(name)));
        let first = names.next()?;
        let others: Vec<&str> = names.collect();
        Some(if others.is_empty() { first.into() } else { [&[first], &others[..]].concat().join(", ").into() })
    }

    /// Returns how the programs that were loaded from files are carried out: laws are interpreted.
    pub fn executor(&self) -> Option<&'static str> {
        let laws = [self.control.policy.name, self.schedule.policy.name, self.paths.policy.name];
        if laws.into_iter().any(law::is_loaded) {
            return Some(Executor::Interpreted.name());
        }
        let program = self.recovery.policy.program.filter(|program| program.is_loaded());
        program.map(|program| program.executor().name())
    }

    /// Sets the rate of the link, for programs with a parameter for it that the user has not set.
    pub fn set_line_rate(&mut self, rate: BitRate) {
        let Configured { policy, params } = &mut self.recovery;
        let position = policy.params.iter().position(|spec| spec.name == LINE_RATE);
        if let Some((index, spec)) = position.map(|index| (index, &policy.params[index]))
            && policy.program.is_some()
            && params.get(index) == spec.default
        {
            *params = params.with(index, rate.as_bps().clamp(spec.min, spec.max));
        }
    }

    /// Rejects a profile with NDP's pulls if its packets have no headers for them or its receiver does not send them.
    fn check_pulls(&self) -> Result<(), ProfileError> {
        let Some(window) = self.pulls else { return Ok(()) };
        let is_irn = self.protocol == Protocol::Irn && self.spaces == SequenceSpaces::Split;
        let places = self.placement() == Placement::PlaceOutOfOrder && self.recovery.policy.reports_gaps;
        let acks = self.acks == AckRule::EveryPacket && !self.end_to_end_credits;
        if is_irn && places && acks && (1..=PULL_WINDOW_MAX).contains(&u64::from(window)) {
            return Ok(());
        }
        Err(ProfileError::PullsNeedIrn(self.name))
    }

    /// Rejects policies that Falcon's adaptive engine cannot run, or cannot run with the options `shape`.
    fn check_adaptive(&self, shape: &FalconShape) -> Result<(), ProfileError> {
        let Configured { policy, params } = &self.control;
        if !policy.takes_reports(params) {
            return Err(ProfileError::ControlWithoutReports(self.name, policy.name));
        }
        if shape.fae_form == AdaptiveForm::Stateless && !policy.travels(params) {
            return Err(ProfileError::StateDoesNotTravel(self.name, policy.name));
        }
        let is_instant = shape.fae_interface == Duration::ZERO && shape.fae_work == Duration::ZERO;
        if shape.fae_place == AdaptivePlace::Thread && !is_instant {
            return Err(ProfileError::ThreadWithLatency(self.name));
        }
        Ok(())
    }
}
