//! Acknowledgements that report on losses: FaSR's SACK, AACK and FNACK. Responses to Reads are request packets of the
//! responder, so the same acknowledgements are used for requests and responses.
//!
//! Source: FaSR (2025) sections III-B.2 and III-D; mechanisms. The cumulative acknowledgement moves as
//! with every other acknowledgement; selective information goes to the pool; the rest is handled by the recovery
//! policy.
//!
//! Choices: a report that is older than the last acknowledgement is not processed, because its count belongs to
//! another gap; a sender for which the pool has no free unit treats a SACK as go-back-N treats a NAK.

use rnic_base::{Psn, Seq};
use rnic_policy::{LossReport, RecoveryEvent};
use rnic_wire::{LossCause, LossReportFields};

use super::Requester;
use crate::core::Core;
use crate::error::{DropReason, RxOutcome};
use crate::verbs::Verbs;
use crate::window::{Bits, LaneId, Lost, SendWindow};

/// Report for the recovery policy: the selectively acknowledged packet and the losses.
type Report = (Option<Seq>, Option<LossReport>);

/// Records the loss report `report` in `window`; returns `None` when it is invalid.
fn record(
    window: &mut SendWindow,
    report: &LossReportFields,
    transport: &crate::Transport,
    bits: &mut Bits<'_>,
) -> Option<Report> {
    let seq = report.psn.extend(window.una);
    let lost = Lost { count: report.lost, overflow: report.overflow };
    let cause = match report.cause {
        LossCause::OutOfOrder => rnic_policy::LossCause::OutOfOrder,
        LossCause::Repaired => rnic_policy::LossCause::Repaired,
        LossCause::Misplaced => rnic_policy::LossCause::Misplaced,
    };
    let losses = Some(LossReport { lost: report.lost, overflow: report.overflow, cause });
    if report.cause != LossCause::OutOfOrder {
        return Some((None, losses));
    }
    if !transport.places_out_of_order || seq <= window.una || seq >= window.next {
        return None;
    }
    let is_selective = window.acknowledge_counted(seq, lost, transport, bits);
    Some(if is_selective { (Some(seq), losses) } else { (None, None) })
}

impl Requester {
    /// Handles an acknowledgement of requests that reports on losses.
    #[cold]
    pub(crate) fn on_loss_ack(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        psn: Psn,
        report: &LossReportFields,
    ) -> RxOutcome {
        let una = self.window.una;
        let cumulative = psn.extend(una) + u64::from(report.cause == LossCause::Repaired);
        if cumulative > self.window.next {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        }
        let stale = cumulative < una;
        self.window.note_response();
        if !stale {
            self.acknowledge(verbs, core, cumulative);
        }
        // Processing the acknowledgement may have failed the queue pair.
        if stale || !verbs.head.transmits() || self.window.una != cumulative || self.window.is_empty() {
            return RxOutcome::Duplicate;
        }
        let mut bits = core.pools.bits(verbs.head.transport.pool, &mut self.shared.pool, LaneId::RequestsOut);
        let Some((sack, losses)) = record(&mut self.window, report, &verbs.head.transport, &mut bits) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::Unsolicited));
        };
        if let Some(seq) = sack {
            self.on_out_of_order(verbs, core, seq);
        }
        let event = RecoveryEvent::Nacked { sack, losses, is_new: true, advanced: false };
        self.on_nack(verbs, core, &event);
        RxOutcome::Accepted
    }
}
