//! Key derivation: from a secret shared by both ends to the key of one index.
//!
//! Sources: PSP Architecture Specification, section on key derivation: CMAC with AES-256 in the counter mode of NIST
//! SP 800-108 over one block, `counter (4) | "Pv" version 0 (4) | index (4) | key length in bits (4)`. The steps
//! before it, which derive a direction from a secret, and a master key for each generation from a direction, are
//! specific to OpenRNIC; they have the same form, with other labels. The same holds for the keys of ESP, which are
//! usually negotiated by IKE.

use core::fmt;

use aes::Aes256;
use cmac::{Cmac, KeyInit, Mac};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rnic_wire::falcon::psp::{Cipher, Header, ICV_LEN, Layout};
use rnic_wire::falcon::{Cid, esp};
use zeroize::Zeroizing;

/// Length of a secret and of a master key, in bytes.
pub const MASTER_KEY_BYTES: usize = 32;

/// Secret shared by both ends, configured by their operators. Wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(SecretBytes);

/// Key material, wiped when dropped: a page that is swapped out, or memory that is reused, must not contain it after
/// its last use. `ring` does not wipe the keys that it holds.
type SecretBytes = Zeroizing<[u8; MASTER_KEY_BYTES]>;

impl Secret {
    /// Creates a secret from these bytes. They should be random, because no key stretching is applied.
    pub fn new(bytes: [u8; MASTER_KEY_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the secret of one direction of one connection, derived from its sender's `cookie` and the context known
    /// to both ends.
    pub fn direction(&self, context: &Context, cookie: u64) -> Direction {
        Direction(expand(&self.0, b"Dir0", [context.bytes(), &cookie.to_be_bytes()]))
    }

    /// Returns a fingerprint that distinguishes two secrets with high probability. It reveals no other information
    /// about a random secret; however, a peer that receives it may learn which hosts share a secret, and can use it
    /// to guess a weak secret without sending a packet.
    pub fn fingerprint(&self) -> u16 {
        let [high, low, ..] = *expand(&self.0, b"Fpr0", [&[], &[]]);
        u16::from_be_bytes([high, low])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Data about one direction of a connection that both ends know and encode identically: sender, receiver, and the
/// numbers that both have chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    bytes: [u8; CONTEXT_BYTES_MAX],
    len: u8,
}

impl Context {
    /// Returns the context with these bytes.
    ///
    /// # Panics
    /// When `bytes` is longer than [`CONTEXT_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Self {
        let mut context = Self { bytes: [0; CONTEXT_BYTES_MAX], len: 0 };
        context.bytes[..bytes.len()].copy_from_slice(bytes);
        context.len = u8::try_from(bytes.len()).expect("CONTEXT_BYTES_MAX fits a byte");
        context
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Format in which packets are protected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum SecurityFormat {
    /// PSP.
    #[default]
    Psp,
    /// IPsec's ESP.
    Esp,
}

impl SecurityFormat {
    /// Returns the mask of the generation bits that an index contains.
    pub(crate) const fn generation_mask(self) -> u8 {
        match self {
            Self::Psp => 0xff,
            Self::Esp => 0x3f,
        }
    }

    /// Returns the index of `generation` for packets to `cid`.
    pub(crate) const fn index(self, generation: u32, cid: Cid) -> u32 {
        match self {
            Self::Psp => Spi::new(generation, cid).value(),
            Self::Esp => esp::SPI_MARK | (generation & 0x3f) << 24 | cid.get(),
        }
    }

    /// Returns the generation bits that the index `spi` contains.
    pub(crate) const fn generation_of(self, spi: u32) -> u8 {
        match self {
            Self::Psp => Spi::from_value(spi).generation(),
            Self::Esp => (spi >> 24) as u8 & self.generation_mask(),
        }
    }
}

/// The purpose of a key: encapsulation, cipher and connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Role {
    /// Format in which the packets are protected.
    pub form: SecurityFormat,
    /// Cipher of the packets.
    pub cipher: Cipher,
    /// Connection identifier of the receiver.
    pub cid: Cid,
}

/// The secret of one direction of one connection. Wiped when it is dropped.
#[derive(Clone)]
pub struct Direction(SecretBytes);

impl Direction {
    /// Returns the key of `generation`.
    pub fn key(&self, role: Role, generation: u32) -> Key {
        #[cfg(test)]
        tests::DERIVED.with(|count| count.set(count.get() + 1));
        let (master, Role { form, cipher, cid }) = (self.master_key(generation), role);
        match form {
            SecurityFormat::Psp => master.derive(cipher, Spi::new(generation, cid)),
            SecurityFormat::Esp => master.derive_esp(cipher, form.index(generation, cid)),
        }
    }

    /// Returns the master key of `generation`.
    pub fn master_key(&self, generation: u32) -> MasterKey {
        MasterKey(expand(&self.0, b"Gen0", [&generation.to_be_bytes(), &[]]))
    }
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Direction")
    }
}

/// The key that PSP calls device or master key. Wiped when it is dropped.
#[derive(Clone)]
pub struct MasterKey(SecretBytes);

impl MasterKey {
    /// Returns the key with these bytes.
    pub fn new(bytes: [u8; MASTER_KEY_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the key of the index `spi`.
    pub fn derive(&self, cipher: Cipher, spi: Spi) -> Key {
        Key::new(cipher, &self.derive_bytes(cipher, spi)[..key_bytes(cipher)])
    }

    /// Returns the key of ESP's index `spi`, with the four bytes of salt that precede the initialization vector in
    /// the nonce (RFC 4106, section 8.1).
    pub(crate) fn derive_esp(&self, cipher: Cipher, spi: u32) -> Key {
        let input = [&spi.to_be_bytes()[..], &[cipher as u8]];
        let bytes = expand(&self.0, b"EspK", input);
        let salt = expand(&self.0, b"EspS", input);
        let mut key = Key::new(cipher, &bytes[..key_bytes(cipher)]);
        key.salt.copy_from_slice(&salt[..SALT_BYTES]);
        key
    }

    /// Returns the bytes of the key of index `spi`; a 128-bit key is the first half of them.
    fn derive_bytes(&self, cipher: Cipher, spi: Spi) -> SecretBytes {
        let label = [b'P', b'v', b'0' + cipher as u8, 0];
        let bits = (key_bytes(cipher) * 8) as u32;
        let mut bytes = SecretBytes::default();
        for (counter, half) in (1_u32..).zip(bytes.as_chunks_mut::<MAC_BYTES>().0) {
            *half = mac(&self.0, &[&counter.to_be_bytes(), &label, &spi.value().to_be_bytes(), &bits.to_be_bytes()]);
        }
        bytes
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey")
    }
}

/// PSP's security parameters index, which identifies the key.
///
/// The highest bit, the phase, is the lowest of the generation, so that it changes with every rotation, as PSP's master
/// key selector does; seven bits are the next bits of the generation, the rest is the receiver's connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spi(u32);

impl Spi {
    /// Returns the index of `generation` for packets to `cid`.
    #[inline]
    pub const fn new(generation: u32, cid: Cid) -> Self {
        let phase = generation & 1;
        let upper_bits = generation >> 1 & 0x7f;
        Self(phase << 31 | upper_bits << 24 | cid.get())
    }

    /// Returns the index with these bits.
    #[inline]
    pub const fn from_value(value: u32) -> Self {
        Self(value)
    }

    /// Returns the index as the 32-bit number that is transmitted.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the connection identifier of the receiver.
    #[inline]
    pub const fn cid(self) -> Cid {
        Cid::new(self.0)
    }

    /// Returns the low eight bits of the generation.
    #[inline]
    pub const fn generation(self) -> u8 {
        (self.0 >> 31 | (self.0 >> 24 & 0x7f) << 1) as u8
    }
}

/// The key of one index.
pub struct Key {
    cipher: Cipher,
    /// With ESP, the bytes that precede the initialization vector in the nonce; unused with PSP, where the index
    /// precedes the vector.
    salt: [u8; SALT_BYTES],
    key: LessSafeKey,
}

/// Length of the bytes that precede the initialization vector in the nonce.
const SALT_BYTES: usize = 4;

impl Key {
    /// Returns the key with these bytes.
    ///
    /// # Panics
    /// When the length is not that of the cipher's key; this cannot happen, because callers derive the bytes with
    /// that length.
    pub fn new(cipher: Cipher, bytes: &[u8]) -> Self {
        let algorithm = match cipher {
            Cipher::Gcm128 | Cipher::Gmac128 => &AES_128_GCM,
            Cipher::Gcm256 | Cipher::Gmac256 => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, bytes).expect("the length is the cipher's");
        Self { cipher, salt: [0; SALT_BYTES], key: LessSafeKey::new(key) }
    }

    /// Encrypts and authenticates `datagram` in place, and writes the check value to its end.
    ///
    /// # Panics
    /// When the length of `datagram` does not match `layout`.
    #[inline]
    pub fn seal(&self, header: &Header, layout: Layout, datagram: &mut [u8]) {
        self.seal_parts(header.nonce(), self.parts(layout), datagram);
    }

    /// Checks `datagram` and decrypts it in place; returns `true` if it is authentic. Otherwise the content of
    /// `datagram` is undefined afterwards.
    ///
    /// # Panics
    /// When the length of `datagram` does not match `layout`.
    #[inline]
    #[must_use]
    pub fn open(&self, header: &Header, layout: Layout, datagram: &mut [u8]) -> bool {
        self.open_parts(header.nonce(), self.parts(layout), datagram)
    }

    /// Like [`Key::seal`], for ESP.
    #[inline]
    pub fn seal_esp(&self, header: &esp::Header, layout: esp::Layout, datagram: &mut [u8]) {
        self.seal_parts(header.nonce(self.salt), self.parts_esp(layout), datagram);
    }

    /// Like [`Key::open`], for ESP.
    #[inline]
    #[must_use]
    pub fn open_esp(&self, header: &esp::Header, layout: esp::Layout, datagram: &mut [u8]) -> bool {
        self.open_parts(header.nonce(self.salt), self.parts_esp(layout), datagram)
    }

    #[inline]
    fn seal_parts(&self, nonce: [u8; 12], parts: Parts, datagram: &mut [u8]) {
        let (covered, icv) = datagram.split_at_mut(parts.icv);
        let (front, sealed) = covered.split_at_mut(parts.sealed);
        let associated = Aad::from(&front[..parts.associated]);
        let tag = self.key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), associated, sealed);
        let tag = tag.expect("a datagram is shorter than the AES-GCM maximum");
        icv.copy_from_slice(tag.as_ref());
    }

    #[inline]
    fn open_parts(&self, nonce: [u8; 12], parts: Parts, datagram: &mut [u8]) -> bool {
        assert_eq!(datagram.len(), parts.icv + ICV_LEN, "wrong datagram length");
        let (covered, icv) = datagram.split_at_mut(parts.icv);
        let (front, sealed) = covered.split_at_mut(parts.sealed);
        let associated = Aad::from(&front[..parts.associated]);
        let tag = (&*icv).try_into().expect("a check value has the length of a tag");
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.open_in_place_separate_tag(nonce, associated, tag, sealed, 0..).is_ok()
    }

    /// Returns the offsets of the parts. With GMAC, all bytes are authenticated and remain unencrypted.
    #[inline]
    fn parts(&self, layout: Layout) -> Parts {
        let clear = if self.cipher.encrypts() { layout.associated().end } else { layout.sealed().end };
        Parts { associated: clear, sealed: clear, icv: layout.icv().start }
    }

    #[inline]
    fn parts_esp(&self, layout: esp::Layout) -> Parts {
        let (associated, sealed) = (layout.associated(self.cipher).end, layout.sealed(self.cipher).start);
        Parts { associated, sealed, icv: layout.icv().start }
    }
}

/// Offsets of the parts of a datagram.
#[derive(Clone, Copy)]
struct Parts {
    /// Number of bytes at the front that are authenticated.
    associated: usize,
    /// Offset of the first encrypted byte.
    sealed: usize,
    /// Offset of the end of the encrypted bytes, where the check value starts.
    icv: usize,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.cipher)
    }
}

/// Returns the length of a key in bytes.
const fn key_bytes(cipher: Cipher) -> usize {
    match cipher {
        Cipher::Gcm128 | Cipher::Gmac128 => 16,
        Cipher::Gcm256 | Cipher::Gmac256 => 32,
    }
}

/// Derives 256 bits from `key`, `label` and `input`, in counter mode.
///
/// At most one part of `input` varies in length, so different inputs never give the same bytes.
fn expand(key: &[u8; MASTER_KEY_BYTES], label: &[u8; 4], input: [&[u8]; 2]) -> SecretBytes {
    let mut bytes = SecretBytes::default();
    let bits = (MASTER_KEY_BYTES as u32 * 8).to_be_bytes();
    let [first, second] = input;
    for (counter, half) in (1_u32..).zip(bytes.as_chunks_mut::<MAC_BYTES>().0) {
        *half = mac(key, &[&counter.to_be_bytes(), label, first, second, &bits]);
    }
    bytes
}

/// Returns the message authentication code of the concatenated `parts`.
fn mac(key: &[u8; MASTER_KEY_BYTES], parts: &[&[u8]]) -> [u8; MAC_BYTES] {
    let mut mac = Cmac::<Aes256>::new(key.into());
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Maximum length of the context in bytes: two IPv6 addresses, ports, connections and sequence numbers take 48.
pub const CONTEXT_BYTES_MAX: usize = 64;

/// Output length of one derivation step in bytes.
const MAC_BYTES: usize = 16;

#[cfg(test)]
#[path = "key/tests.rs"]
pub(crate) mod tests;
