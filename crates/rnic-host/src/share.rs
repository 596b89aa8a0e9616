//! Sharing between the NICs of one user in one network namespace: a common link, and weighted shares of its capacity.
//!
//! Each process has a NIC of its own, and no NIC knows what others send. The NICs for which the user has requested it
//! map one [`page`], in which each writes what it uses and reads what the others use; [`offer`] passes the page from
//! process to process. Packets of the NICs with a link rate queue at the shared [`link`]. From the lines of all, each
//! NIC computes its own weighted max-min share ([`fair`]); schedulers that use a capacity hold their queue pairs to it,
//! the others meet at the link only.
//!
//! | in | out |
//! |---|---|
//! | bytes sent, waits ([`Activity`]), every [`INTERVAL`] while active | share of the capacity, for `Engine::sharing` |
//! | packets, at [`Share::enqueue`] | times at which they leave |
//!
//! The capacity is 95 % of the link's rate, so that the queue in front of the link stays short. Without a link rate
//! processes have no shares, because the rate that the machine's processors reach varies with all else that they do;
//! the queue pairs of a NIC then divide what the NIC reaches by itself ([`mod@capacity`]). Source: scr.md 6.3
//! (capacity, demand); the paper's scheduler has all tenants on one NIC (NSDI'25, 5.1).

pub(crate) mod capacity;
mod fair;
mod link;
mod offer;
mod page;
mod processes;

use std::io;
use std::sync::Arc;

use rnic_base::{BitRate, Duration, Time};
use rnic_engine::{RATE_LIMIT_MIN, WEIGHT_MAX};

use crate::clock::Clock;
use crate::sys;

use fair::{Claim, max_min};
use link::SharedLink;
use offer::{Keeper, Names};
use page::{Line, Owner, Page};
use processes::Process;

/// Settings by which a NIC shares a link with the other NICs of the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareConfig {
    /// Weight of this NIC among the NICs that share the link, from 1 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// Rate of the link from which the packets of this NIC draw, framing included; all NICs of the user in the network
    /// namespace need the same. None when the NIC draws from no shared link.
    pub link_rate: Option<BitRate>,
    /// Name of the group of NICs that share a page. The default, an empty name, is that of all NICs of the user; others
    /// are for demonstrations and tests, which must not slow down the user's programs.
    pub group: String,
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self { weight: 1, link_rate: None, group: String::new() }
    }
}

/// Reason that a NIC cannot share a link with others.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// Another process has set another rate.
    #[error(
        "the shared link has {theirs}, set by process {pid}{program}, and this process asks for {own}; give all \
         processes the same --link-rate (RNIC_LINK_RATE)"
    )]
    RateDiffers {
        /// Rate requested by this process.
        own: BitRate,
        /// Rate that the other process has set.
        theirs: BitRate,
        /// Process ID of the other process.
        pid: u32,
        /// Name of the other process in parentheses, with a space before it; empty if unknown.
        program: String,
    },
    /// No line of the page is free.
    #[error("the page of the shared link is full: {lines} devices of this user use it; close one first")]
    Full {
        /// Number of lines.
        lines: usize,
    },
    /// The page belongs to processes that read another monotonic clock.
    #[error(
        "the other processes that share the link are in another time namespace (time_namespaces(7)), so their clock \
         differs; run all of them in one"
    )]
    OtherClock,
    /// A process of the user offers a file that is not such a page.
    #[error("the socket {0} offers no page of this version of OpenRNIC; end the process that has bound it (`ss -xlp`)")]
    NotAPage(String),
    /// No name of the socket can be used.
    #[error(
        "all names of the socket @{0} are taken by other users or by processes that do not answer; end those \
         processes (`ss -xlp`)"
    )]
    NamesTaken(String),
    /// A system call failed.
    #[error("error while joining the shared link: {0}")]
    System(io::Error),
}

/// Counters of a NIC since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Activity {
    /// Bytes sent, counting Ethernet framing; ignored for NICs on a shared link, which counts them itself.
    pub(crate) wire_bytes: u64,
    /// Bytes of messages sent.
    pub(crate) payload_bytes: u64,
    /// Number of times that a packet waited for the dequeue rate.
    pub(crate) dequeue_waits: u64,
    /// True when queue pairs with data have a scheduler that divides the capacity of the link.
    pub(crate) divides_capacity: bool,
}

/// State of the sharing, for observers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ShareStatus {
    pub(crate) weight: u16,
    pub(crate) link_rate: Option<BitRate>,
    pub(crate) share: Option<BitRate>,
    pub(crate) holds_share: bool,
    /// See [`Page::number`].
    pub(crate) page: u64,
    pub(crate) payload_rate: BitRate,
    pub(crate) wire_bytes: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) link_waits: u64,
    pub(crate) neighbours: u32,
}

/// The sharing state of a NIC.
#[derive(Debug)]
pub(crate) struct Share {
    config: ShareConfig,
    owner: Owner,
    process: Process,
    page: Arc<Page>,
    keeper: Keeper,
    /// Index of this NIC's entry (line) in the shared page; `None` if the NIC had to change to another page, and that
    /// page was full.
    line: Option<usize>,
    link: Option<SharedLink>,
    /// Monotonic time of the NIC's time zero, in nanoseconds.
    zero_ns: u64,
    /// Bytes of messages in packets that were sent on the link.
    payload_bytes: u64,
    updated_at: Time,
    next_update: Time,
    is_active: bool,
    /// True when data waited for the link or for the share before the last update.
    is_hungry: bool,
    /// Activity and waits for the link at the last update.
    last: (Activity, u64),
    used: RecentRate,
    payload_rate: BitRate,
    /// This NIC's share of the capacity.
    share: Option<BitRate>,
    /// True when a scheduler limited queue pairs to the NIC's share when they last had data.
    holds_share: bool,
    neighbours: u32,
    /// Line at which the search for the lines of ended processes continues.
    next_examined: usize,
}

/// The highest rate measured recently: its weight decreases linearly with age, to zero within [`RATE_MEMORY`], so that
/// the share of a NIC that sends intermittently does not vary.
#[derive(Clone, Copy, Debug)]
struct RecentRate {
    rate: BitRate,
    measured_at: Time,
}

impl RecentRate {
    fn at(self, now: Time) -> BitRate {
        let left = RATE_MEMORY.as_ps().saturating_sub(now.since(self.measured_at).as_ps());
        self.rate.scaled(left, RATE_MEMORY.as_ps())
    }

    fn record(&mut self, rate: BitRate, now: Time) {
        if rate >= self.at(now) {
            *self = Self { rate, measured_at: now };
        }
    }
}

impl Share {
    /// Joins the page of the group that `config` names. `clock` is the NIC's clock.
    ///
    /// # Errors
    /// When there is no page to join, it has no free line, or another NIC has set another rate of the link.
    pub(crate) fn join(config: &ShareConfig, clock: Clock) -> Result<Self, ShareError> {
        let (keeper, page) = Keeper::start(&Names::of_user(&config.group))?;
        let now = clock.now();
        let random = sys::random_bits().map_err(ShareError::System)?;
        let process = Process::own();
        let mut share = Self {
            config: config.clone(),
            owner: Owner::new(process.pid, random),
            process,
            page,
            keeper,
            line: None,
            link: config.link_rate.map(SharedLink::new),
            zero_ns: clock.zero_ns(),
            payload_bytes: 0,
            updated_at: now,
            next_update: now + INTERVAL,
            is_active: true,
            is_hungry: false,
            last: (Activity::default(), 0),
            used: RecentRate { rate: BitRate::ZERO, measured_at: now },
            payload_rate: BitRate::ZERO,
            share: None,
            holds_share: false,
            neighbours: 0,
            next_examined: 0,
        };
        let now_ns = share.page_time(now);
        share.publish(now_ns);
        if share.line.is_none() {
            return Err(ShareError::Full { lines: page::LINES });
        }
        // The entry of this NIC has been published, so at least one of two NICs with two rates sees the other.
        share.check_rate(now_ns)?;
        share.compute(now_ns);
        Ok(share)
    }

    /// Returns whether the packets of the NIC draw from a shared link.
    pub(crate) fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// Returns whether the NIC must not take packets from its engine at this time.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.link.as_ref().is_some_and(SharedLink::is_full)
    }

    /// Returns the time at which the NIC may take packets from the engine again; `None` if it may take packets now.
    #[inline]
    pub(crate) fn full_until(&self) -> Option<Time> {
        let until_ns = self.link.as_ref()?.full_until_ns()?;
        Some(Time::from_ps(until_ns.saturating_sub(self.zero_ns).saturating_mul(1_000)))
    }

    /// Adds a packet of `bytes` on the wire to the queue of the shared link; returns the time at which it has been
    /// sent.
    #[inline]
    pub(crate) fn enqueue(&mut self, now: Time, bytes: u32) -> Time {
        let now_ns = self.page_time(now);
        let Some(link) = &mut self.link else { return now };
        let leaves_ns = link.enqueue(&self.page, now_ns, bytes);
        if !self.is_active {
            (self.is_active, self.next_update) = (true, now);
        }
        now + Duration::from_ns(leaves_ns.saturating_sub(now_ns))
    }

    /// Counts the bytes of messages in a packet that is sent on the link.
    #[inline]
    pub(crate) fn count_payload(&mut self, bytes: u64) {
        self.payload_bytes += bytes;
    }

    /// Checks whether a NIC that had to stop taking packets may resume.
    pub(crate) fn resume(&mut self, now: Time) {
        let now_ns = self.page_time(now);
        if let Some(link) = &mut self.link {
            link.resume(&self.page, now_ns);
        }
    }

    /// Records that the engine has no packets for the link.
    #[inline]
    pub(crate) fn note_idle(&mut self) {
        if let Some(link) = &mut self.link {
            link.note_idle();
        }
    }

    /// Returns the time of the next [`Self::update`].
    #[inline]
    pub(crate) fn next_update(&self) -> Time {
        self.next_update
    }

    /// Publishes this NIC's entry and computes its share from all entries. Returns an error that the user should know
    /// about, if there is one; the NIC continues in any case.
    pub(crate) fn update(&mut self, now: Time, activity: Activity) -> Option<ShareError> {
        let now_ns = self.page_time(now);
        let moved = self.keeper.take_replaced();
        let has_moved = moved.is_some();
        if let Some(page) = moved {
            self.release_line();
            self.page = page;
        }
        let was_absent = now.since(self.updated_at) > Duration::from_ns(page::ALIVE_NS);
        self.is_hungry = self.measure(now, activity);
        let line_before = self.line;
        self.publish(now_ns);
        self.compute(now_ns);
        self.next_update = now + if self.is_active { INTERVAL } else { IDLE_INTERVAL };
        if self.line.is_none() {
            let is_news = line_before.is_some() || has_moved;
            return is_news.then_some(ShareError::Full { lines: page::LINES });
        }
        // While its line did not count, NICs with another rate may have joined.
        let is_back = has_moved || was_absent || line_before != self.line;
        is_back.then(|| self.check_rate(now_ns).err()).flatten()
    }

    /// Changes this NIC's weight: other NICs see it in the shared page immediately, and this NIC's share follows.
    pub(crate) fn set_weight(&mut self, now: Time, weight: u16) {
        self.config.weight = weight;
        let now_ns = self.page_time(now);
        // Without a line, or if another NIC has taken it, the next update takes one, and checks what that requires.
        let _ = self.line.is_some_and(|index| self.page.publish(index, &self.contents(), now_ns));
        self.compute(now_ns);
    }

    /// Returns the state for observers.
    pub(crate) fn status(&self) -> ShareStatus {
        let (link_waits, _) = self.link.as_ref().map_or((0, 0), SharedLink::counters);
        let (Activity { wire_bytes, payload_bytes, .. }, _) = self.last;
        ShareStatus {
            weight: self.config.weight,
            link_rate: self.config.link_rate,
            share: self.share,
            holds_share: self.holds_share,
            page: self.page.number(),
            payload_rate: self.payload_rate,
            wire_bytes,
            payload_bytes,
            link_waits,
            neighbours: self.neighbours,
        }
    }

    /// Returns this NIC's share of the link, if it uses a shared link: the capacity that schedulers divide among queue
    /// pairs, if they do. It changes with [`Self::update`].
    pub(crate) fn share(&self) -> Option<BitRate> {
        self.share
    }

    fn page_time(&self, now: Time) -> u64 {
        self.zero_ns.saturating_add(now.as_ps() / 1_000)
    }

    /// Measures the rates since the last update; returns whether the NIC is hungry, that is, limited by its share: its
    /// data waited for the link, or for the dequeue rate although it used most of its share.
    fn measure(&mut self, now: Time, mut activity: Activity) -> bool {
        let mut link_waits = 0;
        if let Some(link) = &self.link {
            (link_waits, activity.wire_bytes) = link.counters();
            activity.payload_bytes = self.payload_bytes;
        }
        let span = now.since(self.updated_at);
        let (last, last_link_waits) = self.last;
        let sent = BitRate::from_transfer(activity.wire_bytes.saturating_sub(last.wire_bytes), span);
        let payload = BitRate::from_transfer(activity.payload_bytes.saturating_sub(last.payload_bytes), span);
        self.used.record(sent, now);
        // Until its line shows a rate of zero, it is refreshed often: others give the NIC its share until then.
        self.is_active = self.used.at(now) > BitRate::ZERO || self.is_full();
        self.holds_share = activity.divides_capacity || (self.holds_share && sent == BitRate::ZERO);
        self.payload_rate = smoothed(self.payload_rate, payload, span);
        (self.updated_at, self.last) = (now, (activity, link_waits));
        let waits_for_share = self.holds_share
            && activity.dequeue_waits > last.dequeue_waits
            && self.share.is_some_and(|share| sent.as_bps() / 3 >= share.as_bps() / 4);
        link_waits > last_link_waits || self.is_full() || waits_for_share
    }

    /// Returns the contents of this NIC's entry.
    fn contents(&self) -> Line {
        Line {
            owner: self.owner,
            namespace: self.process.namespace,
            weight: self.config.weight,
            is_hungry: self.is_hungry,
            rate: self.used.at(self.updated_at),
            link_rate: self.config.link_rate,
        }
    }

    /// Publishes this NIC's entry (line) in the shared page, claiming one first if it has none.
    fn publish(&mut self, now_ns: u64) {
        let line = self.contents();
        // A line is lost when it has not been refreshed for a second, and another NIC needed one.
        self.line = self.line.filter(|index| self.page.publish(*index, &line, now_ns)).or_else(|| {
            let claimed = self.page.claim(self.owner, now_ns)?;
            self.page.publish(claimed, &line, now_ns).then_some(claimed)
        });
    }

    /// Computes this NIC's share of the capacity.
    fn compute(&mut self, now_ns: u64) {
        self.page.release_ended(self.process, now_ns, &mut self.next_examined);
        let others: Vec<Claim> = self
            .page
            .live(now_ns)
            .filter(|line| line.owner != self.owner && line.link_rate.is_some())
            .map(|line| Claim {
                weight: line.weight.into(),
                demand: (!line.is_hungry).then(|| demand_with_headroom(line.rate)),
            })
            .collect();
        self.neighbours = u32::try_from(others.len()).unwrap_or(u32::MAX);
        self.share = self.config.link_rate.map(|rate| {
            // The demand of this NIC is unlimited: the share is the maximum that it may use. Others do not notice
            // a claim that is not used.
            let own = Claim { weight: self.config.weight.into(), demand: None };
            let claims: Vec<Claim> = others.into_iter().chain([own]).collect();
            let share = max_min(capacity(rate).as_bps(), &claims).last().copied().unwrap_or_default();
            BitRate::bps(share).max(RATE_LIMIT_MIN)
        });
    }

    /// Returns an error if another NIC has set another rate of the link.
    fn check_rate(&self, now_ns: u64) -> Result<(), ShareError> {
        let Some(own) = self.config.link_rate else { return Ok(()) };
        let differs = |line: &Line| line.link_rate.is_some_and(|theirs| theirs != own);
        let other = self.page.live(now_ns).find(|line| differs(line) && !self.process.knows_ended(line.process()));
        let Some(Line { owner, link_rate: Some(theirs), .. }) = other else { return Ok(()) };
        Err(ShareError::RateDiffers { own, theirs, pid: owner.pid(), program: program_of(owner.pid()) })
    }

    /// Frees this NIC's entry; a forked child does not free that of its parent.
    fn release_line(&mut self) {
        let own = self.line.take().filter(|_| self.process.pid == std::process::id());
        if let Some(index) = own {
            self.page.release(index, self.owner);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release_line();
    }
}

/// Returns the capacity of a link that may be divided: 95 % of its rate.
fn capacity(rate: BitRate) -> BitRate {
    BitRate::bps(rate.as_bps() / 100 * 95)
}

/// Returns the demand of a NIC that was not limited, with headroom for growth: the rate that it has sent, plus a
/// quarter.
fn demand_with_headroom(rate: BitRate) -> u64 {
    rate.as_bps().saturating_mul(5) / 4
}

/// Returns the mean of rates over about [`SMOOTHED_OVER`], when `sample` was measured for `span`.
fn smoothed(mean: BitRate, sample: BitRate, span: Duration) -> BitRate {
    let part = span.min(SMOOTHED_OVER).as_ps();
    let rest = u128::from(SMOOTHED_OVER.as_ps() - part) * u128::from(mean.as_bps());
    let bps = (rest + u128::from(part) * u128::from(sample.as_bps())) / u128::from(SMOOTHED_OVER.as_ps());
    BitRate::bps(u64::try_from(bps).unwrap_or(u64::MAX))
}

/// Returns the name of a process in parentheses, with a space before it; empty if unknown.
fn program_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
    if name.is_empty() { name } else { format!(" ({name})") }
}

/// Maximum length of a program's name in error messages; the kernel's limit is lower.
const NAME_CHARS_MAX: usize = 64;

/// Interval between two updates of the line and the share of a NIC that sends.
const INTERVAL: Duration = Duration::from_ms(5);

/// Interval between two updates of the line of an idle NIC, which would otherwise be taken for one that has ended. Such
/// a line shows a rate of zero.
const IDLE_INTERVAL: Duration = Duration::from_ms(250);

/// Time for which a measured rate counts, with decreasing weight.
const RATE_MEMORY: Duration = Duration::from_ms(40);

/// Time over which the rate that observers see is averaged.
const SMOOTHED_OVER: Duration = Duration::from_ms(200);

#[cfg(test)]
#[path = "share/tests.rs"]
mod tests;
