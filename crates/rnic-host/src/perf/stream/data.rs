//! The bytes that are sent.

/// Bytes with a period that is no multiple of a segment's size: a byte in the wrong place differs.
#[derive(Clone, Debug)]
pub(super) struct Data(Vec<u8>);

impl Data {
    /// Returns the bytes of a stream.
    pub(super) fn new() -> Self {
        let byte = |at: usize| ((at * 167) ^ (at >> 8)) as u8;
        Self((0..2 * PERIOD).map(|at| byte(at % PERIOD)).collect())
    }

    /// Returns between one and `most` bytes at this position of the stream.
    pub(super) fn at(&self, position: u64, most: u64) -> &[u8] {
        let from = (position % PERIOD as u64) as usize;
        &self.0[from..from + (PERIOD as u64).min(most) as usize]
    }

    /// Returns the first position at which `bytes`, which arrived at `position`, are wrong.
    pub(super) fn first_wrong(&self, position: u64, bytes: &[u8]) -> Option<u64> {
        let mut done = 0;
        while done < bytes.len() {
            let expected = self.at(position + done as u64, (bytes.len() - done) as u64);
            let found = &bytes[done..done + expected.len()];
            if found != expected {
                let at = found.iter().zip(expected).position(|(found, expected)| found != expected);
                return Some(position + (done + at.unwrap_or(0)) as u64);
            }
            done += expected.len();
        }
        None
    }
}

/// Period of the data in bytes: a prime number, so that a shift is detected.
const PERIOD: usize = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_in_the_wrong_place_is_found() {
        let data = Data::new();
        let mut bytes: Vec<u8> = Vec::new();
        while bytes.len() < 200_000 {
            bytes.extend(data.at(7 + bytes.len() as u64, 30_000));
        }
        assert_eq!(data.first_wrong(7, &bytes), None);
        assert!(data.first_wrong(8, &bytes).is_some(), "a byte was lost");
        bytes[150_000] ^= 1;
        assert_eq!(data.first_wrong(7, &bytes), Some(150_007));
    }
}
