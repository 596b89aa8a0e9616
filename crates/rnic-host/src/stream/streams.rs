//! The streams of a NIC.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rnic_base::Time;
use rnic_engine::{Access, CqId, PdId};
use rnic_stream::{Flows, Place};

use super::error::{Broken, StreamError};
use super::limits::{SPARE_RECEIVES, WINDOW_BYTES};
use super::offer::{self, Offer};
use super::settings::{SOFTWARE_TRANSPORT, StreamConfig};
use super::single::{Parts, Single};
use crate::cm::ConnectionId;
use crate::connection::{Connection, ConnectionConfig, ConnectionEvent, ConnectionRequest};
use crate::defaults::TransportChoice;
use crate::nic::{self, Nic};

/// Identifier of a stream: that of its connection.
pub type StreamId = ConnectionId;

/// An event of a stream.
#[derive(Debug)]
pub enum StreamEvent {
    /// The stream can be used in both directions.
    Established(StreamId),
    /// The stream could not be made; it no longer exists.
    Failed(StreamId, StreamError),
}

/// The streams of one NIC.
#[derive(Debug)]
pub struct Streams {
    pd: PdId,
    config: StreamConfig,
    software: TransportChoice,
    flows: Flows,
    entries: BTreeMap<StreamId, Entry>,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    transport: &'static str,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Requested by this end.
    Requesting { cq: CqId, offer: Offer },
    /// Accepted by this end or established.
    Open(Box<Single>),
}

impl Streams {
    /// Prepares streams on `nic`.
    ///
    /// # Errors
    /// When a setting is invalid or the NIC has no protection domain left.
    pub fn new(nic: &mut Nic, config: StreamConfig) -> Result<Self, StreamError> {
        config.check()?;
        let software = TransportChoice::named(SOFTWARE_TRANSPORT, &[])?;
        let flows = Flows::new(config.flows);
        Ok(Self { pd: nic.verbs().create_pd()?, config, software, flows, entries: BTreeMap::new() })
    }

    /// Requests a stream from the service `service` at `to`. `port` and `token` are those of [`Offer`].
    /// [`Streams::process`] returns the result.
    ///
    /// # Errors
    /// When the request cannot be sent.
    pub fn connect(
        &mut self,
        nic: &mut Nic,
        to: SocketAddr,
        service: u16,
        (port, token): (u16, u64),
    ) -> Result<StreamId, StreamError> {
        let place = self.flows.assign();
        let connected = self.request(nic, to, service, (port, token), place);
        if connected.is_err() {
            self.release(place);
        }
        connected
    }

    fn request(
        &mut self,
        nic: &mut Nic,
        to: SocketAddr,
        service: u16,
        (port, token): (u16, u64),
        place: Place,
    ) -> Result<StreamId, StreamError> {
        let transports = self.transports(place);
        let mtu = nic::path_mtu(nic, to, &transports)?;
        let offer = Offer { segment_bytes: self.config.segment_bytes.min(mtu), port, token };
        let cq = nic.verbs().create_cq(completions(&offer))?;
        let plain = ConnectionConfig::new(self.pd, cq).with_transports(transports);
        let config = self.connection(plain, cq, &offer, offer.emit());
        match nic.start_connect(to, service, &config) {
            Ok(id) => {
                let stage = Stage::Requesting { cq, offer };
                self.entries.insert(id, Entry { place, transport: "", stage });
                Ok(id)
            }
            Err(error) => {
                let _ = nic.verbs().destroy_cq(cq);
                Err(error.into())
            }
        }
    }

    /// Accepts the request of a peer. The stream can be read at once, and its data is sent after
    /// [`StreamEvent::Established`].
    ///
    /// # Errors
    /// When the request does not describe a stream, or cannot be accepted: the peer has then been notified.
    pub fn accept(&mut self, nic: &mut Nic, request: &ConnectionRequest) -> Result<StreamId, StreamError> {
        let Some(offer) = Offer::parse(&request.private_data) else {
            // If the request is no longer pending, there is nothing to reject.
            let _ = nic.reject(request.id, "this service accepts streams of version 1 only");
            return Err(StreamError::NotAStream(request.from));
        };
        let place = self.flows.assign();
        let accepted = self.accept_at(nic, request, &offer, place);
        if accepted.is_err() {
            self.release(place);
            nic.close(request.id);
        }
        accepted
    }

    fn accept_at(
        &mut self,
        nic: &mut Nic,
        request: &ConnectionRequest,
        offer: &Offer,
        place: Place,
    ) -> Result<StreamId, StreamError> {
        let cq = nic.verbs().create_cq(completions(offer))?;
        let plain = ConnectionConfig::new(self.pd, cq).with_transports(self.transports(place));
        let answer = self.config.segment_bytes;
        let config = self.connection(plain, cq, offer, offer::emit_answer(answer));
        let opened = nic.accept(request.id, &config).map_err(StreamError::from);
        let opened = opened.and_then(|connection| Ok((self.open(nic, &connection, cq, offer, answer)?, connection)));
        match opened {
            Ok((single, connection)) => {
                let stage = Stage::Open(Box::new(single));
                let entry = Entry { place, transport: connection.transport, stage };
                self.insert(nic, connection.id, entry);
                Ok(connection.id)
            }
            Err(error) => {
                nic.close(request.id);
                let _ = nic.verbs().destroy_cq(cq);
                Err(error)
            }
        }
    }

    /// Processes an event of the connection manager that concerns one of these streams, and returns what it means for
    /// the stream. Requests of peers are not processed here; see [`Streams::accept`].
    pub fn process(&mut self, nic: &mut Nic, event: ConnectionEvent) -> Option<StreamEvent> {
        match event {
            ConnectionEvent::Requested(_) => None,
            ConnectionEvent::Established(connection) => self.established(nic, &connection),
            ConnectionEvent::Failed { id, error } => {
                self.forget(nic, id)?;
                Some(StreamEvent::Failed(id, error.into()))
            }
            ConnectionEvent::Disconnected(id) => {
                if let Some(single) = self.single_mut(id) {
                    single.on_disconnected(nic);
                }
                None
            }
        }
    }

    fn established(&mut self, nic: &mut Nic, connection: &Connection) -> Option<StreamEvent> {
        let id = connection.id;
        let entry = self.entries.remove(&id)?;
        let Entry { place, stage, .. } = entry;
        let transport = connection.transport;
        let (cq, offer) = match stage {
            Stage::Open(mut single) => {
                single.establish_and_confirm(nic);
                self.entries.insert(id, Entry { place, transport, stage: Stage::Open(single) });
                return Some(StreamEvent::Established(id));
            }
            Stage::Requesting { cq, offer } => (cq, offer),
        };
        let opened = match offer::parse_answer(&connection.private_data) {
            Some(answer) => self.open(nic, connection, cq, &offer, answer),
            None => Err(StreamError::NotAStream(connection.remote)),
        };
        match opened {
            Ok(mut single) => {
                single.establish();
                self.insert(nic, id, Entry { place, transport, stage: Stage::Open(Box::new(single)) });
                Some(StreamEvent::Established(id))
            }
            Err(error) => {
                nic.close(id);
                let _ = nic.verbs().destroy_cq(cq);
                self.release(place);
                Some(StreamEvent::Failed(id, error))
            }
        }
    }

    /// Processes completions of all streams and sends what can be sent; returns whether there was any work. Call it
    /// after [`Nic::progress`].
    pub fn progress(&mut self, nic: &mut Nic) -> bool {
        let mut moved = false;
        for (id, entry) in &mut self.entries {
            let Stage::Open(single) = &mut entry.stage else { continue };
            moved |= single.progress(nic);
            if single.take_news_of_end() {
                // The peer is notified. If the connection has ended already, there is nothing to end.
                let _ = nic.disconnect(*id);
            }
        }
        moved
    }

    /// Accepts bytes to send, as many as there is space for; returns how many.
    ///
    /// # Errors
    /// When the stream does not exist or has ended with an error.
    pub fn write(&mut self, nic: &mut Nic, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        Ok(self.single_mut(id).ok_or(StreamError::Unknown)?.write(nic, bytes)?)
    }

    /// Copies bytes that have arrived into `into`; returns how many. Zero means that none have arrived yet, or the end
    /// of the stream ([`Streams::is_at_end`]).
    ///
    /// # Errors
    /// As [`Streams::write`].
    pub fn read(&mut self, nic: &mut Nic, id: StreamId, into: &mut [u8]) -> Result<usize, StreamError> {
        Ok(self.single_mut(id).ok_or(StreamError::Unknown)?.read(nic, into)?)
    }

    /// Ends the stream in the direction of the peer, after all bytes that were written.
    pub fn finish(&mut self, nic: &mut Nic, id: StreamId) {
        if let Some(single) = self.single_mut(id) {
            single.finish(nic);
        }
    }

    /// Releases a stream. Unless both directions have ended ([`Streams::is_over`]), the peer sees an error.
    pub fn close(&mut self, nic: &mut Nic, id: StreamId) {
        if self.entries.contains_key(&id) {
            nic.close(id);
            self.forget(nic, id);
        }
    }

    /// Returns the error with which the stream has ended, if any.
    pub fn broken(&self, id: StreamId) -> Option<Broken> {
        self.single(id)?.check().err()
    }

    /// Returns whether both directions have ended and everything has been delivered.
    pub fn is_over(&self, id: StreamId) -> bool {
        self.single(id).is_some_and(Single::is_over)
    }

    /// Returns whether the peer has ended its direction and everything has been read.
    pub fn is_at_end(&self, id: StreamId) -> bool {
        self.single(id).is_some_and(Single::is_at_end)
    }

    /// Returns whether a message of the peer has arrived. The accepting end sends one when the stream is established
    /// there.
    pub fn is_confirmed(&self, id: StreamId) -> bool {
        self.single(id).is_some_and(Single::is_confirmed)
    }

    /// Returns the number of bytes that can be written now.
    pub fn space(&self, id: StreamId) -> u64 {
        self.single(id).map_or(0, |single| single.sender().space())
    }

    /// Returns the number of bytes that can be read now.
    pub fn buffered_bytes(&self, id: StreamId) -> u64 {
        self.single(id).map_or(0, Single::buffered_bytes)
    }

    /// Returns the number of bytes that were written and are not known to be delivered.
    pub fn undelivered_bytes(&self, id: StreamId) -> u64 {
        self.single(id).map_or(0, |single| single.sender().tail() - single.sender().head())
    }

    /// Returns the number of sub-segments that were sent.
    pub fn sub_segments(&self, id: StreamId) -> u64 {
        self.single(id).map_or(0, |single| single.sender().sub_segments())
    }

    /// Returns the segment size on which the ends have agreed, in bytes.
    pub fn segment_bytes(&self, id: StreamId) -> Option<u32> {
        self.single(id).map(Single::segment_bytes)
    }

    /// Returns the address of the peer.
    pub fn peer(&self, id: StreamId) -> Option<SocketAddr> {
        self.single(id).map(Single::peer)
    }

    /// Returns the transport on which the ends have agreed.
    pub fn transport(&self, id: StreamId) -> Option<&'static str> {
        self.entries.get(&id).map(|entry| entry.transport)
    }

    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no streams.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the time at which [`Streams::progress`] has work even if nothing arrives.
    pub fn next_at(&self) -> Option<Time> {
        let singles = self.entries.values().filter_map(|entry| match &entry.stage {
            Stage::Open(single) => single.next_at(),
            Stage::Requesting { .. } => None,
        });
        singles.min()
    }

    /// Releases all streams and the protection domain.
    pub fn close_all(mut self, nic: &mut Nic) {
        let ids: Vec<StreamId> = self.entries.keys().copied().collect();
        ids.into_iter().for_each(|id| self.close(nic, id));
        // No other object uses it any more.
        let _ = nic.verbs().destroy_pd(self.pd);
    }

    fn single(&self, id: StreamId) -> Option<&Single> {
        match &self.entries.get(&id)?.stage {
            Stage::Open(single) => Some(single),
            Stage::Requesting { .. } => None,
        }
    }

    fn single_mut(&mut self, id: StreamId) -> Option<&mut Single> {
        match &mut self.entries.get_mut(&id)?.stage {
            Stage::Open(single) => Some(single),
            Stage::Requesting { .. } => None,
        }
    }

    /// Adds an open stream; if the ends have agreed on the software transport, its flow id is free again.
    fn insert(&mut self, nic: &mut Nic, id: StreamId, mut entry: Entry) {
        let named = self.config.transport.profile.name;
        let is_in_software = entry.place == Place::Software || entry.transport != named;
        if is_in_software && entry.place != Place::Software {
            self.release(entry.place);
            entry.place = self.flows.assign_software();
        }
        nic::note_stream(nic, is_in_software);
        self.entries.insert(id, entry);
    }

    /// Removes a stream whose connection has ended, and releases its resources.
    fn forget(&mut self, nic: &mut Nic, id: StreamId) -> Option<()> {
        let Entry { place, stage, .. } = self.entries.remove(&id)?;
        let cq = match stage {
            Stage::Requesting { cq, .. } => cq,
            Stage::Open(single) => {
                let (cq, region) = single.into_resources();
                nic.verbs().deregister(region);
                cq
            }
        };
        // No queue pair uses it any more.
        let _ = nic.verbs().destroy_cq(cq);
        self.release(place);
        Some(())
    }

    fn release(&mut self, place: Place) {
        // Each place is released once, when its entry is removed.
        let _ = self.flows.release(place);
    }

    /// Returns the transports that are acceptable for a stream with this place.
    fn transports(&self, place: Place) -> Vec<TransportChoice> {
        match place {
            Place::Template(_) if self.config.transport.profile.name != SOFTWARE_TRANSPORT => {
                vec![self.config.transport.clone(), self.software.clone()]
            }
            Place::Template(_) => vec![self.config.transport.clone()],
            Place::Software => vec![self.software.clone()],
        }
    }

    fn connection(&self, plain: ConnectionConfig, cq: CqId, offer: &Offer, private_data: Vec<u8>) -> ConnectionConfig {
        let mut config = ConnectionConfig { private_data, ..plain };
        config.timeout = self.config.connect_timeout;
        config.peer_timeout = self.config.peer_timeout;
        (config.queues.send_cq, config.queues.recv_cq) = (cq, cq);
        (config.queues.max_send_wr, config.queues.max_recv_wr) = (queue(offer), queue(offer));
        config.queues.max_sge = SEND_SGES;
        config
    }

    /// Makes a stream of a connection.
    fn open(
        &self,
        nic: &mut Nic,
        connection: &Connection,
        cq: CqId,
        offer: &Offer,
        answer: u32,
    ) -> Result<Single, StreamError> {
        let segment_bytes = offer.segment_bytes.min(answer).min(connection.wire_mtu_bytes);
        let Connection { qpn, remote: peer, .. } = *connection;
        let parts = Parts { qpn, cq, peer, segment_bytes, window: window(offer) };
        let region = nic.verbs().register(self.pd, Single::region_bytes(&parts), Access::LOCAL_WRITE)?;
        Ok(Single::new(nic, parts, region, &self.config)?)
    }
}

/// Returns the number of receives for data of both ends.
fn window(offer: &Offer) -> u32 {
    WINDOW_BYTES / offer.segment_bytes
}

/// Returns the entries of a send queue, and of a receive queue.
fn queue(offer: &Offer) -> u32 {
    window(offer) + SPARE_RECEIVES
}

/// Returns the completions that can wait to be polled: those of both queues.
fn completions(offer: &Offer) -> u32 {
    2 * queue(offer)
}

/// Scatter/gather entries of a Send: a segment can reach over the end of the ring.
const SEND_SGES: u32 = 2;
