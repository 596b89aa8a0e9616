//! Caches of translations and of contexts of completion queues: conversion from the parsed to the checked plan.

use core::ops::Range;

use rnic_wire::Qpn;

use super::raw;
use super::{Plan, PlanError};

/// Caches of a NIC for tables in the host's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TablesPlan {
    /// Number of translations that the cache holds; `None`: all.
    pub translation_entries: Option<u32>,
    /// Bytes of a page.
    pub page: u64,
    /// Bytes of a queue pair's memory.
    pub region: u64,
    /// Payload of a full packet, which is the distance of the addresses of two packets.
    pub mtu: u32,
    /// Number of contexts of completion queues that the cache holds; `None`: all.
    pub cq_entries: Option<u32>,
    /// Number of completion queues of a host; `None`: one for each queue pair.
    pub cqs: Option<u32>,
}

impl TablesPlan {
    /// Returns the number of pages of a queue pair's memory.
    fn page_count(&self) -> u64 {
        self.region.div_ceil(self.page)
    }

    /// Returns the pages of `qpn`, numbered among those of all queue pairs.
    pub(crate) fn pages(&self, qpn: Qpn) -> Range<u32> {
        let first = qpn.get() * self.page_count() as u32;
        first..first + self.page_count() as u32
    }

    /// Returns the page of a payload of `qpn` in the packet with number `psn`.
    pub(crate) fn page_of(&self, qpn: Qpn, psn: u32) -> u32 {
        let address = u64::from(psn) * u64::from(self.mtu) % self.region;
        self.pages(qpn).start + (address / self.page) as u32
    }

    /// Returns the completion queue of `qpn`.
    pub(crate) fn cq_of(&self, qpn: Qpn) -> u32 {
        self.cqs.map_or(qpn.get(), |cqs| qpn.get() % cqs)
    }
}

/// Returns the caches that `raw` describes.
pub(super) fn resolve(raw: &raw::Nic, plan: &Plan) -> Result<Option<TablesPlan>, PlanError> {
    let wrong = |key: &'static str, what: String| Err(PlanError::value(key, what));
    let translation = ("nic.translation_entries", raw.translation_entries.is_some());
    let of_pages = [("nic.page", raw.page.is_some()), ("nic.region", raw.region.is_some())];
    let cq = ("nic.cq_entries", raw.cq_entries.is_some());
    let cqs = ("nic.cqs", raw.cqs.is_some());
    let is_given = |(_, is_given): &(&'static str, bool)| *is_given;
    if plan.transport.protocol.falcon().is_some() {
        let given = [translation, cq, cqs].into_iter().chain(of_pages).find(is_given);
        let Some((key, _)) = given else { return Ok(None) };
        let what = "does not apply to Falcon, in whose NIC model payload and completions cost nothing; remove it";
        return wrong(key, what.to_owned());
    }
    if raw.translation_entries.is_none()
        && let Some((key, _)) = of_pages.into_iter().find(is_given)
    {
        return wrong(key, "requires translation_entries; without it, all translations are on the chip".to_owned());
    }
    if raw.cq_entries.is_none() && raw.cqs.is_some() {
        let what = "requires cq_entries; without it, the contexts of all completion queues are on the chip";
        return wrong("nic.cqs", what.to_owned());
    }
    if raw.translation_entries.is_none() && raw.cq_entries.is_none() {
        return Ok(None);
    }
    let page = raw.page().0.get();
    Ok(Some(TablesPlan {
        translation_entries: raw.translation_entries,
        page,
        region: raw.region.map_or(page, |region| region.0.get()),
        mtu: plan.mtu,
        cq_entries: raw.cq_entries,
        cqs: raw.cqs,
    }))
}

/// Checks the constraints of the caches.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let Some(tables) = plan.nic.and_then(|nic| nic.tables) else { return Ok(()) };
    let wrong = |key: &'static str, what: String| Err(PlanError::value(key, what));
    for (key, number) in [
        ("nic.translation_entries", tables.translation_entries),
        ("nic.cq_entries", tables.cq_entries),
        ("nic.cqs", tables.cqs),
    ] {
        if number == Some(0) {
            return wrong(key, "must be above zero".to_owned());
        }
    }
    if !tables.page.is_power_of_two() || !(PAGE_MIN..=PAGE_MAX).contains(&tables.page) {
        return wrong("nic.page", format!("must be a power of two from {PAGE_MIN} bytes (4KiB) to {PAGE_MAX} (1GiB)"));
    }
    let region_max = tables.page * PAGES_MAX;
    if !(1..=region_max).contains(&tables.region) {
        let what = format!("must be above zero and at most {region_max} bytes, {PAGES_MAX} pages");
        return wrong("nic.region", what);
    }
    Ok(())
}

/// Least and largest page: those of x86-64.
const PAGE_MIN: u64 = 4_096;
const PAGE_MAX: u64 = 1 << 30;
/// Most pages of a queue pair: each has an entry in the simulator's own table, and queue pair numbers have 24 bits.
const PAGES_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    /// Packets go through the pages of their queue pair in turn, and no two queue pairs share a page.
    #[test]
    fn packets_go_through_the_pages_of_their_queue_pair() {
        let plan = TablesPlan {
            translation_entries: Some(8),
            page: 4_096,
            region: 10_000,
            mtu: 1_024,
            cq_entries: Some(8),
            cqs: None,
        };
        let pages: Vec<u32> = (0..12).map(|psn| plan.page_of(Qpn::new(5), psn)).collect();
        assert_eq!(pages, [15, 15, 15, 15, 16, 16, 16, 16, 17, 17, 15, 15]);
        assert_eq!((plan.pages(Qpn::new(5)), plan.pages(Qpn::new(6))), (15..18, 18..21));
        let largest = TablesPlan { region: plan.page * PAGES_MAX, ..plan };
        assert!(largest.pages(Qpn::new(0xff_fffe)).end < u32::MAX);
        assert_eq!([5, 6].map(|qpn| plan.cq_of(Qpn::new(qpn))), [5, 6]);
        let shared = TablesPlan { cqs: Some(4), ..plan };
        assert_eq!([5, 6, 9].map(|qpn| shared.cq_of(Qpn::new(qpn))), [1, 2, 1]);
    }

    /// The caches of tables are bounded by their entries, of pages and queues that exist.
    #[test]
    fn caches_of_translations_and_completion_queues_are_complete() {
        let tables = |nic: &str| read(&[("nic", nic)]).expect(nic).nic.and_then(|nic| nic.tables);
        assert_eq!(tables("{ qpc_entries = 5 }"), None);
        let found = tables(r#"{ translation_entries = 100, page = "2MiB", region = "8MiB" }"#).expect("it is bounded");
        assert_eq!((found.translation_entries, found.page, found.region), (Some(100), 2 << 20, 8 << 20));
        let found = tables("{ cq_entries = 7, cqs = 3 }").expect("it is bounded");
        assert_eq!((found.cq_entries, found.cqs, found.region), (Some(7), Some(3), 4_096));
        for (nic, what) in [
            (r#"{ page = "2MiB" }"#, "nic.page: requires translation_entries"),
            (r#"{ cq_entries = 5, region = "8KiB" }"#, "nic.region: requires translation_entries"),
            ("{ cqs = 5 }", "nic.cqs: requires cq_entries"),
            ("{ cq_entries = 0 }", "nic.cq_entries: must be above zero"),
            ("{ cq_entries = 5, cqs = 0 }", "nic.cqs: must be above zero"),
            ("{ translation_entries = 0 }", "nic.translation_entries: must be above zero"),
            (r#"{ translation_entries = 5, page = "5KB" }"#, "nic.page: must be a power of two from 4096"),
            (r#"{ translation_entries = 5, page = "1KiB" }"#, "nic.page: must be a power of two from 4096"),
            (r#"{ translation_entries = 5, region = 0 }"#, "nic.region: must be above zero and at most 1048576 bytes"),
            (
                r#"{ translation_entries = 5, region = "2MiB" }"#,
                "nic.region: must be above zero and at most 1048576 bytes",
            ),
        ] {
            let error = read(&[("nic", nic)]).expect_err(nic).to_string();
            assert!(error.starts_with(&format!("plan: {what}")) && error.lines().count() == 1, "{nic}: {error}");
        }
        for (key, nic) in [("translation_entries", "{ translation_entries = 5 }"), ("cqs", "{ cqs = 5 }")] {
            let error = read(&[("transport", r#"{ name = "falcon" }"#), ("nic", nic)]).expect_err(nic).to_string();
            assert!(error.starts_with(&format!("plan: nic.{key}: does not apply to Falcon")), "{error}");
        }
    }
}
