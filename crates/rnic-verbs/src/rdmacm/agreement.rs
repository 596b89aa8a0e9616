//! Both ends of a connection must speak one transport: they say which in the vendor fields of REQ and REP, which
//! InfiniBand has for what adapters of one make agree on. All private data stay the program's.
//!
//! The vendor is "ORN"; its options are a hash of the transport's name. Somebody else's stack names another vendor or
//! none, and speaks RoCEv2 with go-back-N.

use std::net::SocketAddr;
use std::sync::OnceLock;

use rnic_host::Settings;
use rnic_wire::cm::{Bits, RejectReason, Vendor};

/// Why such a connection is refused: "vendor option is not supported".
pub(super) const REASON: RejectReason = RejectReason(35);

/// "ORN".
const VENDOR: u32 = 0x4f_524e;

/// The transport of other stacks.
const OTHERS: &str = "roce-gbn";

/// What the other side's transport is to ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Agreement {
    Same,
    Different,
}

impl Agreement {
    /// Compares ours with what the other side says.
    pub(super) fn with(vendor: Vendor) -> Self {
        let theirs = if vendor.id.get() == VENDOR { vendor.options } else { code(OTHERS) };
        if theirs == code(own_name()) { Self::Same } else { Self::Different }
    }
}

/// What we say.
pub(super) fn own() -> Vendor {
    Vendor { id: Bits::clamped(VENDOR), options: code(own_name()) }
}

/// Our transport.
pub(super) fn own_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| Settings::from_environment().map_or_else(|_| OTHERS.to_owned(), |settings| settings.transport))
}

/// FNV-1a: tells names apart, keeps no secret.
fn code(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Says on standard error why a request was refused here.
pub(super) fn complain(from: SocketAddr, vendor: Vendor) {
    let known = rnic_transports::profiles::profiles().into_iter().find(|profile| code(profile.name) == vendor.options);
    let theirs = match known {
        _ if vendor.id.get() != VENDOR => OTHERS,
        Some(profile) => profile.name,
        None => "a transport that is unknown here",
    };
    say(&format!("connection from {from} refused: it speaks {theirs}, this end {}", own_name()));
}

/// Says on standard error why our request was refused; `theirs` is the other side's transport.
pub(super) fn explain(theirs: &[u8]) {
    let theirs: String =
        theirs.iter().take_while(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
    say(&format!("connection refused: the other end speaks {theirs}, this end {}", own_name()));
}

fn say(text: &str) {
    eprintln!("rnic: {text} (RNIC_TRANSPORT must be the same at both ends)");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_told_apart() {
        let names: Vec<&str> = rnic_transports::profiles::profiles().iter().map(|profile| profile.name).collect();
        let mut codes: Vec<u32> = names.iter().map(|name| code(name)).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), names.len(), "two of {names:?} have one code");
        assert_eq!(Agreement::with(own()), Agreement::Same);
        let other = Vendor { options: own().options ^ 1, ..own() };
        assert_eq!(Agreement::with(other), Agreement::Different);
        let stranger = Agreement::with(Vendor::default());
        assert_eq!(stranger == Agreement::Same, own_name() == OTHERS);
    }
}
