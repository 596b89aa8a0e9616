//! Check that both ends of a connection use the same settings, where no other mechanism ensures it.
//!
//! Programs that exchange queue pair numbers by themselves exchange no settings. Ends with different transports drop
//! each other's packets, and the program sees only "retry exceeded"; with different MTUs it sees an invalid request;
//! differences in Falcon's ordering and flows are not reported at all. So a NIC that shares its machine sends the
//! settings of a queue pair when it is connected ([`rnic_wire::hello`]), and receives those of the remote end. Where
//! they differ, the user is told what to change ([`Differs`]). Packets do not wait for this, and no action is taken:
//! the settings are up to the programs.
//!
//! The request of the end that is connected first has no effect: the other end knows of no connection yet, and does not
//! respond. When that end is connected, it sends its own settings, which are compared and answered. So only messages
//! lost by the network need another try, and a peer that does not support this protocol is asked a few times and then
//! no more.
//!
//! Messages are in clear, and any process at the peer's address that knows both numbers can forge one: the worst effect
//! is a wrong line on standard error, once for each queue pair.
//!
//! This is a state machine without a socket, as `credit` is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

use rnic_base::{Duration, Time};
use rnic_engine::PeerId;
use rnic_wire::Qpn;
use rnic_wire::hello::{Hello, Terms};

use crate::cm::{falcon_key_hint, falcon_params_text};

/// Settings exchange of all connected queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Hellos {
    /// Queue pairs that have been connected.
    pairs: BTreeMap<Qpn, Pair>,
    /// Queue pairs whose remote end is to be asked, and the time of the request; each is listed once.
    asks: BTreeSet<(Time, Qpn)>,
    /// Time before which no peer is asked.
    pause_until: Time,
}

/// A queue pair and its remote end.
#[derive(Clone, Copy, Debug)]
struct Pair {
    peer: PeerId,
    far: Qpn,
    ours: Terms,
    /// Time of the next request; `None` once the remote end has responded, or was asked often enough.
    ask_at: Option<Time>,
    asked: u32,
    is_told: bool,
}

/// A message to be sent to the NIC of `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutgoingHello {
    pub(crate) peer: PeerId,
    pub(crate) hello: Hello,
}

/// The ends of a connection use different settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Differs {
    /// Address of the remote end.
    pub peer: IpAddr,
    /// Settings of the remote end.
    pub theirs: Terms,
    /// Settings of the local end.
    pub ours: Terms,
}

impl Hellos {
    /// Records that queue pair `qpn`, with the settings `ours`, has been connected to `far` at `peer`.
    pub(crate) fn connected(&mut self, now: Time, qpn: Qpn, (peer, far): (PeerId, Qpn), ours: Terms) {
        self.gone(qpn);
        let pair = Pair { peer, far, ours, ask_at: Some(now), asked: 0, is_told: false };
        self.pairs.insert(qpn, pair);
        self.asks.insert((now, qpn));
    }

    /// Records that queue pair `qpn` is no longer connected.
    pub(crate) fn gone(&mut self, qpn: Qpn) {
        if let Some(at) = self.pairs.remove(&qpn).and_then(|pair| pair.ask_at) {
            self.asks.remove(&(at, qpn));
        }
    }

    /// Returns the time of the next requests.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.asks.first().map(|(at, _)| (*at).max(self.pause_until))
    }

    /// Returns the requests that are due, a few at a time: thousands of queue pairs that are connected at the same time
    /// would fill the remote end's receive buffer with them, and its packets would be lost.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<OutgoingHello> {
        let mut due = Vec::new();
        while self.next_due().is_some_and(|at| at <= now) {
            if due.len() == ASKS_AT_ONCE {
                self.pause_until = now + PAUSE;
                break;
            }
            let Some((_, qpn)) = self.asks.pop_first() else { break };
            let Some(pair) = self.pairs.get_mut(&qpn) else { continue };
            due.push(pair.outgoing(qpn, false));
            pair.asked += 1;
            pair.ask_at = (pair.asked < ASKS).then(|| now + ASK_AGAIN.saturating_mul(1 << pair.asked));
            self.asks.extend(pair.ask_at.map(|at| (at, qpn)));
        }
        due
    }

    /// Processes a message from `peer`: returns the response, and the differing settings, which are reported once.
    pub(crate) fn heard(&mut self, peer: PeerId, hello: &Hello) -> (Option<OutgoingHello>, Option<[Terms; 2]>) {
        let known = self.pairs.get_mut(&hello.to);
        let Some(pair) = known.filter(|pair| (pair.peer, pair.far) == (peer, hello.from)) else { return (None, None) };
        if let Some(at) = pair.ask_at.take() {
            self.asks.remove(&(at, hello.to));
        }
        let differs = hello.terms != pair.ours && !std::mem::replace(&mut pair.is_told, true);
        let answer = (!hello.is_answer).then(|| pair.outgoing(hello.to, true));
        (answer, differs.then_some([hello.terms, pair.ours]))
    }
}

impl Pair {
    fn outgoing(&self, from: Qpn, is_answer: bool) -> OutgoingHello {
        OutgoingHello { peer: self.peer, hello: Hello { is_answer, from, to: self.far, terms: self.ours } }
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
            let [there, here] = [theirs, ours].map(|terms| falcon_params_text(terms.falcon));
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

/// Maximum number of requests about one connection: covers losses of the network, and slow peers.
const ASKS: u32 = 4;

/// Requests that are sent together, and the time until the next ones: some 60,000 a second.
const ASKS_AT_ONCE: usize = 16;
const PAUSE: Duration = Duration::from_us(250);

/// Interval after the first request; it doubles after each further one.
const ASK_AGAIN: Duration = Duration::from_ms(25);

#[cfg(test)]
#[path = "hello/tests.rs"]
mod tests;
