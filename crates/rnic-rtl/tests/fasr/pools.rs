//! The two levels of the pool, cycle by cycle.

use rnic_rtl::spec::fasr::{BLOCKS, Lane, Pack, Pool1, Pool2, UNITS, Unit};
use rnic_rtl::verilated::Model;

use super::{Differences, events, verilated};

/// Checks units in so many cycles; returns how many are in use at most, and in how many cycles none is free.
pub fn check_units(model: Model, cycles: u64) -> (usize, u64) {
    let mut differences = Differences::new(model, 13);
    let mut random = differences.stream("units");
    let mut pool = Pool1::new(UNITS);
    let (mut taken_max, mut full) = (0, 0);
    for cycle in 0..cycles {
        // Phases in which the pool fills, and in which it empties.
        let fills = cycle / 64 % 2 == 0;
        let before = pool.clone();
        let used: Vec<u8> = (0..UNITS as u8).filter(|at| before.taken() >> at & 1 != 0).collect();
        let some_used = |random: &mut rnic_base::RandomStream| used[random.below(used.len() as u64) as usize];
        let released =
            (!used.is_empty() && random.below(if fills { 8 } else { 2 }) == 0).then(|| some_used(&mut random));
        let taken = before.offer().filter(|_| random.below(if fills { 2 } else { 8 }) == 0);
        let unit = Unit { rx: Lane { high: random.bits() as u32 & 0xff_ffff, ..Lane::default() }, ..Unit::default() };
        let written = match taken {
            Some(at) => Some(at),
            None if !used.is_empty() && random.below(2) == 0 => Some(some_used(&mut random)),
            None => None,
        };
        let read = if used.is_empty() { 0 } else { some_used(&mut random) };
        let inputs = [
            vec![read.into(), written.is_some().into(), written.unwrap_or(0).into()],
            Pack::from(&unit).words(),
            vec![taken.is_some().into(), released.is_some().into(), released.unwrap_or(0).into()],
        ];
        if let Some(at) = written {
            pool.set(at, unit);
        }
        if let Some(at) = released {
            pool.release(at);
        }
        taken_max = taken_max.max(used.len());
        full += u64::from(before.offer().is_none());
        let outputs = vec![
            read_unit(&before, &used, read),
            Pack::default().field(before.offer().is_some().into(), 1),
            Pack::default().field_if(before.offer().is_some(), before.offer().unwrap_or(0).into(), 5),
            Pack::default().field(before.taken(), UNITS as u32),
        ];
        differences.push(inputs.concat(), outputs, move || format!("{taken:?} {released:?} {written:?}"));
    }
    differences.finish();
    (taken_max, full)
}

#[test]
fn r9_units_are_taken_and_released_as_specified() {
    let Some(verilated) = verilated() else { return };
    let (taken_max, full) = check_units(verilated.start("fasr_pool1", 3).expect("the model starts"), events());
    assert!(taken_max == UNITS && full > events() / 100, "{taken_max} {full}");
}

fn read_unit(pool: &Pool1, used: &[u8], at: u8) -> Pack {
    let high = used.contains(&at).then(|| pool.get(at).rx.high);
    // Of the unit, only this field is random.
    Pack::default().field_if(false, 0, 103 + 7).field_if(high.is_some(), high.unwrap_or(0).into(), 24).field_if(
        false,
        0,
        103 - 7 - 24,
    )
}

/// Checks four lists of blocks in so many cycles; returns in how many a block is taken and one released, and in how
/// many none is free.
pub fn check_blocks(model: Model, cycles: u64) -> (u64, u64) {
    let mut differences = Differences::new(model, 14);
    let mut random = differences.stream("blocks");
    let mut pool = Pool2::new(BLOCKS);
    let mut lists = [const { Vec::<u8>::new() }; 4];
    let (mut both, mut full) = (0, 0);
    for cycle in 0..cycles {
        let fills = cycle / 256 % 2 == 0;
        let before = pool.clone();
        let grows = random.below(4) as usize;
        let takes = before.free() > 0 && random.below(if fills { 2 } else { 8 }) == 0;
        let shrinks = random.below(4) as usize;
        // A list whose tail is linked keeps that block.
        let releases =
            lists[shrinks].len() > usize::from(grows == shrinks) && random.below(if fills { 8 } else { 2 }) == 0;
        let (tail, head) = (lists[grows].last().copied(), lists[shrinks].first().copied());
        let read = head.or(tail).unwrap_or(0);
        let sets = !takes && head.is_some() && random.below(2) == 0;
        let bits = random.below(1 << 10) as u16;
        let known = (before.taken() >> read & 1 != 0).then(|| before.get(read));
        let next = known.and_then(|block| block.next);
        let inputs = vec![
            read.into(),
            sets.into(),
            takes.into(),
            (takes && tail.is_some()).into(),
            tail.unwrap_or(0).into(),
            bits.into(),
            releases.into(),
            head.unwrap_or(0).into(),
        ];
        let outputs = vec![
            Pack::default().field_if(known.is_some(), known.map_or(0, |block| block.word.into()), 10),
            Pack::default().field_if(next.is_some(), next.unwrap_or(0).into(), 7),
            Pack::default().field_if(before.free() > 0, before.offer().unwrap_or(0).into(), 7),
            Pack::default().field(before.free().into(), 8),
            Pack::default().field((before.taken() >> 64) as u64, BLOCKS as u32 - 64).field(before.taken() as u64, 64),
        ];
        if sets {
            pool.mark(read, bits);
        }
        if takes {
            let new = pool.take(bits, tail);
            lists[grows].push(new);
        }
        if releases {
            let head = lists[shrinks].remove(0);
            pool.release(head);
        }
        both += u64::from(takes && releases);
        full += u64::from(before.free() == 0);
        let listed: usize = lists.iter().map(Vec::len).sum();
        assert_eq!(listed + usize::from(pool.free()), BLOCKS, "cycle {cycle}: a block is lost or in two lists");
        differences.push(inputs, outputs, move || format!("takes {takes} releases {releases} sets {sets} at {read}"));
    }
    differences.finish();
    (both, full)
}

/// four lists grow at their tails and shrink at their heads, in the same cycle too; the map of blocks in
/// use, the next free one and the contents are those of the specification.
#[test]
fn r10_r11_blocks_are_linked_and_released_as_specified() {
    let Some(verilated) = verilated() else { return };
    let (both, full) = check_blocks(verilated.start("fasr_pool2", 3).expect("the model starts"), events());
    assert!(both > events() / 50 && full > events() / 200, "{both} {full}");
}
