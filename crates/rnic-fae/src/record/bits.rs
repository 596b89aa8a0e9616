//! Access to the fields of a record by bit position and width, which are constants.

use rnic_policy::control::lanes::LANES;

/// Returns the `WIDTH` bits from bit `AT` on.
#[inline(always)]
pub(super) const fn get<const AT: usize, const WIDTH: usize>(words: &[u64; 8]) -> u64 {
    const { assert!(WIDTH < 64 && AT + WIDTH <= 512) };
    let (word, shift) = (AT / 64, AT % 64);
    let low = words[word] >> shift;
    let all = if shift + WIDTH > 64 { low | words[word + 1] << (64 - shift) } else { low };
    all & ((1 << WIDTH) - 1)
}

/// Same as [`get`] for at most 25 bits, with one load and one shift at any position.
#[inline(always)]
pub(super) fn get_short<const AT: usize, const WIDTH: usize>(words: &[u64; 8]) -> u32 {
    const { assert!(WIDTH <= 25 && AT / 8 + 4 <= 64) };
    if cfg!(target_endian = "big") {
        return get::<AT, WIDTH>(words) as u32;
    }
    let bytes: &[u8; 64] = bytemuck::cast_ref(words);
    let from = AT / 8;
    let word = u32::from_le_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]);
    word >> (AT % 8) & ((1 << WIDTH) - 1)
}

/// Writes the low `WIDTH` bits of `value` at bit position `AT` of `words`; those bits must be zero before.
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

/// 32-bit words of a batch of records: for each word, an array with its value in each record (lane).
pub(super) type LaneWords<const WORDS: usize> = [[u32; LANES]; WORDS];

/// Writes the low `WIDTH` bits of each of `values` at bit position `AT` of the record with the same index (lane); those
/// bits must be zero before.
#[inline(always)]
pub(super) fn put_lanes<const AT: usize, const WIDTH: usize, const WORDS: usize>(
    words: &mut LaneWords<WORDS>,
    values: &[u32; LANES],
) {
    const { assert!(WIDTH < 32 && AT + WIDTH <= 32 * WORDS) };
    let (word, shift) = (AT / 32, AT % 32);
    for (lane, value) in values.iter().enumerate() {
        let value = value & ((1 << WIDTH) - 1);
        words[word][lane] |= value << shift;
        if shift + WIDTH > 32 {
            words[word + 1][lane] |= value >> (32 - shift);
        }
    }
}

/// Returns the bytes of `words`; bit 0 is the lowest bit of the first byte.
pub(super) fn to_bytes(words: &[u64; 8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (into, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *into = word.to_le_bytes();
    }
    bytes
}

/// Returns the words whose bytes are `bytes`.
pub(super) fn from_bytes(bytes: &[u8; 64]) -> [u64; 8] {
    let mut words = [0; 8];
    for (word, from) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*from);
    }
    words
}
