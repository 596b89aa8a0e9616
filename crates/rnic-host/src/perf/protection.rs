//! What a session must be like at a NIC that has a secret: sealed, all of it.

use super::PerfError;
use crate::connection::ConnectionRequest;
use crate::defaults::TransportChoice;
use crate::nic::Nic;

/// The transport whose packets are sealed.
pub(super) const TRANSPORT: &str = "falcon";

/// Whether packets of Falcon are sealed here.
pub(super) fn has_key(nic: &Nic) -> bool {
    nic.config().protection.is_some()
}

/// Refuses data connections that a secret does not protect where there is one.
///
/// # Errors
/// [`PerfError::Unprotected`].
pub(super) fn check_choice(nic: &Nic, choice: &TransportChoice) -> Result<(), PerfError> {
    if has_key(nic) && choice.profile.protocol.falcon().is_none() {
        return Err(PerfError::Unprotected { transport: choice.profile.name });
    }
    Ok(())
}

/// Compares the control connection that somebody asks for with what this end has.
///
/// # Errors
/// What is missing: for people at the other end, to whom this one is the other, and for people here. Whether both have
/// the *same* secret is for the connection manager: it compares fingerprints.
pub(super) fn check_request(nic: &Nic, request: &ConnectionRequest) -> Result<(), [&'static str; 2]> {
    // Who has a secret asks for Falcon alone, who has none for something else.
    let is_sealed = request.transports.iter().all(|transport| transport == TRANSPORT);
    match (has_key(nic), is_sealed) {
        (true, false) => Err([
            "the other end has a key: it serves falcon with the same --key only",
            "it has no key; this end serves falcon with the same --key only",
        ]),
        (false, true) => Err(["the other end has no --key", "it has a key; this end has no --key"]),
        _ => Ok(()),
    }
}
