//! A receiver's keys: the current one, the one before it, and those that may be next.
//!
//! The rule about generations is that of the crate's documentation. What a receiver remembers of each key's packets is
//! its own business: `S`.

use core::fmt;

use crate::key::{Direction, Key, Role};

/// Keys of one direction, from the generation on with which it began here.
pub(crate) struct Generations<S> {
    direction: Direction,
    role: Role,
    number: u32,
    current: Key,
    state: S,
    /// The one before, while it may open something.
    previous: Option<(Key, S)>,
    later: Later,
}

/// Which of the keys an index names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Previous,
    Current,
    /// Of a generation so many ahead.
    Later(u32),
}

/// Keys of later generations. Each is made when its index is first seen, and kept until its generation has come or is
/// past: so forged indices, in any order, have each key made once, and no more of them than there are generations that
/// may be next.
#[derive(Debug, Default)]
struct Later {
    /// Of the next generation: nearly always there is no other.
    next: Option<Key>,
    /// Of those behind it, by generation modulo their number; made when the first is seen, gone with the last.
    further: Option<Box<[Option<Key>; GENERATIONS_AHEAD as usize]>>,
}

impl<S: Default> Generations<S> {
    /// Those whose current key is `current`, of generation `number`.
    pub(crate) fn begin(direction: Direction, role: Role, number: u32, current: Key) -> Self {
        let previous = number.checked_sub(1).map(|before| (direction.key(role, before), S::default()));
        Self { direction, role, number, current, state: S::default(), previous, later: Later::default() }
    }

    /// The current generation.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// The key that the index `spi` names, if there is one.
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

    /// That key.
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

    /// Returns the record of packets of that key; none yet for a later one.
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

    /// The previous key opens nothing any more.
    pub(crate) fn drop_previous(&mut self) {
        self.previous = None;
    }

    /// The key of a generation that is so many ahead.
    #[cold]
    fn later_key(&mut self, ahead: u32) -> &Key {
        let generation = self.number.wrapping_add(ahead);
        let made = || self.direction.key(self.role, generation);
        self.later.slot(generation, ahead).get_or_insert_with(made)
    }

    /// Takes the key of a generation that is so many ahead for the current one. The one before it is the previous one,
    /// even if it is new here too.
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
    /// The place of the key of `generation`, which is so many ahead.
    fn slot(&mut self, generation: u32, ahead: u32) -> &mut Option<Key> {
        match ahead {
            1 => &mut self.next,
            _ => &mut self.further.get_or_insert_with(|| Box::new([const { None }; _]))[place(generation)],
        }
    }

    /// The generation is no longer `from` but so many further.
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

/// Returns the place of a generation's key among the later ones.
const fn place(generation: u32) -> usize {
    (generation % GENERATIONS_AHEAD) as usize
}

/// Rotations of which all packets may be lost. A key of the default length outlasts the wait for a silent peer. A
/// sender that rotates after a few packets loses the connection when an outage takes this many times as many. An
/// attacker who sees the connection's cookie can have that many keys derived, two microseconds each, and one more with
/// every rotation; they take 18 KB then. A power of two: places are a generation modulo it, and generations wrap.
pub(crate) const GENERATIONS_AHEAD: u32 = AHEAD as u32;
const AHEAD: u8 = 32;
const _: () = assert!(AHEAD.is_power_of_two());
// ESP's indices have the bits for it, and for the one before.
const _: () = assert!(AHEAD < crate::key::Form::Esp.generation_mask());
