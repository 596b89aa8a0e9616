//! The receiving half of one direction: which key, is it authentic, is it new.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 9.2.2: integrity, then replay, then index; whatever fails is
//! dropped in silence. Deviations: the index comes first, because it says which key to check integrity with, and an old
//! packet is refused before it is decrypted; nothing is *learned* from a packet before it is authentic. The rule about
//! generations is that of the crate's documentation.

use rnic_base::Duration;
use rnic_wire::falcon::Cid;
use rnic_wire::falcon::psp::{Cipher, Header, Layout};

use crate::generations::{GENERATIONS_AHEAD, Generations, Which};
use crate::key::{Context, Form, Role, Secret, Spi};
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
pub(crate) const PAST: usize = 4;

/// What the first authentic packet has begun.
#[derive(Debug)]
struct Session {
    cookie: u64,
    keys: Generations<()>,
    /// When the earliest packet left that has come under the current key: nobody seals with the one before any more.
    until: u64,
    replay: Replay,
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
            Some(session) if session.cookie == cookie => session.open((header, vector), layout, datagram),
            Some(_) => Err(Refusal::Index),
            None if self.past.contains(&Some(cookie)) => Err(Refusal::Index),
            None => self.open_first(cookie, (header, vector), layout, datagram),
        }
    }

    /// How often the key has been changed.
    pub fn generation(&self) -> u32 {
        self.session.as_ref().map_or(0, |session| session.keys.number())
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
        let role = Role { form: Form::Psp, cipher: self.cipher, cid: self.cid };
        let current = direction.key(role, generation);
        if !current.open(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        let mut replay = Replay::new(self.margin);
        replay.note(vector.units);
        let keys = Generations::begin(direction, role, generation, current);
        self.session = Some(Session { cookie, keys, until: vector.units, replay });
        Ok(Opened { vector, rotated: false })
    }
}

impl Session {
    #[inline]
    fn open(
        &mut self,
        (header, vector): (&Header, Vector),
        layout: Layout,
        datagram: &mut [u8],
    ) -> Result<Opened, Refusal> {
        if !self.replay.accepts(vector.units) {
            return Err(Refusal::Replay);
        }
        let which = self.keys.which(header.spi).ok_or(Refusal::Index)?;
        if which == Which::Previous && vector.units > self.until {
            return Err(Refusal::Index);
        }
        if !self.keys.key(which).open(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        self.replay.note(vector.units);
        match which {
            Which::Later(ahead) => {
                self.keys.turn(ahead);
                self.until = vector.units;
            }
            Which::Current if self.keys.has_previous() => {
                self.until = self.until.min(vector.units);
                if !self.replay.accepts(self.until) {
                    self.keys.drop_previous();
                }
            }
            Which::Current | Which::Previous => {}
        }
        Ok(Opened { vector, rotated: matches!(which, Which::Later(_)) })
    }
}

#[cfg(test)]
#[path = "open/tests.rs"]
mod tests;
