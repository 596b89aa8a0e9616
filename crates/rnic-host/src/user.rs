//! Checks whether another process of this machine belongs to the same user.
//!
//! The kernel reports a process's user ID as mapped into the *querying* process's user namespace
//! (user_namespaces(7)). All users that are not mapped there are reported as the overflow ID, usually 65534, and so
//! is the querying process's own user if it is not mapped. Therefore equal IDs mean the same user only if the ID
//! identifies one user: in the initial namespace every ID does, and in another namespace those in its map, except the
//! overflow ID.

use std::fs::File;
use std::io::Read;

use crate::sys::unix::own_uid;

/// Returns whether `uid`, as the kernel reports it for another process, is that of the user of this process.
pub(crate) fn is_own_user(uid: u32) -> bool {
    uid == own_uid() && is_one_user(uid)
}

/// Returns whether `uid` identifies one user in this user namespace. Called from a signal handler too, so it does not
/// allocate.
pub(crate) fn is_one_user(uid: u32) -> bool {
    let (mut map, mut overflow) = ([0; MAP_BYTES], [0; NUMBER_BYTES]);
    let overflow = read("/proc/sys/kernel/overflowuid", &mut overflow).and_then(|text| text.trim().parse().ok());
    // Without `/proc`, the default overflow ID is refused.
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
    let maps_every_user = ranges().any(|(first, count)| first == 0 && count >= u64::from(u32::MAX));
    let is_mapped = ranges().any(|(first, count)| (first..first.saturating_add(count)).contains(&uid.into()));
    maps_every_user || (is_mapped && uid != overflow)
}

/// Returns the beginning of a kernel file.
fn read<'a>(path: &str, into: &'a mut [u8]) -> Option<&'a str> {
    let len = File::open(path).and_then(|mut file| file.read(into)).ok()?;
    std::str::from_utf8(&into[..len]).ok()
}

/// Size of the buffer in bytes: few maps have more than a handful of lines; entries beyond the buffer count as not
/// mapped.
const MAP_BYTES: usize = 1_024;
const NUMBER_BYTES: usize = 16;

/// The kernel's default overflow user ID.
const OVERFLOW_UID: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_id_is_accepted_only_if_it_maps_to_one_user() {
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
        assert!(!stands_for_one(7, container, 7), "the overflow user was accepted");
    }
}
