//! Tables of the processes that share a link.

use rnic_host::observe::{Fairness, ShareSnapshot, SharedLink, Snapshot, shared_links};
use rnic_page::number;

use super::page::{omission_note, process, rate, seconds_between};
use crate::table::Fit;
use crate::{fit, table};

/// Formats the shares of the processes that share a link, a table for each link, and how the link was used between two
/// snapshots, in lines of at most `columns`; empty when no process shares a link.
pub fn tables(before: &[Snapshot], now: &[Snapshot], columns: usize) -> String {
    let links = shared_links(now);
    let name = |link: &SharedLink<'_>| match links.len() {
        1 => "shared link".to_owned(),
        _ => format!("shared link of user {}", link.user),
    };
    links.iter().map(|link| table(&name(link), link, before, columns)).collect()
}

fn table(name: &str, link: &SharedLink<'_>, before: &[Snapshot], columns: usize) -> String {
    let earlier = |new: &Snapshot| before.iter().find(|old| (old.pid, old.context) == (new.pid, new.context));
    let sharing: Vec<_> = link.members.iter().map(|(new, share)| Sharing::of(earlier(new), new, share)).collect();
    let rows: Vec<_> = sharing.iter().map(Sharing::row).collect();
    let (text, omitted) = table::fitted(&SHARES, &rows, columns);
    let mut text = format!("\n{text}{}", omission_note(omitted, columns));
    let link_gbps = sharing.iter().find_map(|process| process.share.link_gbps).filter(|gbps| *gbps > 0.0);
    if let Some(link_gbps) = link_gbps {
        let used: f64 = sharing.iter().filter(|process| process.share.link_gbps.is_some()).map(|of| of.used_gbps).sum();
        let head = format!("{name}: {} Gbit/s", number::short(link_gbps));
        let mut parts = vec![head, format!("{} % used", number::short(used / link_gbps * 100.0))];
        if let Some(Fairness { senders, jain }) = link.fairness() {
            parts.push(format!("Jain's index {jain:.3} over {senders} processes that send"));
        }
        text += &fit::list(&parts, columns);
    }
    text
}

/// A process that shares a link.
struct Sharing<'a> {
    snapshot: &'a Snapshot,
    share: &'a ShareSnapshot,
    /// Rate on the link between the snapshots, and waits for it per second.
    used_gbps: f64,
    waits_per_s: f64,
}

impl<'a> Sharing<'a> {
    fn of(before: Option<&Snapshot>, now: &'a Snapshot, share: &'a ShareSnapshot) -> Self {
        let old = before.and_then(|before| before.share).unwrap_or_default();
        let per_second = |of: fn(&ShareSnapshot) -> u64| rate(of(&old), of(share), seconds_between(before, now));
        Self {
            snapshot: now,
            share,
            used_gbps: per_second(|of| of.wire_bytes_sent) * 8.0 / 1e9,
            waits_per_s: per_second(|of| of.link_waits),
        }
    }

    fn row(&self) -> Vec<String> {
        let ShareSnapshot { weight, share_gbps, holds_share, payload_gbps, .. } = self.share;
        vec![
            process(self.snapshot),
            weight.to_string(),
            share_gbps.map_or_else(|| "-".to_owned(), number::short),
            if *holds_share { "yes" } else { "no" }.to_owned(),
            number::short(self.used_gbps),
            number::short(*payload_gbps),
            number::short(self.waits_per_s),
        ]
    }
}

const SHARES: Fit<'_> = Fit {
    heads: &["process", "weight", "share Gbit/s", "held", "used Gbit/s", "payload Gbit/s", "waits/s"],
    texts: 1,
    omittable: &[(6, "waits/s"), (3, "held"), (5, "payload Gbit/s")],
};

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(pid: u32, uptime_us: u64, sent: u64) -> Snapshot {
        let share = ShareSnapshot {
            weight: pid,
            link_gbps: Some(2.0),
            share_gbps: Some(0.95),
            holds_share: true,
            payload_gbps: f64::from(pid),
            wire_bytes_sent: sent,
            link_waits: sent / 1_000_000,
            ..ShareSnapshot::default()
        };
        Snapshot { pid, uptime_us, share: Some(share), ..Snapshot::default() }
    }

    #[test]
    fn the_table_shows_shares_use_of_the_link_and_jains_index() {
        let before = [snapshot(1, 1_000_000, 0), snapshot(2, 1_000_000, 0)];
        let now = [snapshot(1, 2_000_000, 120_000_000), snapshot(2, 2_000_000, 60_000_000)];
        let text = tables(&before, &now, 120).replace(|c: char| c.is_whitespace() && c != '\n', " ");
        let row = text.lines().find(|line| line.contains("(1)")).expect("a row");
        for shown in ["0.950", "yes", "0.960", "1.00", "120"] {
            assert!(row.contains(shown), "{shown}: {text}");
        }
        assert!(text.contains("shared link: 2.00 Gbit/s, 72.0 % used, Jain's index 1.000 over 2 processes"), "{text}");
    }

    #[test]
    fn processes_that_share_nothing_have_no_table() {
        assert_eq!(tables(&[], &[Snapshot::default()], 120), "");
    }

    /// Root sees the processes of all users.
    #[test]
    fn each_user_has_a_link_of_its_own() {
        let users = |uptime_us, sent: [u64; 3]| {
            [(1, 7), (2, 7), (3, 8)].map(|(pid, user)| {
                let share = snapshot(pid, uptime_us, sent[pid as usize - 1]).share;
                Snapshot { user, pid, uptime_us, share, ..Snapshot::default() }
            })
        };
        let (before, now) = (users(1_000_000, [0; 3]), users(2_000_000, [50_000_000, 50_000_000, 25_000_000]));
        let text = tables(&before, &now, 120);
        for shown in ["user 7: 2.00 Gbit/s, 40.0 % used, Jain's index 1.000 over 2", "user 8: 2.00 Gbit/s, 10.0 % used"]
        {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        let (of_7, of_8) = text.split_once("user 7").expect("the link of user 7");
        assert!(of_7.contains("(1)") && of_7.contains("(2)") && !of_7.contains("(3)"), "{text}");
        assert!(of_8.contains("(3)"), "{text}");
    }
}
