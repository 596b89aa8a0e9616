//! The one-line description of the device, which prevents users from mistaking it for hardware or overlooking an
//! impaired network.

use rnic_base::Duration;
use rnic_psp::SecurityFormat;

use super::Settings;
use crate::impair::{Impairment, PathSet};

impl Settings {
    /// Returns a description of `device` over `wire` (in a few words: `RoCEv2 over UDP from 192.0.2.1`), and of its
    /// settings.
    pub fn describe(&self, device: &str, wire: &str) -> String {
        let mut parts = vec![format!("transport {}", self.transport_text()), wire.to_owned()];
        parts.extend(self.impairment_parts());
        parts.extend(self.other_parts());
        format!("rnic: software device {device} (not hardware): {}", parts.join(", "))
    }

    /// Returns the name of the layer that carries reliable connections' packets.
    pub fn wire(&self) -> &'static str {
        let profile = rnic_transports::profile(&self.transport);
        if profile.is_some_and(|profile| profile.protocol.falcon().is_some()) {
            "Falcon over UDP"
        } else {
            "RoCEv2 over UDP"
        }
    }

    fn transport_text(&self) -> String {
        let mut text = self.transport.clone();
        let options = self.options_text();
        if !options.is_empty() {
            text += &format!(" ({options})");
        }
        if !self.fallbacks.is_empty() {
            text += &format!(" or {}", self.fallbacks.join(" or "));
        }
        text
    }

    /// Returns the impairment as text, one element for each property; includes the seed when it has an effect.
    pub fn impairment_parts(&self) -> Vec<String> {
        let Impairment { seed, loss, corrupt, duplicate, reorder, delay, jitter, rate, paths, trim, mark, .. } =
            self.impairment;
        let chances = [
            ("loss", loss),
            ("reordering", reorder),
            ("duplication", duplicate),
            ("corruption", corrupt),
            ("trimming", trim),
            ("marks", mark),
        ];
        let mut parts: Vec<String> = chances
            .iter()
            .filter(|(_, chance)| !chance.is_never())
            .map(|(what, chance)| format!("{what} {chance}"))
            .collect();
        let times = [("delay", delay), ("jitter", jitter)];
        parts.extend(
            times.iter().filter(|(_, time)| *time > Duration::ZERO).map(|(what, time)| format!("{what} {time}")),
        );
        parts.extend(rate.map(|rate| format!("rate {rate}")));
        let is_partial = !parts.is_empty() && paths != PathSet::ALL;
        parts.extend(is_partial.then(|| format!("on paths {paths} only")));
        parts.extend(self.is_impairment_random().then(|| format!("seed {seed}")));
        parts
    }

    /// Returns the settings that differ from their defaults.
    fn other_parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        parts.extend(self.protection.as_ref().map(|protection| match protection.form {
            SecurityFormat::Psp => "encrypted".to_owned(),
            SecurityFormat::Esp => "encrypted, in ESP".to_owned(),
        }));
        parts.extend(self.messages.map(|messages| {
            let grants = if messages.grants { " with grants" } else { "" };
            format!("messages between NICs{grants}")
        }));
        parts.extend(self.rate_limit.map(|rate| format!("each queue pair limited to {rate}")));
        parts.extend(self.link_rate.map(|rate| format!("shared link of {rate}")));
        parts.extend(self.weight.map(|weight| format!("weight {weight}")));
        let threads = self.schedule_threads;
        parts.extend(
            (threads > 0).then(|| format!("scheduler on {threads} thread{}", if threads > 1 { "s" } else { "" })),
        );
        parts.extend(self.mtu_max_bytes.map(|bytes| format!("packets of at most {bytes} bytes")));
        parts.extend(self.real_roce_peers.then(|| "RoCEv2 adapters as peers".to_owned()));
        parts.extend(self.lids_are_loopback.then(|| "addresses without a GID refer to this host".to_owned()));
        let switches = [
            ("same-host bypass", self.bypass),
            ("segmentation offload", self.segmentation),
            ("receive offload", self.receive_offload),
        ];
        parts.extend(switches.iter().filter(|(_, is_on)| !is_on).map(|(what, _)| format!("{what} off")));
        if self.progress != super::Progress::default() {
            parts.push(format!("progress {}", self.progress));
        }
        parts.extend(self.capture.as_ref().map(|path| format!("capture to {}", path.display())));
        parts
    }
}
