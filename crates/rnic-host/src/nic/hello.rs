//! Sends and receives hello messages: see [`crate::hello`].

use rnic_base::Time;
use rnic_engine::{PeerId, QpConnection, Service};
use rnic_wire::Qpn;
use rnic_wire::hello::{Hello, Terms, TransportName};

use super::credit::send_mad;
use super::device::Device;
use crate::cm::falcon_params;
use crate::hello::{HelloOutcome, OutgoingHello, SettingsDiffer};
use crate::link::{Link, Ports};
use crate::notice::Notice;
use crate::stats::RxDrop;

impl Device {
    /// Schedules the hello for queue pair `qpn`, which the program has connected without the connection manager, so
    /// that only the number of the remote queue pair is known.
    pub(super) fn start_hello(&mut self, qpn: Qpn, connection: &QpConnection) {
        // In other port modes, the ends negotiate through the connection manager, or the peers are not OpenRNIC NICs.
        if self.link.ports != Ports::OfQueuePair {
            return;
        }
        let is_reliable = self.engine.query_qp(qpn).is_some_and(|info| info.service == Service::ReliableConnection);
        let Some(profile) = self.engine.profile_of(qpn).filter(|_| is_reliable) else { return };
        let Some(transport) = TransportName::new(profile.name) else { return };
        let falcon = falcon_params(profile, self.config.protection.as_ref());
        let terms = Terms { transport, mtu: connection.mtu, falcon };
        let far_end = (connection.peer, connection.dest_qpn);
        self.link.hellos.connected(self.clock.now(), qpn, far_end, terms);
    }

    /// Sends the hello messages that are due, which contain the settings of new connections.
    #[cold]
    pub(super) fn send_hellos(&mut self, now: Time) {
        for message in self.link.hellos.take_due(now) {
            send(&mut self.link, now, &message);
        }
    }
}

/// Handles a received hello with a valid checksum; returns the peer if its support of messages between NICs is new
/// information.
pub(super) fn receive_hello(link: &mut Link, now: Time, peer: Option<PeerId>, hello: &Hello) -> Option<PeerId> {
    if link.ports == Ports::RoceV2
        && let Some(known) = peer.and_then(|peer| link.peers.look_up(peer))
    {
        link.notices.push(Notice::PeerIsOpenRnic(known.addresses.dst().ip()));
    }
    if link.ports != Ports::OfQueuePair {
        link.stats.drop_datagram(RxDrop::Management);
        return None;
    }
    // The end that is connected first sends its hello to a NIC that has not registered it as a peer yet.
    let peer = peer?;
    let HelloOutcome { answer, differs, is_news } = link.hellos.on_message(peer, hello);
    if let Some(message) = answer.filter(|_| !link.has_many_queued_responses()) {
        link.has_responses = true;
        send(link, now, &message);
    }
    if let Some([theirs, ours]) = differs
        && let Some(known) = link.peers.look_up(peer)
    {
        let peer = known.addresses.dst().ip();
        link.notices.push(Notice::PeerSettingsDiffer(SettingsDiffer { peer, theirs, ours }));
    }
    is_news.then_some(peer)
}

/// Sends a message to the NIC whose port is encoded in the number of the remote queue pair.
fn send(link: &mut Link, now: Time, message: &OutgoingHello) {
    // The program may have released the peer since it connected the queue pair.
    let Some(known) = link.peers.look_up(message.peer) else { return };
    let path = known.path(link.port_of(known, message.hello.to));
    link.stats.hellos_sent += 1;
    send_mad(link, now, &path, &message.hello.emit());
}
