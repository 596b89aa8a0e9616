//! Requirements on a session at a NIC whose peers are adapters of other vendors: all its connections use standard
//! RoCEv2.

use super::PerfError;
use crate::defaults::{ROCE_TRANSPORT, TransportChoice};
use crate::nic::Nic;

/// Returns the transport called `name`, with `options` and the defaults for the peers of `nic`.
///
/// # Errors
/// When no transport has that name, or the NIC's peers do not support it.
pub(super) fn choice(nic: &Nic, name: &str, options: &[(&str, &str)]) -> Result<TransportChoice, PerfError> {
    if !nic.config().real_roce_peers {
        return Ok(TransportChoice::named(name, options)?);
    }
    if name != ROCE_TRANSPORT {
        return Err(PerfError::Foreign { transport: name.to_owned() });
    }
    Ok(TransportChoice::for_roce_peers(options)?)
}
