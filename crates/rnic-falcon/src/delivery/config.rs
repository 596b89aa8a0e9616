//! Fixed parameters of a connection, set when it is created.
//!
//! Defaults are those of the reference simulator where the paper is silent; every choice on which the paper and the
//! specification differ is a field here.

use std::sync::Arc;

use rnic_base::{Duration, Time};
use rnic_policy::{Configured, Cwnd, PathPolicy, RecoveryPolicy};
use rnic_wire::falcon::{Cid, FlowLabel, Window, WindowBases};

use crate::delivery::ack_request::AckRequestRule;

/// Receiver's treatment of a packet beyond its window, on which paper and specification disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutOfWindowRule {
    /// The paper's rule (section 4.1): the packet is accepted if resources are available, up to [`TRACKED_MAX`]
    /// packets from the base. Without resources it is dropped, and the sender is notified.
    #[default]
    Keep,
    /// The specification's rule (9.2.2.4): the packet is dropped, and the sender is notified.
    Drop,
}

/// Condition under which an acknowledgement carries bitmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExtendedRule {
    /// Whenever a packet beyond a base was received: required by RACK-TLP (specification 9.1.6, last paragraph).
    #[default]
    WhenReceived,
    /// Only if the base alone does not describe the receive state: requests or acknowledged data beyond a base, or a
    /// gap before received data (specification 9.1.6).
    WhenGap,
}

/// Maximum number of packets from the base on that a receiver can track: the width of its widest bitmap.
pub const TRACKED_MAX: u32 = 512;

/// Maximum number of packets that a sender can have outstanding in a window (the reference simulator's value;
/// specification: configurable).
pub const TX_WINDOW_MAX: u32 = 1_024;

/// A connection's parameters.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryConfig {
    /// The peer's connection ID.
    pub cid: Cid,
    /// The peer's function number.
    pub function: u32,
    /// First sequence numbers of the packets that this side sends.
    pub first_sent: WindowBases,
    /// First sequence numbers of the packets that the peer sends.
    pub first_received: WindowBases,
    /// Width of the receiver's request window in packets: 64, 128, 256 or 512.
    pub request_window: u32,
    /// Width of the receiver's data window in packets: 64, 128, 256 or 512.
    pub data_window: u32,
    /// Maximum number of packets outstanding in each window; a power of two up to [`TX_WINDOW_MAX`].
    pub tx_window: u32,
    /// See [`OutOfWindowRule`].
    pub out_of_window: OutOfWindowRule,
    /// True when a sender that is notified of packets dropped beyond the window sends no new requests in that window
    /// until the oldest packet of the window is acknowledged.
    pub pause_after_out_of_window: bool,
    /// See [`ExtendedRule`].
    pub extended: ExtendedRule,
    /// Number of received packets of a flow after which the receiver acknowledges.
    pub coalesce_count: u32,
    /// Maximum delay of an acknowledgement after the first packet that it acknowledges.
    pub coalesce_timeout: Duration,
    /// Selects the packets on which a sender requests an acknowledgement.
    pub ack_request: AckRequestRule,
    /// True when retransmissions are sent in RSN order across both windows (specification 9.1.3).
    pub ordered: bool,
    /// Labels of the flows, by flow index; one to eight are used. The low bits are replaced by the index.
    pub labels: [FlowLabel; 8],
    /// Number of flows.
    pub flows: u8,
    /// True when the bitmaps of an acknowledgement are still processed although one of its bases is older than the
    /// current one: when flows have different delays, acknowledgements overtake each other. (The specification, with
    /// one path, drops such an acknowledgement completely.)
    pub accept_stale: bool,
    /// Number of timeouts of a packet after which the connection fails.
    pub attempts_max: u16,
    /// If set, timeouts are at least the measured values and double while no response arrives, and the connection
    /// fails when the peer has been silent for this duration times the number of attempts. If `None`, timeouts are
    /// those of the adaptive engine, and the connection fails after a number of timeouts.
    pub measured: Option<Duration>,
    /// Maximum number of early retransmissions (before the timeout) of a packet.
    pub early_attempts_max: u16,
    /// Timeout of packets that have arrived but are not acknowledged by the peer's upper layer.
    pub upper_timeout: Duration,
    /// Initial window of the connection: divided evenly among the flows.
    pub fcwnd: Cwnd,
    /// Maximum number of requests outstanding in each window.
    pub ncwnd: u32,
    /// Recovery policy: decides when a packet is lost.
    pub recovery: Configured<RecoveryPolicy>,
    /// Path policy: selects the flow on which a packet is sent.
    pub paths: Configured<PathPolicy>,
    /// Hash of the connection, fixed and identical in every run.
    pub flow_hash: u64,
}

impl DeliveryConfig {
    /// Returns the default parameters with the given recovery and path policies, one flow, and sequence numbers
    /// starting at zero.
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

    /// Returns the width of the receiver's `window`, in packets.
    pub(crate) fn width(&self, window: Window) -> u32 {
        match window {
            Window::Request => self.request_window,
            Window::Data => self.data_window,
        }
    }

    /// Checks for configuration errors of the local program.
    ///
    /// # Panics
    /// If a width is not supported, or a count is out of range.
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

/// The policies of a connection with their parameters. Connections with the same policies share one instance.
#[derive(Clone, Copy, Debug)]
pub struct Policies {
    /// See [`DeliveryConfig::recovery`].
    pub recovery: Configured<RecoveryPolicy>,
    /// See [`DeliveryConfig::paths`].
    pub paths: Configured<PathPolicy>,
}

impl Policies {
    /// Returns `true` if these are the policies specified by `config`.
    pub fn are_those_of(&self, config: &DeliveryConfig) -> bool {
        let (recovery, paths) = (&config.recovery, &config.paths);
        core::ptr::fn_addr_eq(self.recovery.policy.on_event, recovery.policy.on_event)
            && core::ptr::fn_addr_eq(self.paths.policy.on_event, paths.policy.on_event)
            && self.recovery.policy.name == recovery.policy.name
            && self.paths.policy.name == paths.policy.name
            && (self.recovery.params, self.paths.params) == (recovery.params, paths.params)
    }
}

/// The fields of [`DeliveryConfig`] that the sender uses, with the same meaning.
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

/// A time later than any event: the value of a timer that is not set.
pub(crate) const NEVER: Time = Time::from_ps(u64::MAX);

/// Arbitrary labels that differ in many bits; the low three bits are replaced by the index.
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
