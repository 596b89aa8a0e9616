//! Packets, bytes and time that a message takes in an empty network.

use rnic_base::Duration;
use rnic_policy::Profile;
use rnic_wire::Position;

use crate::entry::LINK_OVERHEAD;
use crate::frames::Family;
use crate::plan::Plan;
use crate::topology::LinkClass;
use crate::workload::Operation;

/// Returns the bytes of the Ethernet frames that carry the data of one message of `bytes` over reliable connections of
/// `profile`, in packets of `mtu`: from header to frame check sequence, without acknowledgements and, for Reads,
/// without the requests.
///
/// # Errors
/// When the components of the profile are not compatible.
pub fn message_frame_bytes(profile: &Profile, op: Operation, bytes: u64, mtu: u32) -> Result<u64, String> {
    let transport = rnic_engine::Transport::new(profile.clone()).map_err(|error| error.to_string())?;
    let family = Family::of(&transport);
    let count = bytes.div_ceil(u64::from(mtu)).max(1);
    let frame = |position, len| u64::from(family.frame_len(op, position, len) + profile.extra_header);
    let last = (bytes - (count - 1) * u64::from(mtu)) as u32;
    if count == 1 {
        return Ok(frame(Position::Only, last));
    }
    Ok(frame(Position::First, mtu) + (count - 2) * frame(Position::Middle, mtu) + frame(Position::Last, last))
}

/// Returns the time that a message of `bytes`, written with immediate, takes over links of `classes` in an empty
/// network: store and forward, pipelined, back to back.
///
/// Packets of a message have at most three sizes: the first, those in the middle, the last. With each link at its own
/// rate, the last bit arrives at the end of the longest chain of "this packet on this link, then on the next link, or
/// the next packet on this link". Such a chain changes from the first packet to the middle ones at some link
/// `to_middle` and to the last one at some link `to_last`.
pub(crate) fn ideal_time(plan: &Plan, family: Family, bytes: u64, classes: &[LinkClass]) -> Duration {
    let mtu = u64::from(plan.mtu);
    let count = bytes.div_ceil(mtu).max(1);
    let last_len = (bytes - (count - 1) * mtu) as u32;
    let packet = |index: u64, len: u32| {
        let position = match (index == 0, index + 1 == count) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        u64::from(family.frame_len(Operation::WriteImmediate, position, len)) + LINK_OVERHEAD
    };
    let link = |class: &LinkClass| plan.link(*class);
    let times =
        |len: u64| -> Vec<u64> { classes.iter().map(|class| link(class).rate.serialize(len).as_ps()).collect() };
    let propagation: u64 = classes.iter().map(|class| link(class).delay.as_ps()).sum();
    let last = times(packet(count - 1, last_len));
    if count == 1 {
        return Duration::from_ps(propagation + last.iter().sum::<u64>());
    }
    let first = times(packet(0, plan.mtu));
    let middle = times(packet(1, plan.mtu));
    let mut longest = 0;
    for to_middle in 0..classes.len() {
        for to_last in to_middle..classes.len() {
            let between = match count - 2 {
                0 => 0,
                // The chain contains one middle packet's transmission on each link from `to_middle` to `to_last`;
                // each further middle packet adds its transmission on the slowest of these links.
                middle_count => {
                    let slowest = middle[to_middle..=to_last].iter().max().copied().unwrap_or_default();
                    middle[to_middle..=to_last].iter().sum::<u64>() + (middle_count - 1) * slowest
                }
            };
            // With no packet in the middle, the chain changes from the first to the last packet at one link.
            if count > 2 || to_middle == to_last {
                longest = longest
                    .max(first[..=to_middle].iter().sum::<u64>() + between + last[to_last..].iter().sum::<u64>());
            }
        }
    }
    Duration::from_ps(propagation + longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of bytes that `transport` adds to the frames of RoCE, for a message of `bytes` in packets
    /// of 1024 bytes.
    fn added(transport: &str, op: Operation, bytes: u64) -> u64 {
        let frames = |name: &str| {
            let profile = rnic_transports::profile(name).expect("the transport exists");
            message_frame_bytes(&profile, op, bytes, 1024).expect("the profile is valid")
        };
        frames(transport) - frames("roce-gbn")
    }

    /// Sizes from IRN section 6.3 and FaSR section IV-D (`header/fasr.rs` of rnic-wire): in FaSR the key is sent with
    /// each address.
    #[test]
    fn r20_extra_header_bytes_match_the_formats() {
        assert_eq!(added("irn", Operation::Write, 3 * 1024), 2 * 16);
        assert_eq!(added("irn", Operation::Send, 3 * 1024), 3 * 6);
        assert_eq!(added("fasr", Operation::Write, 3 * 1024), 2 * 12);
        assert_eq!(added("fasr", Operation::Send, 3 * 1024), 3 * 6);
        assert_eq!(added("fasr", Operation::Read, 3 * 1024), 3 * 12);
        assert_eq!(added("fasr", Operation::WriteImmediate, 100), 4, "not the sequence number of the receive");
    }
}
