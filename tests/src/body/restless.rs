//! Occasional actions of programs: drain and resume a send queue, change the limit of packets in flight to a peer.

use rnic_wire::Qpn;

use super::Body;
use super::end::{Drain, State};
use crate::backend::Backend;
use crate::scenario::{one_in, pick};

impl<B: Backend> Body<'_, B> {
    pub(super) fn be_restless(&mut self) {
        if !self.scenario.restless {
            return;
        }
        for end in 0..self.ends.len() {
            if self.links[end / 2] == State::Alive && !self.ends[end].failed && !self.is_in_error(end) {
                self.drain_or_resume(end);
            }
        }
        if one_in(&mut self.steps, 200) {
            let packets = pick(&mut self.steps, &[None, Some(1), Some(3), Some(30)]);
            self.limit_peers(packets);
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
        let under_way = self.backend.query(host, qpn).map_or(0, |info| info.requests_under_way);
        if under_way > 0 {
            return Err(format!("end {end}: drained with {under_way} requests in flight"));
        }
        Ok(())
    }
}
