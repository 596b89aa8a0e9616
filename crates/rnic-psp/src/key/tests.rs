//! Keys and ciphers compared with published values.

use std::cell::Cell;

use rnic_base::Time;

use super::*;
use rnic_wire::falcon::Timestamp;
use rnic_wire::falcon::psp::{Iv, LEN_MAX};

thread_local! {
    /// Number of keys that this thread has derived for a direction.
    pub(crate) static DERIVED: Cell<u32> = const { Cell::new(0) };
}

/// The connection that the tests of both encapsulations use.
pub(crate) const CID: Cid = Cid::new(0x77_0002);
pub(crate) const COOKIE: u64 = 0x1122_3344_5566_7788;

pub(crate) fn secret() -> Secret {
    Secret::new([9; 32])
}

pub(crate) fn context() -> Context {
    Context::new(b"this way")
}

/// Returns a time given in units of Falcon's timestamps.
pub(crate) fn at(units: u64) -> Time {
    Time::from_ps(units << Timestamp::UNIT_SHIFT)
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let text = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("hex is ASCII"), 16).expect("hex digits");
    digits.chunks(2).map(text).collect()
}

/// The second of the two master keys of PSP's example: the highest bit of the example's index selects it.
fn psp_master_key() -> MasterKey {
    let key = bytes("5639 5256 5d3a 78ae 773e c1b7 79f2 f2d9 9f4a 7f53 a6fb b9b0 7d5b 71f3 9364 d739");
    MasterKey::new(key.try_into().expect("32 bytes"))
}

const SPI: Spi = Spi::from_value(0x9a34_5678);

/// Examples of the PSP Architecture Specification: master keys, index and derived keys. It has none for versions 2
/// and 3; those values are from another implementation (Python's `cryptography`, over OpenSSL).
#[test]
fn golden_derivation() {
    let derived = |cipher| psp_master_key().derive_bytes(cipher, SPI)[..key_bytes(cipher)].to_vec();
    assert_eq!(derived(Cipher::Gcm128), bytes("3946da25 54eae46a d1ef77a6 4372edc4"));
    assert_eq!(
        derived(Cipher::Gcm256),
        bytes("fa00f609 df602028 9a1c93d6 027081a6 37ad45b2 4a5576b3 6e6f49dd 43114d80")
    );
    assert_eq!(derived(Cipher::Gmac128), bytes("c42b1b69404d8338329b8ab392e87bb8"));
    assert_eq!(derived(Cipher::Gmac256), bytes("1d5368a6bcc99c72dfb6f255fa2c4801ac303820e94e475573ad01df8f4d475a"));
}

/// NIST SP 800-38B, appendix D.3: CMAC of one block under AES-256.
#[test]
fn golden_cmac() {
    let key = bytes("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
    let code = mac(&key.try_into().expect("32 bytes"), &[&bytes("6bc1bee22e409f96e93d7e11 7393172a")]);
    assert_eq!(code.to_vec(), bytes("28a7023f452e8f82bd4bf28d8c37c35c"));
}

/// Keys that are derived with labels of this project, computed by another implementation (Python's `cryptography`,
/// over OpenSSL). Two builds that derive them differently cannot communicate.
#[test]
fn f42_golden_derivation_of_directions_and_generations() {
    let secret = Secret::new(std::array::from_fn(|at| at as u8));
    assert_eq!(secret.fingerprint(), 0x39ec);
    let context_bytes = bytes("00000000000000000000ffff0a000001 00000011 00000000000000000000ffff0a000002 00000022");
    let direction = secret.direction(&Context::new(&context_bytes), 0x1122_3344_5566_7788);
    assert_eq!(direction.0.to_vec(), bytes("5d1d3827ec27862c0d7e7daab94c4de9c53d9d6028eb10b3a66d544f2225b7e5"));
    let generations = [
        (0, "363e022a02f605587f8164deb8c7bfd8e698eda67e05e8d9640a44d60db4cfcd"),
        (1, "ea658cc43e315f22b4525305466ba5eb1e9546743b908d37c234ca214ec01eaf"),
        (257, "c4dd53303ea4a2fc359e932a51211b3d0698eb059a87101543142d68a7375dc5"),
    ];
    for (generation, expected) in generations {
        assert_eq!(direction.master_key(generation).0.to_vec(), bytes(expected), "generation {generation}");
    }
}

/// Complete datagrams, sealed by another implementation (Python's `cryptography`, over OpenSSL) with PSP's derived
/// keys.
#[test]
fn golden_datagrams() {
    let cases = [
        (
            Cipher::Gcm128,
            "fc010101 9a345678 01020304 05060708 01020304 039d1ad38afc483e33fff82d120e0fb75ed22ef4bd6ec73004d93a11\
             137e45dd9cc0d73cc1a83c3bd6b158e2",
        ),
        (
            Cipher::Gcm256,
            "fc010105 9a345678 01020304 05060708 01020304 379c13c129f100b1afd18f394cb914a6321b2d30489254643cca8f2f\
             2f118507121a9e208d727834ac4795c3",
        ),
        (
            Cipher::Gmac128,
            "fc010109 9a345678 01020304 05060708 01020304 05060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20\
             7e3f3adcc96f4353146043d2caaf07ff",
        ),
        (
            Cipher::Gmac256,
            "fc01010d 9a345678 01020304 05060708 01020304 05060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20\
             eba09aacba28242b8bf1c53909da4c27",
        ),
    ];
    let iv = Iv { salt: 0x0102_0304, timestamp: Timestamp::new(0x0506_0708) };
    for (cipher, expected) in cases {
        let header = Header { cipher, sample: false, drop: false, spi: SPI.value(), iv, cookie: None };
        let mut around = [0; LEN_MAX];
        let encapsulation_len = header.emit(&mut around);
        let message: Vec<u8> = (1..=32).collect();
        let mut datagram = [&around[..encapsulation_len], &message, &[0; ICV_LEN]].concat();
        let layout = Layout::new(false, datagram.len());
        let key = psp_master_key().derive(cipher, SPI);
        key.seal(&header, layout, &mut datagram);
        assert_eq!(datagram, bytes(expected), "{cipher:?}");
        assert!(key.open(&header, layout, &mut datagram));
        assert_eq!(datagram[layout.message()], message);
    }
}

/// McGrew and Viega, "The Galois/Counter Mode of Operation", test case 4: checks the cipher itself, as the library
/// provides it.
#[test]
fn golden_gcm() {
    let key = Key::new(Cipher::Gcm128, &bytes("feffe9928665731c6d6a8f9467308308"));
    let nonce: [u8; 12] = bytes("cafebabefacedbaddecaf888").try_into().expect("12 bytes");
    let mut text = bytes(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0d\
         e657ba637b39",
    );
    let associated = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.key.seal_in_place_separate_tag(nonce, Aad::from(associated), &mut text).expect("the text is short");
    assert_eq!(tag.as_ref(), bytes("5bc94fbc3221a5db94fae95ae7121a47"));
    assert_eq!(text[..16], bytes("42831ec2217774244b7221b784d0d49c"));
}

#[test]
fn indices_wrap_and_the_phase_alternates() {
    let cid = Cid::new(0x12_3456);
    let values = [0, 1, 2, 255, 256].map(|generation| Spi::new(generation, cid).value());
    assert_eq!(values, [0x0012_3456, 0x8012_3456, 0x0112_3456, 0xff12_3456, 0x0012_3456]);
    for generation in 0..600 {
        let spi = Spi::new(generation, cid);
        assert_eq!((spi.cid(), spi.generation()), (cid, generation as u8));
        assert_ne!(spi.value() >> 31, Spi::new(generation + 1, cid).value() >> 31, "the phase did not change");
    }
}

/// A difference in the direction, cookie, generation, receiver, cipher or secret results in another key.
#[test]
fn keys_differ_when_any_input_differs() {
    let secrets = [Secret::new([1; 32]), Secret::new([2; 32])];
    let contexts = [&b"one"[..], b"on", b"", b"one\0"].map(Context::new);
    let mut keys = Vec::new();
    for secret in &secrets {
        for context in &contexts {
            for cookie in [0, 1, u64::MAX] {
                let direction = secret.direction(context, cookie);
                for generation in [0, 1, 256] {
                    for cid in [2, 3] {
                        let spi = Spi::new(generation, Cid::new(cid));
                        let master = direction.master_key(generation);
                        keys.extend(Cipher::ALL.map(|cipher| *master.derive_bytes(cipher, spi)));
                    }
                }
            }
        }
    }
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((keys.len(), count), (count, 2 * 4 * 3 * 3 * 2 * 4));
}

#[test]
fn debug_output_contains_no_key_material() {
    let secret = Secret::new([0x5a; 32]);
    let direction = secret.direction(&Context::new(b"way"), 7);
    let key = direction.key(Role { form: SecurityFormat::Psp, cipher: Cipher::Gcm128, cid: Cid::new(2) }, 0);
    let text = format!("{secret:?} {direction:?} {:?} {key:?}", direction.master_key(0));
    assert_eq!(text, "Secret Direction MasterKey Key(Gcm128)");
}
