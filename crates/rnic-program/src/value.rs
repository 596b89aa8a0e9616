//! Values of programs in native code: unsigned integers of a fixed width, and window maps.
//!
//! Arithmetic wraps at the width, as wires do. No operation panics: a division by zero yields all ones, and a position
//! outside a map reads as zero. Operands have equal widths; [`U::to`] changes a width.

use core::fmt;
use core::ops::{Add, AddAssign, BitAnd, BitOr, BitXor, Div, Mul, Not, Shl, Shr, Sub, SubAssign};

/// An unsigned integer of `N` bits, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct U<const N: u32>(u64);

/// Returns the literal `value` as a number of the width that the context requires.
///
/// # Panics
/// When the value is wider than that: literals are constants, so this is found when the program is first recorded.
#[inline]
pub const fn u<const N: u32>(value: u64) -> U<N> {
    assert!(value <= U::<N>::MASK, "a literal is wider than its variable");
    U(value)
}

impl<const N: u32> U<N> {
    /// All bits one.
    pub const MASK: u64 = {
        assert!(N >= 1 && N <= 64, "widths are 1 to 64 bits");
        u64::MAX >> (64 - N)
    };

    /// Returns the lowest `N` bits of `value`.
    #[inline]
    pub const fn new(value: u64) -> Self {
        Self(value & Self::MASK)
    }

    /// Returns the value.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the value with another width: zero-extended, or truncated to its lowest bits.
    #[inline]
    pub const fn to<const M: u32>(self) -> U<M> {
        U::new(self.0)
    }

    /// Returns the product with `M` bits. Both factors have at most 24 bits, so 48 hold any product.
    #[inline]
    pub fn times<const M: u32>(self, other: impl Factor) -> U<M> {
        const { assert!(N <= MULTIPLY_BITS_MAX, "factors have at most 24 bits") };
        U::new(self.0.wrapping_mul(other.factor()))
    }

    /// Returns whether this sequence number follows `other`: serial arithmetic (RFC 1982), which has no order for
    /// numbers half a circle apart.
    #[inline]
    pub fn after(self, other: impl Operand<N>) -> bool {
        let distance = Self::new(self.0.wrapping_sub(other.value().0)).0;
        distance != 0 && distance < 1 << (N - 1)
    }

    /// Returns whether this sequence number is `other` or follows it.
    #[inline]
    pub fn at_least(self, other: impl Operand<N>) -> bool {
        Self::new(self.0.wrapping_sub(other.value().0)).0 < 1 << (N - 1)
    }

    /// Returns whether this sequence number is `other` or precedes it.
    #[inline]
    pub fn at_most(self, other: impl Operand<N>) -> bool {
        other.value().at_least(self)
    }

    /// Returns the smaller value.
    #[inline]
    pub fn min(self, other: impl Operand<N>) -> Self {
        Self(self.0.min(other.value().0))
    }

    /// Returns the larger value.
    #[inline]
    pub fn max(self, other: impl Operand<N>) -> Self {
        Self(self.0.max(other.value().0))
    }

    /// Returns the sum, limited to the maximum of the width.
    #[inline]
    pub fn saturating_add(self, other: impl Operand<N>) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.value().0);
        if carry || sum > Self::MASK { Self(Self::MASK) } else { Self(sum) }
    }

    /// Returns the difference, or zero if it would be negative.
    #[inline]
    pub fn saturating_sub(self, other: impl Operand<N>) -> Self {
        Self(self.0.saturating_sub(other.value().0))
    }
}

impl<const N: u32> fmt::Debug for U<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl<const N: u32> fmt::Display for U<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The second operand of an operation on [`U<N>`]: a number of that width, or a literal.
pub trait Operand<const N: u32>: Copy {
    /// Returns the operand as a number.
    fn value(self) -> U<N>;
}

impl<const N: u32> Operand<N> for U<N> {
    #[inline]
    fn value(self) -> Self {
        self
    }
}

impl<const N: u32> Operand<N> for u64 {
    #[inline]
    fn value(self) -> U<N> {
        u(self)
    }
}

impl<const N: u32> From<u64> for U<N> {
    /// Keeps the lowest `N` bits of `value`.
    fn from(value: u64) -> Self {
        Self::new(value)
    }
}

/// Second factor of a product: a number of at most 24 bits.
pub trait Factor: Copy {
    /// Returns the value.
    fn factor(self) -> u64;
}

impl<const N: u32> Factor for U<N> {
    #[inline]
    fn factor(self) -> u64 {
        const { assert!(N <= MULTIPLY_BITS_MAX, "factors have at most 24 bits") };
        self.0
    }
}

impl<const N: u32> PartialEq<u64> for U<N> {
    #[inline]
    fn eq(&self, other: &u64) -> bool {
        self.0 == *other
    }
}

impl<const N: u32> PartialOrd<u64> for U<N> {
    #[inline]
    fn partial_cmp(&self, other: &u64) -> Option<core::cmp::Ordering> {
        Some(self.0.cmp(other))
    }
}

/// Implements an operator between numbers of a width, and between a number and a literal.
macro_rules! operator {
    ($operator:ident, $method:ident, |$left:ident, $right:ident| $result:expr) => {
        impl<const N: u32> $operator for U<N> {
            type Output = Self;

            #[inline]
            fn $method(self, other: Self) -> Self {
                let ($left, $right) = (self.0, other.0);
                Self::new($result)
            }
        }

        impl<const N: u32> $operator<u64> for U<N> {
            type Output = Self;

            #[inline]
            fn $method(self, other: u64) -> Self {
                $operator::$method(self, u::<N>(other))
            }
        }
    };
}

operator!(Add, add, |left, right| left.wrapping_add(right));
operator!(Sub, sub, |left, right| left.wrapping_sub(right));
operator!(BitAnd, bitand, |left, right| left & right);
operator!(BitOr, bitor, |left, right| left | right);
operator!(BitXor, bitxor, |left, right| left ^ right);

impl<const N: u32, const M: u32> Mul<U<M>> for U<N> {
    type Output = Self;

    /// The product, cut to the width of the left operand. Both have at most 24 bits.
    #[inline]
    fn mul(self, other: U<M>) -> Self {
        const { assert!(N <= MULTIPLY_BITS_MAX && M <= MULTIPLY_BITS_MAX, "factors have at most 24 bits") };
        Self::new(self.0 * other.0)
    }
}

impl<const N: u32> Mul<u64> for U<N> {
    type Output = Self;

    #[inline]
    fn mul(self, other: u64) -> Self {
        self * u::<N>(other)
    }
}

/// A number that can be divided within a cycle: of at most [`DIVIDE_BITS_MAX`] bits.
#[diagnostic::on_unimplemented(
    message = "only numbers of at most 8 bits are divided within a cycle",
    label = "this has more bits",
    note = "a shift divides by a power of two: `x >> 2` is a quarter of x"
)]
pub trait Divides {}

impl Divides for U<1> {}
impl Divides for U<2> {}
impl Divides for U<3> {}
impl Divides for U<4> {}
impl Divides for U<5> {}
impl Divides for U<6> {}
impl Divides for U<7> {}
impl Divides for U<8> {}

impl<const N: u32> Div for U<N>
where
    Self: Divides,
{
    type Output = Self;

    /// The quotient; all ones when the divisor is zero.
    #[inline]
    fn div(self, other: Self) -> Self {
        self.0.checked_div(other.0).map_or(Self(Self::MASK), Self)
    }
}

impl<const N: u32> Div<u64> for U<N>
where
    Self: Divides,
{
    type Output = Self;

    #[inline]
    fn div(self, other: u64) -> Self {
        self / u::<N>(other)
    }
}

/// Maximum width of a factor in bits: one DSP block multiplies 27 by 18 bits, so two suffice.
pub const MULTIPLY_BITS_MAX: u32 = 24;

/// Maximum width of a dividend or divisor in bits: a division of this width fits into a cycle (Tonic, section 3.2.3).
pub const DIVIDE_BITS_MAX: u32 = 8;

impl<const N: u32> Not for U<N> {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        Self::new(!self.0)
    }
}

impl<const N: u32> Shl<u32> for U<N> {
    type Output = Self;

    #[inline]
    fn shl(self, bits: u32) -> Self {
        Self::new(self.0.checked_shl(bits).unwrap_or(0))
    }
}

impl<const N: u32> Shr<u32> for U<N> {
    type Output = Self;

    #[inline]
    fn shr(self, bits: u32) -> Self {
        Self(self.0.checked_shr(bits).unwrap_or(0))
    }
}

impl<const N: u32, T: Operand<N>> AddAssign<T> for U<N> {
    #[inline]
    fn add_assign(&mut self, other: T) {
        *self = *self + other.value();
    }
}

impl<const N: u32, T: Operand<N>> SubAssign<T> for U<N> {
    #[inline]
    fn sub_assign(&mut self, other: T) {
        *self = *self - other.value();
    }
}

/// Conversion of a flag to a number.
pub trait Widen {
    /// Returns 1 for true and 0 for false.
    fn to<const N: u32>(self) -> U<N>;
}

impl Widen for bool {
    #[inline]
    fn to<const N: u32>(self) -> U<N> {
        U::new(u64::from(self))
    }
}

/// Maximum number of bits of a window map.
pub const MAP_BITS_MAX: u32 = 256;

/// Number of words of a [`Map`].
pub const MAP_WORDS: usize = (MAP_BITS_MAX / u64::BITS) as usize;

/// A window map: one bit for each packet of a window, read-only for programs. Offset 0 is the packet at the start of
/// the window; offsets beyond the window are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Map([u64; MAP_WORDS]);

/// Position in, or number of bits of, a [`Map`]: 9 bits.
pub type Offset = U<9>;

impl Map {
    /// Result of a search that finds nothing.
    pub const NONE: u64 = MAP_BITS_MAX as u64;

    /// Builds a map from words, the lowest offsets first.
    #[inline]
    pub const fn new(words: [u64; MAP_WORDS]) -> Self {
        Self(words)
    }

    /// Builds a map of at most 128 bits.
    #[inline]
    pub const fn from_u128(bits: u128) -> Self {
        Self([bits as u64, (bits >> 64) as u64, 0, 0])
    }

    /// Returns the words, the lowest offsets first.
    #[inline]
    pub const fn words(&self) -> &[u64; MAP_WORDS] {
        &self.0
    }

    /// Returns whether the bit at `offset` is one; false outside of the map.
    #[inline]
    pub fn test(&self, offset: impl Operand<9>) -> bool {
        let offset = offset.value().get();
        self.0.get((offset / 64) as usize).is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    /// Returns the first offset at or after `from` whose bit is one; [`Map::NONE`] when there is none.
    #[inline]
    pub fn first_one(&self, from: impl Operand<9>) -> Offset {
        self.first(from.value().get(), 0)
    }

    /// Returns the first offset at or after `from` whose bit is zero, among all 256; [`Map::NONE`] when there is none.
    #[inline]
    pub fn first_zero(&self, from: impl Operand<9>) -> Offset {
        self.first(from.value().get(), u64::MAX)
    }

    #[inline]
    fn first(&self, from: u64, flip: u64) -> Offset {
        let mut index = (from / 64) as usize;
        let mut keep = u64::MAX << (from % 64);
        while let Some(word) = self.0.get(index) {
            let found = (word ^ flip) & keep;
            if found != 0 {
                return U::new(index as u64 * 64 + u64::from(found.trailing_zeros()));
            }
            (index, keep) = (index + 1, u64::MAX);
        }
        U::new(Self::NONE)
    }

    /// Returns the number of bits that are one.
    #[inline]
    pub fn count(&self) -> Offset {
        U::new(self.0.iter().map(|word| u64::from(word.count_ones())).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t19_numbers_wrap_at_their_width_and_no_operation_traps() {
        assert_eq!(U::<8>::new(250) + 10, 4);
        assert_eq!(U::<8>::new(3) - 4, 255);
        assert_eq!(U::<8>::new(200) / 0, 255, "a division by zero yields all ones");
        assert_eq!(U::<24>::new(0xFF_FFFF) * U::<8>::new(255), 0xFF_FF01);
        assert_eq!(U::<8>::new(1) << 9, 0);
        assert_eq!(U::<64>::new(u64::MAX).saturating_add(1), u64::MAX);
        assert_eq!(U::<8>::new(250).saturating_add(10), 255);
        assert_eq!(true.to::<4>(), 1);
    }

    #[test]
    fn t1_sequence_numbers_are_compared_across_the_wrap() {
        let (old, new) = (U::<24>::new(0xFF_FFF0), U::<24>::new(0x10));
        assert!(new.after(old) && !old.after(new) && !old.after(old));
        assert!(new.at_least(old) && old.at_least(old) && old.at_most(new));
        assert!(new < old, "plain comparison is wrong here, and is not what programs use for sequence numbers");
    }

    #[test]
    fn t21_searches_of_a_map_equal_a_naive_one() {
        let mut seed = 9_u64;
        for _ in 0..2_000 {
            let words = core::array::from_fn(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if seed >> 62 == 0 { seed } else { seed & (seed >> 7) & (seed >> 13) }
            });
            let (map, from) = (Map::new(words), (seed >> 20) % 300);
            let naive = |wanted| (from..256).find(|&offset| map.test(offset) == wanted).unwrap_or(Map::NONE);
            assert_eq!(map.first_one(from), naive(true), "{words:?} from {from}");
            assert_eq!(map.first_zero(from), naive(false), "{words:?} from {from}");
            assert_eq!(map.count(), (0..256).filter(|&offset| map.test(offset)).count() as u64);
        }
    }
}
