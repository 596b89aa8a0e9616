//! Tests every width against a model that stores one `bool` per bit.

use super::*;
use proptest::prelude::*;

/// Reference model of a ring bitmap: one `bool` per bit.
struct Model(Vec<bool>);

impl Model {
    fn new(bits: u32) -> Self {
        Self(vec![false; bits as usize])
    }

    fn first(&self, from: u32, wanted: bool) -> Option<u32> {
        (from..self.0.len() as u32).find(|offset| self.0[*offset as usize] == wanted)
    }

    fn advance(&mut self, count: u32) {
        for _ in 0..count {
            self.0.remove(0);
            self.0.push(false);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u32),
    Clear(u32),
    Advance(u32),
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => any::<u32>().prop_map(Step::Set),
        2 => any::<u32>().prop_map(Step::Clear),
        4 => (0u32..200).prop_map(Step::Advance),
        2 => (0u32..4).prop_map(Step::Advance),
        1 => (500u32..1200).prop_map(Step::Advance),
        1 => Just(Step::Reset),
    ];
    proptest::collection::vec(step, 0..120)
}

fn agrees_with_model(bits: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut ring = AnyRing::with_bits(bits);
    let mut model = Model::new(bits);
    for step in steps {
        match *step {
            Step::Set(value) => {
                let offset = value % bits;
                prop_assert_eq!(ring.set(offset), !model.0[offset as usize]);
                model.0[offset as usize] = true;
            }
            Step::Clear(value) => {
                ring.clear(value % bits);
                model.0[(value % bits) as usize] = false;
            }
            Step::Advance(count) => {
                ring.advance(count);
                model.advance(count);
            }
            Step::Reset => {
                ring.reset();
                model = Model::new(bits);
            }
        }
        prop_assert_eq!(ring.popcount() as usize, model.0.iter().filter(|bit| **bit).count());
        prop_assert_eq!(ring.is_empty(), model.0.iter().all(|bit| !bit));
        let first = model.0.iter().take(128).enumerate().fold(0, |bits, (at, bit)| bits | u128::from(*bit) << at);
        prop_assert_eq!(ring.first_128(), first);
        prop_assert_eq!(ring.last_one(), model.0.iter().rposition(|bit| *bit).map(|at| at as u32));
        for from in [0, 1, 63, 64, 65, bits / 2, bits - 1, bits] {
            prop_assert_eq!(ring.first_zero(from), model.first(from, false), "zero from {}", from);
            prop_assert_eq!(ring.first_one(from), model.first(from, true), "one from {}", from);
            let counted = model.0.iter().take(from as usize).filter(|bit| **bit).count();
            prop_assert_eq!(ring.popcount_first(from) as usize, counted, "first {}", from);
        }
        for offset in 0..bits {
            prop_assert_eq!(ring.test(offset), model.0[offset as usize]);
        }
        prop_assert!(!ring.test(bits), "a bit outside the ring is set");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn i23_ring_64_agrees_with_model(steps in steps()) { agrees_with_model(64, &steps)?; }

    #[test]
    fn i23_ring_128_agrees_with_model(steps in steps()) { agrees_with_model(128, &steps)?; }

    #[test]
    fn i23_ring_256_agrees_with_model(steps in steps()) { agrees_with_model(256, &steps)?; }

    #[test]
    fn i23_ring_512_agrees_with_model(steps in steps()) { agrees_with_model(512, &steps)?; }
}

#[test]
fn first_one_matches_the_example_of_tonic_appendix_c() {
    // Tonic, appendix C: bits 5 and 30 set, head at 6: the first set bit found is bit 30.
    let mut ring = RingBitmap::<1>::new();
    ring.set(5);
    ring.set(30);
    ring.advance(6);
    assert_eq!(ring.first_one(0).map(|offset| offset + 6), Some(30));
}

#[test]
fn a_full_ring_has_no_zero() {
    let mut ring = RingBitmap::<2>::new();
    ring.advance(77);
    (0..128).for_each(|offset| assert!(ring.set(offset)));
    assert_eq!(ring.first_zero(0), None);
    assert_eq!(ring.last_one(), Some(127));
    ring.advance(1);
    assert_eq!(ring.first_zero(0), Some(127));
}

#[test]
#[should_panic(expected = "outside a ring")]
fn set_outside_the_ring_panics() {
    RingBitmap::<1>::new().set(64);
}

#[test]
fn widths_round_up_to_the_next_supported_width() {
    let widths = [1, 64, 65, 128, 110, 256, 500, 512, 513, 1 << 20].map(|bits| AnyRing::with_bits(bits).bits());
    assert_eq!(widths, [64, 64, 128, 128, 128, 256, 512, 512, 16_384, 16_384]);
}
