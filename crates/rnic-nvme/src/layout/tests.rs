//! Golden values computed by hand, and properties of every layout.

use std::collections::BTreeSet;

use super::*;

const SECTORS: Geometry = Geometry { chunk: 0, stripe: 0, group: 1, block: 9 };

/// Chunk n is on connection n, in namespace 100 + n, and starts at block n x 2^24.
fn layout(geometry: Geometry, chunks: u32) -> Layout {
    let chunk = |n: u32| Chunk { connection: n, namespace: 100 + n as u16, first_block: u64::from(n) << 24 };
    Layout::new(geometry, &(0..chunks).map(chunk).collect::<Vec<_>>()).unwrap()
}

fn part(n: u32, in_chunk: u64, blocks: u32) -> Part {
    Part { connection: n, namespace: 100 + n as u16, first_block: (u64::from(n) << 24) + in_chunk, blocks }
}

/// Stripes of 512 sectors over two chunks of 2^21 sectors, computed by hand.
#[test]
fn stripes_of_256_kb_over_two_chunks() {
    let layout = layout(SECTORS, 4);
    assert_eq!((layout.blocks(), layout.connections()), (4 << 21, 4));
    let golden = [
        ((0, 8), part(0, 0, 8), None),
        ((511, 1), part(0, 511, 1), None),
        ((512, 8), part(1, 0, 8), None),
        ((1024, 8), part(0, 512, 8), None),
        ((1536 + 3, 8), part(1, 512 + 3, 8), None),
        ((508, 8), part(0, 508, 4), Some(part(1, 0, 4))),
        ((1020, 512), part(1, 508, 4), Some(part(0, 512, 508))),
        // The last sectors of the first group's chunks, and the first of the next group's.
        (((2 << 21) - 4, 8), part(1, (1 << 21) - 4, 4), Some(part(2, 0, 4))),
        (((2 << 21) + 512, 1), part(3, 0, 1), None),
        (((4 << 21) - 1, 1), part(3, (1 << 21) - 1, 1), None),
    ];
    for ((first, blocks), first_part, second_part) in golden {
        assert_eq!(layout.translate(first, blocks), Ok((first_part, second_part)), "{blocks} from {first}");
    }
}

/// C = 1, S = 2, N = 2, blocks of 4 KiB: stripes of 256 blocks over four chunks of 2^19 blocks.
#[test]
fn stripes_of_1_mb_over_four_chunks_of_2_gb() {
    let layout = layout(Geometry { chunk: 1, stripe: 2, group: 2, block: 12 }, 8);
    let golden = [
        ((255, 2), part(0, 255, 1), Some(part(1, 0, 1))),
        ((3 * 256 + 7, 1), part(3, 7, 1), None),
        ((4 * 256, 256), part(0, 256, 256), None),
        ((10 * 256 + 255, 2), part(2, 2 * 256 + 255, 1), Some(part(3, 2 * 256, 1))),
        ((4 << 19, 1), part(4, 0, 1), None),
    ];
    for ((first, blocks), first_part, second_part) in golden {
        assert_eq!(layout.translate(first, blocks), Ok((first_part, second_part)), "{blocks} from {first}");
    }
}

#[test]
fn without_striping_only_the_end_of_a_chunk_splits() {
    let layout = layout(Geometry { group: 0, ..SECTORS }, 2);
    assert_eq!(layout.translate(0, 1 << 20), Ok((part(0, 0, 1 << 20), None)));
    assert_eq!(layout.translate((1 << 21) - 1, 3), Ok((part(0, (1 << 21) - 1, 1), Some(part(1, 0, 2)))));
}

#[test]
fn invalid_ranges_are_refused() {
    let layout = layout(SECTORS, 2);
    assert_eq!(layout.translate(0, 0), Err(TranslateError::Empty));
    assert_eq!(layout.translate((2 << 21) - 1, 2), Err(TranslateError::OutOfRange));
    assert_eq!(layout.translate(u64::MAX, 2), Err(TranslateError::OutOfRange));
    assert_eq!(layout.translate(0, 1024).unwrap().1, Some(part(1, 0, 512)));
    assert_eq!(layout.translate(0, 1025), Err(TranslateError::TooManyStripes));
    assert_eq!(layout.translate(1, 1024), Err(TranslateError::TooManyStripes));
}

/// Checks that every block has a location and that no two blocks have the same one, around the edges of stripes,
/// chunks and groups.
#[test]
fn no_two_blocks_share_a_location() {
    for group in 0..3 {
        let layout = layout(Geometry { group, ..SECTORS }, 8);
        let edges = (0..8_u64).map(|chunk| chunk << 21).chain((0..64).map(|stripe| stripe << 9));
        let near = edges.flat_map(|edge| edge.saturating_sub(3)..edge + 3).collect::<BTreeSet<_>>();
        let locations: BTreeSet<Part> = near.iter().map(|block| layout.translate(*block, 1).unwrap().0).collect();
        assert_eq!(locations.len(), near.len(), "2^{group} chunks in a group");
    }
}

#[test]
fn invalid_layouts_are_refused() {
    let chunk = Chunk { connection: 0, namespace: 1, first_block: 0 };
    let refused = |geometry, chunks: &[Chunk]| Layout::new(geometry, chunks).unwrap_err();
    assert_eq!(refused(SECTORS, &[]), LayoutError::Chunks(0));
    assert_eq!(refused(SECTORS, &[chunk; 3]), LayoutError::Chunks(3));
    for geometry in [
        Geometry { block: 8, ..SECTORS },
        Geometry { block: 13, ..SECTORS },
        Geometry { chunk: 21, ..SECTORS },
        Geometry { stripe: 13, ..SECTORS },
        Geometry { group: 17, ..SECTORS },
    ] {
        assert_eq!(refused(geometry, &[chunk; 2]), LayoutError::Geometry);
    }
    assert!(Layout::new(Geometry { stripe: 12, ..SECTORS }, &[chunk; 2]).is_ok(), "a stripe as large as a chunk");
    assert_eq!(refused(SECTORS, &[Chunk { first_block: u64::MAX, ..chunk }; 2]), LayoutError::BeyondAddressSpace);
}
