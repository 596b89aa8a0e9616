//! Occasional actions of programs and operators: drain and resume a send queue, change the limit of packets in flight
//! to a peer, change the dequeue rate and the weight of a queue pair, and what a host's queue pairs may use in total.

use rnic_base::BitRate;
use rnic_wire::Qpn;

use super::Body;
use super::end::{Drain, State};
use crate::backend::Backend;
use crate::scenario::{one_in, pick};

impl<B: Backend> Body<'_, B> {
    pub(super) fn drain_and_limit_randomly(&mut self) {
        if !self.scenario.drains_and_limits {
            return;
        }
        for end in 0..self.ends.len() {
            if self.links[end / 2] == State::Alive && !self.ends[end].failed && !self.is_in_error(end) {
                self.drain_or_resume(end);
                self.limit_rate_randomly(end);
                self.reweigh_randomly(end);
            }
        }
        if one_in(&mut self.steps, 200) {
            let packets = pick(&mut self.steps, &[None, Some(1), Some(3), Some(30)]);
            self.limit_peers(packets);
        }
    }

    fn limit_rate_randomly(&mut self, end: usize) {
        if one_in(&mut self.rates, 100) {
            let rate = if self.is_calm { None } else { pick(&mut self.rates, &RATES) };
            self.tally.rate_limits += u64::from(rate.is_some());
            self.backend.set_rate_limit(self.ends[end].host, self.ends[end].qpn, rate);
        }
    }

    fn reweigh_randomly(&mut self, end: usize) {
        if one_in(&mut self.shares, 100) {
            let weight = pick(&mut self.shares, &[1, 1, 2, 7, 1_000]);
            self.backend.set_weight(self.ends[end].host, self.ends[end].qpn, weight);
        }
        if one_in(&mut self.shares, 200) {
            let capacity = if self.is_calm { None } else { pick(&mut self.shares, &RATES) };
            self.backend.set_capacity(self.ends[end].host, capacity);
        }
    }

    fn drain_or_resume(&mut self, end: usize) {
        let (host, qpn) = (self.ends[end].host, self.ends[end].qpn);
        match self.ends[end].drain {
            Drain::No if !self.is_calm && one_in(&mut self.steps, 300) => {
                self.ends[end].drain = Drain::Draining;
                self.backend.drain_qp(host, qpn);
            }
            Drain::No | Drain::Draining => {}
            Drain::Drained(0) => {
                self.ends[end].drain = Drain::No;
                self.tally.drained += 1;
                let timing = self.ends.timing(end, self.scenario.links[end / 2].reads);
                self.backend.resume_qp(host, qpn, &timing);
            }
            Drain::Drained(left) => self.ends[end].drain = Drain::Drained(left - 1),
        }
    }

    /// Handles the event of a drained send queue: none of its requests may be in flight.
    pub(super) fn note_drained(&mut self, host: usize, qpn: Qpn) -> Result<(), String> {
        let Some(end) = self.ends.find(host, qpn) else { return Ok(()) };
        if self.ends[end].drain != Drain::Draining {
            return Err(format!("end {end}: drained, but it is {:?}", self.ends[end].drain));
        }
        self.ends[end].drain = Drain::Drained(self.steps.below(10) as u32);
        let in_progress = self.backend.query(host, qpn).map_or(0, |info| info.requests_in_progress);
        if in_progress > 0 {
            return Err(format!("end {end}: drained with {in_progress} requests in flight"));
        }
        Ok(())
    }
}

/// Dequeue rates of queue pairs: at the lowest one a packet of 4 KB takes 300 us.
const RATES: [Option<BitRate>; 4] =
    [None, Some(BitRate::bps(100_000_000)), Some(BitRate::gbps(1)), Some(BitRate::gbps(4))];
