//! A profile, prepared: what the packet path asks of it, answered once.

use std::sync::Arc;

use rnic_base::{AnyRing, Duration};
use rnic_policy::control::ControlInterest;
use rnic_policy::recovery::Interest;
use rnic_policy::{
    AckRule, FalconOrdering, FalconShape, Placement, PoolShape, Profile, ProfileError, Protocol, SequenceSpaces, Store,
};
use rnic_wire::Format;

use crate::state::Service;
use crate::wq::WqeOp;

/// A [`Profile`] that has been checked and unfolded. Queue pairs share one by reference.
#[derive(Clone, Debug)]
pub struct Transport {
    pub(crate) profile: Profile,
    pub(crate) format: Format,
    /// Later Write packets have FaSR's short addresses.
    pub(crate) short_addresses: bool,
    /// Its headers are not RoCE's alone: IRN's or FaSR's extensions. Set for Falcon too, where nothing asks.
    pub(crate) extended: bool,
    pub(crate) service: Service,
    /// What may be posted: a bit for each kind of send queue entry.
    pub(crate) operations: u16,
    /// The same for unreliable connections and for unreliable datagrams.
    unreliable: Option<[Arc<Self>; 2]>,
    /// A request takes one number, whatever its answer is like: requests and responses have sequence spaces of their
    /// own, or responses are packets of the responder's.
    pub(crate) split: bool,
    /// Responses are packets of the responder's own, in the windows of its requests (FaSR). Implies `split`.
    pub(crate) scheduled: bool,
    /// Early packets are placed, not dropped.
    pub(crate) places_early: bool,
    /// Of early packets only Writes and Read responses are placed, and acknowledgements do not say which have come.
    /// Implies `places_early`.
    pub(crate) places_writes_only: bool,
    /// A Write waits for earlier ones that overlap it: off where packets are placed in order, and so are bytes.
    pub(crate) fences_overlaps: bool,
    /// Acknowledgements say how many receives are posted, and requesters keep to it.
    pub(crate) credits: bool,
    /// Receivers report gaps.
    pub(crate) reports_gaps: bool,
    /// What is sent again leaves so long after that was found, at the earliest.
    pub(crate) retransmit_fetch: Duration,
    /// Timers run from the last packet sent.
    pub(crate) times_last_sent: bool,
    /// Every packet is acknowledged.
    pub(crate) acks_every_packet: bool,
    /// Otherwise: one in so many asks for it.
    pub(crate) ack_every_packets: u32,
    pub(crate) in_flight_max: u64,
    /// Width of the bitmaps, rounded up to one that exists.
    pub(crate) window_bits: u32,
    /// How far ahead of the expected packet a receiver keeps what comes early; 1 where it keeps nothing.
    pub(crate) early_reach: u32,
    /// Bits of early packets lie in a pool of this shape, and the receiver counts what it misses: FaSR.
    pub(crate) pool: Option<PoolShape>,
    /// How long a requester waits for a sign of life from a responder that owes it data, per retry: many timeouts of
    /// the responder, so that its own recovery comes first.
    pub(crate) response_patience: Duration,
    /// The same of a responder whose timeouts have grown as far as they do.
    response_patience_max: Duration,
    /// Timeouts follow what is measured, and what a path takes is found out from what is lost on it.
    pub(crate) measured: bool,
    /// The longest timeout of the transport's own, which a peer's patience is counted in.
    nominal_timeout: Duration,
    pub(crate) recovery_interest: Interest,
    pub(crate) control_interest: ControlInterest,
    /// Somebody wants to know round-trip times.
    pub(crate) times_packets: bool,
    pub(crate) path_per_packet: bool,
    pub(crate) schedule_listens: bool,
}

impl Transport {
    /// Prepares `profile`.
    ///
    /// # Errors
    /// When its parts do not fit together.
    pub fn new(profile: Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        let places_early = match profile.protocol.falcon() {
            None => profile.placement().keeps_early(),
            Some(shape) => shape.ordering == FalconOrdering::Weak,
        };
        let recovery = &profile.recovery;
        let recovery_interest = (recovery.policy.interest)(&recovery.params);
        let control_interest = (profile.control.policy.interest)(&profile.control.params);
        let window_bits = AnyRing::with_bits(profile.window_bits).bits();
        let mut transport = Self {
            format: match profile.protocol {
                Protocol::Roce => Format::RoceV2,
                Protocol::Irn => Format::Irn,
                Protocol::Fasr => Format::Fasr,
                // No packet of a reliable connection is compared with it.
                Protocol::Falcon(_) => Format::RoceV2,
            },
            short_addresses: profile.protocol == Protocol::Fasr,
            extended: profile.protocol != Protocol::Roce,
            service: Service::ReliableConnection,
            operations: match profile.protocol.falcon() {
                None => WqeOp::allowed(Service::ReliableConnection),
                Some(_) => WqeOp::CARRIED_BY_FALCON,
            },
            unreliable: None,
            split: profile.protocol.falcon().is_none() && profile.spaces != SequenceSpaces::Shared,
            scheduled: profile.protocol.falcon().is_none() && profile.spaces == SequenceSpaces::Scheduled,
            places_early,
            places_writes_only: profile.placement() == Placement::PlaceWrites,
            retransmit_fetch: profile.retransmit_fetch,
            fences_overlaps: profile.fence_overlaps && places_early,
            credits: profile.end_to_end_credits,
            reports_gaps: recovery.policy.reports_gaps,
            times_last_sent: (recovery.policy.times_last_sent)(&recovery.params),
            early_reach: if places_early { window_bits } else { 1 },
            pool: match profile.store {
                Store::Pool(shape) if places_early => Some(shape),
                _ => None,
            },
            acks_every_packet: profile.acks == AckRule::EveryPacket,
            ack_every_packets: profile.ack_every_packets,
            in_flight_max: profile.in_flight_max(),
            window_bits,
            response_patience: many((recovery.policy.initial_rto)(&recovery.params)),
            response_patience_max: many((recovery.policy.longest_rto)(&recovery.params)),
            measured: profile.measured_timeouts,
            nominal_timeout: profile.patience_timeout().unwrap_or(Duration::MAX),
            recovery_interest,
            control_interest,
            times_packets: recovery_interest == Interest::Always || control_interest.acked || profile.measured_timeouts,
            path_per_packet: (profile.paths.policy.per_packet)(&profile.paths.params),
            schedule_listens: (profile.schedule.policy.listens)(&profile.schedule.params),
            profile,
        };
        let services = [Service::UnreliableConnection, Service::UnreliableDatagram];
        transport.unreliable = Some(services.map(|service| Arc::new(transport.as_unreliable(service))));
        Ok(transport)
    }

    /// How long to wait for a sign of life after so many such waits in vain: where timeouts double, so does this, so
    /// that a responder that backs off comes to its last retry first.
    pub(crate) fn response_patience_after(&self, silent_periods: u32) -> Duration {
        let longer = self.response_patience.saturating_mul(1 << silent_periods.min(DOUBLINGS_MAX));
        longer.min(self.response_patience_max)
    }

    /// How long a peer may be silent, where timeouts follow what is measured: as long as the transport's own timeouts
    /// would take for the first try and `retry_count` more.
    pub(crate) fn patience(&self, retry_count: u32) -> Duration {
        self.nominal_timeout.saturating_mul(u64::from(retry_count) + 1)
    }

    /// What is left of it for `service`.
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
            places_early: false,
            fences_overlaps: false,
            credits: false,
            early_reach: 1,
            pool: None,
            acks_every_packet: false,
            schedule_listens: false,
            ..self.clone()
        }
    }

    /// This transport for queue pairs of `service`.
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

    /// The profile it was made from.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns what its reliable connections are made of, when their packets are Falcon's.
    pub fn falcon(&self) -> Option<&FalconShape> {
        self.profile.protocol.falcon().filter(|_| self.service == Service::ReliableConnection)
    }

    /// The headers of the packets of its reliable connections, when they are of the RoCE family.
    pub fn format(&self) -> Format {
        self.format
    }
}

/// The patience that goes with a timeout.
fn many(rto: Option<Duration>) -> Duration {
    rto.map_or(Duration::MAX, |rto| rto.saturating_mul(PATIENCE_TIMEOUTS))
}

/// IRN's longer timeout is 3.2 times its first one; ten leave room for three of them.
const PATIENCE_TIMEOUTS: u64 = 10;

/// From a microsecond to more than a week: no timeout is longer.
const DOUBLINGS_MAX: u32 = 40;
