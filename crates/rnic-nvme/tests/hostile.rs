//! A peer that says what it may not: typed errors, nothing placed, no panic, and what is honest goes on.

mod common;

use common::{HOST, NAMESPACE, Net, TARGET, WORLD};
use rnic_base::{Duration, Serial, Time};
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{Completion, Kind, PullReply, PushReply, Request, Submission, UpperLayer};
use rnic_nvme::Direction::{Read, Write};
use rnic_nvme::initiator::{Command, Failure, SubmitError};
use rnic_nvme::{Attached, Direction, PeerError, status};
use rnic_wire::falcon::nvme::{self, Base, Directive, Header, Operation};
use rnic_wire::falcon::{Body, CompletionCode, PacketType, Ulp};

const DONE: Operation = Operation::WriteCompletion { status: status::SUCCESS };
const BROUGHT: Operation = Operation::ReadResponse { status: status::SUCCESS };

fn request(base: Base, operation: Operation, payload_len: u32) -> Request {
    let ulp = Ulp::Nvme(Header { base, operation });
    Request { rsn: Serial::new(900), length: ulp.request_len(payload_len) as u16, payload_len, ulp }
}

/// A net whose initiator has sent the request of one unit, and the headers of that.
fn with_request(direction: Direction) -> (Net, Base) {
    let mut net = Net::new(WORLD, 1);
    net.host.buffers.insert(0, vec![0xee; 4096]);
    net.initiator.submit(net.now, &Command { direction, first_block: 0, blocks: 8, cookie: 0 }).expect("room");
    net.advance(0);
    assert!(net.send(0, HOST));
    let Body::PushData { ulp: Ulp::Nvme(header), .. } = net.sent[0].2.body else { panic!("{:?}", net.sent[0]) };
    (net, header.base)
}

fn push(net: &mut Net, request: &Request) -> Option<PeerError> {
    let mut end = Attached { end: &mut net.initiator, connection: 0, memory: &mut net.host };
    error(end.push(Time::ZERO, request))
}

fn push_to_target(net: &mut Net, request: &Request) -> Option<PeerError> {
    let mut end = Attached { end: &mut net.targets[0], connection: 0, memory: &mut net.disks[0] };
    error(end.push(Time::ZERO, request))
}

fn error(reply: PushReply) -> Option<PeerError> {
    match reply {
        PushReply::Done => None,
        PushReply::CompleteInError(code) => PeerError::from_code(code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn f8_answers_that_make_no_sense_are_refused_and_the_unit_goes_on() {
    let (mut net, base) = with_request(Read);
    let wrong_tag = Base { initiator_tag: base.initiator_tag ^ 1 << 20, ..base };
    for (answer, expected) in [
        (request(wrong_tag, BROUGHT, 4096), PeerError::UnknownTag),
        (request(Base { initiator_tag: 31, ..base }, BROUGHT, 4096), PeerError::UnknownTag),
        (request(Base { initiator_tag: u32::MAX, ..base }, BROUGHT, 4096), PeerError::UnknownTag),
        (request(Base { unit: 1, ..base }, BROUGHT, 4096), PeerError::Mismatch),
        (request(Base { command: base.command + 1, ..base }, BROUGHT, 4096), PeerError::Mismatch),
        (request(base, DONE, 0), PeerError::Unexpected),
        (request(base, Operation::WriteData, 0), PeerError::Unexpected),
        (Request { ulp: Ulp::None, ..request(base, BROUGHT, 0) }, PeerError::NotNvme),
    ] {
        let before = net.initiator.peer_errors().of(expected);
        assert_eq!(push(&mut net, &answer), Some(expected));
        assert_eq!(net.initiator.peer_errors().of(expected), before + 1);
    }
    assert!(net.host.placed.is_empty());
    assert!(net.run());
    assert_eq!(net.initiator.poll().map(|done| done.result), Some(Ok(())));
    let again = request(base, BROUGHT, 4096);
    let (placed, late) = (net.host.placed.len(), net.initiator.stats().late);
    assert_eq!(push(&mut net, &again), None, "its target may not know that the first has arrived");
    assert_eq!((net.host.placed.len(), net.initiator.stats().late), (placed, late + 1), "it moves nothing");
    assert_eq!(net.initiator.poll(), None);
}

#[test]
fn f8_an_answer_of_the_wrong_length_ends_its_unit_in_error() {
    for payload_len in [0, 512, 4095, 4097] {
        let (mut net, base) = with_request(Read);
        assert_eq!(push(&mut net, &request(base, BROUGHT, payload_len)), Some(PeerError::WrongLength));
        let failure = Failure::Peer(PeerError::WrongLength);
        assert_eq!(net.initiator.poll().map(|done| done.result), Some(Err(failure)));
        assert!(net.host.placed.is_empty());
    }
}

#[test]
fn a_write_that_is_done_before_its_data_was_fetched_is_not_believed() {
    let (mut net, base) = with_request(Write);
    assert_eq!(push(&mut net, &request(base, DONE, 0)), Some(PeerError::Early));
    assert_eq!(net.initiator.poll().map(|done| done.result), Some(Err(Failure::Peer(PeerError::Early))));
}

#[test]
fn pulls_that_make_no_sense_are_counted_however_many_they_are() {
    let (mut net, base) = with_request(Write);
    let mut pull = |base, operation, length: u32| {
        let request = Request { length: length as u16, payload_len: 0, ..request(base, operation, 0) };
        Attached { end: &mut net.initiator, connection: 0, memory: &mut net.host }.pull(Time::ZERO, &request)
    };
    let asks = Operation::WriteDataRequest;
    let length = Ulp::Nvme(Header { base, operation: Operation::WriteData }).request_len(4096);
    assert_eq!(pull(base, asks, length - 1), PullReply::Later);
    assert_eq!(pull(base, Operation::WriteData, length), PullReply::Later);
    assert_eq!(pull(Base { command: base.command + 1, ..base }, asks, length), PullReply::Later);
    assert_eq!(pull(base, asks, length), PullReply::Later, "that one is owed");
    assert_eq!(pull(base, asks, length), PullReply::Later);
    (0..WORLD.initiator.units - 5).for_each(|_| assert_eq!(pull(base, asks, length), PullReply::Later));
    assert_eq!(pull(base, asks, length), PullReply::Later, "one more than may be under way");
    let errors = net.initiator.peer_errors();
    let counts = [PeerError::WrongLength, PeerError::Unexpected, PeerError::Mismatch].map(|error| errors.of(error));
    assert_eq!((counts, errors.of(PeerError::Repeated)), ([1; 3], u64::from(WORLD.initiator.units - 3)));
}

#[test]
fn f8_requests_that_make_no_sense_never_reach_the_device() {
    let mut net = Net::new(WORLD, 1);
    let base = Base { units_less_one: 1, unit: 1, ..Base::default() };
    let command = nvme::Command { target_nsid: NAMESPACE, blocks: 15, ..nvme::Command::default() };
    let read = Operation::ReadRequest { command };
    let split = Base { split: true, units_less_one: 3, ..base };
    for (asked, expected) in [
        (request(Base { unit: 2, ..base }, read, 0), PeerError::BadUnits),
        (request(Base { units_less_one: 2, ..base }, read, 0), PeerError::BadUnits),
        (request(Base { second_group: true, ..base }, read, 0), PeerError::BadUnits),
        (request(Base { split: true, ..base }, read, 0), PeerError::BadUnits),
        (request(Base { unit: 2, ..split }, read, 0), PeerError::BadUnits),
        (request(Base { second_group: true, ..split }, read, 0), PeerError::BadUnits),
        (request(base, BROUGHT, 0), PeerError::Unexpected),
        (request(base, read, 1), PeerError::WrongLength),
        (Request { ulp: Ulp::None, ..request(base, read, 0) }, PeerError::NotNvme),
    ] {
        assert_eq!(push_to_target(&mut net, &asked), Some(expected), "{asked:?}");
    }
    assert_eq!(net.targets[0].stats().units, 0);
    assert_eq!(push_to_target(&mut net, &request(base, read, 0)), None);
    assert_eq!(push_to_target(&mut net, &request(base, read, 0)), Some(PeerError::TagInUse));
    let far = nvme::Command { slba: u64::MAX, ..command };
    let write = Operation::WriteRequest { command: far, directive: Directive::default() };
    assert_eq!(push_to_target(&mut net, &request(Base { initiator_tag: 1, ..base }, write, 0)), None, "a status");
    assert_eq!(net.targets[0].stats().units, 2);
    net.advance(0);
    assert!(net.send(0, TARGET));
    let Body::PushData { ulp: Ulp::Nvme(header), .. } = net.sent[0].2.body else { panic!("{:?}", net.sent[0]) };
    assert_eq!(header.operation, Operation::WriteCompletion { status: status::OUT_OF_RANGE });
}

/// A Write's request at the target, its Pull left, and what that Pull's transaction is called.
fn with_pull() -> (Net, Base, u64) {
    let mut net = Net::new(WORLD, 1);
    let command = nvme::Command { target_nsid: NAMESPACE, blocks: 7, ..nvme::Command::default() };
    let write = Operation::WriteRequest { command, directive: Directive::default() };
    assert_eq!(push_to_target(&mut net, &request(Base::default(), write, 0)), None);
    net.advance(0);
    assert!(net.send(0, TARGET));
    let Body::PullRequest { ulp: Ulp::Nvme(header), .. } = net.sent[0].2.body else { panic!("{:?}", net.sent[0]) };
    (net, header.base, 1 << 63 | u64::from(header.base.target_tag))
}

/// The Pull whose transaction is called `tag` brings `data`.
fn bring(net: &mut Net, tag: u64, data: &PulledData) {
    let (rsn, code) = (Serial::new(0), CompletionCode::Ack);
    let completion = Completion { rsn, tag, code, ulp_code: 0, data: Some(data.payload_len as u16) };
    let mut end = Attached { end: &mut net.targets[0], connection: 0, memory: &mut net.disks[0] };
    end.pulled(Time::ZERO, tag, data);
    end.complete(Time::ZERO, &completion);
}

/// The unit whose data was asked for ends with an error, and nothing is written.
fn ends_without_data(net: &mut Net) {
    // The link has let go of the Pull's request.
    net.now += Duration::from_us(1);
    net.advance(0);
    assert_eq!((net.disks[0].writes.len(), net.devices[0].next_done()), (0, None));
    assert!(net.send(0, TARGET));
    let Body::PushData { ulp: Ulp::Nvme(header), .. } = net.sent[1].2.body else { panic!("{:?}", net.sent[1]) };
    assert_eq!(header.operation, Operation::WriteCompletion { status: status::DATA_TRANSFER_ERROR });
}

#[test]
fn f8_data_that_is_not_the_units_is_never_written() {
    let (_, base, _) = with_pull();
    let bad = Base { data_invalid: true, ..base };
    let other = Base { target_tag: base.target_tag + 1, ..base };
    for (base, operation, payload_len, expected) in [
        (Base { unit: 1, ..bad }, Operation::WriteData, 0, PeerError::Mismatch),
        (other, Operation::WriteData, 4096, PeerError::Mismatch),
        (base, Operation::WriteData, 4095, PeerError::WrongLength),
        (base, Operation::WriteData, 0, PeerError::WrongLength),
        (base, DONE, 4096, PeerError::Unexpected),
    ] {
        let (mut net, _, tag) = with_pull();
        let data = PulledData { payload_len, ulp: Ulp::Nvme(Header { base, operation }) };
        (0..2).for_each(|_| bring(&mut net, tag, &data));
        assert_eq!((net.targets[0].peer_errors().of(expected), net.targets[0].peer_errors().total()), (1, 1));
        ends_without_data(&mut net);
    }
}

#[test]
fn data_that_the_initiator_has_given_up_ends_its_unit_and_is_nobodys_mistake() {
    let (mut net, base, tag) = with_pull();
    let ulp = Ulp::Nvme(Header { base: Base { data_invalid: true, ..base }, operation: Operation::WriteData });
    bring(&mut net, tag, &PulledData { payload_len: 0, ulp });
    assert_eq!((net.targets[0].stats().given_up, net.targets[0].peer_errors().total()), (1, 0));
    ends_without_data(&mut net);
}

#[test]
fn pulls_beyond_all_reason_are_answered_once_there_is_room_again() {
    let (mut net, base) = with_request(Write);
    let ulp = Ulp::Nvme(Header { base, operation: Operation::WriteDataRequest });
    let length = Ulp::Nvme(Header { base, operation: Operation::WriteData }).request_len(4096) as u16;
    let pull = Submission { kind: Kind::Pull, length, payload_len: 0, ulp: Some(ulp), tag: 1 << 63, continues: false };
    let full = net.fill(HOST);
    (0..=WORLD.initiator.units).for_each(|_| net.submit(0, TARGET, &pull).expect("room for Pulls"));
    net.run_for(Duration::from_us(100));
    assert_eq!(net.types(HOST), [PacketType::PushData], "no room for data");
    net.empty(HOST, full);
    assert!(net.run(), "a Pull is left");
    assert_eq!(
        net.initiator.peer_errors().of(PeerError::Repeated),
        u64::from(WORLD.initiator.units) + 1,
        "its own was one"
    );
}

#[test]
fn a_lost_connection_ends_every_command_once_and_frees_every_tag() {
    let mut net = Net::new(WORLD, 1);
    for cookie in 0..3 {
        net.host.buffers.insert(cookie, vec![0; 20 * 4096]);
        let direction = if cookie == 1 { Write } else { Read };
        net.initiator.submit(net.now, &Command { direction, first_block: 0, blocks: 20 * 8, cookie }).unwrap();
    }
    net.round();
    net.round();
    net.die(0);
    let mut ended: Vec<u64> = std::iter::from_fn(|| net.initiator.poll())
        .map(|done| if done.result == Err(Failure::Lost) { done.cookie } else { panic!("{done:?}") })
        .collect();
    ended.sort_unstable();
    assert_eq!((ended, net.initiator.is_idle(), net.initiator.units_under_way()), (vec![0, 1, 2], true, 0));
    assert!(net.targets[0].is_idle());
    let command = Command { direction: Read, first_block: 0, blocks: 1, cookie: 9 };
    assert_eq!(net.initiator.submit(net.now, &command), Err(SubmitError::Lost(0)));
}

#[test]
fn f8_answers_to_a_read_that_is_a_pull_are_checked_as_pushed_ones_are() {
    let world = common::World {
        initiator: rnic_nvme::InitiatorConfig { reads: rnic_nvme::Reads::Pull, ..WORLD.initiator },
        ..WORLD
    };
    for (change, operation, payload_len, expected) in [
        (Base { unit: 1, ..Base::default() }, BROUGHT, 4096, PeerError::Mismatch),
        (Base::default(), BROUGHT, 4095, PeerError::WrongLength),
        (Base::default(), DONE, 0, PeerError::Unexpected),
    ] {
        let mut net = Net::new(world, 1);
        net.host.buffers.insert(0, vec![0xee; 4096]);
        let command = Command { direction: Read, first_block: 0, blocks: 8, cookie: 0 };
        net.initiator.submit(net.now, &command).expect("room");
        net.advance(0);
        assert!(net.send(0, HOST));
        let Body::PullRequest { ulp: Ulp::Nvme(header), .. } = net.sent[0].2.body else { panic!("{:?}", net.sent[0]) };
        let base = Base { unit: change.unit, ..header.base };
        let data = PulledData { payload_len, ulp: Ulp::Nvme(Header { base, operation }) };
        let tag = u64::from(header.base.initiator_tag);
        for _ in 0..2 {
            Attached { end: &mut net.initiator, connection: 0, memory: &mut net.host }.pulled(Time::ZERO, tag, &data);
        }
        assert_eq!(net.initiator.peer_errors().of(expected), 1);
        let failed = net.initiator.poll().map(|done| done.result);
        assert_eq!((failed, net.initiator.stats().late), (Some(Err(Failure::Peer(expected))), 1));
        assert!(net.host.placed.is_empty());
    }
}

#[test]
fn f8_a_read_that_is_a_pull_and_makes_no_sense_is_answered_with_a_status() {
    let mut net = Net::new(WORLD, 1);
    let command = nvme::Command { target_nsid: NAMESPACE, blocks: 7, ..nvme::Command::default() };
    let base = Base { units_less_one: 4, ..Base::default() };
    let ulp = Ulp::Nvme(Header { base, operation: Operation::ReadRequest { command } });
    let length = Ulp::Nvme(Header { base, operation: BROUGHT }).request_len(4096) as u16;
    let pull = Submission { kind: Kind::Pull, length, payload_len: 0, ulp: Some(ulp), tag: 1 << 63, continues: false };
    net.submit(0, HOST, &pull).expect("room");
    assert!(net.run());
    assert_eq!((net.targets[0].stats().units, net.targets[0].peer_errors().of(PeerError::BadUnits)), (0, 1));
    let answer = net.sent.iter().find(|(_, side, _)| *side == TARGET).expect("an answer");
    let Body::PullData { ulp: Ulp::Nvme(header), .. } = answer.2.body else { panic!("{answer:?}") };
    assert_eq!(header.operation, Operation::ReadResponse { status: status::INVALID_FIELD });
}
