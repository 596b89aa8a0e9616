//! After an operation has completed, both programs may reuse its memory without harm, whatever the network does; an
//! operation that has not completed fails with the correct status. See `roce/fetch/refused_fetch.rs`.

use super::*;

/// Bytes of memory of an operation at each end.
const LEN: u32 = 3 * MTU + 100;
/// Offset of the operation's memory at the right end.
const FAR: u64 = 100_000;

/// An operation of the left end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Read of this many bytes.
    Read(u32),
    /// A Read, and then a fenced Send that invalidates the key of the memory that was read.
    ReadAndInvalidate,
    FetchAdd,
    CompareSwap,
    Write,
    WriteImm,
    Send,
}

const KINDS: [Kind; 8] = [
    Kind::Read(8),
    Kind::Read(LEN),
    Kind::ReadAndInvalidate,
    Kind::FetchAdd,
    Kind::CompareSwap,
    Kind::Write,
    Kind::WriteImm,
    Kind::Send,
];

/// Returns every transport with packets of the RoCE family.
fn transports() -> Vec<&'static str> {
    let profiles = rnic_transports::profiles();
    profiles.iter().filter(|profile| profile.protocol.falcon().is_none()).map(|profile| profile.name).collect()
}

/// Returns `true` if responses have the sequence numbers of their requests, so that they are only repeated on
/// request.
fn shares_numbers(transport: &str) -> bool {
    rnic_transports::profile(transport).expect("it exists").spaces == rnic_policy::SequenceSpaces::Shared
}

/// Fate of the `nth` packet of a direction.
type Mishap = (From, u32, Fate);

/// Returns every loss, delay or copy of one of the first packets, and losses of two; fewer for a transport that
/// differs from another one only in its controller or its store.
fn mishaps(transport: &str) -> Vec<Vec<Mishap>> {
    let (late, very_late) = (Duration::from_us(40), Duration::from_us(700));
    let fates = [Fate::Drop, Fate::Late(very_late), Fate::TwiceLate(late), Fate::TwiceLate(very_late)];
    let mut all = vec![vec![]];
    for from in [From::Left, From::Right] {
        for nth in 0..5 {
            all.extend(fates.map(|fate| vec![(from, nth, fate)]));
            all.push(vec![(from, nth, Fate::Drop), (from, nth + 1, Fate::Drop)]);
        }
    }
    for (left, right) in (0..4).flat_map(|left| (0..4).map(move |right| (left, right))) {
        all.push(vec![(From::Left, left, Fate::Drop), (From::Right, right, Fate::Drop)]);
    }
    // Those whose packets or responses differ; with pulls, a gap alone repeats nothing.
    let is_its_own = matches!(transport, "irn" | "fasr" | "roce-gbn" | "roce-sr" | "tcp" | "tonic-ndp");
    all.into_iter().step_by(if is_its_own { 1 } else { 4 }).collect()
}

fn befall(mishaps: &[Mishap]) -> impl FnMut(&Sent) -> Fate + 'static {
    let mishaps = mishaps.to_vec();
    let mut sent_by = [0, 0];
    move |sent| {
        let count = &mut sent_by[usize::from(sent.from == From::Right)];
        let nth = *count;
        *count += 1;
        let found = mishaps.iter().find(|(from, which, _)| (*from, *which) == (sent.from, nth));
        found.map_or(Fate::Deliver, |(.., fate)| *fate)
    }
}

/// Keys of the memory that one operation uses.
struct Places {
    near: u32,
    far: u32,
}

/// Posts an operation on its own memory; returns the keys and the number of its completions.
fn begin(pair: &mut Pair, kind: Kind) -> (Places, usize) {
    let [left, right] = [pair.left.pd, pair.right.pd];
    let near = region(&mut pair.left, left, TARGET, LEN.into(), Access::LOCAL_WRITE);
    let far = region(&mut pair.right, right, FAR, LEN.into(), Access::all());
    let remote = RemoteMemory { addr: BASE + FAR, rkey: far };
    let whole = Sge { addr: BASE + TARGET, len: LEN, lkey: near };
    let of = |len| [Sge { len, ..whole }];
    match kind {
        Kind::Read(len) => pair.left.post(0, SendOp::Read { remote }, &of(len)),
        Kind::ReadAndInvalidate => {
            pair.left.post(0, SendOp::Read { remote }, &of(LEN));
            post_recvs(&mut pair.right, 50..51, 0);
            let (op, flags) = (SendOp::SendInvalidate { rkey: far }, SendFlags::SIGNALED | SendFlags::FENCE);
            let request = SendRequest { wr_id: 1, op, sges: &[], flags };
            pair.left.engine.post_send(pair.left.qpn, &request).expect("the send queue is not full");
            return (Places { near, far }, 2);
        }
        Kind::FetchAdd => pair.left.post(0, SendOp::FetchAdd { remote, add: 3 }, &of(8)),
        Kind::CompareSwap => pair.left.post(0, SendOp::CompareSwap { remote, compare: 1, swap: 2 }, &of(8)),
        Kind::Write => pair.left.post(0, SendOp::Write { remote, immediate: None }, &[whole]),
        Kind::WriteImm => {
            post_recvs(&mut pair.right, 50..51, 0);
            pair.left.post(0, SendOp::Write { remote, immediate: Some(7) }, &[whole]);
        }
        Kind::Send => {
            pair.right.post_recv(50, &[Sge { addr: BASE + FAR, len: LEN, lkey: far }]);
            pair.left.post(0, SendOp::Send { immediate: None }, &[whole]);
        }
    }
    (Places { near, far }, 1)
}

fn near(pair: &mut Pair) -> &mut [u8] {
    &mut pair.left.memory[TARGET as usize..][..LEN as usize]
}

fn far(pair: &mut Pair) -> &mut [u8] {
    &mut pair.right.memory[FAR as usize..][..LEN as usize]
}

/// Runs until the left end has `count` completions.
fn completed(pair: &mut Pair, count: usize) -> Vec<(u64, WcStatus)> {
    let mut statuses = Vec::new();
    let until = pair.now + Duration::from_ms(100);
    while statuses.len() < count && pair.now < until {
        pair.run_until(pair.now + Duration::from_us(1));
        statuses.extend(pair.left.statuses());
    }
    statuses
}

/// Deregisters the memory of a completed operation at both ends, and reuses it immediately.
fn remove_newest(pair: &mut Pair, places: &Places) {
    pair.left.engine.objects_mut().deregister(Key(places.near)).expect("registered");
    // A peer may have invalidated it.
    let _ = pair.right.engine.objects_mut().deregister(Key(places.far));
    near(pair).fill(0xaa);
    far(pair).fill(0x55);
    let [left, right] = [pair.left.pd, pair.right.pd];
    region(&mut pair.left, left, TARGET, LEN.into(), Access::all());
    region(&mut pair.right, right, FAR, LEN.into(), Access::all());
}

fn is_well(pair: &mut Pair, what: &str) {
    for side in [&mut pair.left, &mut pair.right] {
        assert_eq!(side.info().state, QpState::ReadyToSend, "{what}");
        assert_eq!(events(side), [], "{what}");
    }
}

#[test]
fn memory_may_be_deregistered_when_its_operation_is_complete() {
    for transport in transports() {
        let mut resent = 0;
        for kind in KINDS {
            for mishaps in mishaps(transport) {
                let what = format!("{transport}, {kind:?}, {mishaps:?}");
                let mut pair = Pair::of(transport);
                pair.wire(befall(&mishaps));
                let original = far(&mut pair).to_vec();
                let (places, count) = begin(&mut pair, kind);
                assert_eq!(completed(&mut pair, count), all(0..count as u64, WcStatus::Success), "{what}");
                if let Kind::Read(len) = kind {
                    assert!(near(&mut pair)[..len as usize] == original[..len as usize], "{what}: wrong data was read");
                }
                remove_newest(&mut pair, &places);
                pair.run();
                resent += pair.resent(From::Right, Psn::new(0)).len();
                is_well(&mut pair, &what);
                assert!(near(&mut pair).iter().all(|byte| *byte == 0xaa), "{what}: written after its completion");
                assert!(far(&mut pair).iter().all(|byte| *byte == 0x55), "{what}: written after its completion");
                // Later operations are not affected.
                let old = pair.right.statuses().len();
                read(&mut pair, 90, LEN);
                post_recvs(&mut pair.right, 60..61, 100);
                send(&mut pair, 91, 100);
                pair.run();
                assert_eq!(pair.left.statuses(), all(90..92, WcStatus::Success), "{what}, {old} received before");
                assert_eq!(pair.right.statuses(), all(60..61, WcStatus::Success), "{what}");
                is_well(&mut pair, &what);
            }
        }
        assert!(shares_numbers(transport) || resent > 20, "{transport}: only {resent} responses were retransmitted");
    }
}

/// The owner deregisters the memory before the Read is complete: the Read fails with the status for that, whichever
/// packet is lost, unless it had completed already. Where responses are acknowledged, both ends learn of it.
#[test]
fn an_incomplete_read_of_deregistered_memory_ends_in_a_remote_access_error() {
    for transport in transports() {
        let is_shared = shares_numbers(transport);
        let mut failed = 0;
        for at in [6, 18] {
            for mishaps in mishaps(transport) {
                let what = format!("{transport}, memory gone at {at} us, {mishaps:?}");
                let mut pair = Pair::new(&Setup::new(transport, &[("cap_packets", "2")]));
                pair.wire(befall(&mishaps));
                near(&mut pair).fill(0);
                far(&mut pair).fill(0x11);
                let (places, _) = begin(&mut pair, Kind::Read(LEN));
                write(&mut pair, 1, 10);
                pair.run_until(us(at));
                pair.right.engine.objects_mut().deregister(Key(places.far)).expect("registered");
                far(&mut pair).fill(0x55);
                pair.run();
                let statuses = pair.left.statuses();
                if statuses == all(0..2, WcStatus::Success) {
                    is_well(&mut pair, &what);
                    continue;
                }
                failed += 1;
                assert_eq!(statuses, fails_at(0, WcStatus::RemoteAccess, 2), "{what}");
                assert!(!near(&mut pair).contains(&0x55), "{what}: the memory is not part of the old Read");
                assert_eq!(events(&mut pair.left), [], "{what}");
                let told = (pair.right.info().state, events(&mut pair.right));
                let fails = (QpState::Error, vec![AsyncEvent::QpAccessError(pair.right.qpn)]);
                assert!(told == fails || is_shared && told == (QpState::ReadyToSend, vec![]), "{what}: {told:?}");
            }
        }
        assert!(failed > 20, "{transport}: only {failed} Reads were too late");
    }
}
