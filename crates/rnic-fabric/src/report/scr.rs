//! Counters of the messages between the NICs of hosts.

use rnic_engine::messages::exchange::Exchange;
use rnic_wire::scr::Type;
use serde::Serialize;

use super::Spread;

/// Counters of the messages between NICs, summed over all hosts.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ScrFigures {
    /// Messages sent, of all types.
    pub messages_sent: u64,
    /// Probes sent.
    pub probes_sent: u64,
    /// Probe answers sent.
    pub answers_sent: u64,
    /// Reports of load sent.
    pub reports_sent: u64,
    /// Number of grants sent; a message contains up to six.
    pub grants_sent: u64,
    /// Number of notices of back-pressure sent; a message contains up to six.
    pub notices_sent: u64,
    /// Messages dropped by their receivers, because their connection has ended or for another reason.
    pub messages_dropped: u64,
    /// Probes of queue pairs that were not answered in time.
    pub probes_lost: u64,
    /// Round trips measured by the probes of queue pairs, in microseconds, requested by the plan or by a policy.
    pub round_trip_us: Option<Spread>,
}

impl ScrFigures {
    /// Adds the counters of a host.
    pub(crate) fn add(&mut self, exchange: &Exchange) {
        let stats = exchange.stats();
        self.messages_sent += stats.all_sent();
        self.probes_sent += stats.sent(Type::Probe);
        self.answers_sent += stats.sent(Type::Answer);
        self.reports_sent += stats.sent(Type::NodeReport);
        self.grants_sent += stats.grants_sent;
        self.notices_sent += stats.notices_sent;
        self.messages_dropped += stats.all_dropped();
        self.probes_lost += stats.probes_lost;
    }
}
