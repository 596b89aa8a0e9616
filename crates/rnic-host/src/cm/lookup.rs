//! Lookups: finding the queue pair that serves datagrams (SIDR, InfiniBand Architecture volume 1, section 12.11).
//!
//! A request is retransmitted until a response is received; a response is kept for a limited time and retransmitted
//! if the request is received again.

use std::cmp::Reverse;

use rnic_base::{Duration, Time};
use rnic_wire::Addresses;
use rnic_wire::cm::{LookupReply, LookupRequest, LookupStatus, Message};

use super::manager::{Service, mad};
use super::{CmEvent, ConnectionId, Manager, ServiceKind, State};

impl Manager {
    /// Requests the queue pair of a service. The local id in `request` is filled in; returns `None` when there are
    /// too many connections and attempts.
    pub(crate) fn look_up(
        &mut self,
        now: Time,
        addresses: Addresses,
        mut request: LookupRequest,
        timeout: Duration,
    ) -> Option<ConnectionId> {
        let transaction_id = self.random.bits();
        let id = self.add(now, addresses, 0, transaction_id, State::LookupSent)?;
        request.request_id = self.exchanges[&id].local_comm_id;
        self.send_until_answered(now, id, Message::LookupRequest(request), timeout);
        Some(id)
    }

    /// Sends the response to a lookup. The ids in `reply` are filled in; returns false when the lookup is no longer
    /// pending.
    pub(crate) fn answer(&mut self, now: Time, id: ConnectionId, mut reply: LookupReply) -> bool {
        let Some(exchange) = self.transition(id, State::LookupReceived, State::LookupAnswered) else { return false };
        reply.request_id = exchange.remote_comm_id;
        reply.service_id = exchange.service.unwrap_or_default();
        let (addresses, message) = (exchange.addresses, Message::LookupReply(reply));
        let out = (addresses, mad(exchange.transaction_id, message.clone()));
        let forget_at = now + RESPONSE_RETENTION;
        exchange.message = Some(Box::new(message));
        (exchange.abandon_at, exchange.retransmit_at) = (forget_at, Some(forget_at));
        self.timers.push(Reverse((forget_at, id)));
        self.out.push_back(out);
        true
    }

    pub(super) fn receive_lookup(&mut self, now: Time, path: &Addresses, transaction_id: u64, request: LookupRequest) {
        if let Some(id) = self.by_request.get(&(path.src(), request.request_id)) {
            let exchange = &self.exchanges[id];
            if let (State::LookupAnswered, Some(message)) = (exchange.state, &exchange.message) {
                self.out.push_back((exchange.addresses, mad(exchange.transaction_id, (**message).clone())));
            }
            return;
        }
        let status = match self.services.get(&request.service_id) {
            Some(service @ Service { kind: ServiceKind::Datagrams, .. }) => {
                self.is_full(service).then_some(LookupStatus::NO_QP)
            }
            _ => Some(LookupStatus::UNSUPPORTED),
        };
        let add = |manager: &mut Self| {
            manager.add(now, path.reversed(), request.request_id, transaction_id, State::LookupReceived)
        };
        let added = match status {
            Some(status) => Err(status),
            None => add(self).ok_or(LookupStatus::NO_QP),
        };
        match added {
            Ok(id) => {
                self.note_request(now, id, request.service_id);
                self.cm_events.push_back(CmEvent::LookupRequested(id, Box::new(request)));
            }
            Err(status) => {
                let (request_id, service_id) = (request.request_id, request.service_id);
                let reply = LookupReply { request_id, status, service_id, ..LookupReply::default() };
                self.out.push_back((path.reversed(), mad(transaction_id, Message::LookupReply(reply))));
            }
        }
    }

    pub(super) fn receive_found(&mut self, now: Time, path: &Addresses, transaction_id: u64, reply: LookupReply) {
        let id = self.find(path, reply.request_id).filter(|id| {
            let exchange = &self.exchanges[id];
            exchange.state == State::LookupSent && exchange.transaction_id == transaction_id
        });
        match id {
            Some(id) if reply.status == LookupStatus::UNSUPPORTED && self.may_still_listen(now, id) => {}
            Some(id) => {
                self.remove(id);
                self.cm_events.push_back(CmEvent::Found(id, Box::new(reply)));
            }
            None => self.strays += 1,
        }
    }
}

/// Time for which a response is kept for retransmission. The request is retransmitted at least twice a second, so
/// several transmissions of it are received in this time.
const RESPONSE_RETENTION: Duration = Duration::from_secs(4);
