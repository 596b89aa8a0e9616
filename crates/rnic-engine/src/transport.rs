//! A preprocessed profile: the values that the packet path needs, computed once.

use std::sync::Arc;

use rnic_base::{AnyRing, BitRate, Duration, Time};
use rnic_policy::control::ControlInterest;
use rnic_policy::recovery::Interest;
use rnic_policy::{
    AckRule, Configured, FalconOrdering, FalconShape, Params, Placement, PoolShape, Profile, ProfileError,
    ProgramPolicy, Protocol, RecoveryPolicy, ScheduleActions, SchedulePolicy, ScheduleView, SequenceSpaces, Store,
};
use rnic_wire::Format;

use crate::state::Service;
use crate::wq::WqeOp;

/// Value of a window that no program limits.
pub(crate) const NO_WINDOW: u8 = 0;

/// A [`Profile`] that has been checked and expanded. Queue pairs share one by reference.
#[derive(Clone, Debug)]
pub struct Transport {
    pub(crate) profile: Profile,
    pub(crate) format: Format,
    /// True when the Write packets after the first carry FaSR's short addresses.
    pub(crate) short_addresses: bool,
    /// True when the headers include extensions of IRN or FaSR. Set for Falcon too, where it is not used.
    pub(crate) extended: bool,
    pub(crate) service: Service,
    /// Operations that a queue pair sends itself, one bit for each type of send queue entry. Writes and Reads that are
    /// passed to other flows are not included.
    pub(crate) operations: u16,
    /// Variants of this transport for unreliable connections and for unreliable datagrams.
    unreliable: Option<[Arc<Self>; 2]>,
    /// True when a request uses one sequence number, independent of its response: requests and responses have
    /// separate sequence spaces, or responses are request packets of the responder.
    pub(crate) split: bool,
    /// True when responses are request packets of the responder, in its request window (FaSR). Implies `split`.
    pub(crate) scheduled: bool,
    /// True when out-of-order packets are placed, not dropped.
    pub(crate) places_out_of_order: bool,
    /// True when only Writes and Read responses among out-of-order packets are placed, and acknowledgements do not
    /// report which have arrived. Implies `places_out_of_order`.
    pub(crate) places_writes_only: bool,
    /// True when a Write waits for earlier Writes that overlap it. False where packets, and therefore bytes, are
    /// placed in order.
    pub(crate) fences_overlaps: bool,
    /// Number of flows for messages that may be delivered in any order; 1 without such flows.
    pub(crate) flows: u8,
    /// True when a request may have to wait for earlier ones: if Writes wait for earlier Writes to the same memory, or
    /// the queue pair has several flows.
    pub(crate) orders_messages: bool,
    /// True when acknowledgements carry the number of posted receives, which requesters do not exceed.
    pub(crate) credits: bool,
    /// True when receivers report gaps.
    pub(crate) reports_gaps: bool,
    /// Minimum time between the decision to retransmit a packet and its transmission (fetch from host memory).
    pub(crate) retransmit_fetch: Duration,
    /// True when timeouts are measured from the last packet sent.
    pub(crate) times_last_sent: bool,
    /// True when every packet is acknowledged.
    pub(crate) acks_every_packet: bool,
    /// Interval, in packets, at which packets request an acknowledgement where not every packet is acknowledged.
    pub(crate) ack_every_packets: u32,
    pub(crate) in_flight_max: u64,
    /// Number of packets that may be sent before the receiver grants any, if receivers pull; otherwise 0.
    pub(crate) pulls: u32,
    /// Time after which a sender without packets in flight sends a packet although the receiver has granted none.
    pub(crate) pull_timeout: Duration,
    /// Width of the bitmaps in bits, rounded up to an available one.
    pub(crate) window_bits: u32,
    /// Distance from the expected packet, in packets, up to which a receiver keeps out-of-order packets; 1 where it
    /// keeps none.
    pub(crate) out_of_order_reach: u32,
    /// Shape of the pool that stores the bits of out-of-order packets, where the receiver counts missing packets: FaSR.
    pub(crate) pool: Option<PoolShape>,
    /// Time that a requester waits for any packet from a responder that still has to send data, per retry: many
    /// timeouts of the responder, so that its own recovery can act first.
    pub(crate) response_timeout: Duration,
    /// Same as `response_timeout`, for a responder whose timeouts have reached their maximum.
    response_timeout_max: Duration,
    /// True when timeouts are derived from measurements, and the capacity of a path is determined from the losses on
    /// it.
    pub(crate) measured: bool,
    /// Maximum timeout configured for the transport. The time for which a peer may be silent is a multiple of it.
    nominal_timeout: Duration,
    /// Parameters of the recovery policy, converted to the words that it uses.
    pub(crate) recovery_words: Params,
    /// Settings of a program.
    pub(crate) program: ProgramSetup,
    pub(crate) recovery_interest: Interest,
    pub(crate) control_interest: ControlInterest,
    /// True when a policy uses round-trip times.
    pub(crate) times_packets: bool,
    pub(crate) path_per_packet: bool,
    pub(crate) scheduler_uses_events: bool,
    /// True when the scheduler needs state in each queue pair, because it processes events or limits more than the
    /// number of packets of a turn.
    pub(crate) scheduler_needs_state: bool,
}

/// Settings of new connections and windows by a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramSetup {
    /// Window that it starts with; [`NO_WINDOW`] without a program.
    pub(crate) window: u8,
    /// Rate that it starts with; `None` for the rate of the link.
    pub(crate) rate: Option<BitRate>,
    /// True when it sets rates, or takes congestion notifications.
    pub(crate) paces: bool,
    /// True when acknowledgements are events of a new window, with [`Interest::Recovering`].
    pub(crate) starts_recovering: bool,
}

impl ProgramSetup {
    fn of(policy: &RecoveryPolicy, words: &Params) -> Self {
        let first = policy.program.map(|program| program.first(words));
        Self {
            window: first.map_or(NO_WINDOW, |first| u8::try_from(first.window).unwrap_or(u8::MAX)),
            rate: first.and_then(|first| first.rate),
            paces: policy.program.is_some_and(ProgramPolicy::paces),
            starts_recovering: policy.starts_recovering(words),
        }
    }
}

/// Returns whether `schedule` processes events, or initially limits more than the number of packets of a turn.
fn scheduler_needs_state(schedule: &Configured<SchedulePolicy>) -> bool {
    let view = ScheduleView::alone(Time::ZERO, BitRate::gbps(100));
    let (_, actions) = (schedule.policy.start)(&schedule.params, &view);
    let ScheduleActions { dequeue_rate, turn_bytes, turn_messages, .. } = actions;
    (schedule.policy.uses_events)(&schedule.params)
        || dequeue_rate.is_some()
        || turn_bytes.is_some()
        || turn_messages.is_some()
}

/// Returns the format of the packets of reliable connections.
fn format_of(profile: &Profile) -> Format {
    match profile.protocol {
        Protocol::Roce => Format::RoceV2,
        Protocol::Irn => Format::Irn,
        Protocol::Fasr => Format::Fasr,
        // Placeholder: it is never compared with the format of a packet of a reliable connection.
        Protocol::Falcon(_) => Format::RoceV2,
    }
}

/// Returns the operations that the queue pair of a reliable connection sends itself, a bit for each.
fn operations_of(profile: &Profile) -> u16 {
    let all = WqeOp::allowed(Service::ReliableConnection);
    match profile.protocol.falcon() {
        None if profile.flow_count() > 1 => all & !(WqeOp::Write.bit() | WqeOp::Read.bit()),
        None => all,
        Some(_) => WqeOp::CARRIED_BY_FALCON,
    }
}

impl Transport {
    /// Prepares `profile`.
    ///
    /// # Errors
    /// When the components of the profile are incompatible.
    pub fn new(profile: Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        let places_out_of_order = match profile.protocol.falcon() {
            None => profile.placement().keeps_out_of_order(),
            Some(shape) => shape.ordering == FalconOrdering::Weak,
        };
        let recovery = &profile.recovery;
        let recovery_interest = (recovery.policy.interest)(&recovery.params);
        let mut control_interest = (profile.control.policy.interest)(&profile.control.params);
        let of_program = recovery.policy.cnp_interval(&recovery.params);
        control_interest.cnp_interval = control_interest.cnp_interval.or(of_program);
        let recovery_words = recovery.policy.words(&recovery.params);
        let first_timeout = recovery.policy.first_timeout(&recovery_words);
        let program = ProgramSetup::of(&recovery.policy, &recovery_words);
        let window_bits = AnyRing::with_bits(profile.window_bits).bits();
        let flows = profile.flow_count();
        let fences_overlaps = profile.fence_overlaps && places_out_of_order;
        let mut transport = Self {
            format: format_of(&profile),
            short_addresses: profile.protocol == Protocol::Fasr,
            extended: profile.protocol != Protocol::Roce,
            service: Service::ReliableConnection,
            operations: operations_of(&profile),
            unreliable: None,
            split: profile.protocol.falcon().is_none() && profile.spaces != SequenceSpaces::Shared,
            scheduled: profile.protocol.falcon().is_none() && profile.spaces == SequenceSpaces::Scheduled,
            places_out_of_order,
            places_writes_only: profile.placement() == Placement::PlaceWrites,
            retransmit_fetch: profile.retransmit_fetch,
            fences_overlaps,
            flows,
            orders_messages: fences_overlaps || flows > 1,
            credits: profile.end_to_end_credits,
            reports_gaps: recovery.policy.reports_gaps,
            times_last_sent: (recovery.policy.times_last_sent)(&recovery.params),
            out_of_order_reach: if places_out_of_order { window_bits } else { 1 },
            pool: match profile.store {
                Store::Pool(shape) if places_out_of_order => Some(shape),
                _ => None,
            },
            acks_every_packet: profile.acks == AckRule::EveryPacket,
            ack_every_packets: profile.ack_every_packets,
            in_flight_max: profile.in_flight_max(),
            pulls: profile.pulls.unwrap_or(0),
            pull_timeout: first_timeout.unwrap_or(PULL_TIMEOUT_DEFAULT),
            window_bits,
            response_timeout: silence_timeout(first_timeout),
            response_timeout_max: silence_timeout(recovery.policy.longest_timeout(&recovery_words)),
            measured: profile.measured_timeouts,
            nominal_timeout: profile.silence_unit().unwrap_or(Duration::MAX),
            recovery_words,
            program,
            recovery_interest,
            control_interest,
            times_packets: recovery_interest == Interest::Always || control_interest.acked || profile.measured_timeouts,
            path_per_packet: (profile.paths.policy.per_packet)(&profile.paths.params),
            scheduler_uses_events: (profile.schedule.policy.uses_events)(&profile.schedule.params),
            scheduler_needs_state: scheduler_needs_state(&profile.schedule),
            profile,
        };
        let services = [Service::UnreliableConnection, Service::UnreliableDatagram];
        transport.unreliable = Some(services.map(|service| Arc::new(transport.as_unreliable(service))));
        Ok(transport)
    }

    /// Returns the time to wait for any packet from the responder after `silent_periods` such waits without one: it
    /// doubles where timeouts double, so that a responder that backs off reaches its last retry first.
    pub(crate) fn response_timeout_after(&self, silent_periods: u32) -> Duration {
        let doubled = self.response_timeout.saturating_mul(1 << silent_periods.min(DOUBLINGS_MAX));
        doubled.min(self.response_timeout_max)
    }

    /// Returns the time that a peer may be silent, where timeouts are derived from measurements: the time that the
    /// transport's configured timeouts would take for the first transmission and `retry_count` retries.
    pub(crate) fn silence_max(&self, retry_count: u32) -> Duration {
        self.nominal_timeout.saturating_mul(u64::from(retry_count) + 1)
    }

    /// Returns the variant of this transport for `service`, without the features that it does not support.
    fn as_unreliable(&self, service: Service) -> Self {
        Self {
            format: match service {
                Service::UnreliableDatagram => Format::UnreliableDatagram,
                _ => Format::UnreliableConnection,
            },
            short_addresses: false,
            extended: false,
            service,
            operations: WqeOp::allowed(service),
            split: false,
            scheduled: false,
            places_out_of_order: false,
            fences_overlaps: false,
            flows: 1,
            orders_messages: false,
            credits: false,
            out_of_order_reach: 1,
            pool: None,
            acks_every_packet: false,
            pulls: 0,
            ..self.clone()
        }
    }

    /// Returns this transport for queue pairs of `service`.
    pub(crate) fn for_service(self: &Arc<Self>, service: Service) -> Arc<Self> {
        let [connection, datagram] = match &self.unreliable {
            Some(unreliable) => unreliable,
            None => return Arc::clone(self),
        };
        Arc::clone(match service {
            Service::ReliableConnection => self,
            Service::UnreliableConnection => connection,
            Service::UnreliableDatagram => datagram,
        })
    }

    /// Returns the profile from which the transport was built.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the Falcon parameters of reliable connections, if they use Falcon.
    pub fn falcon(&self) -> Option<&FalconShape> {
        self.profile.protocol.falcon().filter(|_| self.service == Service::ReliableConnection)
    }

    /// Returns the header format of reliable connections of the RoCE family.
    pub fn format(&self) -> Format {
        self.format
    }
}

/// Returns the maximum time without a response, derived from a timeout.
fn silence_timeout(rto: Option<Duration>) -> Duration {
    rto.map_or(Duration::MAX, |rto| rto.saturating_mul(SILENCE_TIMEOUTS))
}

/// Time that a peer may be silent, in units of the first timeout: IRN's longer timeout is 3.2 times its first one, so
/// ten first timeouts cover three longer ones.
const SILENCE_TIMEOUTS: u64 = 10;

/// Time to wait for a pull with recovery policies that have no timeout.
const PULL_TIMEOUT_DEFAULT: Duration = Duration::from_ms(100);

/// Maximum number of doublings: enough to go from a microsecond to more than a week, which no timeout exceeds.
const DOUBLINGS_MAX: u32 = 40;
