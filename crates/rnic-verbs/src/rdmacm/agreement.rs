//! Both ends of a connection must speak one transport: they say which in the vendor fields of REQ and REP, which
//! InfiniBand has for what adapters of one make agree on. All private data stay the program's.
//!
//! The vendor is "ORN"; its options are a hash of the transport's name. For Falcon it is "ORF", with the word of what
//! must be alike ([`falcon_word`]). Somebody else's stack names another vendor or none, and speaks RoCEv2 with
//! go-back-N.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rnic_host::cm::{falcon_key_hint, falcon_text, falcon_word};
use rnic_host::{Settings, complain};
use rnic_wire::cm::{Bits, RejectReason, Vendor};

use crate::device;

/// Why such a connection is refused: "vendor option is not supported".
pub(super) const REASON: RejectReason = RejectReason(35);

/// "ORN".
const VENDOR: u32 = 0x4f_524e;

/// "ORF".
const FALCON_VENDOR: u32 = 0x4f_5246;

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
        let speaks = |name| Vendor { id: Bits::clamped(VENDOR), options: code(name) };
        let theirs = if is_known(vendor) { vendor } else { speaks(OTHERS) };
        if theirs == own() { Self::Same } else { Self::Different }
    }
}

/// What we say: what packets of an open device show, or one that is opened now will.
pub(super) fn own() -> Vendor {
    static OWN: OnceLock<Vendor> = OnceLock::new();
    let later = || Settings::from_environment().unwrap_or_else(|_| of_others());
    *OWN.get_or_init(|| device::settings().map_or_else(|| of(&later()), of))
}

/// What we speak, in words.
pub(super) fn own_text() -> String {
    text_of(own())
}

/// The same, for who says `theirs`.
pub(super) fn text_for(theirs: Vendor) -> String {
    text_of(own()) + hint(theirs)
}

/// What is wrong, where it is the key.
fn hint(theirs: Vendor) -> &'static str {
    let own = own();
    let both = [own, theirs].iter().all(|vendor| vendor.id.get() == FALCON_VENDOR);
    if both { falcon_key_hint(own.options, theirs.options) } else { "" }
}

fn of_others() -> Settings {
    Settings { transport: OTHERS.to_owned(), ..Settings::default() }
}

/// What an end with these settings says.
fn of(settings: &Settings) -> Vendor {
    let falcon = settings.transport_choice().map_or(0, |choice| {
        // Its timeouts and windows are each end's own affair.
        falcon_word(&choice.profile, settings.protection.as_ref())
    });
    match falcon {
        0 => Vendor { id: Bits::clamped(VENDOR), options: code(&settings.transport) },
        word => Vendor { id: Bits::clamped(FALCON_VENDOR), options: word },
    }
}

fn is_known(vendor: Vendor) -> bool {
    [VENDOR, FALCON_VENDOR].contains(&vendor.id.get())
}

/// FNV-1a: tells names apart, keeps no secret.
fn code(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What an end speaks that says this, in words.
fn text_of(vendor: Vendor) -> String {
    if vendor.id.get() == FALCON_VENDOR {
        return falcon_text(vendor.options);
    }
    let known = rnic_transports::profiles::profiles().into_iter().find(|profile| code(profile.name) == vendor.options);
    match known {
        _ if !is_known(vendor) => OTHERS,
        Some(profile) => profile.name,
        None => "a transport that is unknown here",
    }
    .to_owned()
}

/// Says on standard error why a request or a reply was refused here.
pub(super) fn refuse(from: SocketAddr, vendor: Vendor) {
    say(&format!("connection with {from} refused: it speaks {}{}", text_of(vendor), hint(vendor)));
}

/// Says on standard error why our request was refused; `theirs` is the other side's transport.
pub(super) fn explain(theirs: &[u8]) {
    let is_text = |byte: &&u8| byte.is_ascii_graphic() || **byte == b' ';
    let theirs: String = theirs.iter().take_while(is_text).map(|byte| char::from(*byte)).collect();
    say(&format!("connection refused: the other end speaks {theirs}"));
}

fn say(text: &str) {
    static SAID: AtomicU32 = AtomicU32::new(0);
    // Anybody may send requests, as many as he likes.
    match SAID.fetch_add(1, Relaxed) {
        ..SAID_MAX => {
            let (ours, settings) = (own_text(), settings_of(own()));
            complain(format_args!("{text}, this end {ours} ({settings} must be the same at both ends)"));
        }
        SAID_MAX => complain("more connections were refused for that; nothing more is said about it"),
        _ => SAID.store(SAID_MAX + 1, Relaxed),
    }
}

/// Refusals of which standard error is told.
const SAID_MAX: u32 = 100;

/// What people set to speak so.
fn settings_of(vendor: Vendor) -> &'static str {
    match vendor.id.get() {
        FALCON_VENDOR => "RNIC_TRANSPORT, RNIC_KEY, and of RNIC_SET ordering, errors and flows,",
        _ => "RNIC_TRANSPORT",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn set(variables: &[(&str, &str)]) -> Vendor {
        of(&Settings::from_variables(variables.iter().copied()).expect("legal settings"))
    }

    #[test]
    fn transports_are_told_apart() {
        let names: Vec<&str> = rnic_transports::profiles::profiles().iter().map(|profile| profile.name).collect();
        let mut codes: Vec<u32> = names.iter().map(|name| code(name)).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), names.len(), "two of {names:?} have one code");
        for name in names {
            let text = text_of(set(&[("RNIC_TRANSPORT", name)]));
            assert!(text.starts_with(name), "{text}");
        }
        assert_eq!(Agreement::with(own()), Agreement::Same);
        let other = Vendor { options: own().options ^ 1, ..own() };
        assert_eq!(Agreement::with(other), Agreement::Different);
        let stranger = Agreement::with(Vendor::default());
        assert_eq!(stranger == Agreement::Same, own_text() == OTHERS);
        assert_eq!(text_of(Vendor::default()), OTHERS);
    }

    #[test]
    fn ends_of_falcon_differ_in_what_must_be_alike_alone() {
        let falcon = ("RNIC_TRANSPORT", "falcon");
        let secret = |byte: u8| {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(&[byte; 32]).expect("32 bytes");
            file
        };
        let (one, other) = (secret(1), secret(2));
        let path = |file: &tempfile::NamedTempFile| file.path().to_str().expect("a plain path").to_owned();
        let (one, other) = (path(&one), path(&other));
        let ends = [
            set(&[("RNIC_TRANSPORT", "irn")]),
            set(&[falcon]),
            set(&[falcon, ("RNIC_SET", "ordering=weak")]),
            set(&[falcon, ("RNIC_SET", "errors=complete-in-error")]),
            set(&[falcon, ("RNIC_SET", "flows=4")]),
            set(&[falcon, ("RNIC_KEY", &one)]),
            set(&[falcon, ("RNIC_KEY", &other)]),
        ];
        for (at, end) in ends.iter().enumerate() {
            assert!(!ends[..at].contains(end), "{}", text_of(*end));
            assert!(text_of(*end).len() <= 148, "a refusal has room for it");
        }
        assert_eq!(ends[1], set(&[falcon, ("RNIC_SET", "rto=9ms,coalesce_count=3"), ("RNIC_LOSS", "1%")]));
        assert_eq!(text_of(ends[2]), "falcon with ordering=weak, errors=verbs, flows=1, no key");
    }
}
