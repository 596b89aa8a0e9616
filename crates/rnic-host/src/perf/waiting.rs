//! Control connections that have not said yet what they are for.
//!
//! A client that connects and then says nothing keeps no other out: several wait beside each other, each for a short
//! time, and where there is no room the one that has waited longest makes room for the next.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use super::control::Control;
use super::plan::{Answer, Order};
use super::setup::{ServeConfig, turn_away};
use super::{PerfError, protection};
use crate::cm::ConnectionId;
use crate::connection::ConnectionRequest;
use crate::nic::Nic;

/// Those that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<Entrant>);

/// One of them.
#[derive(Debug)]
pub(super) struct Entrant {
    pub(super) control: Control,
    /// Which session it is for.
    pub(super) session: u64,
    since: Time,
    /// It has been told that another session is served.
    is_refused: bool,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Accepts a control connection.
    ///
    /// # Errors
    /// In words for people here, when it is not: then the other end has been told.
    pub(super) fn admit(
        &mut self,
        nic: &mut Nic,
        config: &ServeConfig,
        request: &ConnectionRequest,
        session: u64,
    ) -> Result<(), String> {
        if let Err([there, here]) = protection::check_request(nic, request) {
            turn_away(nic, request.id, there);
            return Err(here.to_owned());
        }
        if self.0.len() == ENTRANTS_MAX
            && let Some(longest) = self.0.pop_front()
        {
            longest.control.close(nic);
        }
        let control = Control::open(nic, config.patience, |nic, config| nic.accept(request.id, &config));
        let control = control.map_err(|error| error.to_string())?;
        self.0.push_back(Entrant { control, session, since: nic.now(), is_refused: false });
        Ok(())
    }

    /// The connection manager says that a connection is over, perhaps one of these.
    pub(super) fn end(&mut self, id: ConnectionId) {
        if let Some(entrant) = self.0.iter_mut().find(|entrant| entrant.control.id == id) {
            entrant.control.end();
        }
    }

    /// One that has said something, or will not any more: with its order, or why there is none.
    pub(super) fn next(&mut self, nic: &mut Nic, config: &ServeConfig) -> Option<(Entrant, Result<Order, PerfError>)> {
        let patience = FIRST_ORDER_WITHIN.min(config.patience);
        let now = nic.now();
        let mut found = None;
        for (index, entrant) in self.0.iter_mut().enumerate() {
            let said = entrant.control.poll::<Order>(nic);
            let peer = entrant.control.peer;
            let said = match said {
                Ok(None) if now.since(entrant.since) > patience => Err(PerfError::Silent { peer, after: patience }),
                Ok(None) => continue,
                Ok(Some(order)) => Ok(order),
                Err(error) => Err(error),
            };
            found = Some((index, said));
            break;
        }
        let (index, said) = found?;
        Some((self.0.remove(index)?, said))
    }

    /// While a session is served: tells those who order something that they come at a bad time.
    pub(super) fn refuse(&mut self, nic: &mut Nic) {
        for entrant in self.0.iter_mut().filter(|entrant| !entrant.is_refused) {
            if let Ok(Some(Order::Prepare { .. })) = entrant.control.poll(nic) {
                // It may be gone: then the write fails, which changes nothing.
                let _ = entrant.control.send(nic, &Answer::Refused { reason: BUSY.to_owned() });
                entrant.is_refused = true;
            }
        }
    }

    /// Closes all.
    pub(super) fn close(self, nic: &mut Nic) {
        self.0.into_iter().for_each(|entrant| entrant.control.close(nic));
    }
}

impl Entrant {
    /// Returns whether its end is news: not when it was sent away.
    pub(super) fn is_news(&self) -> bool {
        !self.is_refused
    }
}

/// The answer to a client that comes while a session is served.
pub(super) const BUSY: &str = "busy with another session";

/// Those that wait at once: each has a queue pair and 32 KiB of memory.
const ENTRANTS_MAX: usize = 64;

/// An order follows its connection within a round trip, and a few repetitions where packets are lost.
pub(super) const FIRST_ORDER_WITHIN: Duration = Duration::from_secs(5);
