//! Parameters on which both ends of a connection must agree, encoded in one 32-bit value that they exchange when they
//! connect: those of Falcon, and the number of flows of other transports.
//!
//! ```text
//!   28 version   26 ordering   25 errors   24 has a key   22 cipher   21 ESP   16 flows   0 fingerprint of the key
//! ```
//!
//! Without Falcon the value is the number of flows, or 0 for one.

use rnic_policy::Profile;
use rnic_policy::paths::FLOWS_MAX;
use rnic_psp::SecurityFormat;
use rnic_wire::falcon::psp::Cipher;

use crate::protection::Protection;

/// Returns the encoded parameters of a transport whose packets have this protection; 0 for a transport of the RoCE
/// family with one flow.
pub fn falcon_params(profile: &Profile, protection: Option<&Protection>) -> u32 {
    let Some(shape) = profile.protocol.falcon() else {
        return if profile.flow_count() > 1 { profile.flow_count().into() } else { 0 };
    };
    let head = VERSION << 4 | (shape.ordering as u8) << 2 | (shape.errors as u8) << 1 | u8::from(protection.is_some());
    let fingerprint = protection.map_or(0, |protection| protection.secret.fingerprint());
    let [high, low] = fingerprint.to_be_bytes();
    let kind = protection.map_or(0, |protection| {
        (protection.cipher as u8) << CIPHER_SHIFT | u8::from(protection.form == SecurityFormat::Esp) << FLOWS_BITS
    });
    u32::from_be_bytes([head, kind | shape.flows, high, low])
}

/// Describes a value of [`falcon_params`] as readable text.
pub fn falcon_params_text(word: u32) -> String {
    if is_flow_count(word) {
        return format!("flows={}", word.max(1));
    }
    let [head, body, high, low] = word.to_be_bytes();
    if head >> 4 != VERSION {
        return "falcon of an incompatible version".to_owned();
    }
    let name = |words: &[&'static str], index: u8| words.get(usize::from(index)).copied().unwrap_or("unknown");
    let ordering = name(&["ordered", "weak", "unordered"], head >> 2 & 3);
    let errors = name(&["verbs", "complete-in-error"], head >> 1 & 1);
    let fingerprint = u16::from_be_bytes([high, low]);
    // The two bits select one of four ciphers.
    let (flows, cipher) = (body & ((1 << FLOWS_BITS) - 1), Cipher::ALL[usize::from(body >> CIPHER_SHIFT)]);
    let form = if body >> FLOWS_BITS & 1 == 1 { " in ESP" } else { "" };
    let protection =
        if head & 1 == 1 { format!("key {fingerprint:04x}{form}, {cipher:?}") } else { "no key".to_owned() };
    format!("falcon with ordering={ordering}, errors={errors}, flows={flows}, {protection}")
}

/// Returns a hint for the error message if both ends have a key, but not the same one; otherwise an empty string. The
/// hint is appended to the description of the local end, because users do not notice that two key fingerprints
/// differ.
pub fn falcon_key_hint(ours: u32, theirs: u32) -> &'static str {
    let has_key = |word: u32| word >> 28 == u32::from(VERSION) && word >> 24 & 1 == 1;
    let is_other = has_key(ours) && has_key(theirs) && ours as u16 != theirs as u16;
    if is_other { "; the --key secrets differ" } else { "" }
}

/// Returns whether `word` is the number of flows of a transport of the RoCE family.
pub fn is_flow_count(word: u32) -> bool {
    word <= FLOWS_MAX as u32
}

/// Version of this encoding.
const VERSION: u8 = 3;
/// Number of bits for the number of flows, which is at most eight. The ESP bit is above these bits, and the cipher
/// above it.
const FLOWS_BITS: u32 = 5;
const CIPHER_SHIFT: u32 = 6;

#[cfg(test)]
mod tests {
    use rnic_psp::Secret;

    use super::*;

    #[test]
    fn differing_falcon_settings_have_different_encodings() {
        let word = |options: &[(&str, &str)], key: Option<u8>| {
            let profile = rnic_transports::select("falcon", options.iter().copied()).expect("a transport");
            let protection = key.map(|key| Protection::new(Secret::new([key; 32]), Cipher::Gcm128));
            falcon_params(&profile, protection.as_ref())
        };
        let plain = word(&[], None);
        assert_eq!(falcon_params_text(plain), "falcon with ordering=ordered, errors=verbs, flows=1, no key");
        let options = [("ordering", "unordered"), ("flows", "8"), ("errors", "complete-in-error")];
        let text = falcon_params_text(word(&options, Some(1)));
        let hint_len = falcon_key_hint(word(&[], Some(1)), word(&[], Some(2))).len();
        assert!(text.starts_with("falcon with ordering=unordered, errors=complete-in-error, flows=8, key "), "{text}");
        assert!(text.len() < 120 && text.len() + hint_len < 128, "a rejection has no space for both: {text}");
        assert_ne!(word(&[], Some(1)), word(&[], Some(2)), "different keys have equal encodings");
        assert_eq!(word(&[], Some(1)), word(&[], Some(1)));
        let hint = |ours, theirs| falcon_key_hint(word(&[], ours), word(&[("flows", "2")], theirs));
        assert_eq!([hint(Some(1), Some(1)), hint(Some(1), None), hint(None, None)], [""; 3]);
        assert!(hint(Some(1), Some(2)).contains("the --key secrets differ"));
        let profile = rnic_transports::select("falcon", []).expect("a transport");
        for cipher in Cipher::ALL {
            let protection = Protection::new(Secret::new([1; 32]), cipher);
            let text = falcon_params_text(falcon_params(&profile, Some(&protection)));
            assert!(text.contains("flows=1, key ") && text.ends_with(&format!("{cipher:?}")), "{text}");
            let within = falcon_params_text(falcon_params(&profile, Some(&protection.within(SecurityFormat::Esp))));
            assert_eq!(within, text.replace(", Gm", " in ESP, Gm").replace(", Gcm", " in ESP, Gcm"));
        }
        assert_eq!(word(&[("coalesce_count", "3")], None), plain, "an option of one end changes the encoding");
        assert_eq!(falcon_params(&rnic_transports::select("irn", []).expect("a transport"), None), 0);
        let flows = |count: &str| {
            let profile = rnic_transports::select("tonic-irn", [("flows", count)]).expect("a transport");
            falcon_params(&profile, None)
        };
        assert_eq!([flows("1"), flows("4")].map(falcon_params_text), ["flows=1", "flows=4"]);
        assert!(!is_flow_count(plain) && is_flow_count(flows("8")));
        assert_eq!(falcon_params_text(0x0100_0001), "falcon of an incompatible version");
    }
}
