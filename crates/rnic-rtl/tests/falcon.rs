//! Falcon's receive window and loss detection by time as circuits: each decides as its specification.

use rnic_base::{RandomStream, RandomStreams};
use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::spec::falcon::{Operation, Position, Rule, TIMES, Window, search};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};

#[path = "falcon/ends.rs"]
mod ends;
#[path = "falcon/mutants.rs"]
mod mutants;
#[path = "falcon/receiver.rs"]
mod receiver;
#[path = "falcon/sender.rs"]
mod sender;
#[path = "../../rnic-falcon/tests/two_ends/mod.rs"]
mod two_ends;

const FOLDERS: &[&str] = &["falcon", "lib"];

fn events() -> u64 {
    let wanted = std::env::var("RNIC_LOCKSTEP_EVENTS").ok();
    wanted.map_or(1_000_000, |text| text.parse().expect("RNIC_LOCKSTEP_EVENTS is a number of events"))
}

fn rx_window() -> Circuit {
    let inputs = [
        ("start_i", 1),
        ("data_base_i", 32),
        ("request_base_i", 32),
        ("valid_i", 1),
        ("is_request_i", 1),
        ("operation_i", 2),
        ("psn_i", 32),
        ("acknowledged_i", 1),
        ("width_i", 8),
    ];
    let outputs = [
        ("position_o", 3),
        ("data_base_o", 32),
        ("request_base_o", 32),
        ("data_received_o", 128),
        ("data_acknowledged_o", 128),
        ("request_received_o", 64),
        ("data_dropped_o", 1),
        ("request_dropped_o", 1),
        ("extended_o", 1),
    ];
    Circuit::written("falcon_rx_window", FOLDERS, Timing::Clocked, &inputs, &outputs)
}

fn rack() -> Circuit {
    let inputs = [
        ("sent_i", 1),
        ("sent_slot_i", 7),
        ("now_i", 24),
        ("start_i", 1),
        ("base_slot_i", 7),
        ("count_i", 8),
        ("arrived_i", 128),
        ("sent_until_i", 24),
        ("age_i", 24),
    ];
    let outputs = [("busy_o", 1), ("lost_o", 1), ("lost_at_o", 7), ("done_o", 1), ("is_due_o", 1), ("due_o", 24)];
    Circuit::written("falcon_rack", FOLDERS, Timing::Clocked, &inputs, &outputs)
}

/// Draws an operation and the number of its packet.
fn draw(random: &mut RandomStream, event: u64, base: u32) -> (Operation, u32, bool) {
    // At times every packet behind the base is acknowledged.
    let is_filled = event / 4_096 % 4 == 2;
    if is_filled && random.below(16) != 0 {
        let operation = if random.below(2) == 0 { Operation::Arrive } else { Operation::Acknowledge };
        return (operation, base.wrapping_add(1 + (event % 127) as u32), true);
    }
    let psn = match random.below(16) {
        0 => base.wrapping_add(random.bits() as u32),
        1 => base.wrapping_sub(random.below(200) as u32),
        2 => base.wrapping_add(random.below(160) as u32),
        3..7 => base,
        _ => base.wrapping_add(random.below(1 + event / 256 % 128) as u32),
    };
    let operation = match random.below(8) {
        0 | 1 => Operation::Acknowledge,
        2 if random.below(8) == 0 => Operation::Refuse,
        3 if random.below(8) == 0 => Operation::Report,
        _ => Operation::Arrive,
    };
    // In some phases the base is not acknowledged, so that long runs wait behind it.
    let holds = (is_filled || (event / 1_024).is_multiple_of(2)) && psn == base && random.below(1_024) != 0;
    let (operation, acknowledged) = match operation {
        Operation::Acknowledge if holds => (Operation::Arrive, false),
        operation => (operation, random.below(4) != 0 && !holds),
    };
    (operation, psn, acknowledged)
}

/// Returns the outputs of the circuit with these windows, for a packet at `position`.
fn outputs(windows: &[Window; 2], position: Position) -> [u64; 11] {
    let [data, request] = windows;
    let (received, acknowledged) = (data.received(), data.acknowledged());
    let requests = request.received() as u64;
    let extended = data.dropped || request.dropped || received != 0 || requests != 0;
    [
        position as u64,
        data.base.into(),
        request.base.into(),
        received as u64,
        (received >> 64) as u64,
        acknowledged as u64,
        (acknowledged >> 64) as u64,
        requests,
        data.dropped.into(),
        request.dropped.into(),
        extended.into(),
    ]
}

/// Numbers of packets by their position, and of moves of a base by more than 32 packets.
struct Seen {
    positions: [u64; 5],
    moves: u64,
}

/// Checks both windows of a connection, with an operation in every cycle.
fn check_windows(mut model: Model, events: u64) -> Seen {
    let seed = 51;
    let mut random = RandomStreams::new(seed).stream("packets");
    let mut windows = [Window::new(0), Window::new(0)];
    let (mut records, mut expected) = (Vec::new(), Vec::new());
    let (mut seen, mut moved) = ([0u64; 5], 0u64);
    for event in 0..events {
        let starts = event == 0 || random.below(20_000) == 0;
        let at = random.below(2) as usize;
        let width = if (event / 4_096).is_multiple_of(2) { 128 } else { 64 };
        let base = windows[at].base;
        let (operation, psn, acknowledged) = draw(&mut random, event, base);
        let valid = random.below(16) != 0 && !starts;
        let bases = [0xffff_ff00u32, 0].map(|first| first.wrapping_add(random.below(256) as u32));
        let position = windows[at].position(psn, width);
        expected.push(outputs(&windows, position));
        records.extend([
            u64::from(starts),
            bases[0].into(),
            bases[1].into(),
            valid.into(),
            at as u64,
            operation as u64,
            psn.into(),
            acknowledged.into(),
            width.into(),
        ]);
        if starts {
            windows = bases.map(Window::new);
        } else if valid {
            seen[position as usize] += 1;
            windows[at].operate(operation, psn, acknowledged, width);
            moved += u64::from(windows[at].base.wrapping_sub(base) > 32);
        }
        if expected.len() == 4_096 || event + 1 == events {
            let answers = model.run(&records).expect("no assertion of the circuit fails");
            let first = event + 1 - expected.len() as u64;
            for (number, (expected, found)) in (first..).zip(expected.iter().zip(answers.chunks(11))) {
                // Before the first start the windows have any base.
                assert!(number == 0 || expected == found, "seed {seed}, event {number}: {found:x?}, not {expected:x?}");
            }
            records.clear();
            expected.clear();
        }
    }
    Seen { positions: seen, moves: moved }
}

/// F-9: both windows of a connection, an operation in every cycle: the position of each packet, the words of the
/// acknowledgement and the base are those specified. Packet numbers wrap, windows are full at times, and packets beyond
/// them arrive.
#[test]
fn f9_f10_receive_windows_take_a_packet_in_every_cycle() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[rx_window()]).expect("the circuit compiles without warnings");
    let Seen { positions, moves } =
        check_windows(verilated.start("falcon_rx_window", 1).expect("the model starts"), events());
    assert!(positions.iter().all(|count| *count > events() / 1_000), "not all positions occur: {positions:?}");
    assert!(moves > events() / 20_000, "no long runs: {moves}");
    assert!(positions[Position::Beyond as usize] > 0);
}

/// Checks searches in so many cycles; returns how many there are, how many find a packet that is lost, and how many
/// find one that will be.
fn check_rack(mut model: Model, least: u64) -> [u64; 3] {
    let seed = 52;
    let mut random = RandomStreams::new(seed).stream("times");
    let mut times = [0u32; 128];
    let mut now = TIMES - 5_000;
    let (mut cycles, mut lost, mut dues, mut searches) = (0, 0, 0, 0);
    let idle = |now: u32| [0, 0, u64::from(now), 0, 0, 0, 0, 0, 0, 0];
    while cycles < least {
        let mut records: Vec<u64> = Vec::new();
        // Every packet has a time before the first search; later some are sent again.
        let sent: Vec<u64> =
            if searches == 0 { (0..128).collect() } else { (0..20).map(|_| random.below(128)).collect() };
        for slot in sent {
            now = (now + random.below(40) as u32) % TIMES;
            times[slot as usize] = now;
            records.extend([1, slot, now.into(), 0, 0, 0, 0, 0, 0, 0]);
        }
        let base = random.below(128);
        let arrived = match random.below(4) {
            0 => 0,
            1 => u128::MAX ^ 1 << random.below(128),
            _ => u128::from(random.bits()) << 64 | u128::from(random.bits()),
        };
        let count = if random.below(2) == 0 { 128 } else { random.below(129) as u32 };
        let back = |random: &mut RandomStream| random.below(6_000) as u32;
        let rule = Rule { count, sent_until: now.wrapping_sub(back(&mut random)) % TIMES, age: back(&mut random) };
        records.extend([0, 0, now.into(), 1, base, count.into(), arrived as u64, (arrived >> 64) as u64]);
        records.extend([u64::from(rule.sent_until), rule.age.into()]);
        let found = search(rule, |at| times[(base as usize + at as usize) % 128], arrived, now);
        let before = records.len() / 10;
        // One cycle for each packet, one that finds no more, and one for the result.
        for _ in 0..found.visited + 2 {
            records.extend(idle(now));
        }
        let answers = model.run(&records).expect("no assertion of the circuit fails");
        let answers: Vec<&[u64]> = answers.chunks(6).collect();
        let reported: Vec<u32> =
            answers[before..].iter().filter(|words| words[1] == 1).map(|words| words[2] as u32).collect();
        assert_eq!(reported, found.lost, "seed {seed}, search {searches}: {rule:?}");
        // Busy from the start until it is done, which is said in one cycle; nothing is lost outside of a search.
        let last = answers.last().expect("there are cycles");
        for (cycle, words) in answers.iter().enumerate() {
            let (is_busy, is_done) = ((before..answers.len() - 1).contains(&cycle), cycle + 1 == answers.len());
            let is_lost = cycle >= before && words[1] == 1;
            let expected = [is_busy, is_lost, is_done].map(u64::from);
            assert_eq!([words[0], words[1], words[3]], expected, "seed {seed}, search {searches}, cycle {cycle}");
        }
        let due = (last[4] == 1).then_some(last[5] as u32);
        assert_eq!(due, found.due, "seed {seed}, search {searches}: {rule:?}");
        cycles += answers.len() as u64;
        lost += u64::from(!found.lost.is_empty());
        dues += u64::from(found.due.is_some());
        searches += 1;
    }
    [searches, lost, dues]
}

/// F-11: a search visits each packet that has not arrived once, a packet a cycle, and reports those that the rule
/// declares lost and the time until the next.
#[test]
fn f11_a_search_by_time_takes_a_cycle_for_each_packet() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[rack()]).expect("the circuit compiles without warnings");
    let model = verilated.start("falcon_rack", 1).expect("the model starts");
    let [searches, lost, dues] = check_rack(model, events());
    assert!(lost > searches / 20 && dues > searches / 20, "{searches} searches: {lost} {dues}");
}
