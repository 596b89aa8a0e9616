//! The receiving side of one direction: selection of the key, authentication, replay check.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 9.2.2: integrity, then replay, then index; a packet that
//! fails is dropped silently. Deviations: the index is checked first, because it selects the key for the integrity
//! check, and an old packet is rejected before it is decrypted; no state is *updated* from a packet before it is
//! authenticated. The rules for generations are in the crate's documentation.

use rnic_base::Duration;
use rnic_wire::falcon::Cid;
use rnic_wire::falcon::psp::{Cipher, Header, Layout};

use crate::generations::{GENERATIONS_AHEAD, Generations, KeySelector};
use crate::key::{Context, Role, Secret, SecurityFormat, Spi};
use crate::replay::{REPLAY_MARGIN, Replay};
use crate::vector::Vector;

/// Verifies and decrypts the packets of one direction of one connection.
#[derive(Debug)]
pub struct Opener {
    secret: Secret,
    context: Context,
    cipher: Cipher,
    cid: Cid,
    /// Current session; `None` until the first authentic packet.
    session: Option<Session>,
    /// Cookies of the senders of earlier connections of this receiver, the latest first.
    past_cookies: [Option<u64>; EARLIER_CONNECTIONS_MAX],
    margin: Duration,
}

/// Number of earlier connections of a receiver whose senders are recognized. Packets still in flight belong to the
/// most recent of them; packets of the others can only be replayed recordings.
pub(crate) const EARLIER_CONNECTIONS_MAX: usize = 4;

/// State created by the first authentic packet.
#[derive(Debug)]
struct Session {
    cookie: u64,
    keys: Generations<()>,
    /// Send time of the earliest packet received under the current key, in units of 131.072 ns: from then on the sender
    /// no longer uses the previous key.
    previous_key_until: u64,
    replay: Replay,
}

/// Information from the header of an authentic packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Send time of the packet, and the path it was sent on.
    pub vector: Vector,
    /// `true` if this packet is the first under a new key.
    pub rotated: bool,
}

/// Reason why a packet is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// The packet has no key, no cookie, or another cipher than the agreed one.
    #[error("the packet is not encrypted, has no virtualization cookie, or uses a cipher other than the agreed one")]
    Unprotected,
    /// The index is that of another connection, or of a generation that is neither the current one nor close to it; or
    /// the cookie is not that of the sender.
    #[error("the key index or cookie does not belong to a key of this connection")]
    Index,
    /// The packet is too old.
    #[error("the packet is too old and may be a replay")]
    Replay,
    /// The packet was changed in transit, or was not created by the peer.
    #[error("the packet failed authentication: it was changed in transit or not sent by the peer")]
    Forged,
}

impl Refusal {
    /// All reasons for dropping a packet.
    pub const ALL: [Self; 4] = [Self::Unprotected, Self::Index, Self::Replay, Self::Forged];
}

impl Opener {
    /// Creates an opener for packets to `cid`.
    pub fn new(secret: &Secret, cipher: Cipher, context: &Context, cid: Cid) -> Self {
        let (secret, context) = (secret.clone(), *context);
        Self {
            secret,
            context,
            cipher,
            cid,
            session: None,
            past_cookies: [None; EARLIER_CONNECTIONS_MAX],
            margin: REPLAY_MARGIN,
        }
    }

    /// Prepares the opener for the next connection of a receiver whose previous connection used `earlier`: packets
    /// that the earlier sender still sends do not start the new session.
    ///
    /// A sender that is reset generates another cookie. When both ends are reset, however, the end that is ready
    /// first may still receive packets that the other end sent before its reset.
    #[must_use]
    pub fn after(mut self, earlier: &Self) -> Self {
        self.past_cookies = earlier.past_cookies;
        if let Some(session) = &earlier.session {
            self.past_cookies.rotate_right(1);
            self.past_cookies[0] = Some(session.cookie);
        }
        self
    }

    /// Sets the replay margin, instead of [`REPLAY_MARGIN`].
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Checks `datagram` and decrypts it in place. When it is rejected, its content is undefined afterwards.
    ///
    /// # Errors
    /// [`Refusal`] when the datagram is to be dropped; the state of the opener is unchanged.
    ///
    /// # Panics
    /// When the layout does not match the datagram.
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
            None if self.past_cookies.contains(&Some(cookie)) => Err(Refusal::Index),
            None => self.open_first(cookie, (header, vector), layout, datagram),
        }
    }

    /// Returns the number of key changes so far.
    pub fn generation(&self) -> u32 {
        self.session.as_ref().map_or(0, |session| session.keys.number())
    }

    /// Returns `true` if an authentic packet has been received.
    pub const fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Opens a packet that may be the first of its sender, whose keys are derived with the cookie in the packet. No
    /// state is stored for a packet that is not authentic, so that a cookie from an unknown sender does not lock out
    /// the peer. A recorded packet does lock it out, if an earlier connection of the same two addresses had the same
    /// two numbers (one in 2^24 for each randomly generated number), this receiver did not receive the earlier
    /// connection ([`Self::after`]), and the packet arrives before the peer's first packet: then this connection
    /// fails, as with a different secret.
    ///
    /// Until the peer's first packet, a direction, a master key and a key are derived for each packet that carries
    /// the connection's number, no matter who sent it. They cannot be cached, because an attacker can use any number
    /// of cookies.
    #[cold]
    fn open_first(
        &mut self,
        cookie: u64,
        (header, vector): (&Header, Vector),
        layout: Layout,
        datagram: &mut [u8],
    ) -> Result<Opened, Refusal> {
        // The first packets may be lost, and one or two rotations with them; a first packet of a much later generation
        // is not from the peer.
        let generation = u32::from(Spi::from_value(header.spi).generation());
        if generation > GENERATIONS_AHEAD {
            return Err(Refusal::Index);
        }
        let direction = self.secret.direction(&self.context, cookie);
        let role = Role { form: SecurityFormat::Psp, cipher: self.cipher, cid: self.cid };
        let current = direction.key(role, generation);
        if !current.open(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        let mut replay = Replay::new(self.margin);
        replay.record(vector.units);
        let keys = Generations::begin(direction, role, generation, current);
        self.session = Some(Session { cookie, keys, previous_key_until: vector.units, replay });
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
        let selector = self.keys.selector_of(header.spi).ok_or(Refusal::Index)?;
        if selector == KeySelector::Previous && vector.units > self.previous_key_until {
            return Err(Refusal::Index);
        }
        if !self.keys.key(selector).open(header, layout, datagram) {
            return Err(Refusal::Forged);
        }
        self.replay.record(vector.units);
        match selector {
            KeySelector::Later(distance) => {
                self.keys.advance_by(distance);
                self.previous_key_until = vector.units;
            }
            KeySelector::Current if self.keys.has_previous() => {
                self.previous_key_until = self.previous_key_until.min(vector.units);
                if !self.replay.accepts(self.previous_key_until) {
                    self.keys.drop_previous();
                }
            }
            KeySelector::Current | KeySelector::Previous => {}
        }
        Ok(Opened { vector, rotated: matches!(selector, KeySelector::Later(_)) })
    }
}

#[cfg(test)]
#[path = "open/tests.rs"]
mod tests;
