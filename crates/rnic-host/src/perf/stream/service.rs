//! Server of `rnic perf` for streams.

use super::channel::Channel;
use super::data::Data;
use super::{Answer, Order, VERSION};
use crate::connection::ConnectionRequest;
use crate::impair::Impairment;
use crate::nic::Nic;
use crate::perf::client::sent;
use crate::perf::plan::Outcome;
use crate::perf::setup::{ServeConfig, reject_client};
use crate::perf::waiting::{BUSY, FIRST_ORDER_TIMEOUT};
use crate::perf::{PerfError, peers, protection};
use crate::stream::{SOFTWARE_TRANSPORT, StreamConfig, Streams};

/// Serves the stream that a client requests, until its end; returns the outcome and, if it ended early, the reason.
/// Stops when `keep_serving` returns false.
pub(in crate::perf) fn serve(
    nic: &mut Nic,
    config: &ServeConfig,
    request: &ConnectionRequest,
    mut keep_serving: impl FnMut() -> bool,
) -> (Outcome, Option<PerfError>) {
    let before = sent(nic);
    let mut outcome = Outcome::default();
    let result = accept(nic, config, request).and_then(|mut channel| {
        let result = Session { before, keep_serving: &mut keep_serving }.run(nic, &mut channel, &mut outcome);
        channel.close(nic);
        nic.set_impairment(Impairment::default());
        result
    });
    let after = sent(nic);
    (outcome.packets_sent, outcome.packets_retransmitted) = (after.0 - before.0, after.1 - before.1);
    (outcome, result.err())
}

fn accept(nic: &mut Nic, config: &ServeConfig, request: &ConnectionRequest) -> Result<Channel, PerfError> {
    let name = request.transports.first().map_or(SOFTWARE_TRANSPORT, String::as_str);
    let choice = peers::choice(nic, name, &[]);
    let choice = choice.and_then(|choice| protection::check_choice(nic, &choice).map(|()| choice));
    let choice = choice.inspect_err(|error| reject_client(nic, request.id, &error.to_string()))?;
    let mut streams = Streams::new(nic, StreamConfig::over(choice))?;
    match streams.accept(nic, request) {
        Ok(id) => Ok(Channel::new(nic, (streams, id, request.from), config.patience, config.sleeps_at_once)),
        Err(error) => {
            streams.close_all(nic);
            Err(error.into())
        }
    }
}

/// A session with one client.
struct Session<'a, K> {
    /// Packets sent before the session, and number of retransmissions included in them.
    before: (u64, u64),
    keep_serving: &'a mut K,
}

impl<K: FnMut() -> bool> Session<'_, K> {
    fn run(mut self, nic: &mut Nic, channel: &mut Channel, outcome: &mut Outcome) -> Result<(), PerfError> {
        let order = self.order(nic, channel)?;
        if let Err(reason) = check(&order) {
            channel.send(nic, &Answer::Refused { reason })?;
            channel.finish(nic);
            // The client ends the stream when it has read the refusal.
            while !channel.is_at_end() {
                self.step(nic, channel)?;
            }
            return Ok(());
        }
        nic.drop_delayed();
        nic.set_impairment(order.impairment.into());
        channel.send(nic, &Answer::Ready)?;
        self.take_data(nic, channel, &order, outcome)?;
        let after = sent(nic);
        outcome.packets_sent = after.0 - self.before.0;
        outcome.packets_retransmitted = after.1 - self.before.1;
        channel.send(nic, &Answer::Outcome(outcome.clone()))?;
        channel.finish(nic);
        while !channel.is_over() {
            self.step(nic, channel)?;
        }
        Ok(())
    }

    fn order(&mut self, nic: &mut Nic, channel: &mut Channel) -> Result<Order, PerfError> {
        let start = nic.now();
        loop {
            if let Some(order) = channel.receive(nic)? {
                return Ok(order);
            }
            self.step(nic, channel)?;
            let after = nic.now().since(start);
            if after > FIRST_ORDER_TIMEOUT {
                return Err(PerfError::Silent { peer: channel.peer(), after });
            }
        }
    }

    /// Reads data until the end of the stream, and returns it if the order requires that.
    fn take_data(
        &mut self,
        nic: &mut Nic,
        channel: &mut Channel,
        order: &Order,
        outcome: &mut Outcome,
    ) -> Result<(), PerfError> {
        let (data, size) = (Data::new(), u64::from(order.size_bytes));
        let mut buffer = vec![0; BUFFER_BYTES];
        // Bytes that have arrived; operations that were wrong before this one; bytes in the buffer to be returned.
        let (mut position, mut wrong_before, mut returned) = (0, 0, 0..0);
        loop {
            if !returned.is_empty() {
                returned.start += channel.write(nic, &buffer[returned.clone()])?;
            } else if channel.is_at_end() {
                break;
            } else {
                let len = channel.read(nic, &mut buffer)?;
                if order.verify
                    && let Some(at) = data.first_wrong(position, &buffer[..len])
                    && at / size >= wrong_before
                {
                    wrong_before = at / size + 1;
                    outcome.wrong += 1;
                }
                position += len as u64;
                returned = if order.ping_pong { 0..len } else { 0..0 };
                if !returned.is_empty() {
                    continue;
                }
            }
            self.step(nic, channel)?;
        }
        if order.verify {
            outcome.verified = (position / size).saturating_sub(outcome.wrong);
        }
        // The outcome is sent when its predecessors have left the buffer.
        while channel.undelivered_bytes() > 0 {
            self.step(nic, channel)?;
        }
        Ok(())
    }

    fn step(&mut self, nic: &mut Nic, channel: &mut Channel) -> Result<(), PerfError> {
        if !(self.keep_serving)() {
            return Err(PerfError::Ended { peer: channel.peer() });
        }
        channel.step(nic, |nic, id| reject_client(nic, id, BUSY))
    }
}

fn check(order: &Order) -> Result<(), String> {
    if order.version != VERSION {
        return Err(format!(
            "the client uses version {} of the messages on streams, but the server uses version {VERSION}; use the \
             same release at both ends",
            order.version
        ));
    }
    if order.size_bytes == 0 {
        return Err("an operation of a stream has at least one byte".to_owned());
    }
    order.impairment.check()
}

/// Bytes that are read together.
const BUFFER_BYTES: usize = 64 << 10;
