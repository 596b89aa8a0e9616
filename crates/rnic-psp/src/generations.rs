//! Keys of a receiver: the current one, the previous one, and those that may be next.
//!
//! The rules for generations are in the crate's documentation. The type parameter `S` is the record that a receiver
//! keeps of each key's packets.

use core::fmt;

use crate::key::{Direction, Key, Role};

/// Keys of one direction, starting with the generation of the receiver's first packet.
pub(crate) struct Generations<S> {
    direction: Direction,
    role: Role,
    number: u32,
    current: Key,
    state: S,
    /// The previous key and its record, while it may still open packets.
    previous: Option<(Key, S)>,
    later: Later,
}

/// Selects one of the keys by an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Previous,
    Current,
    /// Key of a generation this many ahead of the current one.
    Later(u32),
}

/// Keys of later generations. Each is derived when its index is first received, and kept until its generation is
/// current or past. Forged indices, in any order, therefore cause each key to be derived only once, and no more keys
/// than there are generations that may be next.
#[derive(Debug, Default)]
struct Later {
    /// Key of the next generation: nearly always the only one.
    next: Option<Key>,
    /// Keys of the generations behind it, indexed by generation modulo their number; allocated for the first key and
    /// freed with the last.
    further: Option<Box<[Option<Key>; GENERATIONS_AHEAD as usize]>>,
}

impl<S: Default> Generations<S> {
    /// Returns the keys whose current one is `current`, of generation `number`.
    pub(crate) fn begin(direction: Direction, role: Role, number: u32, current: Key) -> Self {
        let previous = number.checked_sub(1).map(|before| (direction.key(role, before), S::default()));
        Self { direction, role, number, current, state: S::default(), previous, later: Later::default() }
    }

    /// Returns the current generation.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the selector of the key that the index `spi` identifies, if there is one.
    #[inline]
    pub(crate) fn which(&self, spi: u32) -> Option<Which> {
        let (form, mask) = (self.role.form, self.role.form.generation_mask());
        match form.generation_of(spi).wrapping_sub(self.number as u8) & mask {
            0 => Some(Which::Current),
            ahead @ 1..=AHEAD => Some(Which::Later(ahead.into())),
            behind if behind == mask && self.previous.is_some() => Some(Which::Previous),
            _ => None,
        }
    }

    /// Returns the key selected by `which`.
    #[inline]
    pub(crate) fn key(&mut self, which: Which) -> &Key {
        if let Which::Later(ahead) = which {
            return self.later_key(ahead);
        }
        match &self.previous {
            Some((key, _)) if which == Which::Previous => key,
            _ => &self.current,
        }
    }

    /// Returns the record of the packets of that key; `None` for a later one, which has none yet.
    #[inline]
    pub(crate) fn state(&mut self, which: Which) -> Option<&mut S> {
        match (which, &mut self.previous) {
            (Which::Later(_), _) => None,
            (Which::Previous, previous) => previous.as_mut().map(|(_, state)| state),
            (Which::Current, _) => Some(&mut self.state),
        }
    }

    pub(crate) const fn has_previous(&self) -> bool {
        self.previous.is_some()
    }

    /// Discards the previous key, so that it no longer opens packets.
    pub(crate) fn drop_previous(&mut self) {
        self.previous = None;
    }

    /// Returns the key of the generation `ahead` of the current one.
    #[cold]
    fn later_key(&mut self, ahead: u32) -> &Key {
        let generation = self.number.wrapping_add(ahead);
        let made = || self.direction.key(self.role, generation);
        self.later.slot(generation, ahead).get_or_insert_with(made)
    }

    /// Makes the key of the generation `ahead` the current one. The key of the generation before it becomes the
    /// previous one, even if it has not been used before.
    #[cold]
    pub(crate) fn turn(&mut self, ahead: u32) {
        let [before, generation] = [ahead - 1, ahead].map(|ahead| self.number.wrapping_add(ahead));
        let mut take = |generation: u32, ahead: u32| {
            let known = self.later.slot(generation, ahead).take();
            known.unwrap_or_else(|| self.direction.key(self.role, generation))
        };
        let current = take(generation, ahead);
        let skipped = (ahead > 1).then(|| (take(before, ahead - 1), S::default()));
        let replaced = core::mem::replace(&mut self.current, current);
        let state = core::mem::take(&mut self.state);
        self.previous = Some(skipped.unwrap_or((replaced, state)));
        self.later.advance(self.number, ahead);
        self.number = generation;
    }
}

impl<S> fmt::Debug for Generations<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generations({:?} from {})", self.role, self.number)
    }
}

impl Later {
    /// Returns the slot of the key of `generation`, which is `ahead` of the current one.
    fn slot(&mut self, generation: u32, ahead: u32) -> &mut Option<Key> {
        match ahead {
            1 => &mut self.next,
            _ => &mut self.further.get_or_insert_with(|| Box::new([const { None }; _]))[place(generation)],
        }
    }

    /// Discards the keys that are past, after the generation has advanced from `from` by `ahead`.
    fn advance(&mut self, from: u32, ahead: u32) {
        self.next = None;
        let Some(further) = &mut self.further else { return };
        let place_of = |ahead: u32| place(from.wrapping_add(ahead));
        (2..=ahead).for_each(|past| further[place_of(past)] = None);
        self.next = further[place_of(ahead + 1)].take();
        if further.iter().all(Option::is_none) {
            self.further = None;
        }
    }
}

/// Returns the slot of a generation's key among the later ones.
const fn place(generation: u32) -> usize {
    (generation % GENERATIONS_AHEAD) as usize
}

/// Number of consecutive rotations of which all packets may be lost. A key of the default length lasts longer than the
/// timeout for a silent peer. A sender that rotates after a few packets loses the connection when an outage takes this
/// many times as many. An attacker who sees the connection's cookie can cause that many keys to be derived, at two
/// microseconds each, and one more with every rotation; they then take 18 KB. Must be a power of two, because slots are
/// a generation modulo it, and generations wrap.
pub(crate) const GENERATIONS_AHEAD: u32 = AHEAD as u32;
const AHEAD: u8 = 32;
const _: () = assert!(AHEAD.is_power_of_two());
// ESP's indices have enough bits for these generations and the previous one.
const _: () = assert!(AHEAD < crate::key::Form::Esp.generation_mask());
