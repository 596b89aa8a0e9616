//! A peer that violates the protocol: typed errors, no data is placed, no panic, and valid traffic continues.

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

const WRITE_DONE: Operation = Operation::WriteCompletion { status: status::SUCCESS };
const READ_DONE: Operation = Operation::ReadResponse { status: status::SUCCESS };

fn request(base: Base, operation: Operation, payload_len: u32) -> Request {
    let ulp = Ulp::Nvme(Header { base, operation });
    Request { rsn: Serial::new(900), length: ulp.request_len(payload_len) as u16, payload_len, ulp }
}

/// Returns a net whose initiator has sent the request of one unit, and the base header of that request.
fn with_request(direction: Direction) -> (Net, Base) {
    let mut net = Net::new(WORLD, 1);
    net.host.buffers.insert(0, vec![0xee; 4096]);
    let command = Command { direction, first_block: 0, blocks: 8, cookie: 0 };
    net.initiator.submit(net.now, &command).expect("the command is accepted");
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
fn f8_invalid_responses_are_refused_and_the_unit_continues() {
    let (mut net, base) = with_request(Read);
    let wrong_tag = Base { initiator_tag: base.initiator_tag ^ 1 << 20, ..base };
    for (response, expected) in [
        (request(wrong_tag, READ_DONE, 4096), PeerError::UnknownTag),
        (request(Base { initiator_tag: 31, ..base }, READ_DONE, 4096), PeerError::UnknownTag),
        (request(Base { initiator_tag: u32::MAX, ..base }, READ_DONE, 4096), PeerError::UnknownTag),
        (request(Base { unit: 1, ..base }, READ_DONE, 4096), PeerError::Mismatch),
        (request(Base { command: base.command + 1, ..base }, READ_DONE, 4096), PeerError::Mismatch),
        (request(base, WRITE_DONE, 0), PeerError::Unexpected),
        (request(base, Operation::WriteData, 0), PeerError::Unexpected),
        (Request { ulp: Ulp::None, ..request(base, READ_DONE, 0) }, PeerError::NotNvme),
    ] {
        let before = net.initiator.peer_errors().of(expected);
        assert_eq!(push(&mut net, &response), Some(expected));
        assert_eq!(net.initiator.peer_errors().of(expected), before + 1);
    }
    assert!(net.host.placed.is_empty());
    assert!(net.run());
    assert_eq!(net.initiator.poll().map(|done| done.result), Some(Ok(())));
    let repeated = request(base, READ_DONE, 4096);
    let (placed, late) = (net.host.placed.len(), net.initiator.stats().late);
    assert_eq!(push(&mut net, &repeated), None, "a repeated response was refused");
    assert_eq!((net.host.placed.len(), net.initiator.stats().late), (placed, late + 1), "it placed data again");
    assert_eq!(net.initiator.poll(), None);
}

#[test]
fn f8_a_response_of_the_wrong_length_ends_its_unit_in_error() {
    for payload_len in [0, 512, 4095, 4097] {
        let (mut net, base) = with_request(Read);
        assert_eq!(push(&mut net, &request(base, READ_DONE, payload_len)), Some(PeerError::WrongLength));
        let failure = Failure::Peer(PeerError::WrongLength);
        assert_eq!(net.initiator.poll().map(|done| done.result), Some(Err(failure)));
        assert!(net.host.placed.is_empty());
    }
}

#[test]
fn a_write_completion_before_its_data_was_fetched_fails_the_unit() {
    let (mut net, base) = with_request(Write);
    assert_eq!(push(&mut net, &request(base, WRITE_DONE, 0)), Some(PeerError::Early));
    assert_eq!(net.initiator.poll().map(|done| done.result), Some(Err(Failure::Peer(PeerError::Early))));
}

#[test]
fn any_number_of_invalid_pulls_is_counted() {
    let (mut net, base) = with_request(Write);
    let mut pull = |base, operation, length: u32| {
        let request = Request { length: length as u16, payload_len: 0, ..request(base, operation, 0) };
        Attached { end: &mut net.initiator, connection: 0, memory: &mut net.host }.pull(Time::ZERO, &request)
    };
    let data_request = Operation::WriteDataRequest;
    let length = Ulp::Nvme(Header { base, operation: Operation::WriteData }).request_len(4096);
    assert_eq!(pull(base, data_request, length - 1), PullReply::Later);
    assert_eq!(pull(base, Operation::WriteData, length), PullReply::Later);
    assert_eq!(pull(Base { command: base.command + 1, ..base }, data_request, length), PullReply::Later);
    assert_eq!(pull(base, data_request, length), PullReply::Later, "the valid Pull was refused");
    assert_eq!(pull(base, data_request, length), PullReply::Later);
    (0..WORLD.initiator.units - 5).for_each(|_| assert_eq!(pull(base, data_request, length), PullReply::Later));
    assert_eq!(pull(base, data_request, length), PullReply::Later, "a Pull beyond the agreed number was refused");
    let errors = net.initiator.peer_errors();
    let counts = [PeerError::WrongLength, PeerError::Unexpected, PeerError::Mismatch].map(|error| errors.of(error));
    assert_eq!((counts, errors.of(PeerError::Repeated)), ([1; 3], u64::from(WORLD.initiator.units - 3)));
}

#[test]
fn f8_invalid_requests_never_reach_the_device() {
    let mut net = Net::new(WORLD, 1);
    let base = Base { units_less_one: 1, unit: 1, ..Base::default() };
    let command = nvme::Command { target_nsid: NAMESPACE, blocks: 15, ..nvme::Command::default() };
    let read = Operation::ReadRequest { command };
    let split = Base { split: true, units_less_one: 3, ..base };
    for (bad_request, expected) in [
        (request(Base { unit: 2, ..base }, read, 0), PeerError::BadUnits),
        (request(Base { units_less_one: 2, ..base }, read, 0), PeerError::BadUnits),
        (request(Base { second_group: true, ..base }, read, 0), PeerError::BadUnits),
        (request(Base { split: true, ..base }, read, 0), PeerError::BadUnits),
        (request(Base { unit: 2, ..split }, read, 0), PeerError::BadUnits),
        (request(Base { second_group: true, ..split }, read, 0), PeerError::BadUnits),
        (request(base, READ_DONE, 0), PeerError::Unexpected),
        (request(base, read, 1), PeerError::WrongLength),
        (Request { ulp: Ulp::None, ..request(base, read, 0) }, PeerError::NotNvme),
    ] {
        assert_eq!(push_to_target(&mut net, &bad_request), Some(expected), "{bad_request:?}");
    }
    assert_eq!(net.targets[0].stats().units, 0);
    assert_eq!(push_to_target(&mut net, &request(base, read, 0)), None);
    assert_eq!(push_to_target(&mut net, &request(base, read, 0)), Some(PeerError::TagInUse));
    let out_of_range = nvme::Command { slba: u64::MAX, ..command };
    let write = Operation::WriteRequest { command: out_of_range, directive: Directive::default() };
    let other_tag = Base { initiator_tag: 1, ..base };
    assert_eq!(push_to_target(&mut net, &request(other_tag, write, 0)), None, "a range error is not a status");
    assert_eq!(net.targets[0].stats().units, 2);
    net.advance(0);
    assert!(net.send(0, TARGET));
    let Body::PushData { ulp: Ulp::Nvme(header), .. } = net.sent[0].2.body else { panic!("{:?}", net.sent[0]) };
    assert_eq!(header.operation, Operation::WriteCompletion { status: status::OUT_OF_RANGE });
}

/// Returns a net whose target has received a Write request and sent its Pull, the base header of the Pull, and the
/// tag of the Pull's transaction.
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

/// Completes the Pull with transaction tag `tag`, delivering `data`.
fn complete_pull(net: &mut Net, tag: u64, data: &PulledData) {
    let (rsn, code) = (Serial::new(0), CompletionCode::Ack);
    let completion = Completion { rsn, tag, code, ulp_code: 0, data: Some(data.payload_len as u16) };
    let mut end = Attached { end: &mut net.targets[0], connection: 0, memory: &mut net.disks[0] };
    end.pulled(Time::ZERO, tag, data);
    end.complete(Time::ZERO, &completion);
}

/// Checks that the unit whose data was pulled ends with an error, and that nothing is written.
fn ends_without_data(net: &mut Net) {
    // The link has finished sending the Pull request.
    net.now += Duration::from_us(1);
    net.advance(0);
    assert_eq!((net.disks[0].writes.len(), net.devices[0].next_done()), (0, None));
    assert!(net.send(0, TARGET));
    let Body::PushData { ulp: Ulp::Nvme(header), .. } = net.sent[1].2.body else { panic!("{:?}", net.sent[1]) };
    assert_eq!(header.operation, Operation::WriteCompletion { status: status::DATA_TRANSFER_ERROR });
}

#[test]
fn f8_data_of_another_unit_is_never_written() {
    let (_, base, _) = with_pull();
    let marked_invalid = Base { data_invalid: true, ..base };
    let other = Base { target_tag: base.target_tag + 1, ..base };
    for (base, operation, payload_len, expected) in [
        (Base { unit: 1, ..marked_invalid }, Operation::WriteData, 0, PeerError::Mismatch),
        (other, Operation::WriteData, 4096, PeerError::Mismatch),
        (base, Operation::WriteData, 4095, PeerError::WrongLength),
        (base, Operation::WriteData, 0, PeerError::WrongLength),
        (base, WRITE_DONE, 4096, PeerError::Unexpected),
    ] {
        let (mut net, _, tag) = with_pull();
        let data = PulledData { payload_len, ulp: Ulp::Nvme(Header { base, operation }) };
        (0..2).for_each(|_| complete_pull(&mut net, tag, &data));
        assert_eq!((net.targets[0].peer_errors().of(expected), net.targets[0].peer_errors().total()), (1, 1));
        ends_without_data(&mut net);
    }
}

#[test]
fn data_abandoned_by_the_initiator_ends_its_unit_without_a_peer_error() {
    let (mut net, base, tag) = with_pull();
    let ulp = Ulp::Nvme(Header { base: Base { data_invalid: true, ..base }, operation: Operation::WriteData });
    complete_pull(&mut net, tag, &PulledData { payload_len: 0, ulp });
    assert_eq!((net.targets[0].stats().abandoned, net.targets[0].peer_errors().total()), (1, 0));
    ends_without_data(&mut net);
}

#[test]
fn excess_pulls_are_answered_when_resources_are_free_again() {
    let (mut net, base) = with_request(Write);
    let ulp = Ulp::Nvme(Header { base, operation: Operation::WriteDataRequest });
    let length = Ulp::Nvme(Header { base, operation: Operation::WriteData }).request_len(4096) as u16;
    let pull = Submission { kind: Kind::Pull, length, payload_len: 0, ulp: Some(ulp), tag: 1 << 63, continues: false };
    let full = net.fill(HOST);
    (0..=WORLD.initiator.units).for_each(|_| net.submit(0, TARGET, &pull).expect("the target has resources for Pulls"));
    net.run_for(Duration::from_us(100));
    assert_eq!(net.types(HOST), [PacketType::PushData], "data was sent without resources");
    net.empty(HOST, full);
    assert!(net.run(), "a Pull was not answered");
    assert_eq!(
        net.initiator.peer_errors().of(PeerError::Repeated),
        u64::from(WORLD.initiator.units) + 1,
        "wrong number of repeated Pulls"
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
    net.run_5_us();
    net.run_5_us();
    net.terminate(0);
    let mut ended: Vec<u64> = std::iter::from_fn(|| net.initiator.poll())
        .map(|done| if done.result == Err(Failure::Lost) { done.cookie } else { panic!("{done:?}") })
        .collect();
    ended.sort_unstable();
    assert_eq!((ended, net.initiator.is_idle(), net.initiator.units_in_flight()), (vec![0, 1, 2], true, 0));
    assert!(net.targets[0].is_idle());
    let command = Command { direction: Read, first_block: 0, blocks: 1, cookie: 9 };
    assert_eq!(net.initiator.submit(net.now, &command), Err(SubmitError::Lost(0)));
}

#[test]
fn f8_responses_to_a_read_as_a_pull_are_checked_like_pushed_ones() {
    let world = common::World {
        initiator: rnic_nvme::InitiatorConfig { reads: rnic_nvme::Reads::Pull, ..WORLD.initiator },
        ..WORLD
    };
    for (wrong_base, operation, payload_len, expected) in [
        (Base { unit: 1, ..Base::default() }, READ_DONE, 4096, PeerError::Mismatch),
        (Base::default(), READ_DONE, 4095, PeerError::WrongLength),
        (Base::default(), WRITE_DONE, 0, PeerError::Unexpected),
    ] {
        let mut net = Net::new(world, 1);
        net.host.buffers.insert(0, vec![0xee; 4096]);
        let command = Command { direction: Read, first_block: 0, blocks: 8, cookie: 0 };
        net.initiator.submit(net.now, &command).expect("the command is accepted");
        net.advance(0);
        assert!(net.send(0, HOST));
        let Body::PullRequest { ulp: Ulp::Nvme(header), .. } = net.sent[0].2.body else { panic!("{:?}", net.sent[0]) };
        let base = Base { unit: wrong_base.unit, ..header.base };
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
fn f8_an_invalid_read_as_a_pull_is_answered_with_a_status() {
    let mut net = Net::new(WORLD, 1);
    let command = nvme::Command { target_nsid: NAMESPACE, blocks: 7, ..nvme::Command::default() };
    let base = Base { units_less_one: 4, ..Base::default() };
    let ulp = Ulp::Nvme(Header { base, operation: Operation::ReadRequest { command } });
    let length = Ulp::Nvme(Header { base, operation: READ_DONE }).request_len(4096) as u16;
    let pull = Submission { kind: Kind::Pull, length, payload_len: 0, ulp: Some(ulp), tag: 1 << 63, continues: false };
    net.submit(0, HOST, &pull).expect("the command is accepted");
    assert!(net.run());
    assert_eq!((net.targets[0].stats().units, net.targets[0].peer_errors().of(PeerError::BadUnits)), (0, 1));
    let response = net.sent.iter().find(|(_, side, _)| *side == TARGET).expect("the target has responded");
    let Body::PullData { ulp: Ulp::Nvme(header), .. } = response.2.body else { panic!("{response:?}") };
    assert_eq!(header.operation, Operation::ReadResponse { status: status::INVALID_FIELD });
}
