//! Profiles: a transport is a composition of parts, under a name.

use rnic_base::limits::OUTSTANDING_PACKETS_MAX;
use rnic_base::{AnyRing, Duration};

use crate::control::ControlPolicy;
use crate::control::adapt::ADAPTED_STATE_MAX;
use crate::control::signals::Signals;
use crate::falcon::{
    AdaptiveForm, AdaptivePlace, FALCON_PARAMS, FalconErrors, FalconIsolation, FalconOrdering, FalconShape,
};
use crate::params::{FLOOR, ParamError, ParamOwner, ParamSpec, Params};
use crate::paths::PathPolicy;
use crate::recovery::{Placement, RecoveryPolicy};
use crate::schedule::SchedulePolicy;

/// Whose headers the packets carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// RoCEv2 as it is.
    Roce,
    /// RoCEv2 with IRN's extensions.
    Irn,
    /// RoCEv2 with FaSR's extensions.
    Fasr,
    /// Falcon: another packet, another pair of doors of the engine.
    Falcon(FalconShape),
}

impl Protocol {
    /// What Falcon's connections are made of; `None` for the RoCE family.
    #[inline]
    pub const fn falcon(&self) -> Option<&FalconShape> {
        match self {
            Self::Falcon(shape) => Some(shape),
            Self::Roce | Self::Irn | Self::Fasr => None,
        }
    }

    /// Returns the signals that a controller gets on this protocol. Only Falcon's acknowledgements carry the time of
    /// reception and the level of the receiver's buffers, and only they have room for what switches write into packets
    /// (CSIG), where those do.
    pub const fn measures(&self) -> Signals {
        let everywhere = Signals::ACKS
            .with(Signals::ROUND_TRIP)
            .with(Signals::MARKS)
            .with(Signals::CNP)
            .with(Signals::NACKS)
            .with(Signals::TIMEOUTS)
            .with(Signals::TICKS)
            .with(Signals::SENT);
        match self {
            Self::Falcon(shape) => {
                let stamped = if shape.csig { Signals::CSIG } else { Signals::NONE };
                everywhere.with(Signals::HOST_DELAY).with(Signals::HOPS).with(stamped)
            }
            Self::Roce | Self::Irn | Self::Fasr => everywhere,
        }
    }
}

/// How many sequence spaces a direction has: the papers differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceSpaces {
    /// Responses use the numbers of the requests that asked for them: RoCE.
    Shared,
    /// Requests and responses are numbered, acknowledged and recovered apart: IRN's sPSN and rPSN (section 5.4).
    Split,
    /// Responses are packets of their source's own: numbered, acknowledged and recovered with its requests. FaSR
    /// (section IV-D: a Read is a Write that the responder schedules).
    Scheduled,
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckRule {
    /// Every packet: IRN (section 5.2).
    EveryPacket,
    /// When the sender asks: at the end of a message and every so many packets.
    OnRequest,
}

/// Where windows keep the bits of packets that are out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Store {
    /// Ring bitmaps of every queue pair's own.
    #[default]
    Rings,
    /// One pool for all queue pairs of a NIC (FaSR section III-C).
    Pool(PoolShape),
    /// Ring bitmaps that lie in the host's memory, behind the bus (SRNIC).
    Host,
}

/// The size of a shared pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// Level 1: as many queue pairs can recover selectively at a time.
    pub units: u32,
    /// Level 2: blocks of bitmaps.
    pub blocks: u32,
    /// Bits of a block.
    pub block_bits: u32,
}

impl PoolShape {
    /// The paper's: enough for a bandwidth-delay product of 500 packets and 2 % loss (FaSR section III-D).
    pub const FASR: Self = Self { units: 20, blocks: 70, block_bits: 10 };
}

/// Units of a pool, at most: what a queue pair's pointer can name.
pub const POOL_UNITS_MAX: u32 = 4_095;

/// Blocks of a pool, at most.
pub const POOL_BLOCKS_MAX: u32 = 32_768;

/// Bits of a block, at most: a machine word here.
pub const POOL_BLOCK_BITS_MAX: u32 = 64;

/// A policy with the values of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Configured<P> {
    /// What to call.
    pub policy: P,
    /// What to call it with.
    pub params: Params,
}

/// A transport: everything about a connection that is not verbs.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Name in plans, tables and on the wire during connection set-up.
    pub name: &'static str,
    /// One line for `rnic list`.
    pub summary: &'static str,
    /// Headers.
    pub protocol: Protocol,
    /// Sequence spaces.
    pub spaces: SequenceSpaces,
    /// Acknowledgements.
    pub acks: AckRule,
    /// With [`AckRule::OnRequest`]: ask for an acknowledgement at least every so many packets.
    pub ack_every_packets: u32,
    /// Static bound on the packets in flight (IRN's BDP-FC, section 3.2); `None` leaves only `window_bits`.
    pub cap_packets: Option<u32>,
    /// Width of the bitmaps, for recovery that keeps any.
    pub window_bits: u32,
    /// Where those bitmaps are.
    pub store: Store,
    /// A packet that must be sent again leaves so long after that was found, at the earliest: it has to be fetched from
    /// the host's memory (IRN section 6.3, mechanism I-26).
    pub retransmit_fetch: Duration,
    /// Bytes that the fabric adds to every frame of a reliable connection (IRN section 6.3, the worst case of headers).
    pub extra_header: u32,
    /// A Write waits until earlier Writes of its queue pair to the same remote addresses have arrived, so that none of
    /// their packets, sent again, is placed over it (IRN section 5.3.4). It matters where early packets are placed.
    pub fence_overlaps: bool,
    /// Acknowledgements say how many receives are posted, and a requester keeps to that (InfiniBand Architecture volume
    /// 1, section 9.7.7.2; IRN section 5.4).
    pub end_to_end_credits: bool,
    /// See [`MEASURED_TIMEOUTS`].
    pub measured_timeouts: bool,
    /// Loss recovery.
    pub recovery: Configured<RecoveryPolicy>,
    /// Congestion control.
    pub control: Configured<ControlPolicy>,
    /// Path choice.
    pub paths: Configured<PathPolicy>,
    /// Scheduling.
    pub schedule: Configured<SchedulePolicy>,
}

/// Options of the profile itself, beside those of its policies.
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
        "ask for an acknowledgement every so many packets, beside the end of each message",
    ),
    ParamSpec::duration("retransmit_fetch", Duration::ZERO, "fetch of a packet that is sent again (IRN 6.3: 2us)"),
    ParamSpec::bytes("extra_header", 0, 0, 256, "bytes added to every simulated frame (IRN 6.3: 16B)"),
    ParamSpec::switch("fence_overlaps", false, "a Write waits for earlier ones to the same addresses (IRN 5.3.4)"),
    ParamSpec::switch("end_to_end_credits", false, "receivers count their receives, senders keep to it (IBA 9.7.7.2)"),
];

/// The option of all profiles that puts what is measured in the place of fixed times, where nobody knows the network.
/// Timeouts follow the round trips of acknowledged packets, and back off (RFC 6298); before a timeout the ends of what
/// is outstanding are sent once more (RFC 8985); a window shrinks where much of it is lost, or all of it; and a peer is
/// given up when nothing at all has come from it for as long as its retries take. Without it timeouts are what the
/// transport's own options say.
pub const MEASURED_TIMEOUTS: ParamSpec = ParamSpec::switch(
    "measured_timeouts",
    false,
    "timeouts from round trips (RFC 6298), and a probe before them (RFC 8985)",
);

/// Options of profiles whose windows share a pool, in the order of [`PoolShape`]'s fields.
pub const POOL_PARAMS: &[ParamSpec] = &[
    ParamSpec::count("pool_units", 20, 1, POOL_UNITS_MAX as u64, "queue pairs of a NIC that can recover selectively"),
    ParamSpec::count("pool_blocks", 70, 1, POOL_BLOCKS_MAX as u64, "blocks of bitmaps that they share"),
    ParamSpec::count("pool_block_bits", 10, 1, POOL_BLOCK_BITS_MAX as u64, "bits of a block"),
];

/// Why a composition cannot be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// Out-of-order placement needs headers that let a packet be placed alone, and numbers that only data use.
    #[error("transport `{0}`: placing packets out of order needs IRN's or FaSR's headers and split sequence spaces")]
    PlacementNeedsIrn(&'static str),
    /// The path policy reorders and the recovery policy takes any gap for a loss.
    #[error(
        "transport `{0}`: `{1}` takes every gap for a loss, but paths `{2}` reorder packets; \
         set a NACK threshold or use one path"
    )]
    ReorderingTakenForLoss(&'static str, &'static str, &'static str),
    /// The cap does not fit into the bitmaps.
    #[error("transport `{0}`: cap_packets {1} exceeds the widest bitmap, {max} packets", max = AnyRing::LARGEST)]
    CapExceedsWindow(&'static str, u32),
    /// What FaSR's receivers count travels in its own acknowledgements only.
    #[error("transport `{0}`: a shared pool and FaSR's headers need each other")]
    PoolNeedsFasr(&'static str),
    /// The adaptive engine gives its program reports only, and the adapter that turns them into events needs eight
    /// bytes of the state's block.
    #[error(
        "transport `{0}`: `{1}` reads no reports of flows, which are all that Falcon's adaptive engine has, and its \
         state leaves no place for what makes them into events: {max} bytes at most",
        max = ADAPTED_STATE_MAX
    )]
    ControlWithoutReports(&'static str, &'static str),
    /// The controller needs signals that the transport does not measure.
    #[error("transport `{0}`: controller `{1}` needs {2}, which this transport does not measure")]
    NotMeasured(&'static str, &'static str, Signals),
    /// The controller needs what switches write into packets, and here none does.
    #[error("transport `{0}`: controller `{1}` needs {2}, which no switch here writes (simulations: [switch.csig])")]
    NotStamped(&'static str, &'static str, Signals),
    /// Between a datapath and a stateless engine travels what fits into a record, and not every policy's state does.
    #[error("transport `{0}`: `{1}` needs a memory for its state, which does not travel: fae_form cannot be stateless")]
    StateDoesNotTravel(&'static str, &'static str),
    /// A thread's latency is what it is.
    #[error(
        "transport `{0}`: an adaptive engine on a thread takes the time that it takes, so fae_interface and fae_work \
         would mean nothing: leave them at 0"
    )]
    ThreadWithLatency(&'static str),
    /// What a connection may hold is fixed in one kind of isolation only.
    #[error("transport `{0}`: isolation_packets {1} would mean nothing without isolation=static: set that, or neither")]
    NoFixedShares(&'static str, u32),
    /// Without order no request is the first that fails.
    #[error(
        "transport `{0}`: with errors=verbs all requests fail behind the first that does, and unordered has no first: \
         leave errors out, or set ordering=weak"
    )]
    VerbsErrorsNeedOrder(&'static str),
    /// Only Falcon's windows keep when each packet left.
    #[error("transport `{0}`: `{1}` judges packets by when they left, which only Falcon's windows know")]
    NoTransmitTimes(&'static str, &'static str),
    /// Falcon's connections take turns in a ring that no scheduling policy is asked about.
    #[error(
        "transport `{0}`: its connections send a packet in turn, whatever the policy: `schedule` would mean nothing"
    )]
    NothingToSchedule(&'static str),
    /// A flow that no packet takes never reports, and its share of the first window stays in the connection's.
    #[error(
        "transport `{0}`: paths `{1}` send every packet on the first flow, so flows={2} would mean nothing: choose \
         paths that spread packets, such as largest-window, spray or scatter, or set flows=1"
    )]
    FlowsNeedChoice(&'static str, &'static str, u8),
    /// Falcon's receivers send no NACKs for gaps.
    #[error(
        "transport `{0}`: `{1}` waits for NACKs of gaps, which Falcon's receivers do not send; choose a recovery that \
         judges packets by when they left, such as rack-tlp or ooo-distance"
    )]
    RecoveryByNacks(&'static str, &'static str),
    /// What makes a response a packet of the responder's own is in FaSR's headers only.
    #[error("transport `{0}`: responses in the responder's own sequence space and FaSR's headers need each other")]
    ScheduledNeedsFasr(&'static str),
    /// FaSR says nothing of credits, and much of what it answers with has no room for them.
    #[error("transport `{0}`: FaSR has no end-to-end credits: leave end_to_end_credits out")]
    NoCredits(&'static str),
    /// Every packet is acknowledged, asked or not.
    #[error("transport `{0}`: acknowledges every packet; ack_every_packets {1} would mean nothing: leave it at 1")]
    AcksNeedNoAsking(&'static str, u32),
}

impl Profile {
    /// What the receiver does with early packets: what the recovery policy needs.
    #[inline]
    pub fn placement(&self) -> Placement {
        self.recovery.policy.placement
    }

    /// Packets in flight at most, whatever the controller says.
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

    /// Sets the option `name` from text: one of the profile's own, or a parameter of one of its policies.
    ///
    /// # Errors
    /// When no part knows the name, or the value is not legal.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ParamError> {
        if name == MEASURED_TIMEOUTS.name {
            self.measured_timeouts = MEASURED_TIMEOUTS.parse(text)? != 0;
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
                    self.window_bits = self.cap_packets.unwrap_or(AnyRing::LARGEST);
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
        let found = of_control && self.control.params.set(self.control.policy.params, name, text)?
            || of_recovery
            || of_paths && self.paths.params.set(self.paths.policy.params, name, text)?
            || self.asks_scheduler() && self.schedule.params.set(self.schedule.policy.params, name, text)?;
        if found {
            return Ok(());
        }
        let known: Vec<&str> = self.options().map(|(spec, _)| spec.name).collect();
        Err(ParamError::Unknown { name: name.to_owned(), known: known.join(", ") })
    }

    /// Says which signals the network gives beside those that ends measure on their own. A transport whose packets have
    /// no room for one leaves it out.
    pub fn set_network(&mut self, gives: Signals) {
        if let Protocol::Falcon(shape) = &mut self.protocol {
            shape.csig = gives.has(Signals::CSIG);
        }
    }

    /// As [`Profile::set`], where nobody has chosen the value: a default of whoever runs the transport.
    ///
    /// # Errors
    /// As there.
    pub fn set_default(&mut self, name: &str, text: &str) -> Result<(), ParamError> {
        let given = self.protocol.falcon().map(|shape| (shape.resources_given, shape.errors_given));
        self.set(name, text)?;
        if let (Protocol::Falcon(shape), Some(given)) = (&mut self.protocol, given) {
            (shape.resources_given, shape.errors_given) = given;
        }
        Ok(())
    }

    /// Whether who sets the option called as `spec`, of the control policy, sets that of the control policy.
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

    /// Whether a parameter of a policy means anything: flows report to Falcon's adaptive engine alone, and are chosen
    /// there in place of labels.
    fn is_in_use(&self, spec: &ParamSpec) -> bool {
        if self.protocol.falcon().is_some() { !spec.needs_labels } else { !spec.needs_reports }
    }

    /// Whether the scheduling policy is asked: connections of Falcon send a packet in turn, in a ring of their own.
    pub fn asks_scheduler(&self) -> bool {
        self.protocol.falcon().is_none()
    }

    /// Whether the recovery policy has a parameter called as `spec`.
    fn is_of_recovery(&self, spec: &ParamSpec) -> bool {
        self.recovery.policy.params.iter().any(|own| own.name == spec.name)
    }

    /// Every option with its present value.
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
        // What both have is listed as recovery's.
        let is_listed = |(spec, _): &(&ParamSpec, u64)| match spec.owner {
            ParamOwner::Policy => self.is_in_use(spec),
            ParamOwner::Both => self.is_in_use(spec) && !self.is_of_recovery(spec),
            ParamOwner::Recovery => false,
        };
        own.into_iter()
            .chain(falcon)
            .chain([(&MEASURED_TIMEOUTS, u64::from(self.measured_timeouts))])
            .chain(POOL_PARAMS.iter().zip(pool))
            .chain(of(self.recovery.policy.params, self.recovery.params))
            .chain(of(self.control.policy.params, self.control.params).filter(is_listed))
            .chain(of(self.paths.policy.params, self.paths.params).filter(|(spec, _)| self.is_in_use(spec)))
            .chain(of(self.schedule.policy.params, self.schedule.params).filter(|_| self.asks_scheduler()))
    }

    /// What patience with a silent peer is counted in: the longest retransmission timeout; with Falcon, the floor under
    /// what its adaptive engine computes, for the other is in force only until that has answered. `None` where there is
    /// no timeout.
    pub fn patience_timeout(&self) -> Option<Duration> {
        let is_falcon = self.protocol.falcon().is_some();
        let timeouts: Vec<_> = self.options().filter(|(spec, _)| spec.is_timeout()).collect();
        let floor = timeouts.iter().find(|(spec, _)| is_falcon && spec.name == FLOOR).map(|(_, value)| *value);
        let longest = timeouts.iter().map(|(_, value)| *value).max();
        floor.or(longest).filter(|timeout| *timeout > 0).map(Duration::from_ps)
    }

    /// Refuses combinations that cannot be right.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), ProfileError> {
        let places = self.placement().keeps_early();
        if places && (self.protocol == Protocol::Roce || self.spaces == SequenceSpaces::Shared) {
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
        let Configured { policy, params } = &self.control;
        let missing = (policy.interest)(params).needs.without(self.protocol.measures());
        if missing == Signals::CSIG && self.protocol.falcon().is_some() {
            return Err(ProfileError::NotStamped(self.name, policy.name, missing));
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
        if self.paths.policy.reorders && !(recovery.policy.tolerates_reordering)(&recovery.params) {
            return Err(ProfileError::ReorderingTakenForLoss(self.name, recovery.policy.name, self.paths.policy.name));
        }
        if self.acks == AckRule::EveryPacket && self.ack_every_packets != 1 {
            return Err(ProfileError::AcksNeedNoAsking(self.name, self.ack_every_packets));
        }
        match self.cap_packets {
            Some(cap) if places && cap > AnyRing::LARGEST => Err(ProfileError::CapExceedsWindow(self.name, cap)),
            _ => Ok(()),
        }
    }

    /// Refuses what Falcon's adaptive engine cannot run, or not as `shape` says.
    fn check_adaptive(&self, shape: &FalconShape) -> Result<(), ProfileError> {
        let Configured { policy, params } = &self.control;
        if !policy.takes_reports(params) {
            return Err(ProfileError::ControlWithoutReports(self.name, policy.name));
        }
        if shape.fae_form == AdaptiveForm::Stateless && !policy.travels(params) {
            return Err(ProfileError::StateDoesNotTravel(self.name, policy.name));
        }
        let takes_no_time = shape.fae_interface == Duration::ZERO && shape.fae_work == Duration::ZERO;
        if shape.fae_place == AdaptivePlace::Thread && !takes_no_time {
            return Err(ProfileError::ThreadWithLatency(self.name));
        }
        Ok(())
    }
}
