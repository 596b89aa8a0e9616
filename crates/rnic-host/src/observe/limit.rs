//! Limits that an operator sets while a program runs: the request and its answer, one line of JSON each.

use rnic_base::BitRate;
use rnic_engine::{LimitSource, RateLimit};
use rnic_wire::Qpn;
use serde::{Deserialize, Serialize};

use crate::nic::Nic;

/// Request to limit queue pairs of a device. Both fields must be present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRequest {
    /// Number of the queue pair; none stands for all queue pairs, and those that are created later.
    #[serde(deserialize_with = "Option::deserialize")]
    pub queue_pair: Option<u32>,
    /// Limit in bits per second; none removes the limit.
    #[serde(deserialize_with = "Option::deserialize")]
    pub rate_bps: Option<u64>,
}

/// Answer to a [`LimitRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitReply {
    /// Number of existing queue pairs that have the new limit.
    QueuePairs(u32),
    /// The reason for which nothing was changed.
    Refused(String),
}

impl LimitRequest {
    /// Sets or removes the operator's limit of one or all queue pairs of `nic`. A refused request changes nothing.
    pub fn apply(&self, nic: &mut Nic) -> LimitReply {
        let rate = self.rate_bps.map(BitRate::bps);
        let [min, max] = nic.verbs().rate_limit_range();
        if let Some(rate) = rate.filter(|rate| !(min..=max).contains(rate)) {
            return LimitReply::Refused(format!("the rate {rate} is not between {min} and {max}"));
        }
        let all = nic.queue_pairs().map(|(view, _)| view.info.number);
        let concerned: Vec<Qpn> =
            all.filter(|number| self.queue_pair.is_none_or(|wanted| number.get() == wanted)).collect();
        match self.queue_pair {
            Some(wanted) if concerned.is_empty() => {
                return LimitReply::Refused(format!("it has no queue pair with the number {wanted:#x}"));
            }
            Some(_) => {}
            None => nic.verbs().set_rate_limit_of_new(rate),
        }
        let limit = rate.map(|rate| RateLimit { rate, burst_bytes: None });
        for qpn in &concerned {
            // The queue pairs exist, and the rate is in range.
            if let Err(error) = nic.verbs().set_rate_limit(*qpn, LimitSource::Operator, limit) {
                return LimitReply::Refused(error.to_string());
            }
        }
        LimitReply::QueuePairs(u32::try_from(concerned.len()).unwrap_or(u32::MAX))
    }
}
