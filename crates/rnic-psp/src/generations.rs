//! Receiver keys: those of the current and the previous generation, and of the generations that may come next.
//!
//! The rules for generations are in the documentation of the crate. The type parameter `S` is the state that a
//! receiver stores for the packets of each key.

use core::fmt;

use crate::key::{Direction, Key, Role};

/// Keys of one direction, starting with the generation of the receiver's first packet.
pub(crate) struct Generations<S> {
    direction: Direction,
    role: Role,
    number: u32,
    current: Key,
    state: S,
    /// Key of the previous generation and its state; `None` when packets of that generation are no longer accepted.
    previous: Option<(Key, S)>,
    later: Later,
}

/// Identifies one of the keys, as selected by a packet's index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeySelector {
    Previous,
    Current,
    /// Key of a generation this many ahead of the current one.
    Later(u32),
}

/// Keys of later generations. Each key is derived when its index is first received, and stored until its generation
/// is the current one or has passed. Forged indices, in whatever order, therefore cause each key to be derived only
/// once, and no more keys to be derived than there are generations that may come next.
#[derive(Debug, Default)]
struct Later {
    /// Key of the next generation; in nearly all cases the only one stored.
    next: Option<Key>,
    /// Keys of the generations after the next one, indexed by the generation modulo the length of the array;
    /// allocated when the first of them is derived, and freed when none is left.
    further: Option<Box<[Option<Key>; GENERATIONS_AHEAD as usize]>>,
}

impl<S: Default> Generations<S> {
    /// Creates the keys of a receiver whose current generation is `number`, with the key `current`.
    pub(crate) fn begin(direction: Direction, role: Role, number: u32, current: Key) -> Self {
        let previous = number.checked_sub(1).map(|before| (direction.key(role, before), S::default()));
        Self { direction, role, number, current, state: S::default(), previous, later: Later::default() }
    }

    /// Returns the number of the current generation.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Returns which key the index `spi` identifies; `None` if it identifies none.
    #[inline]
    pub(crate) fn selector_of(&self, spi: u32) -> Option<KeySelector> {
        let (form, mask) = (self.role.form, self.role.form.generation_mask());
        match form.generation_of(spi).wrapping_sub(self.number as u8) & mask {
            0 => Some(KeySelector::Current),
            distance @ 1..=GENERATIONS_AHEAD_U8 => Some(KeySelector::Later(distance.into())),
            behind if behind == mask && self.previous.is_some() => Some(KeySelector::Previous),
            _ => None,
        }
    }

    /// Returns the key selected by `selector`.
    #[inline]
    pub(crate) fn key(&mut self, selector: KeySelector) -> &Key {
        if let KeySelector::Later(distance) = selector {
            return self.later_key(distance);
        }
        match &self.previous {
            Some((key, _)) if selector == KeySelector::Previous => key,
            _ => &self.current,
        }
    }

    /// Returns the state stored for the packets of that key; `None` for the key of a later generation, which has no
    /// state yet.
    #[inline]
    pub(crate) fn state(&mut self, selector: KeySelector) -> Option<&mut S> {
        match (selector, &mut self.previous) {
            (KeySelector::Later(_), _) => None,
            (KeySelector::Previous, previous) => previous.as_mut().map(|(_, state)| state),
            (KeySelector::Current, _) => Some(&mut self.state),
        }
    }

    pub(crate) const fn has_previous(&self) -> bool {
        self.previous.is_some()
    }

    /// Discards the previous key, so that it no longer opens packets.
    pub(crate) fn drop_previous(&mut self) {
        self.previous = None;
    }

    /// Returns the key of the generation that is `distance` generations after the current one.
    #[cold]
    fn later_key(&mut self, distance: u32) -> &Key {
        let generation = self.number.wrapping_add(distance);
        let derive = || self.direction.key(self.role, generation);
        self.later.slot(generation, distance).get_or_insert_with(derive)
    }

    /// Advances the current generation by `distance`. The key of the generation just before the new one becomes the
    /// previous key, even if no packet has used it.
    #[cold]
    pub(crate) fn advance_by(&mut self, distance: u32) {
        let [previous_generation, generation] =
            [distance - 1, distance].map(|distance| self.number.wrapping_add(distance));
        let mut take_or_derive = |generation: u32, distance: u32| {
            let derived = self.later.slot(generation, distance).take();
            derived.unwrap_or_else(|| self.direction.key(self.role, generation))
        };
        let current = take_or_derive(generation, distance);
        let skipped = (distance > 1).then(|| (take_or_derive(previous_generation, distance - 1), S::default()));
        let replaced = core::mem::replace(&mut self.current, current);
        let state = core::mem::take(&mut self.state);
        self.previous = Some(skipped.unwrap_or((replaced, state)));
        self.later.advance(self.number, distance);
        self.number = generation;
    }
}

impl<S> fmt::Debug for Generations<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generations({:?} from {})", self.role, self.number)
    }
}

impl Later {
    /// Returns the slot of the key of `generation`, which is `distance` generations after the current one.
    fn slot(&mut self, generation: u32, distance: u32) -> &mut Option<Key> {
        match distance {
            1 => &mut self.next,
            _ => &mut self.further.get_or_insert_with(|| Box::new([const { None }; _]))[slot_index(generation)],
        }
    }

    /// Discards the keys of generations that have passed, after the generation has advanced from `old_generation` by
    /// `distance`.
    fn advance(&mut self, old_generation: u32, distance: u32) {
        self.next = None;
        let Some(further) = &mut self.further else { return };
        let index_of = |distance: u32| slot_index(old_generation.wrapping_add(distance));
        (2..=distance).for_each(|past| further[index_of(past)] = None);
        self.next = further[index_of(distance + 1)].take();
        if further.iter().all(Option::is_none) {
            self.further = None;
        }
    }
}

/// Returns the slot of the key of `generation` in `Later::further`.
const fn slot_index(generation: u32) -> usize {
    (generation % GENERATIONS_AHEAD) as usize
}

/// Number of consecutive rotations that a receiver can follow when it receives no packet of the generations in
/// between. With the default number of packets per key, a key lasts longer than the timeout for a silent peer. A
/// sender that rotates after a few packets loses the connection when that number of packets, times this constant, is
/// lost in an outage. An attacker who sees the connection's cookie can cause that many keys to be derived, at two
/// microseconds each, and one more with every rotation; they then take 18 KB. Must be a power of two, because slots
/// are the generation modulo this number, and generations wrap.
pub(crate) const GENERATIONS_AHEAD: u32 = GENERATIONS_AHEAD_U8 as u32;
/// [`GENERATIONS_AHEAD`], as an index of slots.
const GENERATIONS_AHEAD_U8: u8 = 32;
const _: () = assert!(GENERATIONS_AHEAD_U8.is_power_of_two());
// The indices of ESP have enough generation bits for these generations and the previous one.
const _: () = assert!(GENERATIONS_AHEAD_U8 < crate::key::SecurityFormat::Esp.generation_mask());
