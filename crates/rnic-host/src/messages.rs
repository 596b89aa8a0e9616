//! Messages between NICs (SCR): the settings with which a NIC exchanges them, and the NIC that sent a received one.
//!
//! The rules by which messages are accepted, answered and applied are the engine's ([`rnic_engine::messages`]); their
//! form is in [`rnic_wire::scr`]. This crate carries them: `nic/messages` sends and receives them, and reports what
//! waits in the receive buffers; `link/message` queues them as it does packets.
//!
//! **Agreement.** A peer is sent messages only after it has said that it exchanges them: in its hello
//! ([`crate::hello`]), or in the REQ or REP of the connection manager ([`crate::cm`]).
//!
//! **Origin.** A message about a queue pair is sent from the port of data, so that a probe takes the path of the data;
//! one about a whole NIC is sent from the NIC's own port, because all NICs of a user send data from port 4791. A
//! receiver demands the same ([`sender_of`]). A probe may come from another port that it announces ([`crate::paths`]).
//! In shared memory the writer of the ring is the sender.
//!
//! **Same machine.** Where data takes shared memory, so do messages.
//!
//! **Sealed.** A NIC with a key sends messages within connections that have a key, as their packets
//! (`falcon/messages`), and drops all others as it drops other packets that are not sealed.

use core::num::NonZeroU64;

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::messages::cadence::Modes;
use rnic_engine::messages::config::{AnswerLimit, ExchangeConfig, GrantScope};
use rnic_wire::Qpn;
use rnic_wire::net::UDP_PORT;
use rnic_wire::scr::Message;

use crate::link::Ports;
use crate::ports::{is_port_of_nic, port_of};
use crate::sys;

/// Settings of the messages that a NIC exchanges with the NICs of its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagesConfig {
    /// True to grant sending rates to the queue pairs that send to this NIC (SCR mechanism S-25). The rate that is
    /// divided is that of the shared link ([`crate::ShareConfig::link_rate`]), otherwise the line rate.
    pub grants: bool,
    /// Number of bytes queued in the receive buffers above which back-pressure is sent to senders (SCR mechanism S-26);
    /// `None` for a quarter of the buffers.
    pub pressure_bytes: Option<u64>,
    /// Interval between probes of the path of each queue pair that sends (SCR mechanism S-8); `None` to send only
    /// probes that policies request.
    pub probe_interval: Option<Duration>,
    /// Times at which the NIC reports its load to each peer (SCR mechanism S-7); periodic reports are sent only to
    /// peers from which data arrives.
    pub reports: Modes,
}

impl Default for MessagesConfig {
    fn default() -> Self {
        Self { grants: false, pressure_bytes: None, probe_interval: Some(PROBE_INTERVAL), reports: REPORTS }
    }
}

impl MessagesConfig {
    /// Returns the settings of the engine, for a NIC whose receive buffers have `buffer_bytes`, and which receives at
    /// `shared_line` if that differs from its line rate.
    pub(crate) fn exchange(&self, ports: Ports, buffer_bytes: u64, shared_line: Option<BitRate>) -> ExchangeConfig {
        ExchangeConfig {
            modes: self.reports,
            period: PERIOD,
            round_trip: ROUND_TRIP,
            credits: if self.grants { GrantScope::All } else { GrantScope::Off },
            pressure_bytes: Some(self.pressure_bytes.unwrap_or(buffer_bytes / 4)),
            probe_interval: self.probe_interval,
            probe_timeout: PROBE_TIMEOUT,
            probe_timeout_min: PROBE_TIMEOUT_MIN,
            probe_timeout_round_trips: PROBE_TIMEOUT_ROUND_TRIPS,
            path_probe_spacing: Some(PATH_PROBE_SPACING),
            takes_labels: true,
            shared_line,
            answers: AnswerLimit::HOSTILE,
            draw_cookie: Some(draw_cookie),
            nic_of: if ports == Ports::OfQueuePair { port_of } else { |_| 0 },
            waits_for_agreement: true,
            greeting_interval: Some(GREETING_INTERVAL),
            rests_when_idle: true,
            host_delay_max: HOST_DELAY_MAX,
            probes_wait_for_hosts: true,
            ..ExchangeConfig::default()
        }
    }
}

/// Measures the occupancy of the receive buffers, at most once per interval, because that is a system call.
///
/// Any host can send to the port of a NIC, and that must not slow down the peers: nothing is reported while most of the
/// received datagrams are rejected, and drops are only reported when peers had filled the buffers. The kernel counts
/// datagrams with a wrong checksum as dropped, too.
#[derive(Debug, Default)]
pub(crate) struct BacklogWatch {
    next_at: Time,
    last: BufferCounts,
    /// Drops that have been reported.
    drops: u64,
}

/// State of the receive buffers, and counters since the NIC was opened.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct BufferCounts {
    /// Bytes in the buffers.
    pub(crate) waiting_bytes: u64,
    /// Datagrams that the kernel has dropped.
    pub(crate) kernel_drops: u64,
    /// Number of datagrams received.
    pub(crate) received: u64,
    /// Number of these that were rejected by this crate.
    pub(crate) refused: u64,
}

impl BacklogWatch {
    /// Returns whether the buffers have to be measured now, and starts the next interval if so.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let is_due = now >= self.next_at;
        if is_due {
            self.next_at = now + BACKLOG_INTERVAL;
        }
        is_due
    }

    /// Returns the number of queued bytes, and the number of drops since the start, if senders have to be notified.
    /// `threshold_bytes` may be queued without a notice.
    pub(crate) fn examine(&mut self, now: BufferCounts, threshold_bytes: u64) -> (u64, u64) {
        let before = std::mem::replace(&mut self.last, now);
        let refused = now.refused.saturating_sub(before.refused);
        if 2 * refused > now.received.saturating_sub(before.received) {
            return (0, self.drops);
        }
        if now.waiting_bytes.max(before.waiting_bytes) > threshold_bytes {
            self.drops += now.kernel_drops.saturating_sub(before.kernel_drops);
        }
        (now.waiting_bytes, self.drops)
    }
}

/// Returns a random cookie from the system, even when the NIC has a seed, because a cookie is a secret between two
/// NICs; `None` if the system call is no longer permitted.
fn draw_cookie() -> Option<NonZeroU64> {
    sys::random_bits().ok().and_then(NonZeroU64::new)
}

/// Returns the number of the NIC ([`rnic_engine::NicId::number`]) that sent a message over UDP from `source_port` of a
/// peer; `None` if the NIC named in the message does not send from this port.
pub(crate) fn sender_of(ports: Ports, source_port: u16, message: &Message) -> Option<u16> {
    match ports {
        // The peer has been found by its port.
        Ports::OfPeer => Some(0),
        Ports::OfQueuePair if is_of_nic(message) => is_port_of_nic(source_port).then_some(source_port),
        Ports::OfQueuePair => {
            let port = port_of(message.source_qpn);
            (source_port == port || source_port == UDP_PORT).then_some(port)
        }
        Ports::RoceV2 => None,
    }
}

/// Returns whether a message is about a whole NIC, and not about a queue pair.
pub(crate) fn is_of_nic(message: &Message) -> bool {
    message.source_qpn == Qpn::GSI
}

/// Time between two looks at the receive buffers.
const BACKLOG_INTERVAL: Duration = Duration::from_us(100);

/// Reports of the load: each period.
const REPORTS: Modes = Modes { periodic: true, sampling_bytes: None, anomaly: false };

/// Maximum delay in the host of a peer that is accepted: twenty times the default target of `swift-rate`, which then
/// halves its rate; a larger value would only hide the delay of the path.
const HOST_DELAY_MAX: Duration = Duration::from_ms(20);

/// Period of reports and grants. A grant is valid for eight periods, longer than a process waits for a processor.
const PERIOD: Duration = Duration::from_ms(4);

/// Round trip until one is measured: that of two busy processes.
const ROUND_TRIP: Duration = Duration::from_ms(1);

/// Time between two greetings of a peer, which wake an idle process.
const GREETING_INTERVAL: Duration = Duration::from_secs(10);

/// Default interval between the probes of each queue pair: with hundreds of queue pairs to one peer, a NIC stays below
/// the number of answers that the peer sends per second.
const PROBE_INTERVAL: Duration = Duration::from_ms(100);

/// Time after which a probe of this driver counts as lost.
const PROBE_TIMEOUT: Duration = Duration::from_ms(100);

/// Minimum timeout of a probe requested by a policy, in addition to some round trips: the peer may have to wait for a
/// processor.
const PROBE_TIMEOUT_MIN: Duration = Duration::from_ms(10);

/// Number of these round trips.
const PROBE_TIMEOUT_ROUND_TRIPS: u64 = 3;

/// Time between two probes that path policies send to one NIC: two thirds of the answers that the peer sends. The rest
/// is for congestion control, and for queue pairs without path selection.
const PATH_PROBE_SPACING: Duration = Duration::from_us(1_500);

#[cfg(test)]
mod tests {
    use rnic_base::Psn32;
    use rnic_wire::scr::{Body, Cookie, ProbePath};

    use super::*;
    use crate::ports::number_on;

    fn probe(source_qpn: Qpn) -> Message {
        let announced = Cookie::new(1);
        Message {
            dest_qpn: Qpn::new(7),
            source_qpn,
            cookie: None,
            announced,
            answer_wanted: true,
            is_last: false,
            sequence: Psn32::new(0),
            time: 0,
            body: Body::Probe(ProbePath::default()),
        }
    }

    /// Rule 1 of scr.md section 5.4: a message comes from a port from which packets of its sender come.
    #[test]
    fn s6_the_port_of_a_message_is_that_of_the_nic_that_it_names() {
        let (mine, other) = (32_768, 32_784);
        let of_queue_pair = probe(number_on(mine, 5));
        let of_nic = probe(Qpn::GSI);
        let sender = |port, message| sender_of(Ports::OfQueuePair, port, message);
        assert_eq!(sender(mine, &of_queue_pair), Some(mine));
        assert_eq!(sender(UDP_PORT, &of_queue_pair), Some(mine), "the port of data");
        assert_eq!(sender(other, &of_queue_pair), None, "the port of another NIC");
        assert_eq!(sender(mine, &of_nic), Some(mine));
        assert_eq!(sender(UDP_PORT, &of_nic), None, "a port that all NICs of a user share");
        assert_eq!(sender_of(Ports::OfPeer, 40_000, &of_nic), Some(0));
        assert_eq!(sender_of(Ports::RoceV2, UDP_PORT, &of_queue_pair), None);
    }

    /// Datagrams of senders without a connection that fill the buffer, and datagrams with a wrong checksum, which the
    /// kernel counts as dropped.
    #[test]
    fn s26_only_what_peers_send_is_told_to_senders() {
        let mut watch = BacklogWatch::default();
        let counts = |waiting_bytes, kernel_drops, received, refused| BufferCounts {
            waiting_bytes,
            kernel_drops,
            received,
            refused,
        };
        assert_eq!(watch.examine(counts(900, 0, 10, 0), 1_000), (900, 0));
        assert_eq!(watch.examine(counts(900, 2, 20, 0), 1_000), (900, 0), "the buffers were not full");
        assert_eq!(watch.examine(counts(5_000, 5, 30, 6), 1_000), (0, 0), "most of it was refused");
        assert_eq!(watch.examine(counts(5_000, 9, 40, 8), 1_000), (5_000, 4));
        assert_eq!(watch.examine(counts(0, 10, 50, 8), 1_000), (0, 5), "the buffers were full before");
        assert_eq!(watch.examine(counts(0, 11, 50, 8), 1_000), (0, 5));
    }

    #[test]
    fn s6_cookies_differ() {
        assert!(draw_cookie().is_some() && draw_cookie() != draw_cookie());
    }
}
