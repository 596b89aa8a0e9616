//! The *Read WQE buffer* (IRN section 5.3, mechanism I-16): the peer's reads and atomics, each in the slot that its
//! `read_WQE_SN` names, from when its request is here until its answer has been acknowledged. As many slots as the peer
//! may have outstanding: `max_dest_rd_atomic`.

use rnic_base::Seq;
use rnic_wire::NakCode;

use super::{Fetch, FetchServer};
use crate::core::Core;
use crate::qp::Qp;

/// Slots by `read_WQE_SN`.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    slots: Box<[Option<Fetch>]>,
    /// How many fetches the peer may have outstanding: as many slots are in use.
    limit: u32,
    /// `read_WQE_SN` of the oldest fetch whose responses are not all acknowledged.
    head: u32,
    /// `read_WQE_SN` after the last fetch that has begun.
    begun: u32,
}

impl ReadBuffer {
    pub(super) fn new(limit: u32) -> Self {
        Self { slots: vec![None; limit.next_power_of_two() as usize].into_boxed_slice(), limit, head: 0, begun: 0 }
    }

    fn slot(&self, sn: u32) -> usize {
        sn as usize & (self.slots.len() - 1)
    }

    pub(super) fn at(&mut self, sn: u32) -> Option<&mut Fetch> {
        let slot = self.slot(sn);
        self.slots[slot].as_mut()
    }

    /// The turn of `sn` has come.
    pub(super) fn begin(&mut self, sn: u32) -> &mut Fetch {
        self.begun = sn.wrapping_add(1);
        self.at(sn).expect("admitted")
    }

    /// `read_WQE_SN` after the last fetch that has begun.
    pub(super) fn begun(&self) -> u32 {
        self.begun
    }

    /// Whether a fetch that has begun is not wholly acknowledged.
    pub(super) fn is_busy(&self) -> bool {
        self.head != self.begun
    }

    fn under_way(&self) -> impl Iterator<Item = Fetch> {
        let begun = self.begun.wrapping_sub(self.head);
        (0..begun).filter_map(|index| self.slots[self.slot(self.head.wrapping_add(index))])
    }

    /// The fetch that response `seq` belongs to.
    pub(super) fn find(&self, seq: Seq) -> Option<Fetch> {
        self.under_way().find(|fetch| fetch.first <= seq && seq < fetch.end())
    }

    /// The fetch that request `seq` has asked for, when it has begun.
    pub(super) fn asked_by(&mut self, seq: Seq) -> Option<&mut Fetch> {
        let sn = self.under_way().find(|fetch| fetch.seq == seq)?.sn;
        self.at(sn)
    }

    /// Frees the slots whose responses have all been acknowledged, which are those before `una`.
    pub(super) fn free_acknowledged(&mut self, una: Seq) {
        while self.head != self.begun {
            let slot = self.slot(self.head);
            if self.slots[slot].is_some_and(|fetch| fetch.first == Seq::UNSET || fetch.end() > una) {
                break;
            }
            self.slots[slot] = None;
            self.head = self.head.wrapping_add(1);
        }
    }

    /// A fetch named `sn` can only be asked for when the one `limit` places before is complete at the requester: that
    /// is an acknowledgement, should its own have been lost. Answers up to where; `None` when it was never sent wholly,
    /// by a sender whose next number is `next`.
    fn implied_acknowledgement(&self, sn: u32, next: Seq) -> Option<Seq> {
        let complete = sn.wrapping_sub(self.limit);
        let begun = complete.wrapping_sub(self.head) < self.begun.wrapping_sub(self.head);
        let fetch = self.slots[self.slot(complete)].filter(|fetch| begun && fetch.first != Seq::UNSET)?;
        Some(fetch.end()).filter(|end| *end <= next)
    }
}

impl Qp {
    /// The buffer, and the next number of the space that its answers are in.
    fn read_buffer(&mut self) -> (&mut ReadBuffer, Seq) {
        match self.responder.fetches.as_deref_mut() {
            Some(FetchServer::Split(server)) => (&mut server.buffer, server.window.next),
            Some(FetchServer::Scheduled(server)) => (&mut server.buffer, self.requester.window.next),
            _ => unreachable!("answers whose requests take one number have a buffer"),
        }
    }

    /// Puts `fetch` into the slot that `read_sn` names; `turn` is the one to begin next.
    pub(super) fn admit_named_fetch(
        &mut self,
        core: &mut Core,
        fetch: Fetch,
        read_sn: Option<u32>,
        in_order: bool,
        turn: u32,
    ) -> Result<(), NakCode> {
        let named = read_sn.ok_or(NakCode::InvalidRequest)?;
        // The name has 24 bits; its counter is the nearest one to the fetch whose turn it is.
        let sn = turn.wrapping_add((named.wrapping_sub(turn) << 8).cast_signed().wrapping_shr(8) as u32);
        if in_order && sn != turn {
            return Err(NakCode::InvalidRequest);
        }
        let (buffer, next) = self.read_buffer();
        if sn.wrapping_sub(turn) >= buffer.limit {
            return Err(NakCode::InvalidRequest);
        }
        if sn.wrapping_sub(buffer.head) >= buffer.limit {
            let una = buffer.implied_acknowledgement(sn, next).ok_or(NakCode::InvalidRequest)?;
            self.advance_answers(core, una)?;
        }
        let (buffer, _) = self.read_buffer();
        let slot = buffer.slot(sn);
        if buffer.slots[slot].is_some() {
            return Err(NakCode::InvalidRequest);
        }
        buffer.slots[slot] = Some(Fetch { sn, ..fetch });
        Ok(())
    }

    /// Answers up to `una` have arrived, says the peer's next request.
    fn advance_answers(&mut self, core: &mut Core, una: Seq) -> Result<(), NakCode> {
        if !self.transport.scheduled {
            self.advance_responses(core, una);
            return Ok(());
        }
        let now = core.now;
        self.advance_requests(core, now, una);
        self.read_buffer().0.free_acknowledged(una);
        // An entry of the send queue that had to wait for this may have failed.
        if self.state.receives() { Ok(()) } else { Err(NakCode::RemoteOperationalError) }
    }
}
