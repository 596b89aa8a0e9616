//! Unpredictable values: memory keys, queue pair numbers, first sequence numbers, identifiers, cookies, nonces.
//!
//! Many of them are transmitted unencrypted, and an observer of some values must learn nothing about the rest.
//! Therefore one root of 256 bits is read from the kernel (`getrandom`) and only used to derive keys: each *purpose*
//! has its own key, the SHA-256 of the root and the purpose's name, and its values are the SHA-256 of that key and a
//! counter.
//!
//! A peer that sees a million values learns nothing about the others: under the assumption that SHA-256, with a key
//! in front of input of fixed length, is a pseudorandom function (as HMAC, RFC 2104, and HKDF, RFC 5869, assume of
//! its compression function; with inputs of equal length, length extension is not possible), values of a stream
//! cannot be distinguished from independent uniform ones without about 2^128 work, however many are seen; this also
//! applies to the values of two streams together. A memory key is one such value unchanged: it does not depend on a
//! region, a slot or another key, so the best guess at the next one is 1 in 2^32.

use std::io;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::sys;

/// Root of all secrets of a NIC, or of a connection manager.
pub struct Secrets(Zeroizing<[u8; KEY_BYTES]>);

impl Secrets {
    /// Returns new secrets from the kernel's generator.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn draw() -> io::Result<Self> {
        let mut root = Zeroizing::new([0; KEY_BYTES]);
        sys::fill_random(&mut *root)?;
        Ok(Self(root))
    }

    /// Returns the secrets of a reproducible run. They are all known to a party that knows `seed`.
    pub fn of_seed(seed: u64) -> Self {
        Self(hash(&[b"rnic seed", &seed.to_be_bytes()]))
    }

    /// Returns the stream of values for `purpose`, from its beginning. Must be called only once for each purpose.
    pub fn stream(&self, purpose: &str) -> SecretStream {
        let key = hash(&[&*self.0, purpose.as_bytes()]);
        SecretStream { key, blocks: 0, ready: [0; KEY_WORDS], used: KEY_WORDS }
    }
}

/// Stream of values for one purpose.
pub struct SecretStream {
    key: Zeroizing<[u8; KEY_BYTES]>,
    /// Number of blocks generated so far.
    blocks: u64,
    /// The last generated block.
    ready: [u64; KEY_WORDS],
    /// Number of words of the last block that have been returned.
    used: usize,
}

impl SecretStream {
    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        if self.used == KEY_WORDS {
            let block = hash(&[&*self.key, &self.blocks.to_be_bytes()]);
            for (word, bytes) in self.ready.iter_mut().zip(block.as_chunks().0) {
                *word = u64::from_be_bytes(*bytes);
            }
            (self.blocks, self.used) = (self.blocks + 1, 0);
        }
        // Returned values are erased from the block.
        let word = std::mem::take(&mut self.ready[self.used]);
        self.used += 1;
        word
    }

    /// Returns a uniformly distributed random number below `bound`.
    ///
    /// # Panics
    /// When `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The range is divided into `bound` intervals of equal size; values beyond them are rejected and generated
        // again.
        let rounds = u64::MAX / bound;
        loop {
            let drawn = self.bits() / rounds;
            if drawn < bound {
                return drawn;
            }
        }
    }

    /// Returns the next `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes
            .chunks_mut(size_of::<u64>())
            .for_each(|part| part.copy_from_slice(&self.bits().to_be_bytes()[..part.len()]));
        bytes
    }
}

impl std::fmt::Debug for SecretStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretStream")
    }
}

/// Returns a tag over `parts` that only a holder of `key` can compute. The parts must have fixed lengths, so that
/// different parts never form the same input.
pub(crate) fn tag(key: &[u8; KEY_BYTES], parts: &[&[u8]]) -> [u8; TAG_BYTES] {
    let mut whole = vec![key.as_slice()];
    whole.extend_from_slice(parts);
    let whole = hash(&whole);
    *whole.first_chunk().expect("a hash is longer")
}

fn hash(parts: &[&[u8]]) -> Zeroizing<[u8; KEY_BYTES]> {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    Zeroizing::new(hash.finalize().into())
}

pub(crate) const KEY_BYTES: usize = 32;
pub(crate) const TAG_BYTES: usize = 16;
const KEY_WORDS: usize = KEY_BYTES / size_of::<u64>();

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn equal_seeds_and_purposes_repeat_and_all_others_differ() {
        let draw = |secrets: &Secrets, purpose: &str| {
            let mut stream = secrets.stream(purpose);
            [(); 9].map(|()| stream.bits())
        };
        assert_eq!(draw(&Secrets::of_seed(7), "a"), draw(&Secrets::of_seed(7), "a"));
        let all: Vec<u64> = [Secrets::of_seed(7), Secrets::of_seed(8), Secrets::draw().expect("entropy")]
            .iter()
            .flat_map(|secrets| ["a", "b"].map(|purpose| draw(secrets, purpose)))
            .flatten()
            .collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 2 * 3 * 9);
    }

    #[test]
    fn random_numbers_cover_their_range() {
        let mut stream = Secrets::of_seed(9).stream("below");
        let mut seen = [0u32; 7];
        (0..7_000).for_each(|_| seen[stream.below(7) as usize] += 1);
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
        assert_eq!((stream.below(1), stream.bytes::<11>().len()), (0, 11));
    }

    #[test]
    fn a_tag_depends_on_every_part() {
        let key = [1; KEY_BYTES];
        let known = tag(&key, &[b"ab", b"c"]);
        assert_eq!(known, tag(&key, &[b"ab", b"c"]));
        assert_ne!(known, tag(&key, &[b"ab", b"d"]));
        assert_ne!(known, tag(&[2; KEY_BYTES], &[b"ab", b"c"]));
    }
}
