//! Whether both ends of a connection go by the same, where nobody else makes sure that they do.
//!
//! Programs that exchange queue pair numbers by themselves exchange no settings. Ends with different transports drop
//! each other's packets, and all that a program hears is "retry exceeded"; with different MTUs it is an invalid
//! request; of Falcon's order and flows it hears nothing. So a NIC that shares its machine says what a queue pair goes
//! by when it is connected ([`rnic_wire::hello`]), and hears what the other end does. Where they differ, people are
//! told what to change ([`Differs`]). Packets do not wait for it, and nothing is done about it: the ends are theirs.
//!
//! The end that is connected first asks in vain: the other knows of no connection yet, and does not answer. When that
//! one is connected, it says its own, which is compared and answered. So only what the network loses needs another try,
//! and a peer that speaks no hello is asked a few times and then left alone.
//!
//! Messages are in clear, and anybody at the peer's address who knows both numbers can make one: it is worth a wrong
//! line on standard error, once for each queue pair.
//!
//! This is a state machine without a socket, as `credit` is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

use rnic_base::{Duration, Time};
use rnic_engine::PeerId;
use rnic_wire::Qpn;
use rnic_wire::hello::{Hello, Terms};

use crate::cm::{falcon_key_hint, falcon_text};

/// What is known of the connections of queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Hellos {
    /// Those that have been connected.
    pairs: BTreeMap<Qpn, Pair>,
    /// Those whose far end is to be asked, and when: each once.
    asks: BTreeSet<(Time, Qpn)>,
    /// No peer is asked before.
    pause_until: Time,
}

/// A queue pair and its far end.
#[derive(Clone, Copy, Debug)]
struct Pair {
    peer: PeerId,
    far: Qpn,
    ours: Terms,
    /// When to ask; `None` once the far end has been heard, or was asked often enough.
    ask_at: Option<Time>,
    asked: u32,
    is_told: bool,
}

/// A message to be sent to the NIC of `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Letter {
    pub(crate) peer: PeerId,
    pub(crate) hello: Hello,
}

/// The ends of a connection go by different things.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Differs {
    /// Where the other end is.
    pub peer: IpAddr,
    /// What it goes by.
    pub theirs: Terms,
    /// What ours does.
    pub ours: Terms,
}

impl Hellos {
    /// Queue pair `qpn`, which goes by `ours`, has been connected to `far` at `peer`.
    pub(crate) fn connected(&mut self, now: Time, qpn: Qpn, (peer, far): (PeerId, Qpn), ours: Terms) {
        self.gone(qpn);
        let pair = Pair { peer, far, ours, ask_at: Some(now), asked: 0, is_told: false };
        self.pairs.insert(qpn, pair);
        self.asks.insert((now, qpn));
    }

    /// Queue pair `qpn` is connected no more.
    pub(crate) fn gone(&mut self, qpn: Qpn) {
        if let Some(at) = self.pairs.remove(&qpn).and_then(|pair| pair.ask_at) {
            self.asks.remove(&(at, qpn));
        }
    }

    /// When there will be questions.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.asks.first().map(|(at, _)| (*at).max(self.pause_until))
    }

    /// Questions that are due, a few at a time: thousands of queue pairs that are connected at once would fill the
    /// other end's receive buffer with them, and its packets would be lost.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<Letter> {
        let mut letters = Vec::new();
        while self.next_due().is_some_and(|at| at <= now) {
            if letters.len() == ASKS_AT_ONCE {
                self.pause_until = now + PAUSE;
                break;
            }
            let Some((_, qpn)) = self.asks.pop_first() else { break };
            let Some(pair) = self.pairs.get_mut(&qpn) else { continue };
            letters.push(pair.letter(qpn, false));
            pair.asked += 1;
            pair.ask_at = (pair.asked < ASKS).then(|| now + ASK_AGAIN.saturating_mul(1 << pair.asked));
            self.asks.extend(pair.ask_at.map(|at| (at, qpn)));
        }
        letters
    }

    /// A message has come from `peer`: what to answer, and what differs, which is said once.
    pub(crate) fn heard(&mut self, peer: PeerId, hello: &Hello) -> (Option<Letter>, Option<[Terms; 2]>) {
        let known = self.pairs.get_mut(&hello.to);
        let Some(pair) = known.filter(|pair| (pair.peer, pair.far) == (peer, hello.from)) else { return (None, None) };
        if let Some(at) = pair.ask_at.take() {
            self.asks.remove(&(at, hello.to));
        }
        let differs = hello.terms != pair.ours && !std::mem::replace(&mut pair.is_told, true);
        let answer = (!hello.is_answer).then(|| pair.letter(hello.to, true));
        (answer, differs.then_some([hello.terms, pair.ours]))
    }
}

impl Pair {
    fn letter(&self, from: Qpn, is_answer: bool) -> Letter {
        Letter { peer: self.peer, hello: Hello { is_answer, from, to: self.far, terms: self.ours } }
    }
}

impl Display for Differs {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { peer, theirs, ours } = self;
        let [there, here] = [theirs, ours].map(|terms| terms.transport.as_str().to_owned());
        if there != here {
            return write!(
                f,
                "the other end, at {peer}, uses transport {there}, and this one {here}, so they cannot talk: give both \
                 the same --transport"
            );
        }
        if theirs.falcon != ours.falcon {
            let [there, here] = [theirs, ours].map(|terms| falcon_text(terms.falcon));
            let hint = falcon_key_hint(ours.falcon, theirs.falcon);
            return write!(
                f,
                "the other end, at {peer}, has {there}, and this one {here}{hint}: give both the same --set and --key"
            );
        }
        let (there, here) = (theirs.mtu, ours.mtu);
        write!(
            f,
            "the other end, at {peer}, sends packets of {there} bytes, and this one of {here}: give both the same \
             --mtu, which the path between them must carry"
        )
    }
}

/// Questions about one connection, at most: what the network loses, and who is slow.
const ASKS: u32 = 4;

/// Questions that leave together, and the time until the next ones: some 60,000 a second.
const ASKS_AT_ONCE: usize = 16;
const PAUSE: Duration = Duration::from_us(250);

/// After the first question; after each further one twice as long.
const ASK_AGAIN: Duration = Duration::from_ms(25);

#[cfg(test)]
#[path = "hello/tests.rs"]
mod tests;
