//! Selective repeat as ConnectX-7 does it: one hole per NACK, Writes and Read responses only.
//!
//! Source: Falcon (SIGCOMM'25) sections 2 and 6.1.1, who measured it from outside: selective for Writes and Read
//! responses, go-back-N for everything else; a NACK for each packet out of order; the NACK cannot name several holes,
//! so recovery is "slow" and "imprecise". The vendor's algorithm is not public.
//!
//! Deviations and choices:
//!
//! * the receiver keeps early Writes and responses ([`Placement::PlaceWrites`]); its NACK says what it expects, and
//!   whether it kept the packet that drew the NACK. If it did, the sender sends the expected packet again, once; if
//!   not (a Send or a request came early), it goes back to it, once per gap, exactly as go-back-N;
//! * when a hole is filled and there is another one, the receiver says so at once: one hole a round trip, also where
//!   nothing new is under way;
//! * a repair that is lost too is sent again once a packet that left after it draws a NACK for the same hole: there is
//!   one for every packet out of order. The paper does not say so, but where only the timeout finds it
//!   (`repair_again = false`), 5 % of losses leave less than go-back-N has, and the paper has 5 to 95 % more. Where
//!   nothing new leaves, the timeout finds it, and goes back: all that is outstanding is sent again;
//! * a last Write packet with immediate data takes a receive, and so is treated as a Send;
//! * what lets a Write packet be placed alone is not public either: packets have IRN's headers, and responses have
//!   numbers of their own, which the data's source recovers (as IRN's; the wire cost is 16 bytes on middle packets).

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, Seq, SeqRange};
use rnic_policy::footprint::PSN_BITS;
use rnic_policy::recovery::Interest;
use rnic_policy::{FootprintField, ParamSpec, Params, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView};

/// Per-window state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Cx7Selective {
    /// The packet that was last sent again because of a NACK.
    repaired: u64,
    /// The first packet that left after it, or will.
    after: u64,
}

const RTO: usize = 0;
const REPAIR_AGAIN: usize = 1;

impl Recovery for Cx7Selective {
    const NAME: &'static str = "cx7-selective";
    const SUMMARY: &'static str = "one hole per NACK for Writes and Read responses, else go-back-N (Falcon 6.1.1)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration("rto", Duration::from_us(320), "retransmission timeout (as go-back-N's)")
        },
        ParamSpec::switch("repair_again", true, "a repair that is lost is sent again for a NACK, not only by timeout"),
    ];
    const GAP_IS_LOSS: bool = true;
    const PLACEMENT: Placement = Placement::PlaceWrites;
    const FOOTPRINT: &'static [FootprintField] =
        &[FootprintField::connection("packet sent again, at both ends; the next new one then", 3 * PSN_BITS)];

    fn start(_: &Params) -> Self {
        Self::zeroed()
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO))
    }

    fn interest(_: &Params) -> Interest {
        Interest::Never
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
        // The packet that drew a NACK for a hole that has been repaired left before the repair.
        let is_old = |seq: Seq| seq.get() < self.after || !params.is_on(REPAIR_AGAIN);
        let says_nothing_new = |seq: Seq| self.repaired == view.una.get() && is_old(seq);
        let retransmit = match event {
            RecoveryEvent::Acked { .. } | RecoveryEvent::Delivered { .. } | RecoveryEvent::Quiet => {
                return RecoveryActions::default();
            }
            RecoveryEvent::Nacked { sack: Some(seq), .. } if says_nothing_new(*seq) => {
                return RecoveryActions::default();
            }
            RecoveryEvent::Nacked { sack: Some(_), .. } => Some(SeqRange::one(view.una)),
            RecoveryEvent::Nacked { sack: None, .. } | RecoveryEvent::TimedOut { .. } => Some(view.outstanding()),
        };
        (self.repaired, self.after) = (view.una.get(), view.next.get());
        RecoveryActions { retransmit, ..RecoveryActions::default() }
    }
}
