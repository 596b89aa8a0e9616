//! Restrictions on operations whose transport does not guarantee order.

use rnic_policy::FalconOrdering;

use super::{Op, PerfConfig, PerfError};
use crate::defaults::TransportChoice;

/// Returns whether operations are executed, and complete, in any order.
pub(super) fn is_any(choice: &TransportChoice) -> bool {
    choice.profile.protocol.falcon().is_some_and(|shape| shape.ordering == FalconOrdering::Unordered)
}

/// Refuses operations that need order when the transport does not guarantee it.
///
/// # Errors
/// [`PerfError::NeedsOrder`].
pub(super) fn check(config: &PerfConfig, choice: &TransportChoice, mtu_bytes: u32) -> Result<(), PerfError> {
    if !is_any(choice) {
        return Ok(());
    }
    let fits = config.operation_bytes() <= mtu_bytes;
    let one_packet = format!("one packet ({mtu_bytes} bytes)");
    let (what, unless) = match config.op {
        Op::Send if !fits => ("a Send", one_packet),
        // The immediate data indicate to the remote end what to compare.
        Op::Write if config.verify && !fits => ("a verified Write (it has immediate data)", one_packet),
        // Each operation expects the value that the previous one has written.
        Op::CompareSwap if config.depth > 1 => ("a compare-and-swap", "one operation in flight".to_owned()),
        _ => return Ok(()),
    };
    Err(PerfError::NeedsOrder { what, unless })
}
