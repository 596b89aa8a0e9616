//! Negotiation of the transport: both ends of a connection must use the same one. They announce it in the vendor fields
//! of REQ and REP, which InfiniBand provides for negotiation between adapters of the same vendor. All private data
//! remain available to the program.
//!
//! The vendor is "ORN"; its options are a hash of the transport's name. A request that offers several transports (IRN,
//! section 7) uses the vendor "ORL", with four short hashes; the reply indicates the selected one. For Falcon the
//! vendor is "ORF", and the options encode the settings that must be equal at both ends ([`falcon_params`]). Any other
//! RoCE stack announces a different vendor or none, and uses RoCEv2 with go-back-N.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Once, OnceLock};

use rnic_host::cm::{falcon_key_hint, falcon_params, falcon_params_text};
use rnic_host::{Settings, print_message};
use rnic_wire::cm::{Bits, RejectReason, Vendor};

use crate::device;

/// Reject reason for a connection without a common transport: "vendor option is not supported".
pub(super) const REASON: RejectReason = RejectReason(35);

/// Vendor "ORN": one transport, by the hash of its name.
const VENDOR: u32 = 0x4f_524e;

/// Vendor "ORL": up to four transports, each as a short code, best first.
const LIST_VENDOR: u32 = 0x4f_524c;

/// Vendor "ORF": Falcon, with the settings that must be equal at both ends.
const FALCON_VENDOR: u32 = 0x4f_5246;

/// The transport of other RoCE stacks.
const OTHER_STACK: &str = "roce-gbn";

/// Returns the index, in the list of locally offered transports, of the transport for a connection with a peer that
/// announces `remote_vendor`; `None` when there is none in common. The order of preference is that of the requester.
pub(super) fn choose(remote_vendor: Vendor) -> Option<usize> {
    choose_common(local_vendor(), offered(), remote_vendor)
}

fn choose_common(own: Vendor, offered: &[String], remote_vendor: Vendor) -> Option<usize> {
    let offered_index = |fits: &dyn Fn(&str) -> bool| offered.iter().position(|name| fits(name));
    match remote_vendor.id.get() {
        FALCON_VENDOR => (remote_vendor == own).then_some(0),
        VENDOR => offered_index(&|name| code(name) == remote_vendor.options).filter(|_| own.id.get() != FALCON_VENDOR),
        LIST_VENDOR if own.id.get() == FALCON_VENDOR => None,
        LIST_VENDOR => {
            let remote_codes = remote_vendor.options.to_be_bytes();
            remote_codes.iter().find_map(|code| offered_index(&|name| short_code(name) == *code))
        }
        _ => offered_index(&|name| name == OTHER_STACK).filter(|_| own.id.get() != FALCON_VENDOR),
    }
}

/// Returns the names of the locally offered transports, preferred one first.
fn offered() -> &'static [String] {
    static OFFERED: OnceLock<Vec<String>> = OnceLock::new();
    let names =
        |settings: &Settings| -> Vec<String> { settings.transport_list().split(',').map(str::to_owned).collect() };
    let load_settings = || Settings::from_environment().unwrap_or_else(|_| settings_of_other_stack());
    OFFERED.get_or_init(|| device::settings().map_or_else(|| names(&load_settings()), names))
}

/// Returns the vendor fields of the local end: for the settings of the open device, or for those with which a device
/// would be opened now.
pub(super) fn local_vendor() -> Vendor {
    static LOCAL_VENDOR: OnceLock<Vendor> = OnceLock::new();
    let load_settings = || Settings::from_environment().unwrap_or_else(|_| settings_of_other_stack());
    *LOCAL_VENDOR.get_or_init(|| device::settings().map_or_else(|| vendor_of(&load_settings()), vendor_of))
}

/// Returns the vendor fields of outgoing requests, with all locally offered transports. With real RoCEv2 peers they are
/// empty, because adapters of other vendors announce their own vendor and reject options of a different one.
pub(super) fn request_vendor() -> Vendor {
    if super::devices::has_real_roce_peers() {
        return Vendor::default();
    }
    match offered() {
        [_] => local_vendor(),
        offered_names => vendor_of_list(offered_names),
    }
}

fn vendor_of_list(names: &[String]) -> Vendor {
    let mut codes = [0; 4];
    codes.iter_mut().zip(names).for_each(|(place, name)| *place = short_code(name));
    Vendor { id: Bits::clamped(LIST_VENDOR), options: u32::from_be_bytes(codes) }
}

/// Returns the vendor fields of outgoing replies, which indicate the selected transport.
pub(super) fn answered(index: usize) -> Vendor {
    match offered().get(index) {
        Some(name) if local_vendor().id.get() == VENDOR && !super::devices::has_real_roce_peers() => {
            Vendor { id: Bits::clamped(VENDOR), options: code(name) }
        }
        _ => request_vendor(),
    }
}

/// Returns a textual description of the local transport.
pub(super) fn own_text() -> String {
    text_of(local_vendor())
}

/// Returns a textual description of the local transport for a peer that announces `remote_vendor`.
pub(super) fn text_for(remote_vendor: Vendor) -> String {
    text_of(local_vendor()) + hint(remote_vendor)
}

/// Returns an explanation when the keys of the two ends differ, otherwise an empty string.
fn hint(remote_vendor: Vendor) -> &'static str {
    let own = local_vendor();
    let both = [own, remote_vendor].iter().all(|vendor| vendor.id.get() == FALCON_VENDOR);
    if both { falcon_key_hint(own.options, remote_vendor.options) } else { "" }
}

fn settings_of_other_stack() -> Settings {
    Settings { transport: OTHER_STACK.to_owned(), ..Settings::default() }
}

/// Returns the vendor fields of an end with these settings.
fn vendor_of(settings: &Settings) -> Vendor {
    let falcon = settings.transport_choice().map_or(0, |choice| {
        // Timeouts and windows of Falcon may differ between the two ends.
        falcon_params(&choice.profile, settings.protection.as_ref())
    });
    match falcon {
        0 => Vendor { id: Bits::clamped(VENDOR), options: code(&settings.transport) },
        word => Vendor { id: Bits::clamped(FALCON_VENDOR), options: word },
    }
}

fn is_known(vendor: Vendor) -> bool {
    [VENDOR, LIST_VENDOR, FALCON_VENDOR].contains(&vendor.id.get())
}

/// Returns the FNV-1a hash of a transport name; it only distinguishes names and is not a security feature.
fn code(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Returns the hash folded to eight bits; the values of the existing transports differ. Zero means no transport.
fn short_code(name: &str) -> u8 {
    let code = code(name);
    ((code ^ code >> 9 ^ code >> 16 ^ code >> 24) as u8).max(1)
}

/// Returns a textual description of the transport of an end that announces `vendor`.
fn text_of(vendor: Vendor) -> String {
    if vendor.id.get() == FALCON_VENDOR {
        return falcon_params_text(vendor.options);
    }
    let profiles = rnic_transports::profiles::profiles();
    if vendor.id.get() == LIST_VENDOR {
        let named =
            |code: &u8| profiles.iter().find(|profile| short_code(profile.name) == *code).map(|known| known.name);
        return vendor.options.to_be_bytes().iter().filter_map(named).collect::<Vec<_>>().join(" or ");
    }
    let known = profiles.into_iter().find(|profile| code(profile.name) == vendor.options);
    match known {
        _ if !is_known(vendor) => OTHER_STACK,
        Some(profile) => profile.name,
        None => "an unknown transport",
    }
    .to_owned()
}

/// Prints on standard error why a request or a reply was rejected by this end.
pub(super) fn refuse(from: SocketAddr, vendor: Vendor) {
    print_refusal(&format!("connection with {from} refused: it uses {}{}", text_of(vendor), hint(vendor)));
}

/// Prints on standard error why the remote end rejected a request; `remote_text` describes its transport.
pub(super) fn explain(remote_text: &[u8]) {
    let is_text = |byte: &&u8| byte.is_ascii_graphic() || **byte == b' ';
    let remote_text: String = remote_text.iter().take_while(is_text).map(|byte| char::from(*byte)).collect();
    print_refusal(&format!("connection refused: the other end uses {remote_text}"));
}

/// Prints a hint, once, when no host at `to` has responded to a request, which was sent to the port that the program
/// specified. Hardware adapters receive on a different port. Loopback addresses get no hint, because no adapter is
/// there.
pub(super) fn hint_about_adapters(to: SocketAddr) {
    static HINT_PRINTED: Once = Once::new();
    let is_quiet = device::settings().is_some_and(|settings| settings.quiet);
    if !super::devices::has_real_roce_peers() && !to.ip().is_loopback() && !is_quiet {
        HINT_PRINTED.call_once(|| {
            print_message(format_args!(
                "no OpenRNIC process responds at {to}; if a RoCEv2 adapter or Linux's rdma_rxe has this address, set \
                 `--peers roce` (RNIC_PEERS=roce) at this end"
            ));
        });
    }
}

fn print_refusal(text: &str) {
    static PRINTED: AtomicU32 = AtomicU32::new(0);
    // The output is limited, because any host may send any number of requests.
    match PRINTED.fetch_add(1, Relaxed) {
        ..PRINTED_MAX => {
            let (ours, settings) = (own_text(), settings_of(local_vendor()));
            print_message(format_args!("{text}; this end uses {ours}; {settings} must be the same at both ends"));
        }
        PRINTED_MAX => {
            print_message("more connections were refused for this reason; further refusals are not reported");
        }
        _ => PRINTED.store(PRINTED_MAX + 1, Relaxed),
    }
}

/// Maximum number of refusals printed on standard error.
const PRINTED_MAX: u32 = 100;

/// Returns the names of the settings that select this transport.
fn settings_of(vendor: Vendor) -> &'static str {
    match vendor.id.get() {
        FALCON_VENDOR => "RNIC_TRANSPORT, RNIC_KEY, and in RNIC_SET ordering, errors and flows",
        _ => "RNIC_TRANSPORT",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn set(variables: &[(&str, &str)]) -> Vendor {
        vendor_of(&Settings::from_variables(variables.iter().copied()).expect("legal settings"))
    }

    #[test]
    fn transports_are_distinguished() {
        let names: Vec<&str> = rnic_transports::profiles::profiles().iter().map(|profile| profile.name).collect();
        let mut codes: Vec<u32> = names.iter().map(|name| code(name)).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), names.len(), "two of {names:?} have the same code");
        for name in names {
            let text = text_of(set(&[("RNIC_TRANSPORT", name)]));
            assert!(text.starts_with(name), "{text}");
        }
        assert_eq!(choose(local_vendor()), Some(0));
        assert_eq!(choose(Vendor { options: local_vendor().options ^ 1, ..local_vendor() }), None);
        assert_eq!(choose(Vendor::default()).is_some(), own_text() == OTHER_STACK);
        assert_eq!(text_of(Vendor::default()), OTHER_STACK);
    }

    #[test]
    fn the_first_common_transport_is_selected() {
        let names = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
        let single = |name: &str| Vendor { id: Bits::clamped(VENDOR), options: code(name) };
        let mut short: Vec<u8> =
            rnic_transports::profiles::profiles().iter().map(|profile| short_code(profile.name)).collect();
        let count = short.len();
        short.sort_unstable();
        short.dedup();
        assert_eq!(short.len(), count, "two names have the same short code");
        let chosen = |ours: &str, remote_vendor: Vendor| {
            let ours = names(ours);
            choose_common(single(&ours[0]), &ours, remote_vendor).map(|index| ours[index].clone())
        };
        let both = vendor_of_list(&names("irn,roce-gbn"));
        assert_eq!(chosen("irn", both).as_deref(), Some("irn"));
        assert_eq!(chosen("roce-gbn", both).as_deref(), Some("roce-gbn"));
        assert_eq!(chosen("roce-gbn,irn", both).as_deref(), Some("irn"), "not the requester's first choice");
        assert_eq!(chosen("fasr", both), None);
        assert_eq!(chosen("irn,roce-gbn", single("roce-gbn")).as_deref(), Some("roce-gbn"));
        assert_eq!(chosen("irn,roce-gbn", Vendor::default()).as_deref(), Some("roce-gbn"), "not a real adapter's");
        assert_eq!(chosen("irn", Vendor::default()), None);
        assert_eq!(text_of(both), "irn or roce-gbn");
    }

    #[test]
    fn falcon_vendors_differ_only_in_settings_that_must_match() {
        let falcon = ("RNIC_TRANSPORT", "falcon");
        let secret = |byte: u8| {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(&[byte; 32]).expect("32 bytes");
            file
        };
        let (one, other) = (secret(1), secret(2));
        let path = |file: &tempfile::NamedTempFile| file.path().to_str().expect("the path is UTF-8").to_owned();
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
            assert!(text_of(*end).len() <= 148, "the text exceeds the private data of a refusal");
        }
        assert_eq!(ends[1], set(&[falcon, ("RNIC_SET", "rto=9ms,coalesce_count=3"), ("RNIC_LOSS", "1%")]));
        assert_eq!(text_of(ends[2]), "falcon with ordering=weak, errors=verbs, flows=1, no key");
    }
}
