//! NICs that share a page: shares, conflicts, take-over, hostile sockets and pages.

use std::sync::atomic::{AtomicU32, Ordering};

use super::offer::RECHECK_INTERVAL;
use super::*;
use crate::sys::unix;

const GBPS: BitRate = BitRate::gbps(1);

/// Returns the name of a group that no other test uses.
fn group() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn config(group: &str, link_rate: Option<BitRate>) -> ShareConfig {
    ShareConfig { link_rate, group: group.to_owned(), ..ShareConfig::default() }
}

fn join(group: &str, gbps: u64) -> Share {
    Share::join(&config(group, Some(BitRate::gbps(gbps))), Clock::start()).expect("a share")
}

fn refused(config: &ShareConfig) -> String {
    Share::join(config, Clock::start()).expect_err("refused").to_string()
}

fn name(group: &str) -> Vec<u8> {
    format!("rnic-share-{}-{group}", unix::own_uid()).into_bytes()
}

/// A NIC that does not exist, whose time the test passes.
struct Rig {
    share: Share,
    sent: Activity,
    now: Time,
}

impl Rig {
    fn new(share: Share) -> Self {
        // The page's time is that of the machine; the tests' time begins with it.
        Self { share, sent: Activity { divides_capacity: true, ..Activity::default() }, now: Time::ZERO }
    }

    /// Sends at `mbps` for the next interval, waiting for the link if `waits`.
    fn send(&mut self, mbps: u64, waits: bool) {
        self.now += INTERVAL;
        let bytes = BitRate::bps(mbps * 1_000_000).bytes_in(INTERVAL);
        self.sent.payload_bytes += bytes;
        self.sent.dequeue_waits += u64::from(waits);
        self.share.payload_bytes += bytes;
        let now_ns = self.share.page_time(self.now);
        let page = Arc::clone(&self.share.page);
        let link = self.share.link.as_mut().expect("a link");
        // The queue is not the subject here: each packet finds an empty one.
        link.enqueue(&page, now_ns + 10_000_000_000, u32::try_from(bytes).expect("few bytes"));
        link.resume(&page, now_ns + 20_000_000_000);
        page.paid_until_ns().store(0, Ordering::Release);
        assert!(self.share.update(self.now, self.sent).is_none());
    }

    fn share_mbps(&self) -> u64 {
        self.share.share().expect("a share").as_bps() / 1_000_000
    }
}

#[test]
fn all_nics_of_a_group_use_one_page_and_equal_shares_until_demands_are_known() {
    let group = group();
    let [a, b, c] = [(); 3].map(|()| join(&group, 2));
    assert!(a.page.is_same(&b.page) && b.page.is_same(&c.page));
    assert_eq!(c.share(), Some(BitRate::bps(1_900_000_000)), "idle NICs reduce a share");
    let other = join(&self::group(), 2);
    assert!(!other.page.is_same(&a.page), "groups share a page");
}

/// The line and the shares follow at once; what the line says besides remains.
#[test]
fn s9_a_changed_weight_is_in_the_own_line_and_counts_for_the_others() {
    let group = group();
    let [mut a, mut b] = [(); 2].map(|()| Rig::new(join(&group, 2)));
    a.send(1_000, true);
    b.send(1_000, true);
    assert_eq!([a.share_mbps(), b.share_mbps()], [1_900, 950]);
    let line = |a: &Rig| a.share.page.live(sys::monotonic_ns()).find(|line| line.owner == a.share.owner);
    let before = line(&a).expect("its line");
    a.share.set_weight(a.now, 3);
    assert_eq!(line(&a), Some(Line { weight: 3, ..before }));
    assert!(before.is_hungry && a.share.status().weight == 3);
    assert_eq!(a.share_mbps(), 1_425);
    b.send(1_000, true);
    assert_eq!(b.share_mbps(), 475);
}

#[test]
fn a_nic_gets_what_the_others_do_not_use_and_its_weighted_share_of_what_they_want() {
    let group = group();
    let [mut bulk, mut light] = [(); 2].map(|()| Rig::new(join(&group, 2)));
    for _ in 0..20 {
        light.send(200, false);
        bulk.send(1_600, true);
    }
    // 1900 less 125 % of what the other sends.
    assert_eq!(bulk.share_mbps(), 1_650);
    assert_eq!(light.share_mbps(), 950, "the other is not hungry for more than its share");
    // Both want more than they get.
    for _ in 0..20 {
        let (mine, theirs) = (bulk.share_mbps(), light.share_mbps());
        light.send(theirs, true);
        bulk.send(mine, true);
    }
    assert_eq!([bulk.share_mbps(), light.share_mbps()], [950, 950]);
    bulk.share.config.weight = 3;
    for _ in 0..20 {
        let (mine, theirs) = (bulk.share_mbps(), light.share_mbps());
        light.send(theirs, true);
        bulk.send(mine, true);
    }
    assert_eq!([bulk.share_mbps(), light.share_mbps()], [1_425, 475]);
    drop(light);
    bulk.send(1_425, true);
    assert_eq!(bulk.share_mbps(), 1_900, "the share of a NIC that has ended was not given to others");
}

/// A queue pair that the user has limited waits for its dequeue rate, and does not want more than that.
#[test]
fn a_nic_that_waits_for_a_lower_limit_than_its_share_is_not_hungry() {
    let group = group();
    let [mut limited, mut bulk] = [(); 2].map(|()| Rig::new(join(&group, 2)));
    for _ in 0..20 {
        limited.send(100, true);
        bulk.send(1_700, true);
    }
    assert_eq!(bulk.share_mbps(), 1_775);
}

#[test]
fn a_nic_without_a_link_rate_has_a_line_and_no_capacity() {
    let group = group();
    let weighted = Share::join(&config(&group, None), Clock::start()).expect("a share");
    let linked = join(&group, 2);
    assert_eq!((weighted.share(), weighted.has_link()), (None, false));
    assert_eq!((linked.share(), linked.status().neighbours), (Some(BitRate::bps(1_900_000_000)), 0));
}

#[test]
fn a_nic_holds_its_share_from_the_first_data_under_a_scheduler_that_divides_a_capacity() {
    let mut rig = Rig::new(join(&group(), 2));
    assert!(!rig.share.status().holds_share);
    rig.send(100, false);
    assert!(rig.share.status().holds_share);
    rig.sent.divides_capacity = false;
    rig.send(0, false);
    assert!(rig.share.status().holds_share, "it has sent nothing since");
    rig.send(100, true);
    assert!(!rig.share.status().holds_share, "it has sent data under another scheduler");
}

/// Updates a NIC that sends nothing, as its timer does, until `now`.
fn idle_until(share: &mut Share, activity: Activity, now: Time) {
    while share.next_update() <= now {
        let at = share.next_update();
        assert!(share.update(at, activity).is_none());
    }
}

#[test]
fn a_nic_that_sends_nothing_gives_up_its_share_within_45_milliseconds() {
    let group = group();
    let [mut idle, mut bulk] = [(); 2].map(|()| Rig::new(join(&group, 2)));
    for _ in 0..20 {
        idle.send(950, true);
        bulk.send(950, true);
    }
    assert_eq!(bulk.share_mbps(), 950);
    let stopped_at = idle.now;
    let mut shares = Vec::new();
    for _ in 0..9 {
        idle_until(&mut idle.share, idle.sent, bulk.now + INTERVAL);
        bulk.send(950, true);
        shares.push(bulk.share_mbps());
    }
    assert_eq!(bulk.now.since(stopped_at), Duration::from_ms(45));
    assert!(shares.is_sorted() && shares.last() == Some(&1_900), "{shares:?}");
    let line = |rig: &Rig| rig.share.page.live(rig.share.page_time(rig.now)).find(|line| line.owner == rig.share.owner);
    assert!(line(&idle).is_some_and(|line| line.rate == BitRate::ZERO && !line.is_hungry), "{:?}", line(&idle));
    assert!(idle.share.next_update() > stopped_at + IDLE_INTERVAL, "an idle NIC is updated often");
}

#[test]
fn a_measured_rate_counts_less_the_longer_ago_it_was_measured() {
    let at = |ms: u64| Time::ZERO + Duration::from_ms(ms);
    let mut used = RecentRate { rate: BitRate::ZERO, measured_at: at(0) };
    used.record(BitRate::gbps(1), at(100));
    for ms in (105..=140).step_by(5) {
        used.record(BitRate::bps(1_000), at(ms));
        let expected = 1_000_000_000 / 40 * (140 - ms);
        assert_eq!(used.at(at(ms)).as_bps(), expected.max(1_000), "after {} ms", ms - 100);
    }
    assert_eq!(used.at(at(180)), BitRate::ZERO);
}

/// The NIC was off its core for more than a second, so the other one did not see its line.
#[test]
fn a_nic_that_comes_back_notices_another_rate_once() {
    let group = group();
    let mut first = join(&group, 2);
    let line = first.line.expect("a line");
    // As if the line were of another process that has not refreshed it for a second.
    first.page.forge(line, 1, sys::monotonic_ns() - 2 * page::ALIVE_NS);
    let second = join(&group, 3);
    assert_eq!(second.line, Some(line));
    let error = first.update(Time::ZERO + INTERVAL, Activity::default());
    assert!(matches!(error, Some(ShareError::RateDiffers { .. })), "{error:?}");
    assert!(first.update(Time::ZERO + INTERVAL + INTERVAL, Activity::default()).is_none(), "reported again");
    // Now its own line is free: it keeps it and was absent only.
    drop(second);
    let now = Time::ZERO + Duration::from_secs(100);
    let third = Owner::new(std::process::id(), 5);
    let index = first.page.claim(third, first.page_time(now)).expect("a free line");
    let link_rate = Some(BitRate::gbps(7));
    let line = Line { owner: third, namespace: 0, weight: 1, is_hungry: false, rate: BitRate::ZERO, link_rate };
    assert!(first.page.publish(index, &line, first.page_time(now)));
    let error = first.update(now, Activity::default());
    assert!(matches!(error, Some(ShareError::RateDiffers { .. })), "{error:?}");
}

#[test]
fn a_page_of_another_time_namespace_is_refused_with_one_line() {
    let group = group();
    let first = join(&group, 2);
    first.page.forge_time_namespace(1);
    let text = refused(&config(&group, Some(BitRate::gbps(2))));
    assert!(text.contains("another time namespace") && !text.contains('\n'), "{text}");
    // Kernels before 5.6 have none.
    first.page.forge_time_namespace(0);
    join(&group, 2);
}

/// A forked child has a copy of its parent's NIC, and its end changes nothing for the parent.
#[test]
fn the_copy_of_a_nic_in_another_process_does_not_free_its_line() {
    let group = group();
    let parent = join(&group, 2);
    let mut copy = join(&group, 2);
    copy.release_line();
    (copy.owner, copy.line) = (parent.owner, parent.line);
    copy.process.pid += 1;
    drop(copy);
    let live: Vec<Owner> = parent.page.live(sys::monotonic_ns()).map(|line| line.owner).collect();
    assert_eq!(live, [parent.owner]);
}

#[test]
fn many_nics_that_open_at_once_share_one_page() {
    let group = group();
    let barrier = std::sync::Barrier::new(64);
    let shares: Vec<Share> = std::thread::scope(|scope| {
        let open = || {
            barrier.wait();
            join(&group, 2)
        };
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(shares.iter().all(|share| share.page.is_same(&shares[0].page)), "there are several pages");
    assert_eq!(shares[0].page.live(sys::monotonic_ns()).count(), 64);
}

#[test]
fn another_rate_of_the_link_is_refused_and_names_the_process() {
    let group = group();
    let first = join(&group, 2);
    let text = refused(&config(&group, Some(BitRate::gbps(3))));
    let pid = std::process::id();
    assert!(text.contains(&format!("2 Gbit/s, set by process {pid} (")) && text.contains("3 Gbit/s"), "{text}");
    assert!(!text.contains('\n'));
    assert_eq!(first.page.live(sys::monotonic_ns()).count(), 1, "the refused NIC has left a line");
    drop(first);
    join(&group, 3);
}

#[test]
fn a_full_page_is_refused_with_one_line_and_a_nic_that_moves_to_one_continues() {
    let group = group();
    let mut first = join(&group, 2);
    let now = sys::monotonic_ns();
    while first.page.claim(Owner::new(1, 2), now).is_some() {}
    let text = refused(&config(&group, Some(BitRate::gbps(2))));
    assert!(text.contains("4096 devices") && !text.contains('\n'), "{text}");
    // Another NIC has taken the line of one that did not refresh it.
    let line = first.line.expect("a line");
    first.page.release(line, first.owner);
    assert_eq!(first.page.claim(Owner::new(1, 4), now), Some(line));
    let error = first.update(Time::ZERO + INTERVAL, Activity::default());
    assert!(matches!(error, Some(ShareError::Full { .. })), "{error:?}");
    assert!(first.update(Time::ZERO + INTERVAL + INTERVAL, Activity::default()).is_none(), "reported again");
}

#[test]
fn the_page_of_a_nic_that_has_ended_is_offered_again_by_another() {
    let group = group();
    let first = join(&group, 2);
    let mut second = join(&group, 2);
    drop(first);
    std::thread::sleep(RECHECK_INTERVAL * 3);
    let third = join(&group, 2);
    assert!(third.page.is_same(&second.page), "there are two pages");
    assert!(second.update(Time::ZERO + INTERVAL, Activity::default()).is_none());
    assert!(third.page.is_same(&second.page), "the taker-over has moved");
}

/// A NIC opens after the process that offered the page has ended, and before another has taken over.
#[test]
fn two_pages_become_one() {
    let group = group();
    let first = join(&group, 2);
    let mut second = join(&group, 2);
    drop(first);
    let third = join(&group, 2);
    let moved = (0..100).any(|_| {
        std::thread::sleep(RECHECK_INTERVAL / 10);
        let _ = second.update(Time::ZERO + INTERVAL, Activity::default());
        second.page.is_same(&third.page)
    });
    assert!(moved, "two pages live on");
    assert_eq!(third.page.live(sys::monotonic_ns()).count(), 2);
}

/// The names are bound by a process that does not answer, such as a forked child that has inherited the socket.
#[test]
fn a_silent_owner_of_the_name_is_passed_over() {
    let group = group();
    let silent = unix::bind_control_socket(&name(&group)).expect("a name");
    let first = join(&group, 2);
    let second = join(&group, 2);
    assert!(first.page.is_same(&second.page));
    let names: Vec<_> = (2..4)
        .map(|number| unix::bind_control_socket(&[name(&group), format!(".{number}").into_bytes()].concat()))
        .collect();
    drop((first, second));
    let taken = unix::bind_control_socket(&[&name(&group)[..], b".1"].concat()).expect("it is free again");
    let text = refused(&config(&group, Some(GBPS)));
    assert!(text.starts_with("all names of the socket @rnic-share-") && !text.contains('\n'), "{text}");
    drop((silent, names, taken));
    join(&group, 1);
}

/// Answers every request on the name of `group` with `reply`, until the result is dropped.
fn impostor(group: &str, file: std::os::fd::OwnedFd, forge: fn(&mut Vec<u8>)) -> impl Drop {
    struct Impostor(Arc<std::sync::atomic::AtomicBool>, Option<std::thread::JoinHandle<()>>);
    impl Drop for Impostor {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            self.1.take().map(std::thread::JoinHandle::join);
        }
    }
    use std::os::fd::AsFd;
    let socket = unix::bind_control_socket(&name(group)).expect("a name");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Acquire) {
            let mut bytes = [0; 64];
            if let Some(message) = unix::receive_control_message(&socket, &mut bytes) {
                let mut reply = [&b"rnicshA1"[..], &bytes[8..message.len]].concat();
                forge(&mut reply);
                let to = unix::connect_control_socket(&message.from.expect("a name")).expect("the asking NIC");
                unix::send_file(&to, &reply, file.as_fd()).expect("space");
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    Impostor(stop, Some(thread))
}

#[test]
fn a_page_of_the_wrong_kind_is_refused_with_one_line() {
    let unsealed = || rustix::fs::memfd_create("rnic-test", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    let small = || unix::sealed_memory(c"rnic-test", 4_096).expect("memory");
    let no_magic = || unix::sealed_memory(c"rnic-test", page::BYTES).expect("memory");
    for file in [unsealed(), small(), no_magic()] {
        let group = group();
        let _impostor = impostor(&group, file, |_| {});
        let text = refused(&config(&group, Some(GBPS)));
        assert!(text.contains("offers no page") && !text.contains('\n'), "{text}");
    }
}

#[test]
fn an_answer_with_another_nonce_is_ignored() {
    let group = group();
    let _impostor = impostor(&group, unix::sealed_memory(c"rnic-test", page::BYTES).expect("memory"), |reply| {
        *reply.last_mut().expect("a nonce") ^= 1;
    });
    // The name does not count as answered: the NIC offers a page under the next one.
    join(&group, 2);
}

#[test]
fn requests_of_the_wrong_form_get_no_answer_and_do_no_harm() {
    let group = group();
    let first = join(&group, 2);
    let own = unix::bind_control_socket(format!("rnic-test-{group}").as_bytes()).expect("a name");
    for request in [&b""[..], b"rnicshQ1", b"rnicshQ11234567", b"rnicshQ1123456789", b"rnicshQ212345678", &[0; 4_096]] {
        // The queue of the socket may be full.
        let _ = unix::send_control_message(&own, &name(&group), request);
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(unix::receive_control_message(&own, &mut [0; 64]).is_none(), "an invalid request was answered");
    assert!(join(&group, 2).page.is_same(&first.page));
}

#[test]
fn hostile_lines_cost_others_at_most_their_weight() {
    let group = group();
    let mut share = join(&group, 2);
    for line in 1..=10 {
        (0..8).for_each(|word| share.page.forge(line, word, u64::MAX));
        share.page.forge(line, 1, sys::monotonic_ns());
    }
    share.page.forge_lines_used(u64::MAX);
    let error = share.update(Time::ZERO + INTERVAL, Activity::default());
    assert!(error.is_none(), "{error:?}");
    // Ten liars with the largest weight.
    let own = 1_900_000_000 / 10_001;
    assert_eq!(share.share(), Some(BitRate::bps(own).max(RATE_LIMIT_MIN)));
}

#[test]
fn only_the_own_user_is_answered() {
    assert!(crate::user::is_own_user(unix::own_uid()));
    assert!(!crate::user::is_own_user(unix::own_uid() + 1));
}
