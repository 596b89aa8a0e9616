//! The *Read WQE buffer* (IRN section 5.3, mechanism I-16): the peer's Reads and atomics, each in the slot for its
//! `read_WQE_SN`, from the arrival of its request until its response has been acknowledged. It has as many slots as the
//! peer may have outstanding: `max_dest_rd_atomic`.

use rnic_base::Seq;
use rnic_wire::NakCode;

use super::Fetch;

/// Buffer of fetches, by `read_WQE_SN`.
#[derive(Debug)]
pub(in crate::roce) struct ReadBuffer {
    slots: Box<[Option<Fetch>]>,
    /// Maximum number of outstanding fetches of the peer, which is the number of slots used.
    limit: u32,
    /// `read_WQE_SN` of the oldest fetch whose responses are not all acknowledged.
    head: u32,
    /// `read_WQE_SN` after the last fetch that has started.
    begun: u32,
}

impl ReadBuffer {
    pub(in crate::roce) fn new(limit: u32) -> Self {
        Self { slots: vec![None; limit.next_power_of_two() as usize].into_boxed_slice(), limit, head: 0, begun: 0 }
    }

    fn slot(&self, sn: u32) -> usize {
        sn as usize & (self.slots.len() - 1)
    }

    pub(in crate::roce) fn at(&mut self, sn: u32) -> Option<&mut Fetch> {
        let slot = self.slot(sn);
        self.slots[slot].as_mut()
    }

    /// Returns the fetch that is to start next, if its request has arrived.
    pub(in crate::roce) fn next(&mut self) -> Option<&mut Fetch> {
        self.at(self.begun)
    }

    /// Starts the next fetch.
    pub(in crate::roce) fn begin(&mut self) -> &mut Fetch {
        let sn = self.begun;
        self.begun = sn.wrapping_add(1);
        self.at(sn).expect("the fetch was admitted")
    }

    /// Returns the `read_WQE_SN` after the last fetch that has started.
    pub(in crate::roce) fn begun(&self) -> u32 {
        self.begun
    }

    /// Returns whether a fetch that has started is not completely acknowledged.
    pub(in crate::roce) fn is_busy(&self) -> bool {
        self.head != self.begun
    }

    fn in_progress(&self) -> impl Iterator<Item = Fetch> {
        let begun = self.begun.wrapping_sub(self.head);
        (0..begun).filter_map(|index| self.slots[self.slot(self.head.wrapping_add(index))])
    }

    /// Returns the fetch that response `seq` belongs to.
    pub(in crate::roce) fn find(&self, seq: Seq) -> Option<Fetch> {
        self.in_progress().find(|fetch| fetch.first <= seq && seq < fetch.end())
    }

    /// Returns the fetch requested by request packet `seq`, if it has started.
    pub(in crate::roce) fn requested_by(&mut self, seq: Seq) -> Option<&mut Fetch> {
        let sn = self.in_progress().find(|fetch| fetch.seq == seq)?.sn;
        self.at(sn)
    }

    /// Frees the slots whose responses have all been acknowledged, which are those before `una`.
    pub(in crate::roce) fn free_acknowledged(&mut self, una: Seq) {
        while self.head != self.begun {
            let slot = self.slot(self.head);
            if self.slots[slot].is_some_and(|fetch| fetch.first == Seq::UNSET || fetch.end() > una) {
                break;
            }
            self.slots[slot] = None;
            self.head = self.head.wrapping_add(1);
        }
    }

    /// Returns the counter of the fetch that the 24 bits of `sn_low_24` refer to.
    ///
    /// # Errors
    /// When it is further ahead than the peer is permitted, or when its request has arrived in order but the fetch is
    /// not the next one.
    pub(in crate::roce) fn resolve(&self, sn_low_24: u32, in_order: bool) -> Result<u32, NakCode> {
        let next_sn = self.begun;
        // The `read_WQE_SN` field has 24 bits; the full counter is the value nearest to the next fetch to start.
        let sn = next_sn.wrapping_add((sn_low_24.wrapping_sub(next_sn) << 8).cast_signed().wrapping_shr(8) as u32);
        if in_order && sn != next_sn || sn.wrapping_sub(next_sn) >= self.limit {
            return Err(NakCode::InvalidRequest);
        }
        Ok(sn)
    }

    /// Handles the acknowledgement implied by a request: fetch `sn` can be requested only when the fetch `limit`
    /// positions before it is complete at the requester, even if its own acknowledgement was lost. Returns the
    /// response number up to which responses are thereby acknowledged, if the slot is not free yet; `next` is the
    /// number of the next response.
    ///
    /// # Errors
    /// When that earlier fetch was never sent completely.
    pub(in crate::roce) fn implied_acknowledgement(&self, sn: u32, next: Seq) -> Result<Option<Seq>, NakCode> {
        if sn.wrapping_sub(self.head) < self.limit {
            return Ok(None);
        }
        let completed_sn = sn.wrapping_sub(self.limit);
        let begun = completed_sn.wrapping_sub(self.head) < self.begun.wrapping_sub(self.head);
        let fetch = self.slots[self.slot(completed_sn)].filter(|fetch| begun && fetch.first != Seq::UNSET);
        let end = fetch.map(|fetch| fetch.end()).filter(|end| *end <= next);
        end.map(Some).ok_or(NakCode::InvalidRequest)
    }

    /// Inserts `fetch` into the slot of `sn`.
    ///
    /// # Errors
    /// When the slot is taken.
    pub(in crate::roce) fn insert(&mut self, sn: u32, fetch: Fetch) -> Result<(), NakCode> {
        let slot = self.slot(sn);
        if self.slots[slot].is_some() {
            return Err(NakCode::InvalidRequest);
        }
        self.slots[slot] = Some(Fetch { sn, ..fetch });
        Ok(())
    }
}
