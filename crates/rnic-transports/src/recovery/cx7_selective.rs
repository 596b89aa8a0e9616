//! Selective repeat as ConnectX-7 does it: one gap per NACK, Writes and Read responses only.
//!
//! Source: Falcon (SIGCOMM'25) sections 2 and 6.1.1, whose authors measured it from outside: selective for Writes and
//! Read responses, go-back-N for everything else; a NACK for each out-of-order packet; the NACK cannot name several
//! gaps, so recovery is "slow" and "imprecise". The vendor's algorithm is not public.
//!
//! Deviations and choices:
//!
//! * the receiver accepts out-of-order Writes and responses ([`Placement::PlaceWrites`]); its NACK carries the
//!   expected packet, and whether the receiver accepted the packet that caused the NACK. If it did, the sender
//!   retransmits the expected packet, once; if not (a Send or a request arrived out of order), it goes back to the
//!   expected packet, once per gap, exactly as go-back-N;
//! * when a gap is filled and there is another one, the receiver reports it immediately: one gap a round trip, also
//!   when no new packets are in flight;
//! * a retransmission that is lost too is repeated once a packet that was sent after it causes a NACK for the same
//!   gap: there is a NACK for every out-of-order packet. The paper does not state this rule. However, if only the
//!   timeout detects such a loss (`repair_again = false`), goodput at 5 % loss is below that of go-back-N, while the
//!   paper reports 5 to 95 % more than go-back-N. When no new packets are sent, the timeout detects the loss and goes
//!   back: all outstanding packets are retransmitted;
//! * a last Write packet with immediate data consumes a receive, and so is treated as a Send;
//! * the mechanism that allows a Write packet to be placed individually is not public either: packets have IRN's
//!   headers, and responses have sequence numbers of their own, and the sender of the data recovers them (as in IRN;
//!   the wire cost is 16 bytes on middle packets).

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, Seq, SeqRange};
use rnic_policy::footprint::PSN_BITS;
use rnic_policy::recovery::Interest;
use rnic_policy::{FootprintField, ParamSpec, Params, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView};

/// Per-window state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Cx7Selective {
    /// The packet that was last retransmitted because of a NACK.
    repaired: u64,
    /// The first new packet sent after that retransmission, or the next packet to be sent.
    after: u64,
}

const RTO_INDEX: usize = 0;
const RETRANSMIT_AGAIN_INDEX: usize = 1;

impl Recovery for Cx7Selective {
    const NAME: &'static str = "cx7-selective";
    const SUMMARY: &'static str = "one gap per NACK for Writes and Read responses, else go-back-N (Falcon 6.1.1)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration("rto", Duration::from_us(320), "retransmission timeout (as go-back-N's)")
        },
        ParamSpec::switch("repair_again", true, "a lost retransmission is resent on a NACK, not only by timeout"),
    ];
    const GAP_IS_LOSS: bool = true;
    const PLACEMENT: Placement = Placement::PlaceWrites;
    const FOOTPRINT: &'static [FootprintField] =
        &[FootprintField::connection("retransmitted packet, at both ends; then the next new one", 3 * PSN_BITS)];

    fn start(_: &Params) -> Self {
        Self::zeroed()
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_INDEX))
    }

    fn interest(_: &Params) -> Interest {
        Interest::Never
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
        // A packet that was sent before the retransmission may cause a NACK for the gap that is already retransmitted.
        let is_old = |seq: Seq| seq.get() < self.after || !params.is_on(RETRANSMIT_AGAIN_INDEX);
        let says_nothing_new = |seq: Seq| self.repaired == view.una.get() && is_old(seq);
        let retransmit = match event {
            RecoveryEvent::Acked { .. }
            | RecoveryEvent::Delivered { .. }
            | RecoveryEvent::Trimmed { .. }
            | RecoveryEvent::Quiet
            | RecoveryEvent::Arrived { .. }
            | RecoveryEvent::Congested
            | RecoveryEvent::Tick => {
                return RecoveryActions::default();
            }
            RecoveryEvent::Nacked { sack: Some(seq), .. } if says_nothing_new(*seq) => {
                return RecoveryActions::default();
            }
            RecoveryEvent::Nacked { sack: Some(_), .. } => Some(SeqRange::single(view.una)),
            RecoveryEvent::Nacked { sack: None, .. } | RecoveryEvent::TimedOut { .. } => Some(view.outstanding()),
        };
        (self.repaired, self.after) = (view.una.get(), view.next.get());
        RecoveryActions { retransmit, ..RecoveryActions::default() }
    }
}
