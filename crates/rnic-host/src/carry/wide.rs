//! The same folding with registers of 64 bytes that multiply in four lanes at a time (AVX-512 with VPCLMULQDQ): a block
//! is one register, and four blocks are processed in parallel, each folded over the 256 bytes to its successor.
//!
//! The first block is the fourth register of the initial four; the three before it are zeros and stay zeros.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_set_epi64x, _mm512_broadcast_i32x4, _mm512_castsi128_si512, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_inserti32x4, _mm512_loadu_si512, _mm512_setzero_si512, _mm512_ternarylogic_epi64,
};

use rnic_wire::header::bth::VARIANT_BYTE;

use super::BLOCK;
use super::fold::{BY_512, Block, close, end, front_of, open, open_two};

/// Number of blocks processed in parallel.
const FOUR: usize = 4;

/// Like [`super::fold::carry`].
#[target_feature(enable = "avx512f,vpclmulqdq,avx,pclmulqdq")]
pub(super) fn carry(crc: u32, front: &[u8; 2 * BLOCK], opening: usize, from: &[u8], to: &mut [u8]) -> u32 {
    let (blocks, rest) = from.as_chunks::<BLOCK>();
    let (places, rest_place) = to.as_chunks_mut::<BLOCK>();
    let (first, taken) = if opening > 0 {
        (Some(open_two(crc, front, opening)), 0)
    } else if let Some(block) = blocks.first() {
        places[0] = *block;
        (Some(open(crc, *block, BLOCK)), 1)
    } else {
        (None, 0)
    };
    let mut crc = crc;
    if let Some(lanes) = first {
        let places = &mut places[taken..];
        crc = close(walk(lanes, &blocks[taken..], |at, block| places[at] = *block));
    }
    if !rest.is_empty() {
        rest_place.copy_from_slice(rest);
        crc = end(crc, rest);
    }
    crc
}

/// Like [`super::fold::masked`].
#[target_feature(enable = "avx512f,vpclmulqdq,avx,pclmulqdq")]
pub(super) fn masked(crc: u32, covered: &[u8]) -> u32 {
    let (mut two, opening, blocks) = front_of(covered);
    two[2 * BLOCK - opening + VARIANT_BYTE] = 0xff;
    close(walk(open_two(crc, &two, opening), blocks, |_, _| {}))
}

/// Returns the CRC of `covered`, whose length is a nonzero multiple of four bytes.
#[target_feature(enable = "avx512f,vpclmulqdq,avx,pclmulqdq")]
pub(super) fn checksum(covered: &[u8]) -> u32 {
    let (two, opening, blocks) = front_of(covered);
    close(walk(open_two(0, &two, opening), blocks, |_, _| {}))
}

/// Returns the lanes after `blocks`; `seen` is called with each block and its index.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,avx,pclmulqdq")]
fn walk(lanes: [__m128i; FOUR], blocks: &[Block], mut seen: impl FnMut(usize, &Block)) -> [__m128i; FOUR] {
    let by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(BY_512[1], BY_512[0]));
    let by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01_322d_1430, 0x01_1542_778a));
    let zeros = _mm512_setzero_si512();
    let mut four = [zeros, zeros, zeros, join(lanes)];
    let (fours, few) = blocks.as_chunks::<FOUR>();
    for (at, blocks) in fours.iter().enumerate() {
        for (index, (under_way, block)) in four.iter_mut().zip(blocks).enumerate() {
            *under_way = fold(*under_way, by_2048, load(block));
            seen(FOUR * at + index, block);
        }
    }
    let [mut last, second, third, fourth] = four;
    for next in [second, third, fourth] {
        last = fold(last, by_512, next);
    }
    for (at, block) in few.iter().enumerate() {
        last = fold(last, by_512, load(block));
        seen(FOUR * fours.len() + at, block);
    }
    split(last)
}

#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(register: __m512i, by: __m512i, next: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(register, by);
    let high = _mm512_clmulepi64_epi128::<0x11>(register, by);
    _mm512_ternarylogic_epi64::<EXCLUSIVE_OR>(low, high, next)
}

/// Truth table of a three-input exclusive or.
const EXCLUSIVE_OR: i32 = 0x96;

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &Block) -> __m512i {
    // SAFETY: reads the 64 bytes behind the reference, without any alignment requirement.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn join([first, second, third, fourth]: [__m128i; FOUR]) -> __m512i {
    let two = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(first), second);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(two, third), fourth)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn split(register: __m512i) -> [__m128i; FOUR] {
    [
        _mm512_extracti32x4_epi32::<0>(register),
        _mm512_extracti32x4_epi32::<1>(register),
        _mm512_extracti32x4_epi32::<2>(register),
        _mm512_extracti32x4_epi32::<3>(register),
    ]
}
