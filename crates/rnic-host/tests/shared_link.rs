//! A link that several NICs share: its rate holds over UDP, through shared memory and with Falcon, for one sender and
//! for two, nobody starves, and shares of a hostile or absent page end in one line.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{HALF, Side, chosen, connect_qps, new_qp_of};
use rnic_base::BitRate;
use rnic_engine::{SendOp, Service, WaitReason, WcStatus};
use rnic_host::observe::{Identity, ShareSnapshot};
use rnic_host::{Nic, NicConfig, NicError, Notice, Settings, ShareConfig, TransportChoice};
use rnic_wire::Qpn;

/// A rate that a busy machine reaches easily.
const RATE: BitRate = BitRate::bps(400_000_000);

/// Waits for the other tests here that measure rates: their bands are for a machine with two processors.
fn measured_alone() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name of a group that no other test uses.
fn group() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("link-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn config(group: &str, bypass: bool, is_falcon: bool) -> NicConfig {
    let share = ShareConfig { link_rate: Some(RATE), group: group.to_owned(), ..ShareConfig::default() };
    NicConfig { bypass, carries_falcon: is_falcon, share: Some(share), ..NicConfig::shared() }
}

/// Returns the configuration of a NIC with a weight on a slower link, on which two tenants can always send as much as
/// it carries.
fn weighted(group: &str, weight: u16) -> NicConfig {
    let share = ShareConfig { weight, link_rate: Some(SLOW), group: group.to_owned() };
    NicConfig { share: Some(share), ..NicConfig::shared() }
}

const SLOW: BitRate = BitRate::bps(100_000_000);

/// Two NICs with a connected queue pair each, driven by one thread.
struct Tenant {
    left: Side,
    right: Side,
    qpn: Qpn,
    /// Times at which Writes were posted, and the number of those that have completed.
    posts: Vec<Instant>,
    done: usize,
}

impl Tenant {
    fn open(config: &NicConfig, transport: &TransportChoice) -> Self {
        let [mut left, mut right] = [(); 2].map(|()| Side::open(config.clone()));
        let new = |side: &mut Side| new_qp_of(side, Service::ReliableConnection, transport, 128);
        let (from, to) = (new(&mut left), new(&mut right));
        connect_qps(&mut left, &mut right, (from, to), 77);
        Self { left, right, qpn: from, posts: Vec::new(), done: 0 }
    }

    fn share(&self) -> ShareSnapshot {
        let identity = Identity::of_process("rnic0", "test", &Settings::default());
        self.left.nic.snapshot(&identity).share.expect("it takes part")
    }

    /// Keeps `depth` Writes of `len` bytes in flight for `span`; returns the bytes written, and the median time of one.
    fn write_for(&mut self, span: Duration, len: u32, depth: usize) -> (u64, Duration) {
        let (start, mut times) = (Instant::now(), Vec::new());
        while start.elapsed() < span {
            while self.posts.len() < self.done + depth {
                let (sge, remote) = (self.left.sge(0, len), self.right.region.remote(HALF));
                let op = SendOp::Write { remote, immediate: None };
                self.left.post(self.qpn, self.posts.len() as u64, op, &[sge]);
                self.posts.push(Instant::now());
            }
            if !(self.left.nic.progress() | self.right.nic.progress()) {
                std::thread::yield_now();
            }
            for completion in self.left.completions() {
                assert_eq!(completion.status, WcStatus::Success);
                times.push(self.posts[completion.wr_id as usize].elapsed());
                self.done += 1;
            }
        }
        times.sort_unstable();
        (times.len() as u64 * u64::from(len), times.get(times.len() / 2).copied().unwrap_or(span))
    }
}

/// Has `tenants` pairs of NICs write as much as they can; returns the rate of their payload as a part of the link's.
fn use_of_link(tenants: usize, bypass: bool, transport: &str) -> f64 {
    let config = config(&group(), bypass, transport == "falcon");
    let span = Duration::from_millis(600);
    let start = Instant::now();
    let bytes: u64 = std::thread::scope(|scope| {
        let tenant = || {
            let mut tenant = Tenant::open(&config, &chosen(transport, &[]));
            let (bytes, _) = tenant.write_for(span, 64 << 10, 16);
            assert_eq!(tenant.left.nic.bypass_rings() == 1, bypass);
            let stats = tenant.left.nic.stats();
            assert_eq!((stats.bypass_lost, stats.impairment.queue_full), (0, 0), "packets were lost");
            bytes
        };
        let threads: Vec<_> = (0..tenants).map(|_| scope.spawn(tenant)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    // NICs may make up for some time at the beginning, and packets are on their way at the end.
    let span = start.elapsed().max(span) + Duration::from_millis(22);
    let most = RATE.bytes_in(rnic_base::Duration::from_us(span.as_micros() as u64));
    assert!(bytes <= most, "{tenants} tenants wrote {bytes} bytes of at most {most}");
    bytes as f64 * 8.0 / 0.6 / RATE.as_bps() as f64
}

#[test]
fn the_rate_of_the_link_holds_over_udp_through_memory_and_with_falcon() {
    let _measuring = measured_alone();
    for (bypass, transport) in [(false, "irn"), (true, "irn"), (false, "roce-gbn"), (false, "falcon"), (true, "falcon")]
    {
        let [one, two] = [1, 2].map(|tenants| use_of_link(tenants, bypass, transport));
        println!("{transport}, memory {bypass}: payload is {one:.3} of the link with one tenant, {two:.3} with two");
        // Headers and acknowledgements take 3 %; the rest is what a machine that does other work leaves.
        assert!(one.min(two) > 0.3, "{transport}, memory {bypass}: {one:.2} and {two:.2} of the link are used");
        assert!(two > one / 2.0, "{transport}, memory {bypass}: {one:.2}, and with two tenants {two:.2}");
    }
}

/// A tenant with one small message at a time waits for the queue as it stands, not for the others' data.
#[test]
fn a_tenant_with_little_to_send_is_not_starved_by_a_greedy_one() {
    let _measuring = measured_alone();
    let config = config(&group(), true, false);
    let span = Duration::from_millis(600);
    let ((bulk, _), (small, median)) = std::thread::scope(|scope| {
        let small = scope.spawn(|| Tenant::open(&config, &chosen("irn", &[])).write_for(span, 256, 1));
        let bulk = Tenant::open(&config, &chosen("irn", &[])).write_for(span, 64 << 10, 16);
        (bulk, small.join().expect("no panic"))
    });
    println!("the bulk tenant wrote {bulk} bytes, the small one {} messages, median {median:?}", small / 256);
    // Four milliseconds of queue, for the message and for its acknowledgement, and a busy machine.
    assert!(median < Duration::from_millis(20), "{median:?}");
    let carried = RATE.bytes_in(rnic_base::Duration::from_ms(600));
    assert!(bulk > carried / 4, "the bulk tenant wrote {bulk} bytes of {carried}");
}

#[test]
fn a_nic_that_is_held_up_by_the_link_is_shown_with_its_share_and_waits() {
    let _measuring = measured_alone();
    let group = group();
    let config = config(&group, true, false);
    let mut tenant = Tenant::open(&config, &chosen("irn", &[]));
    tenant.write_for(Duration::from_millis(300), 64 << 10, 16);
    let share = tenant.share();
    assert_eq!((share.weight, share.link_gbps, share.neighbours), (1, Some(0.4), 1));
    let share_gbps = share.share_gbps.expect("a share");
    assert!((0.3..=0.38).contains(&share_gbps), "the other NIC only acknowledges: {share_gbps}");
    assert!(share.link_waits > 0 && share.payload_gbps > 0.1, "{share:?}");
    assert!(share.wire_bytes_sent > share.payload_bytes_sent && share.payload_bytes_sent > 0, "{share:?}");
    assert_eq!(tenant.left.nic.engine_stats().waits[WaitReason::Dequeue as usize], 0);
    assert!(!share.holds_share, "no scheduler here uses a capacity");
}

fn refused(share: ShareConfig) -> String {
    let text = Nic::open(NicConfig { share: Some(share), ..NicConfig::shared() }).expect_err("refused").to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

#[test]
fn invalid_weights_and_rates_are_refused_with_one_line() {
    for weight in [0, 1_001] {
        let text = refused(ShareConfig { weight, ..ShareConfig::default() });
        assert_eq!(text, format!("the weight is `{weight}`; expected a whole number from 1 to 1000"));
    }
    for rate in [BitRate::ZERO, BitRate::bps(999_999), BitRate::gbps(101)] {
        let text = refused(ShareConfig { link_rate: Some(rate), ..ShareConfig::default() });
        assert!(text.starts_with("the rate of the shared link is `") && text.contains("1 Mbit/s"), "{text}");
    }
}

#[test]
fn another_rate_is_refused_while_a_nic_with_the_first_one_exists() {
    let group = group();
    let share = |gbps| ShareConfig { link_rate: Some(BitRate::gbps(gbps)), group: group.clone(), ..Default::default() };
    let open = |gbps| Nic::open(NicConfig { share: Some(share(gbps)), ..NicConfig::shared() });
    let first = open(2).expect("a NIC");
    let error = open(3).expect_err("another rate");
    assert!(matches!(error, NicError::Share(_)), "{error}");
    let text = error.to_string();
    let set_by = format!("set by process {}", std::process::id());
    assert!(text.contains("2 Gbit/s") && text.contains(&set_by) && text.contains("3 Gbit/s"), "{text}");
    drop(first);
    open(3).expect("the first has ended");
}

/// Has two tenants with these weights write as much as they can at the same time, under a scheduler; returns the bytes
/// of each, and its part in the sharing at the end.
fn divide(weights: [u16; 2], schedule: &str) -> [(u64, ShareSnapshot); 2] {
    let (group, choice) = (group(), chosen("irn", &[("schedule", schedule)]));
    let [start, end] = [(); 2].map(|()| Barrier::new(2));
    let tenant = |weight| {
        let mut tenant = Tenant::open(&weighted(&group, weight), &choice);
        start.wait();
        // The first shares are those of NICs of which nothing is known.
        tenant.write_for(Duration::from_millis(200), 16 << 10, 16);
        let (bytes, _) = tenant.write_for(Duration::from_millis(1_000), 16 << 10, 16);
        let waits = tenant.left.nic.engine_stats().waits[WaitReason::Dequeue as usize];
        let divides = ["water-filling", "static"].contains(&schedule);
        assert_eq!(waits > 0, divides, "{waits} waits for the dequeue rate under {schedule}");
        let share = tenant.share();
        end.wait();
        (bytes, share)
    };
    std::thread::scope(|scope| {
        let threads = weights.map(|weight| scope.spawn(move || tenant(weight)));
        threads.map(|thread| thread.join().expect("no panic"))
    })
}

/// The weighted shares of two NICs hold with schedulers that divide a capacity, whichever has the larger weight.
#[test]
fn s19_weights_divide_the_link_between_nics_whose_schedulers_divide_a_capacity() {
    let _measuring = measured_alone();
    for (weights, schedule) in [([1, 4], "water-filling"), ([4, 1], "water-filling"), ([1, 4], "static")] {
        // A tenant that is kept off its processor for a while loses what it cannot send: the best of three tries
        // counts.
        let holds = |ratio: f64| (3.0..5.3).contains(&ratio);
        let tries = (0..3).map(|_| {
            let [of_first, of_second] = divide(weights, schedule);
            let (first, second) = (of_first.0 as f64, of_second.0 as f64);
            let ratio = if weights[0] > weights[1] { first / second } else { second / first };
            println!("{schedule} with weights {weights:?}: {first} and {second} bytes, {ratio:.2}");
            (ratio, of_first.1, of_second.1)
        });
        let found = tries.into_iter().find(|(ratio, ..)| holds(*ratio));
        let (_, of_first, of_second) = found.unwrap_or_else(|| panic!("{schedule} with weights {weights:?}"));
        for (share, weight) in [of_first, of_second].into_iter().zip(weights) {
            assert!(share.holds_share, "{schedule}");
            let gbps = share.share_gbps.expect("a share");
            let least = f64::from(weight) / 5.0 * 0.095;
            assert!((least * 0.95..0.0951).contains(&gbps), "weight {weight} has {gbps} under {schedule}");
        }
    }
    let [(first, of_first), (second, _)] = divide([1, 4], "round-robin");
    let ratio = second as f64 / first as f64;
    println!("round-robin: {first} and {second} bytes, {ratio:.2}");
    assert!(!of_first.holds_share && (0.6..1.7).contains(&ratio), "weights have an effect at the link: {ratio:.2}");
}

/// A process that runs a role of these tests in a group, and has printed that it is ready.
struct Role(Child);

impl Role {
    fn start(role: &str, group: &str) -> Self {
        let executable = std::env::current_exe().expect("a test has a file");
        let mut command = Command::new(executable);
        command.args([role, "--exact", "--ignored", "--nocapture"]).env("RNIC_TEST_GROUP", group);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("this binary runs");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let role = Self(child);
        let mut line = String::new();
        while !line.contains("HOLDING") {
            line.clear();
            assert!(output.read_line(&mut line).expect("text") > 0, "it has ended");
        }
        role
    }

    fn group() -> String {
        std::env::var("RNIC_TEST_GROUP").expect("the other test has set it")
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// A tenant that is killed while it sends gives up its share before its line is too old, which takes a second, and does
/// not prevent another rate of the link. Its parent has not waited for it yet.
#[test]
fn a_killed_tenant_gives_up_its_share_at_once() {
    let _measuring = measured_alone();
    let group = group();
    let mut role = Role::start("writes_to_the_link_role", &group);
    let mut tenant = Tenant::open(&weighted(&group, 1), &chosen("irn", &[("schedule", "water-filling")]));
    let mut share_after = |span: Duration| {
        tenant.write_for(span, 16 << 10, 16);
        tenant.share().share_gbps.expect("a share")
    };
    let shared = (0..50).map(|_| share_after(Duration::from_millis(20))).find(|share| *share < 0.06);
    assert!(shared.is_some(), "the other tenant has no share");
    role.0.kill().expect("it lives");
    let killed = Instant::now();
    let alone = (0..200).map(|_| share_after(Duration::from_millis(10))).find(|share| *share > 0.08);
    let took = killed.elapsed();
    println!("the share of a killed tenant was given to others after {took:?}");
    assert!(alone.is_some() && took < Duration::from_millis(600), "after {took:?}: {alone:?}");
    // A tenant that was idle when it was killed has no share, but a rate of the link.
    drop(tenant);
    let mut idle = Role::start("holds_the_link_role", &group);
    let open = || {
        let share = ShareConfig { link_rate: Some(BitRate::gbps(3)), group: group.clone(), ..ShareConfig::default() };
        Nic::open(NicConfig { share: Some(share), ..NicConfig::shared() })
    };
    open().expect_err("another rate");
    idle.0.kill().expect("it lives");
    let killed = Instant::now();
    while open().is_err() {
        assert!(killed.elapsed() < Duration::from_millis(600), "the rate of a killed tenant holds");
    }
}

#[test]
#[ignore = "a role of another test"]
fn writes_to_the_link_role() {
    let mut tenant = Tenant::open(&weighted(&Role::group(), 1), &chosen("irn", &[("schedule", "water-filling")]));
    println!("HOLDING");
    loop {
        tenant.write_for(Duration::from_millis(100), 16 << 10, 16);
    }
}

/// The process that has created the page is killed; the others keep it and offer it to new ones.
#[test]
fn the_page_of_a_killed_process_is_taken_over() {
    let group = group();
    let mut owner = Role::start("holds_the_link_role", &group);
    let open = |rate| {
        let share = ShareConfig { link_rate: Some(rate), group: group.clone(), ..ShareConfig::default() };
        Nic::open(NicConfig { share: Some(share), ..NicConfig::shared() })
    };
    let refused = open(BitRate::gbps(3)).expect_err("another rate").to_string();
    assert!(refused.contains(&format!("set by process {} (shared_link", owner.0.id())), "{refused}");
    let mut tenant = Tenant::open(&config(&group, true, false), &chosen("irn", &[]));
    owner.0.kill().expect("it lives");
    owner.0.wait().expect("it was a child");
    let (bytes, _) = tenant.write_for(Duration::from_millis(1_500), 64 << 10, 16);
    let carried = RATE.bytes_in(rnic_base::Duration::from_ms(1_500));
    assert!(bytes > carried / 4, "it wrote {bytes} bytes of {carried}");
    // Its line is too old by now, and the new process has been given the page of those that live.
    let refused = open(BitRate::gbps(3)).expect_err("another rate").to_string();
    assert!(refused.contains(&format!("set by process {} (", std::process::id())), "{refused}");
    drop(tenant);
    open(BitRate::gbps(3)).expect("all have ended");
}

#[test]
#[ignore = "a role of another test"]
fn holds_the_link_role() {
    let mut nic = Nic::open(config(&Role::group(), true, false)).expect("a NIC");
    println!("HOLDING");
    loop {
        nic.progress();
        nic.wait(rnic_base::Duration::from_ms(100)).expect("it can wait");
    }
}

/// With a link rate the NIC is refused, because the rate would not hold; with a weight alone it opens.
#[test]
fn a_nic_with_only_a_weight_opens_without_a_page() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let group = group();
    let user = rustix::process::geteuid().as_raw();
    let name = |number: u32| match number {
        0 => format!("rnic-share-{user}-{group}"),
        _ => format!("rnic-share-{user}-{group}.{number}"),
    };
    let _silent: Vec<UnixDatagram> = (0..4)
        .map(|number| UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name(number)).expect("a name")))
        .map(|socket| socket.expect("a free name"))
        .collect();
    let share = |link_rate| ShareConfig { link_rate, group: group.clone(), ..ShareConfig::default() };
    assert!(refused(share(Some(RATE))).starts_with("all names of the socket @rnic-share-"));
    let mut nic = Nic::open(NicConfig { share: Some(share(None)), ..NicConfig::shared() }).expect("a NIC");
    let notice = nic.poll_notice().expect("a notice");
    assert!(matches!(notice, Notice::NotShared(_)) && !notice.to_string().contains('\n'), "{notice}");
}

/// Returns the number of threads of this process with `name`.
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of a process can be listed");
    let has_name = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    tasks.flatten().filter(has_name).count()
}

/// With threads, a scheduler that sets rates decides on them, and data arrive as before.
#[test]
fn s12_schedulers_run_on_threads_of_the_nic() {
    let _alone = measured_alone();
    for count in [1, 2] {
        let config = NicConfig { schedule_threads: count, ..config(&group(), true, false) };
        let mut tenant = Tenant::open(&config, &chosen("irn", &[("schedule", "water-filling")]));
        assert_eq!(threads_named("rnic-schedule"), 0, "they start with the first data");
        let start = Instant::now();
        let rate = loop {
            tenant.write_for(Duration::from_millis(50), 64 << 10, 8);
            let mut views = tenant.left.nic.queue_pairs().map(|(view, _)| view);
            let view = views.find(|view| view.info.number == tenant.qpn).expect("the queue pair exists");
            // The first rate comes with the first data, inline; another one comes from a thread.
            if let Some(rate) = view.info.dequeue_rate.filter(|rate| *rate > RATE.scaled(1, 2)) {
                break rate;
            }
            assert!(start.elapsed() < common::TEST_TIMEOUT, "{:?}", view.info.dequeue_rate);
        };
        assert!(rate <= RATE, "{rate}");
        assert_eq!(threads_named("rnic-schedule"), count);
        drop(tenant);
        // A thread that has been joined may be listed for another moment.
        let start = Instant::now();
        while threads_named("rnic-schedule") > 0 {
            assert!(start.elapsed() < common::TEST_TIMEOUT, "they end with the NIC");
            std::thread::yield_now();
        }
    }
    let config = NicConfig { schedule_threads: 3, ..config(&group(), true, false) };
    let error = Nic::open(config).expect_err("too many threads").to_string();
    assert!(error.contains("threads of schedulers") && error.lines().count() == 1, "{error}");
}
