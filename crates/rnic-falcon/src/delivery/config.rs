//! What a connection is set up with, and stays.
//!
//! Defaults are those of the reference simulator where the paper is silent; every choice that the
//! paper and the specification make differently is a field here.

use std::sync::Arc;

use rnic_base::{Duration, Time};
use rnic_policy::{Configured, Cwnd, PathPolicy, RecoveryPolicy};
use rnic_wire::falcon::{Cid, FlowLabel, Window, WindowBases};

use crate::delivery::ack_request::AckRequestRule;

/// What a receiver does with a packet beyond its window: paper and specification disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutOfWindowRule {
    /// The paper's (section 4.1): keeps it when there are resources, up to [`TRACKED_MAX`] packets from the base. Where
    /// there are none it is dropped, and the sender notified.
    #[default]
    Keep,
    /// The specification's (9.2.2.4): drops it, and notifies the sender.
    Drop,
}

/// When an acknowledgement carries bitmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExtendedRule {
    /// Whenever a packet beyond a base is here: what RACK-TLP needs (specification 9.1.6, last paragraph).
    #[default]
    WhenReceived,
    /// When the base alone would not tell everything: requests or acknowledged data beyond a base, or a gap before
    /// received data (specification 9.1.6).
    WhenGap,
}

/// Packets from the base that a receiver can tell apart, at most: its widest bitmaps.
pub const TRACKED_MAX: u32 = 512;

/// Packets that a sender can have outstanding in a window (the reference simulator's; specification: configurable).
pub const TX_WINDOW_MAX: u32 = 1_024;

/// A connection's parameters.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryConfig {
    /// The peer's number for the connection.
    pub cid: Cid,
    /// The peer's function.
    pub function: u32,
    /// First numbers of what is sent.
    pub first_sent: WindowBases,
    /// First numbers of what is received.
    pub first_received: WindowBases,
    /// Width of the receiver's request window: 64, 128, 256 or 512.
    pub request_window: u32,
    /// Width of the receiver's data window: 64, 128, 256 or 512.
    pub data_window: u32,
    /// Packets outstanding in each window at most; a power of two up to [`TX_WINDOW_MAX`].
    pub tx_window: u32,
    /// See [`OutOfWindowRule`].
    pub out_of_window: OutOfWindowRule,
    /// A sender that hears of packets dropped beyond the window sends no new requests there until its oldest packet is
    /// acknowledged.
    pub pause_after_out_of_window: bool,
    /// See [`ExtendedRule`].
    pub extended: ExtendedRule,
    /// A receiver acknowledges after so many packets of a flow,
    pub coalesce_count: u32,
    /// or so long after the first of them.
    pub coalesce_timeout: Duration,
    /// When a sender asks for an acknowledgement.
    pub ack_request: AckRequestRule,
    /// Retransmissions leave in RSN order across both windows (specification 9.1.3).
    pub ordered: bool,
    /// Labels of the flows, in the order of their indices; one to eight. The low bits are replaced by the index.
    pub labels: [FlowLabel; 8],
    /// How many of them there are.
    pub flows: u8,
    /// An acknowledgement one of whose bases is behind still counts for what it says beyond: where flows have different
    /// delays, acknowledgements overtake each other (the specification, with one path, drops it whole).
    pub accept_stale: bool,
    /// A packet that timed out so often is given up.
    pub attempts_max: u16,
    /// Timeouts are at least what is measured, and double while nothing comes back; a peer is given up by time: after
    /// as many of these as there are attempts. `None`: timeouts are what the adaptive engine says, and count.
    pub measured: Option<Duration>,
    /// A packet is sent again early (before its timeout) at most so often.
    pub early_attempts_max: u16,
    /// Timeout of packets that have arrived and that the peer's upper layer has not acknowledged.
    pub upper_timeout: Duration,
    /// First windows, of the connection: shared evenly by the flows.
    pub fcwnd: Cwnd,
    /// Requests outstanding in each window, at most.
    pub ncwnd: u32,
    /// When is a packet lost.
    pub recovery: Configured<RecoveryPolicy>,
    /// Which flow is a packet sent on.
    pub paths: Configured<PathPolicy>,
    /// Fixed for the connection, the same in every run.
    pub flow_hash: u64,
}

impl DeliveryConfig {
    /// The defaults with this recovery and these paths, one flow, and sequence numbers from zero.
    pub fn new(recovery: Configured<RecoveryPolicy>, paths: Configured<PathPolicy>) -> Self {
        Self {
            cid: Cid::default(),
            function: 0,
            first_sent: WindowBases::default(),
            first_received: WindowBases::default(),
            request_window: 64,
            data_window: 128,
            tx_window: TX_WINDOW_MAX,
            out_of_window: OutOfWindowRule::Keep,
            pause_after_out_of_window: false,
            extended: ExtendedRule::WhenReceived,
            coalesce_count: 10,
            coalesce_timeout: Duration::from_us(8),
            ack_request: AckRequestRule::DEFAULT,
            ordered: true,
            labels: DEFAULT_LABELS,
            flows: 1,
            accept_stale: false,
            attempts_max: 64,
            measured: None,
            early_attempts_max: 16,
            upper_timeout: Duration::from_ms(5),
            fcwnd: Cwnd::packets(32),
            ncwnd: 64,
            recovery,
            paths,
            flow_hash: 0,
        }
    }

    /// Width of the receiver's `window`.
    pub(crate) fn width(&self, window: Window) -> u32 {
        match window {
            Window::Request => self.request_window,
            Window::Data => self.data_window,
        }
    }

    /// Checks what would be our own mistake.
    ///
    /// # Panics
    /// When a width is not one there is, or counts are outside their bounds.
    pub(crate) fn check(&self) {
        for width in [self.request_window, self.data_window] {
            assert!(
                matches!(width, 64 | 128 | 256 | 512),
                "a receive window has 64, 128, 256 or 512 bits, not {width}"
            );
        }
        let tx = self.tx_window;
        assert!(tx.is_power_of_two() && tx <= TX_WINDOW_MAX, "a window of {tx} packets");
        assert!((1..=8).contains(&self.flows), "a connection has 1 to 8 flows, not {}", self.flows);
        assert!(self.ncwnd > 0 && self.coalesce_count > 0 && self.attempts_max > 0, "a count is zero");
    }
}

/// The policies of a connection with their parameters. Connections that have the same ones share them.
#[derive(Clone, Copy, Debug)]
pub struct Policies {
    /// See [`DeliveryConfig::recovery`].
    pub recovery: Configured<RecoveryPolicy>,
    /// See [`DeliveryConfig::paths`].
    pub paths: Configured<PathPolicy>,
}

impl Policies {
    /// Whether `config` asks for these.
    pub fn are_those_of(&self, config: &DeliveryConfig) -> bool {
        let (recovery, paths) = (&config.recovery, &config.paths);
        core::ptr::fn_addr_eq(self.recovery.policy.on_event, recovery.policy.on_event)
            && core::ptr::fn_addr_eq(self.paths.policy.on_event, paths.policy.on_event)
            && self.recovery.policy.name == recovery.policy.name
            && self.paths.policy.name == paths.policy.name
            && (self.recovery.params, self.paths.params) == (recovery.params, paths.params)
    }
}

/// What a sender keeps of its [`DeliveryConfig`]; the fields are those.
#[derive(Clone, Debug)]
pub(crate) struct SenderSettings {
    pub(crate) ack_request: AckRequestRule,
    pub(crate) attempts_max: u16,
    pub(crate) early_attempts_max: u16,
    pub(crate) upper_timeout: Duration,
    pub(crate) ordered: bool,
    pub(crate) accept_stale: bool,
    pub(crate) pause_after_out_of_window: bool,
    pub(crate) policies: Arc<Policies>,
}

impl SenderSettings {
    pub(crate) fn of(config: &DeliveryConfig, policies: Arc<Policies>) -> Self {
        Self {
            ack_request: config.ack_request,
            attempts_max: config.attempts_max,
            early_attempts_max: config.early_attempts_max,
            upper_timeout: config.upper_timeout,
            ordered: config.ordered,
            accept_stale: config.accept_stale,
            pause_after_out_of_window: config.pause_after_out_of_window,
            policies,
        }
    }
}

/// Before every moment at which something is sent.
pub(crate) const NEVER: Time = Time::from_ps(u64::MAX);

/// Arbitrary labels that differ in many bits; the low three are the index's.
const DEFAULT_LABELS: [FlowLabel; 8] = {
    let mut labels = [FlowLabel::new(0); 8];
    let mut flow = 0;
    while flow < 8 {
        // Knuth's multiplicative hash of the index.
        labels[flow] = FlowLabel::new((flow as u32 + 1).wrapping_mul(2_654_435_761) >> 12);
        flow += 1;
    }
    labels
};
