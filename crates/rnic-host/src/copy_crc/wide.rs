//! The folding of [`super::fold`] with 64-byte registers and multiplication in four lanes at a time (AVX-512 with
//! VPCLMULQDQ): a block is one register, and four blocks are processed in parallel, each folded over 256 bytes into
//! the block four positions later.
//!
//! Initially, the fourth register contains the first block; the other three are zeros and remain zeros.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_set_epi64x, _mm512_broadcast_i32x4, _mm512_castsi128_si512, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_inserti32x4, _mm512_loadu_si512, _mm512_setzero_si512, _mm512_ternarylogic_epi64,
};

use rnic_wire::header::bth::VARIANT_BYTE;

use super::BLOCK_BYTES;
use super::fold::{BY_512, Block, close, end, front_of, open, open_two};

/// Number of blocks processed in parallel.
const LANES: usize = 4;

/// Same as [`super::fold::copy_crc`].
#[target_feature(enable = "avx512f,vpclmulqdq,avx,pclmulqdq")]
pub(super) fn copy_crc(crc: u32, front: &[u8; 2 * BLOCK_BYTES], front_len: usize, from: &[u8], to: &mut [u8]) -> u32 {
    let (blocks, rest) = from.as_chunks::<BLOCK_BYTES>();
    let (to_blocks, to_rest) = to.as_chunks_mut::<BLOCK_BYTES>();
    let (first, taken) = if front_len > 0 {
        (Some(open_two(crc, front, front_len)), 0)
    } else if let Some(block) = blocks.first() {
        to_blocks[0] = *block;
        (Some(open(crc, *block, BLOCK_BYTES)), 1)
    } else {
        (None, 0)
    };
    let mut crc = crc;
    if let Some(lanes) = first {
        let to_blocks = &mut to_blocks[taken..];
        crc = close(fold_blocks(lanes, &blocks[taken..], |at, block| to_blocks[at] = *block));
    }
    if !rest.is_empty() {
        to_rest.copy_from_slice(rest);
        crc = end(crc, rest);
    }
    crc
}

/// Same as [`super::fold::masked`].
#[target_feature(enable = "avx512f,vpclmulqdq,avx,pclmulqdq")]
pub(super) fn masked(crc: u32, covered: &[u8]) -> u32 {
    let (mut two, front_len, blocks) = front_of(covered);
    two[2 * BLOCK_BYTES - front_len + VARIANT_BYTE] = 0xff;
    close(fold_blocks(open_two(crc, &two, front_len), blocks, |_, _| {}))
}

/// Returns the CRC of `covered`, whose length is a nonzero multiple of four bytes.
#[target_feature(enable = "avx512f,vpclmulqdq,avx,pclmulqdq")]
pub(super) fn checksum(covered: &[u8]) -> u32 {
    let (two, front_len, blocks) = front_of(covered);
    close(fold_blocks(open_two(0, &two, front_len), blocks, |_, _| {}))
}

/// Returns the accumulators (lanes) after folding `blocks` into them; `on_block` is called with the index of each block
/// and the block.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,avx,pclmulqdq")]
fn fold_blocks(lanes: [__m128i; LANES], blocks: &[Block], mut on_block: impl FnMut(usize, &Block)) -> [__m128i; LANES] {
    let by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(BY_512[1], BY_512[0]));
    let by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01_322d_1430, 0x01_1542_778a));
    let zeros = _mm512_setzero_si512();
    let mut registers = [zeros, zeros, zeros, lanes_to_register(lanes)];
    let (groups, rest) = blocks.as_chunks::<LANES>();
    for (at, blocks) in groups.iter().enumerate() {
        for (index, (register, block)) in registers.iter_mut().zip(blocks).enumerate() {
            *register = fold(*register, by_2048, load(block));
            on_block(LANES * at + index, block);
        }
    }
    let [mut last, second, third, fourth] = registers;
    for next in [second, third, fourth] {
        last = fold(last, by_512, next);
    }
    for (at, block) in rest.iter().enumerate() {
        last = fold(last, by_512, load(block));
        on_block(LANES * groups.len() + at, block);
    }
    register_to_lanes(last)
}

#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(register: __m512i, multiplier: __m512i, next: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(register, multiplier);
    let high = _mm512_clmulepi64_epi128::<0x11>(register, multiplier);
    _mm512_ternarylogic_epi64::<EXCLUSIVE_OR>(low, high, next)
}

/// Truth table of a three-input exclusive or.
const EXCLUSIVE_OR: i32 = 0x96;

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &Block) -> __m512i {
    // SAFETY: the call reads the 64 bytes of the array, and has no alignment requirement.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes_to_register([first, second, third, fourth]: [__m128i; LANES]) -> __m512i {
    let two = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(first), second);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(two, third), fourth)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn register_to_lanes(register: __m512i) -> [__m128i; LANES] {
    [
        _mm512_extracti32x4_epi32::<0>(register),
        _mm512_extracti32x4_epi32::<1>(register),
        _mm512_extracti32x4_epi32::<2>(register),
        _mm512_extracti32x4_epi32::<3>(register),
    ]
}
