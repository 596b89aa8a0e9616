//! Selection of the paths to which an impairment applies, if packets are sent from several source ports.

use std::fmt;
use std::str::FromStr;

use crate::ports::PATHS_MAX;

/// A set of paths. A path is a source port: number 0 is the port of most packets, 1 to 16 are the further ports of
/// connections with several paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathSet(u32);

impl PathSet {
    /// All paths, and packets that use none.
    pub const ALL: Self = Self(u32::MAX);

    /// Returns the set of these paths; a number above 16 is ignored.
    pub fn of(paths: impl IntoIterator<Item = u8>) -> Self {
        let existing = paths.into_iter().filter(|path| usize::from(*path) <= PATHS_MAX);
        Self(existing.fold(0, |bits, path| bits | 1 << path))
    }

    /// Returns whether the set has this path.
    pub(crate) fn contains(self, path: u8) -> bool {
        self == Self::ALL || usize::from(path) <= PATHS_MAX && self.0 & 1 << path != 0
    }
}

impl Default for PathSet {
    fn default() -> Self {
        Self::ALL
    }
}

/// Shows the set as it is read, with a number for each path.
impl fmt::Display for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("all");
        }
        let paths = (0..=PATHS_MAX as u8).filter(|path| self.contains(*path)).map(|path| path.to_string());
        f.write_str(&paths.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for PathSet {
    type Err = String;

    /// Reads `all`, or numbers and ranges of numbers, separated by commas, such as `0,4-6`.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "all" {
            return Ok(Self::ALL);
        }
        let wrong = || format!("expected all, or numbers from 0 to {PATHS_MAX} and ranges, such as 0,4-6");
        let number = |text: &str| text.trim().parse::<u8>().ok().filter(|path| usize::from(*path) <= PATHS_MAX);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = number(first).zip(number(last)).filter(|(first, last)| first <= last)?;
            Some(first..=last)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        Ok(Self::of(ranges.ok_or_else(wrong)?.into_iter().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_paths_are_read_and_shown() {
        for (text, shown, paths) in [
            ("all", "all", (0..=16).chain([u8::MAX]).collect::<Vec<_>>()),
            ("0", "0", vec![0]),
            (" 1-3, 16 ", "1,2,3,16", vec![1, 2, 3, 16]),
        ] {
            let set: PathSet = text.parse().expect("a set");
            assert_eq!((set.to_string().as_str(), text.parse()), (shown, shown.parse::<PathSet>()));
            assert!((0..=u8::MAX).filter(|path| set.contains(*path)).eq(paths.clone()) || text == "all", "{text}");
            assert!(paths.iter().all(|path| set.contains(*path)), "{text}");
        }
        for text in ["", "17", "3-1", "1,,2", "-1", "1-", "some"] {
            let error = text.parse::<PathSet>().expect_err(text);
            assert!(error.contains("0 to 16"), "{error}");
        }
    }
}
