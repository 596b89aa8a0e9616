//! Requirements on a session at a NIC that has a secret: all its connections are encrypted.

use super::PerfError;
use crate::connection::ConnectionRequest;
use crate::defaults::TransportChoice;
use crate::nic::Nic;

/// The transport whose packets are encrypted.
pub(super) const TRANSPORT: &str = "falcon";

/// Returns whether Falcon packets are sealed at this end.
pub(super) fn has_key(nic: &Nic) -> bool {
    nic.config().protection.is_some()
}

/// Refuses data connections that the secret of this NIC, if it has one, does not protect.
///
/// # Errors
/// [`PerfError::Unprotected`].
pub(super) fn check_choice(nic: &Nic, choice: &TransportChoice) -> Result<(), PerfError> {
    if has_key(nic) && choice.profile.protocol.falcon().is_none() {
        return Err(PerfError::Unprotected { transport: choice.profile.name });
    }
    Ok(())
}

/// Checks whether a requested control connection matches the protection of this end.
///
/// # Errors
/// The mismatch, as two texts: one for the user at the other end, in which "the other end" is this one, and one for the
/// user at this end. The connection manager checks whether both have the *same* secret: it compares fingerprints.
pub(super) fn check_request(nic: &Nic, request: &ConnectionRequest) -> Result<(), [&'static str; 2]> {
    // An end with a secret offers only Falcon; an end without one offers only other transports.
    let is_sealed = request.transports.iter().all(|transport| transport == TRANSPORT);
    match (has_key(nic), is_sealed) {
        (true, false) => Err([
            "the server has a --key; use the transport falcon with the same --key",
            "the client has no --key; this server requires falcon with the same --key",
        ]),
        (false, true) => Err([
            "the client has a --key, but the server has none; use the same --key at both ends, or none",
            "the client has a --key, but this server has none; use the same --key at both ends, or none",
        ]),
        _ => Ok(()),
    }
}
