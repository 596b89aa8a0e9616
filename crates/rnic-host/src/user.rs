//! Whether another process of this machine belongs to the same user.
//!
//! The kernel tells a process's user in the numbers of the *asker's* user namespace (user_namespaces(7)). Users that
//! have no number there are all told as one, the overflow number, 65534 most often, and a process that has none itself
//! is told that it is that user. So two equal numbers are one user only if the number stands for one: all do in the
//! initial namespace, and in another one those that its map has, the overflow number aside.

use std::fs::File;
use std::io::Read;

use crate::sys::unix::own_uid;

/// Returns whether `uid`, as the kernel tells it of another process, is the user that this process acts as.
pub(crate) fn is_own_user(uid: u32) -> bool {
    uid == own_uid() && is_one_user(uid)
}

/// Returns whether `uid` stands for one user in this user namespace. A signal handler asks too: nothing is allocated.
pub(crate) fn is_one_user(uid: u32) -> bool {
    let (mut map, mut overflow) = ([0; MAP_BYTES], [0; NUMBER_BYTES]);
    let overflow = read("/proc/sys/kernel/overflowuid", &mut overflow).and_then(|text| text.trim().parse().ok());
    // Without `/proc`, the usual number is refused.
    stands_for_one(uid, read("/proc/self/uid_map", &mut map), overflow.unwrap_or(OVERFLOW_UID))
}

fn stands_for_one(uid: u32, map: Option<&str>, overflow: u32) -> bool {
    let Some(map) = map else { return uid != overflow };
    let ranges = || {
        map.lines().filter_map(|line| {
            let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
            let (first, _, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
            Some((first, count))
        })
    };
    let is_everybody_told = ranges().any(|(first, count)| first == 0 && count >= u64::from(u32::MAX));
    let is_mapped = ranges().any(|(first, count)| (first..first.saturating_add(count)).contains(&uid.into()));
    is_everybody_told || (is_mapped && uid != overflow)
}

/// What stands at the beginning of a file of the kernel's.
fn read<'a>(path: &str, into: &'a mut [u8]) -> Option<&'a str> {
    let len = File::open(path).and_then(|mut file| file.read(into)).ok()?;
    std::str::from_utf8(&into[..len]).ok()
}

/// Few maps have more than a handful of lines; what is cut off counts as not mapped.
const MAP_BYTES: usize = 1_024;
const NUMBER_BYTES: usize = 16;

/// What kernels have unless somebody changes it.
const OVERFLOW_UID: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_if_it_stands_for_one_user() {
        let initial = Some("         0          0 4294967295\n");
        let container = Some("0 1000 1\n1 100000 65536\n");
        for (uid, map, expected) in [
            (0, initial, true),
            (65_534, initial, true),
            (0, container, true),
            (40_000, container, true),
            (65_534, container, false),
            (70_000, container, false),
            (65_534, Some(""), false),
            (0, Some(""), false),
            (1_000, Some("x y z\n1\n"), false),
            (1_000, None, true),
            (65_534, None, false),
        ] {
            assert_eq!(stands_for_one(uid, map, 65_534), expected, "{uid} with {map:?}");
        }
        assert!(!stands_for_one(7, container, 7), "the overflow number is what the kernel says");
    }
}
