//! Paths that policies choose by probes ([`rnic_policy::Paths::PROBES`]; SCR mechanism S-24) for queue pairs of the
//! RoCE family: the source port of each label.
//!
//! A path is a source port: number 0 is the port of all other packets, each of the others a socket that the queue pairs
//! of a NIC share ([`crate::link::lane::Lane::open_path`]). A label of a queue pair gets a number when it is probed for
//! the first time. Labels of one queue pair have different numbers. The first label of the first path has number 0, so
//! that nothing changes before the policy chooses another path.
//!
//! A peer accepts data from another port only after it has been announced (rule 6 of [`rnic_engine::messages::peer`]):
//! a probe that leaves from the port and names it is the announcement. So data leaves from the port only after such a
//! probe has been answered, and from the port with number 0 until then. Within messages, labels are ports; this module
//! translates between them and the labels of the policy.
//!
//! Acknowledgements, and answers to probes, leave from the port with number 0. In shared memory there are no ports:
//! all labels are the same path.

use std::collections::HashMap;

use rnic_engine::messages::peer::LABELS_MAX;
use rnic_engine::{NicId, Transmit, TransmitKind};
use rnic_policy::PathLabel;
use rnic_policy::paths::PROBED_MAX;
use rnic_wire::Qpn;
use rnic_wire::scr::ProbePath;

use crate::number::ByNumber;
use crate::ports::PATHS_MAX;

const _: () = assert!(PATHS_MAX <= LABELS_MAX, "a peer accepts fewer ports than a NIC has");
const _: () = assert!(PROBED_MAX < PATHS_MAX, "labels of a queue pair need different ports, and a new one another");

/// The labels (source ports) of all queue pairs whose path policy probes.
#[derive(Debug, Default)]
pub(crate) struct ProbedPaths {
    /// Path state of each queue pair. The order of iteration affects no result.
    queue_pairs: HashMap<Qpn, QueuePair, ByNumber>,
}

/// The labels of a queue pair.
#[derive(Debug)]
struct QueuePair {
    /// NIC of the peer.
    nic: NicId,
    /// Labels, indexed by the policy's path numbers.
    labels: [Option<Label>; PROBED_MAX],
}

/// A label that has been probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Label {
    label: u16,
    /// Number of the path.
    path: u8,
    /// Source port, once a probe has been sent from it on a path other than number 0; otherwise 0.
    port: u16,
    /// True once the peer has answered a probe from this port.
    is_accepted: bool,
}

impl ProbedPaths {
    /// Adds a queue pair that has been connected to a queue pair of `nic`; all its labels are new.
    pub(crate) fn connect(&mut self, qpn: Qpn, nic: NicId) {
        self.queue_pairs.insert(qpn, QueuePair { nic, labels: [None; PROBED_MAX] });
    }

    /// Removes a queue pair that is no longer connected.
    pub(crate) fn disconnect(&mut self, qpn: Qpn) {
        self.queue_pairs.remove(&qpn);
    }

    /// Returns the path on which a packet is sent.
    #[inline]
    pub(crate) fn path_of(&self, transmit: &Transmit) -> u8 {
        if transmit.kind == TransmitKind::Ack { 0 } else { self.path_with(transmit.from, transmit.label) }
    }

    /// Returns the path on which `qpn` sends data with `label`: 0 until the peer has accepted the port of the label.
    #[inline]
    pub(crate) fn path_with(&self, qpn: Qpn, label: PathLabel) -> u8 {
        let Some(queue_pair) = self.queue_pairs.get(&qpn) else { return 0 };
        let accepted = queue_pair.labels.iter().flatten().find(|known| known.is_accepted && known.label == label.0);
        accepted.map_or(0, |known| known.path)
    }

    /// Returns the path on which a probe of `qpn` is sent. A new label of the path policy is assigned a path.
    pub(crate) fn path_of_probe(&mut self, qpn: Qpn, probe: ProbePath) -> u8 {
        let Some(queue_pair) = self.queue_pairs.get_mut(&qpn) else { return 0 };
        match queue_pair.labels.get(usize::from(probe.index)).copied() {
            // A probe of congestion control or of the driver: it takes the path of data.
            None => self.path_with(qpn, PathLabel(probe.label)),
            Some(Some(known)) if known.label == probe.label => known.path,
            Some(before) => {
                let is_first = probe.index == 0 && before.is_none();
                let path = if is_first { 0 } else { queue_pair.free_path(probe.label) };
                let new = Label { label: probe.label, path, port: 0, is_accepted: false };
                queue_pair.labels[usize::from(probe.index)] = Some(new);
                path
            }
        }
    }

    /// Records the port from which a probe of `qpn` is sent on `path`, and which the probe and its answer carry.
    pub(crate) fn name_port(&mut self, qpn: Qpn, path: u8, port: u16) {
        let queue_pair = self.queue_pairs.get_mut(&qpn);
        let labels = queue_pair.into_iter().flat_map(|queue_pair| queue_pair.labels.iter_mut().flatten());
        labels.filter(|known| path > 0 && known.path == path).for_each(|known| known.port = port);
    }

    /// Returns the policy's label of the path whose port is the label in an answer for `qpn`; `None` if it is not the
    /// port of this path, and so is the policy's label itself.
    pub(crate) fn label_of(&self, qpn: Qpn, answered: ProbePath) -> Option<PathLabel> {
        let labels = &self.queue_pairs.get(&qpn)?.labels;
        let has_port = |known: &&Label| answered.label > 0 && known.port == answered.label;
        let known = match labels.get(usize::from(answered.index)) {
            Some(of_path) => of_path.as_ref().filter(has_port),
            // A probe of congestion control or of the driver, which took the path of data.
            None => labels.iter().flatten().find(has_port),
        };
        known.map(|known| PathLabel(known.label))
    }

    /// Records that the peer has answered a probe of `qpn` that carried the port of a path as its label: it accepts
    /// data from this port.
    pub(crate) fn accept(&mut self, qpn: Qpn, answered: ProbePath) {
        let labels = self.queue_pairs.get_mut(&qpn).map(|queue_pair| &mut queue_pair.labels);
        let known = labels.and_then(|labels| labels.get_mut(usize::from(answered.index))?.as_mut());
        if let Some(known) = known.filter(|known| known.port == answered.label) {
            known.is_accepted = true;
        }
    }

    /// Records that `nic` has forgotten which ports it accepts: data is sent from the port with number 0 until it has
    /// answered again.
    pub(crate) fn forget(&mut self, nic: NicId) {
        let queue_pairs = self.queue_pairs.values_mut().filter(|queue_pair| queue_pair.nic == nic);
        queue_pairs.flat_map(|queue_pair| queue_pair.labels.iter_mut().flatten()).for_each(|known| {
            known.is_accepted = false;
        });
    }
}

impl QueuePair {
    /// Returns a path that no label of this queue pair has, the one that is replaced included.
    fn free_path(&self, label: u16) -> u8 {
        let is_used = |path: u8| self.labels.iter().flatten().any(|known| known.path == path);
        let first = usize::from(label) % PATHS_MAX;
        let mut paths = (0..PATHS_MAX).map(|step| 1 + ((first + step) % PATHS_MAX) as u8);
        paths.find(|path| !is_used(*path)).expect("there are more paths than labels")
    }
}

#[cfg(test)]
mod tests {
    use rnic_engine::PeerId;

    use super::*;

    const QPN: Qpn = Qpn::new(7);
    const NIC: NicId = NicId::of(PeerId(1));

    fn probe(index: u8, label: u16) -> ProbePath {
        ProbePath { index, label }
    }

    fn connected() -> ProbedPaths {
        let mut paths = ProbedPaths::default();
        paths.connect(QPN, NIC);
        paths
    }

    #[test]
    fn s24_labels_of_a_queue_pair_have_different_ports_and_the_first_the_default_port() {
        for labels in [[0xc000; 6], [0xc000, 0xc010, 0xc020, 0xc030, 0xffff, 0xd00f]] {
            let mut paths = connected();
            let mut numbers: Vec<u8> =
                (0..).zip(labels).map(|(index, label)| paths.path_of_probe(QPN, probe(index, label))).collect();
            assert_eq!(numbers[0], 0);
            assert!(
                (0..)
                    .zip(labels)
                    .map(|(index, label)| paths.path_of_probe(QPN, probe(index, label)))
                    .eq(numbers.clone())
            );
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), 6, "{labels:x?}");
            assert!(numbers.iter().all(|path| usize::from(*path) <= PATHS_MAX));
        }
    }

    /// A path that remains unusable is assigned another label, and with it another port; so is the first one.
    #[test]
    fn s24_a_new_label_has_another_port() {
        let mut paths = connected();
        let mut now: Vec<u8> = (0..4).map(|index| paths.path_of_probe(QPN, probe(index, 0xc001))).collect();
        for index in 0..4 {
            let path = paths.path_of_probe(QPN, probe(index, 0xc002));
            assert!(path > 0 && !now.contains(&path), "{path} of {now:?}");
            now[usize::from(index)] = path;
        }
    }

    #[test]
    fn s24_data_leaves_from_a_port_after_the_peer_has_answered_from_it() {
        let mut paths = connected();
        let (label, index) = (0xc123, 2);
        assert_eq!(paths.path_with(QPN, PathLabel(label)), 0, "never probed");
        let path = paths.path_of_probe(QPN, probe(index, label));
        paths.name_port(QPN, path, 40_000);
        assert_eq!(paths.path_with(QPN, PathLabel(label)), 0, "not answered");
        let answers = [(index, 40_000), (9, 40_000), (index, 40_001), (1, 40_000)];
        let labels = answers.map(|(index, port)| paths.label_of(QPN, probe(index, port)));
        assert_eq!(labels, [Some(PathLabel(label)), Some(PathLabel(label)), None, None]);
        paths.accept(QPN, probe(1, 40_000));
        assert_eq!(paths.path_with(QPN, PathLabel(label)), 0, "an answer of another path");
        paths.accept(QPN, probe(index, 40_000));
        assert_eq!((paths.path_with(QPN, PathLabel(label)), paths.path_with(QPN, PathLabel(0xc124))), (path, 0));
        assert_eq!(paths.path_of_probe(QPN, probe(7, label)), path, "congestion control probes the path of data");
        assert_eq!(paths.path_with(Qpn::new(8), PathLabel(label)), 0, "another queue pair");
        paths.forget(NicId::of(PeerId(2)));
        assert_eq!(paths.path_with(QPN, PathLabel(label)), path, "another NIC has forgotten");
        paths.forget(NIC);
        assert_eq!(paths.path_with(QPN, PathLabel(label)), 0, "it has forgotten the port");
        paths.accept(QPN, probe(index, 40_000));
        paths.connect(QPN, NIC);
        assert_eq!(paths.path_with(QPN, PathLabel(label)), 0, "connected anew");
        assert_eq!(paths.label_of(QPN, probe(index, 40_000)), None);
        paths.disconnect(QPN);
        assert_eq!(paths.path_of_probe(QPN, probe(index, label)), 0);
    }
}
