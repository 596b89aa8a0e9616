//! Acknowledgements that report on losses: FaSR's SACK, AACK and FNACK. Answers to Reads are packets of
//! the responder's own, so one kind serves both.
//!
//! Source: FaSR (2025) sections III-B.2 and III-D; mechanisms. The cumulative acknowledgement moves as
//! with every other; what is selective goes to the pool; the rest is the recovery policy's.
//!
//! Choices: a report that is older than the last acknowledgement is not heeded, because its count belongs to another
//! hole; a sender whose pool has no unit for it treats a SACK as go-back-N treats a NAK.

use rnic_base::{Psn, Seq, Time};
use rnic_policy::LossReport;
use rnic_wire::{LossCause, LossNote};

use crate::core::Core;
use crate::error::{DropReason, RxOutcome};
use crate::qp::Qp;
use crate::window::{Bits, LaneId, Lost, SendWindow};

/// What is said to the recovery policy.
type Report = (Option<Seq>, Option<LossReport>);

/// Records what `note` says in `window`; `None` when it cannot be true.
fn record(
    window: &mut SendWindow,
    note: &LossNote,
    transport: &crate::Transport,
    bits: &mut Bits<'_>,
) -> Option<Report> {
    let seq = note.psn.extend(window.una);
    let lost = Lost { count: note.lost, overflow: note.overflow };
    let cause = match note.cause {
        LossCause::Early => rnic_policy::LossCause::Early,
        LossCause::Repaired => rnic_policy::LossCause::Repaired,
        LossCause::Misplaced => rnic_policy::LossCause::Misplaced,
    };
    let losses = Some(LossReport { lost: note.lost, overflow: note.overflow, cause });
    if note.cause != LossCause::Early {
        return Some((None, losses));
    }
    if !transport.places_early || seq <= window.una || seq >= window.next {
        return None;
    }
    let selective = window.acknowledge_counted(seq, lost, transport, bits);
    Some(if selective { (Some(seq), losses) } else { (None, None) })
}

impl Qp {
    /// An acknowledgement of requests that reports on losses.
    #[cold]
    pub(crate) fn receive_loss_ack(&mut self, core: &mut Core, now: Time, psn: Psn, note: &LossNote) -> RxOutcome {
        let una = self.requester.window.una;
        let cumulative = psn.extend(una) + u64::from(note.cause == LossCause::Repaired);
        if cumulative > self.requester.window.next {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        }
        let stale = cumulative < una;
        self.requester.window.note_heard();
        if !stale {
            self.acknowledge_requests(core, now, cumulative);
        }
        // Acknowledging may have failed the queue pair.
        if stale || !self.transmits() || self.requester.window.una != cumulative || self.requester.window.is_empty() {
            return RxOutcome::Duplicate;
        }
        let mut bits = core.pools.bits(self.transport.pool, &mut self.responder.sr, LaneId::RequestsOut);
        let Some((sack, losses)) = record(&mut self.requester.window, note, &self.transport, &mut bits) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        if let Some(seq) = sack {
            self.heed_early_rtt(core, now, seq);
        }
        self.heed_nack(core, now, sack, losses);
        RxOutcome::Accepted
    }
}
