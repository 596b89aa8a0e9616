//! Byte patterns that identify position: every byte follows from a seed and its position, so that a byte in the wrong
//! position is detected.

/// Returns eight bytes of the pattern of `seed`.
#[inline]
fn word(seed: u64, index: u64) -> [u8; 8] {
    let mixed = (seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 32).to_le_bytes()
}

/// Returns the byte at position `position` of the pattern of `seed`.
pub(crate) fn byte(seed: u64, position: u64) -> u8 {
    word(seed, position / 8)[(position % 8) as usize]
}

/// Calls `each` with runs of at most eight bytes: their offset, and the bytes.
#[inline]
fn for_each_run(len: usize, seed: u64, start: u64, mut each: impl FnMut(usize, &[u8]) -> bool) {
    let mut done = 0;
    while done < len {
        let position = start + done as u64;
        let offset = (position % 8) as usize;
        let take = (8 - offset).min(len - done);
        if !each(done, &word(seed, position / 8)[offset..offset + take]) {
            return;
        }
        done += take;
    }
}

/// Paints `bytes` with the pattern of `seed`, from its position `start` on.
pub(crate) fn fill(bytes: &mut [u8], seed: u64, start: u64) {
    for_each_run(bytes.len(), seed, start, |at, run| {
        bytes[at..at + run.len()].copy_from_slice(run);
        true
    });
}

/// Returns the index of the first of `bytes` that differs from the pattern of `seed` from its position `start` on.
pub(crate) fn first_difference(bytes: &[u8], seed: u64, start: u64) -> Option<usize> {
    let mut found = None;
    for_each_run(bytes.len(), seed, start, |at, run| {
        if bytes[at..at + run.len()] != *run {
            found = run.iter().zip(&bytes[at..]).position(|(expected, got)| expected != got).map(|offset| at + offset);
        }
        found.is_none()
    });
    found
}

/// Returns the index of the first of `bytes` that matches none of the patterns, each with its own start, at its
/// position.
pub(crate) fn first_unexpected_byte(bytes: &[u8], patterns: &[(u64, u64)]) -> Option<usize> {
    if patterns.iter().any(|(seed, start)| first_difference(bytes, *seed, *start).is_none()) {
        return None;
    }
    let is_known =
        |(at, found): (usize, &u8)| patterns.iter().any(|(seed, start)| byte(*seed, start + at as u64) == *found);
    (0..bytes.len()).find(|at| !is_known((*at, &bytes[*at])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_only_at_its_own_position() {
        let mut bytes = [0; 100];
        fill(&mut bytes, 7, 13);
        assert_eq!(first_difference(&bytes, 7, 13), None);
        assert_eq!(first_difference(&bytes[5..50], 7, 18), None, "a part of the pattern");
        assert_eq!(first_difference(&bytes, 7, 14), Some(0), "shifted by one");
        assert_eq!(first_difference(&bytes, 8, 13), Some(0));
        bytes[77] ^= 1;
        assert_eq!(first_difference(&bytes, 7, 13), Some(77));
    }

    #[test]
    fn each_byte_may_match_either_of_two_patterns() {
        let (mut bytes, mut other) = ([0; 64], [0; 64]);
        fill(&mut bytes, 1, 0);
        fill(&mut other, 2, 9);
        bytes[20..40].copy_from_slice(&other[20..40]);
        assert_eq!(first_unexpected_byte(&bytes, &[(1, 0), (2, 9)]), None);
        assert!(first_unexpected_byte(&bytes, &[(1, 0)]).is_some());
        bytes[10] ^= 0x55;
        assert_eq!(first_unexpected_byte(&bytes, &[(1, 0), (2, 9)]), Some(10));
    }
}
