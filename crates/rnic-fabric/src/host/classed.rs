//! A host whose queue pairs have classes, or several families of transports: before each packet, the engine chooses the
//! class that sends, of those that the neighbour has not paused (802.1Qbb).

use rnic_base::Time;
use rnic_engine::{CLASSES_MAX, Classes, Departure, FalconTransmit};

use super::event_loop::HostModel;
use super::falcon::store_falcon_departure;
use super::{Host, can_send};
use crate::classes::{ClassPlan, ack_classes, shares};
use crate::entry::{Entry, Flags};
use crate::network::Network;

/// State of a host whose queue pairs have classes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct HostClasses {
    /// Packets sent, by class.
    pub(crate) packets: [u64; CLASSES_MAX],
    /// Bytes of their frames, with preambles and gaps.
    pub(crate) bytes: [u64; CLASSES_MAX],
}

/// Type of a host whose queue pairs have classes.
pub(super) struct Classed;

impl HostModel for Classed {
    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network) {
        host.arrive_with_falcon::<false>(now, entry, network);
    }

    fn offer(host: &mut Host, now: Time, network: &mut Network) {
        offer(host, now, network);
    }
}

/// Makes the engine serve `classes`, or, without any, all families of transports alike.
pub(crate) fn set_classes(host: &mut Host, classes: &[ClassPlan]) {
    let one = [rnic_engine::ClassShare { priority: 0, weight: 1 }];
    let shares = if classes.is_empty() { rnic_engine::ClassShares::new(&one) } else { shares(classes) };
    Classes::of(&mut host.engine).enable(shares, ack_classes(classes));
    host.classes = Some(Box::default());
    host.has_model = true;
}

/// Polls the engine for a packet when one can be sent, and records when to poll again.
fn offer(host: &mut Host, now: Time, network: &mut Network) {
    if !can_send(host, now) {
        return;
    }
    let Some((mut entry, class)) = next_packet(host, now, network) else { return };
    entry.set_class(class);
    let bytes = entry.link_len();
    Classes::of(&mut host.engine).charge(class, bytes as u32);
    if let Some(classes) = &mut host.classes {
        classes.packets[usize::from(class)] += 1;
        classes.bytes[usize::from(class)] += bytes;
    }
    host.port.send(now, entry, network);
    host.wake = host.port.free_at;
}

/// Returns the entry of the engine's next packet, and its class.
fn next_packet(host: &mut Host, now: Time, network: &mut Network) -> Option<(Entry, u8)> {
    let open = !host.port.paused_classes();
    let (departure, class) = Classes::of(&mut host.engine).transmit(now, open)?;
    match departure {
        Departure::Falcon(transmit) => {
            let transmit: FalconTransmit = *transmit;
            Some((store_falcon_departure(host, now, &transmit, network), class))
        }
        Departure::Roce(transmit) => {
            let transmit = *transmit;
            Some((host.load_packet(now, &transmit, network), class))
        }
        // Plans with messages and classes are refused.
        Departure::Message(_) => None,
    }
}

/// Pauses or resumes a class of this host, as `frame` says.
pub(super) fn on_pause_frame(host: &mut Host, now: Time, frame: &Entry) {
    host.port.set_class_paused(now, frame.class(), frame.has(Flags::PAUSE));
}
