//! Fields of a record: so many bits from such a place on, the places being constants.

/// The `WIDTH` bits from bit `AT` on.
#[inline(always)]
pub(super) const fn get<const AT: usize, const WIDTH: usize>(words: &[u64; 8]) -> u64 {
    const { assert!(WIDTH < 64 && AT + WIDTH <= 512) };
    let (word, shift) = (AT / 64, AT % 64);
    let low = words[word] >> shift;
    let all = if shift + WIDTH > 64 { low | words[word + 1] << (64 - shift) } else { low };
    all & ((1 << WIDTH) - 1)
}

/// Puts the low `WIDTH` bits of `value` at bit `AT`, where zeros are.
#[inline(always)]
pub(super) const fn put<const AT: usize, const WIDTH: usize>(words: &mut [u64; 8], value: u64) {
    const { assert!(WIDTH < 64 && AT + WIDTH <= 512) };
    let (word, shift) = (AT / 64, AT % 64);
    let value = value & ((1 << WIDTH) - 1);
    words[word] |= value << shift;
    if shift + WIDTH > 64 {
        words[word + 1] |= value >> (64 - shift);
    }
}

/// The bytes of `words`: bit 0 is the lowest of the first.
pub(super) fn to_bytes(words: &[u64; 8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (into, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *into = word.to_le_bytes();
    }
    bytes
}

/// The words whose bytes are `bytes`.
pub(super) fn from_bytes(bytes: &[u8; 64]) -> [u64; 8] {
    let mut words = [0; 8];
    for (word, from) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*from);
    }
    words
}
