//! The receiving half of one direction: which key, is it authentic, is it new.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 9.2.2: integrity, then replay, then index; whatever fails is
//! dropped in silence. Deviations: the index comes first, because it says which key to check integrity with, and an old
//! packet is refused before it is decrypted; nothing is *learned* from a packet before it is authentic. The rule about
//! generations is that of the crate's documentation.

use rnic_base::Duration;
use rnic_wire::falcon::Cid;
use rnic_wire::falcon::psp::{Cipher, Header, Layout};

use crate::key::{Context, Direction, Key, Secret, Spi};
use crate::replay::{REPLAY_MARGIN, Replay};
use crate::vector::Vector;

/// Opens the packets of one direction of one connection.
#[derive(Debug)]
pub struct Opener {
    secret: Secret,
    context: Context,
    cipher: Cipher,
    cid: Cid,
    /// Since the first authentic packet.
    session: Option<Session>,
    /// What senders had drawn for earlier connections of this receiver, the latest first.
    past: [Option<u64>; PAST],
    margin: Duration,
}

/// Earlier connections of a receiver whose senders are known again. What is still under way is of the last one, and of
/// those before only what somebody has recorded.
const PAST: usize = 4;

/// What the first authentic packet has begun.
#[derive(Debug)]
struct Session {
    cookie: u64,
    direction: Direction,
    generation: u32,
    current: Key,
    /// An earlier generation's, while it may open something.
    previous: Option<Previous>,
    later: Later,
    replay: Replay,
}

/// Keys of later generations. Each is made when its index is first seen, and kept until its generation has come or is
/// past: so whoever forges indices, in whatever order, has each key made once, and no more of them than there are
/// generations that may be next.
#[derive(Debug, Default)]
struct Later {
    /// Of the next generation: nearly always there is no other.
    next: Option<Key>,
    /// Of those behind it, by generation modulo their number; made when the first is seen, gone with the last.
    further: Option<Box<[Option<Key>; GENERATIONS_AHEAD as usize]>>,
}

/// A key that has been replaced.
#[derive(Debug)]
struct Previous {
    generation: u32,
    key: Key,
    /// When the earliest packet left that has come under the current key: nobody seals with this one any more.
    until: u64,
}

/// What an authentic packet's header has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// When it left, and by which path.
    pub vector: Vector,
    /// The key is a new one, since this packet.
    pub rotated: bool,
}

/// Why a packet is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// It has no key, no cookie, or another cipher than was agreed on.
    #[error("not protected as agreed on")]
    Unprotected,
    /// Its index names another connection, or a generation that is neither the current one nor beside it; or its cookie
    /// is not its sender's.
    #[error("an index or cookie of no key of this connection")]
    Index,
    /// It is too old.
    #[error("too old, perhaps recorded and sent again")]
    Replay,
    /// It was changed on the way, or somebody else has made it.
    #[error("not authentic")]
    Forged,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Unprotected, Self::Index, Self::Replay, Self::Forged];
}

impl Opener {
    /// For packets to `cid`.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid) -> Self {
        let (secret, context) = (secret.clone(), *context);
        Self { secret, context, cipher, cid, session: None, past: [None; PAST], margin: REPLAY_MARGIN }
    }

    /// For the next connection of a receiver that `earlier` has served: what its sender still sends does not begin it.
    ///
    /// A sender that is reset draws another cookie. But when both ends are reset, one is ready first, and hears the
    /// other as it was before.
    #[must_use]
    pub fn after(mut self, earlier: &Self) -> Self {
        self.past = earlier.past;
        if let Some(session) = &earlier.session {
            self.past.rotate_right(1);
            self.past[0] = Some(session.cookie);
        }
        self
    }

    /// With another margin than [`REPLAY_MARGIN`].
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Checks `datagram` and decrypts it in place. When it is refused, its bytes mean nothing any more.
    ///
    /// # Errors
    /// [`Refusal`]: it is to be dropped, and nothing has changed here.
    ///
    /// # Panics
    /// When the layout is not the datagram's.
    #[inline]
    pub fn open(&mut self, header: &Header, layout: Layout, datagram: &mut [u8]) -> Result<Opened, Refusal> {
        let cookie = header.cookie.filter(|_| header.is_protected() && header.cipher == self.cipher);
        let cookie = cookie.ok_or(Refusal::Unprotected)?;
        let spi = Spi::from_value(header.spi);
        if spi.cid() != self.cid {
            return Err(Refusal::Index);
        }
        let vector = Vector::read(header.iv);
        match &mut self.session {
            Some(session) if session.cookie == cookie => {
                session.open(self.cipher, self.cid, (header, vector), layout, datagram)
            }
            Some(_) => Err(Refusal::Index),
            None if self.past.contains(&Some(cookie)) => Err(Refusal::Index),
            None => self.open_first(cookie, (header, vector), layout, datagram),
        }
    }

    /// How often the key has been changed.
    pub fn generation(&self) -> u32 {
        self.session.as_ref().map_or(0, |session| session.generation)
    }

    /// Whether anything authentic has come.
    pub const fn is_begun(&self) -> bool {
        self.session.is_some()
    }

    /// The first packet, perhaps: whoever sends it says which cookie its keys are made with. Nothing is kept of one
    /// that is not authentic, so that a stranger's cookie does not shut out the peer's. What a stranger has recorded
    /// does, if an earlier connection of the same two addresses had the same two numbers (one in 2^24 for each number
    /// that is drawn), this receiver has not heard it then ([`Self::after`]), and it comes before the peer's first
    /// packet: then this connection fails, as if it had another secret.
    ///
    /// Until then, each packet with the connection's number has a direction, a master key and a key derived, whoever
    /// has sent it: cookies are as many as strangers like, so none could be kept. It ends with the peer's first packet.
    #[cold]
    fn open_first(
        &mut self,
        cookie: u64,
        (header, vector): (&Header, Vector),
        layout: Layout,
        datagram: &mut [u8],
    ) -> Result<Opened, Refusal> {
        // The first packets may be lost, and with them a rotation or two; who begins far on is not ours.
        let generation = u32::from(Spi::from_value(header.spi).generation());
        if generation > GENERATIONS_AHEAD {
            return Err(Refusal::Index);
        }
        let direction = self.secret.direction(&self.context, cookie);
        let current = direction.key(self.cipher, generation, self.cid);
        if !current.open(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        let mut replay = Replay::new(self.margin);
        replay.note(vector.units);
        let until = vector.units;
        let previous = generation.checked_sub(1);
        let previous = previous.map(|generation| {
            let key = direction.key(self.cipher, generation, self.cid);
            Previous { generation, key, until }
        });
        self.session =
            Some(Session { cookie, direction, generation, current, previous, later: Later::default(), replay });
        Ok(Opened { vector, rotated: false })
    }
}

impl Session {
    #[inline]
    fn open(
        &mut self,
        cipher: Cipher,
        cid: Cid,
        (header, vector): (&Header, Vector),
        layout: Layout,
        datagram: &mut [u8],
    ) -> Result<Opened, Refusal> {
        if !self.replay.accepts(vector.units) {
            return Err(Refusal::Replay);
        }
        let generation = Spi::from_value(header.spi).generation();
        let ahead = generation.wrapping_sub(self.generation as u8);
        let key = match (ahead, &self.previous) {
            (0, _) => &self.current,
            (1..=AHEAD, _) => self.later_key(cipher, cid, u32::from(ahead)),
            (_, Some(previous)) if previous.generation as u8 == generation && vector.units <= previous.until => {
                &previous.key
            }
            _ => return Err(Refusal::Index),
        };
        if !key.open(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        self.replay.note(vector.units);
        let rotated = (1..=AHEAD).contains(&ahead);
        if rotated {
            self.turn(cipher, cid, u32::from(ahead), vector.units);
        } else if ahead == 0
            && let Some(previous) = &mut self.previous
        {
            previous.until = previous.until.min(vector.units);
            if !self.replay.accepts(previous.until) {
                self.previous = None;
            }
        }
        Ok(Opened { vector, rotated })
    }

    /// The key of a generation that is so many ahead.
    #[cold]
    fn later_key(&mut self, cipher: Cipher, cid: Cid, ahead: u32) -> &Key {
        let generation = self.generation.wrapping_add(ahead);
        let made = || self.direction.key(cipher, generation, cid);
        self.later.slot(generation, ahead).get_or_insert_with(made)
    }

    /// Takes the key of a generation that is so many ahead for the current one. The one before it is the previous one,
    /// even if it is new here too.
    #[cold]
    fn turn(&mut self, cipher: Cipher, cid: Cid, ahead: u32, until: u64) {
        let [before, generation] = [ahead - 1, ahead].map(|ahead| self.generation.wrapping_add(ahead));
        let mut take = |generation: u32, ahead: u32| {
            let known = self.later.slot(generation, ahead).take();
            known.unwrap_or_else(|| self.direction.key(cipher, generation, cid))
        };
        let current = take(generation, ahead);
        let skipped = (ahead > 1).then(|| take(before, ahead - 1));
        let replaced = core::mem::replace(&mut self.current, current);
        self.previous = Some(Previous { generation: before, key: skipped.unwrap_or(replaced), until });
        self.later.advance(self.generation, ahead);
        self.generation = generation;
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

/// Where the key of a generation lies among the later ones.
const fn place(generation: u32) -> usize {
    (generation % GENERATIONS_AHEAD) as usize
}

/// Rotations of which all packets may be lost. A key of the default length lasts for longer than a silent peer is
/// waited for; who rotates after a few packets loses the connection in an outage of this many times as many. A stranger
/// who sees the connection's cookie can have that many keys derived, two microseconds each, and one more with every
/// rotation; they take 18 KB then. A power of two: places are a generation modulo it, and generations wrap.
const GENERATIONS_AHEAD: u32 = AHEAD as u32;
const AHEAD: u8 = 32;
const _: () = assert!(AHEAD.is_power_of_two());

#[cfg(test)]
#[path = "open/tests.rs"]
mod tests;
