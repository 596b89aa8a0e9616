//! A profile, prepared: what the packet path asks of it, answered once.

use rnic_base::{AnyRing, Duration};
use rnic_policy::control::ControlInterest;
use rnic_policy::recovery::Interest;
use rnic_policy::{AckRule, Placement, Profile, ProfileError, Protocol, SequenceSpaces};
use rnic_wire::Format;

/// A [`Profile`] that has been checked and unfolded. Queue pairs share one by reference.
#[derive(Clone, Debug)]
pub struct Transport {
    pub(crate) profile: Profile,
    pub(crate) format: Format,
    /// Requests and responses have sequence spaces of their own.
    pub(crate) split: bool,
    /// Early packets are placed, not dropped.
    pub(crate) places_early: bool,
    /// Every packet is acknowledged.
    pub(crate) acks_every_packet: bool,
    /// Otherwise: one in so many asks for it.
    pub(crate) ack_every_packets: u32,
    pub(crate) in_flight_max: u64,
    /// Width of the bitmaps, rounded up to one that exists.
    pub(crate) window_bits: u32,
    /// How far ahead of the expected packet a receiver keeps what comes early; 1 where it keeps nothing.
    pub(crate) early_reach: u32,
    /// How long a requester waits for a sign of life from a responder that owes it data, per retry: many timeouts of
    /// the responder, so that its own recovery comes first.
    pub(crate) response_patience: Duration,
    pub(crate) recovery_interest: Interest,
    pub(crate) control_interest: ControlInterest,
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
        let places_early = profile.placement() == Placement::PlaceOutOfOrder;
        let window_bits = AnyRing::with_bits(profile.window_bits).bits();
        Ok(Self {
            format: match profile.protocol {
                Protocol::Roce => Format::RoceV2,
                Protocol::Irn => Format::Irn,
            },
            split: profile.spaces == SequenceSpaces::Split,
            places_early,
            early_reach: if places_early { window_bits } else { 1 },
            acks_every_packet: profile.acks == AckRule::EveryPacket,
            ack_every_packets: profile.ack_every_packets,
            in_flight_max: profile.in_flight_max(),
            window_bits,
            response_patience: (profile.recovery.policy.initial_rto)(&profile.recovery.params)
                .map_or(Duration::MAX, |rto| rto.saturating_mul(PATIENCE_TIMEOUTS)),
            recovery_interest: (profile.recovery.policy.interest)(&profile.recovery.params),
            control_interest: (profile.control.policy.interest)(&profile.control.params),
            path_per_packet: (profile.paths.policy.per_packet)(&profile.paths.params),
            schedule_listens: (profile.schedule.policy.listens)(&profile.schedule.params),
            profile,
        })
    }

    /// The profile it was made from.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The headers of its packets.
    pub fn format(&self) -> Format {
        self.format
    }
}

/// IRN's longer timeout is 3.2 times its first one; ten leave room for three of them.
const PATIENCE_TIMEOUTS: u64 = 10;
