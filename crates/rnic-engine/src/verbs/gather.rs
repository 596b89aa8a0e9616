//! Translates a byte range of a request (`offset` to `offset + len`) into segments of registered memory.

use crate::PdId;
use crate::dma::{MemoryFault, Segment};
use crate::mr::{Access, MrTable, Refused};
use crate::wr::Sge;

/// Calls `each` with each segment of local memory for the `len` bytes at `offset` of a scatter/gather list, and with
/// the offset of the segment in these bytes. If `each` cannot access the memory, the result is the same as if the key
/// did not grant access to it.
///
/// `access` is the right that the region must grant locally: none for sending, `LOCAL_WRITE` for receiving. The caller
/// has checked that the list is long enough.
#[inline(always)]
pub(crate) fn for_each_segment(
    mrs: &MrTable,
    pd: PdId,
    sges: &[Sge],
    offset: u32,
    len: u32,
    access: Access,
    mut each: impl FnMut(u32, Segment) -> Result<(), MemoryFault>,
) -> Result<(), Refused> {
    // For zero bytes, no key is checked.
    if let [only] = sges
        && len > 0
    {
        assert!(u64::from(offset) + u64::from(len) <= u64::from(only.len), "a list is shorter than its message");
        let local = mrs.resolve(pd, only.lkey, only.addr.wrapping_add(u64::from(offset)), u64::from(len), access)?;
        return each(0, Segment { local, len }).map_err(|_| Refused);
    }
    for_each_of_several(mrs, pd, sges, offset, len, access, each)
}

/// Does the same as [`for_each_segment`] for a list of any length.
#[inline(never)]
fn for_each_of_several(
    mrs: &MrTable,
    pd: PdId,
    sges: &[Sge],
    offset: u32,
    len: u32,
    access: Access,
    mut each: impl FnMut(u32, Segment) -> Result<(), MemoryFault>,
) -> Result<(), Refused> {
    let (mut skip, mut bytes_done) = (offset, 0);
    for sge in sges {
        if bytes_done == len {
            break;
        }
        if skip >= sge.len {
            skip -= sge.len;
            continue;
        }
        let segment_len = (sge.len - skip).min(len - bytes_done);
        let local =
            mrs.resolve(pd, sge.lkey, sge.addr.wrapping_add(u64::from(skip)), u64::from(segment_len), access)?;
        each(bytes_done, Segment { local, len: segment_len }).map_err(|_| Refused)?;
        bytes_done += segment_len;
        skip = 0;
    }
    assert!(bytes_done == len, "a scatter/gather list is shorter than its message");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mr::MemoryRegion;

    #[test]
    fn a_packet_may_span_entries_and_begin_inside_one() {
        let mut mrs = MrTable::new(1);
        let pd = PdId(0);
        let mut sge = |addr, len| {
            let region = MemoryRegion { pd, addr, len: u64::from(len), local: addr + 10_000, access: Access::empty() };
            Sge { addr, len, lkey: mrs.register(region, None).expect("legal").0 }
        };
        let sges = [sge(0, 10), sge(100, 0), sge(200, 5), sge(300, 50)];
        let mut segments = Vec::new();
        for_each_segment(&mrs, pd, &sges, 7, 20, Access::empty(), |at, segment| {
            segments.push((at, segment.local, segment.len));
            Ok(())
        })
        .expect("access is granted");
        assert_eq!(segments, [(0, 10_007, 3), (3, 10_200, 5), (8, 10_300, 12)]);
        assert_eq!(for_each_segment(&mrs, pd, &sges, 0, 1, Access::LOCAL_WRITE, |_, _| Ok(())), Err(Refused));
        assert_eq!(for_each_segment(&mrs, pd, &sges, 0, 1, Access::empty(), |_, _| Err(MemoryFault)), Err(Refused));
    }
}
