//! Requirements on a session at a NIC whose peers are adapters of other makes: RoCEv2 as it is, all of it.

use super::PerfError;
use crate::defaults::{ROCE_TRANSPORT, TransportChoice};
use crate::nic::Nic;

/// The transport called `name`, with `options` and what is default among the peers of `nic`.
///
/// # Errors
/// When there is none, or the NIC's peers do not speak it.
pub(super) fn choice(nic: &Nic, name: &str, options: &[(&str, &str)]) -> Result<TransportChoice, PerfError> {
    if !nic.config().real_roce_peers {
        return Ok(TransportChoice::named(name, options)?);
    }
    if name != ROCE_TRANSPORT {
        return Err(PerfError::Foreign { transport: name.to_owned() });
    }
    Ok(TransportChoice::for_roce_peers(options)?)
}
