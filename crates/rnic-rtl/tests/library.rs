//! The library of `rtl/lib`: proofs for all inputs, and searches compared with naive ones.

use rnic_base::rng::RandomStreams;
use rnic_rtl::circuit::{Change, Circuit, Timing};
use rnic_rtl::proof::{holds, holds_always, holds_always_inside};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};

#[path = "library/mutants.rs"]
mod mutants;

/// Proves the assertions of `module`, and that they fail once `change` is made in the library.
fn prove(module: &str, parameters: &[(&str, u64)], change: &Change) {
    let is_proved = holds(module, &["lib"], parameters, None).expect("yosys has a verdict");
    assert!(is_proved, "{module} {parameters:?}");
    let changed = holds(module, &["lib"], parameters, Some(change)).expect("yosys has a verdict");
    assert!(!changed, "{module} holds although {change:?}");
}

#[test]
fn t21_find_first_is_proved_for_all_maps_and_heads_of_128_bits() {
    if !are_installed(&["yosys"]) {
        return;
    }
    prove("first_set_proof", &[], &Change::new("first_set", "is_first[g] & ~is_used[h]", "is_first[g]"));
    prove("first_set_proof", &[], &Change::new("first_set_isolated", "map_i & ~(", "map_i & (~"));
    prove("last_in_ring_proof", &[("W", 32)], &Change::new("last_in_ring", "-head_i", "~head_i"));
    prove("first_in_ring_proof", &[], &Change::new("first_in_ring", "map_i & ~below_head", "map_i & below_head"));
}

/// Widths that are no multiple of a group.
#[test]
fn t21_find_first_is_proved_for_maps_of_2_to_70_bits() {
    if !are_installed(&["yosys"]) {
        return;
    }
    for width in [2, 3, 5, 20, 33, 70] {
        let is_proved = holds("first_set_proof", &["lib"], &[("W", width)], None).expect("yosys has a verdict");
        assert!(is_proved, "{width} bits");
    }
}

#[test]
fn i23_masks_counts_and_serial_comparisons_are_proved() {
    if !are_installed(&["yosys"]) {
        return;
    }
    let change = Change::new("range_mask", "~below_from | below_end", "~below_from & below_end");
    prove("masks_proof", &[("W", 16)], &change);
    assert_eq!(holds("masks_proof", &["lib"], &[], None).ok(), Some(true), "masks of 128 bits");
    prove("one_hot_proof", &[], &Change::new("one_hot", "enable_i && ", ""));
    prove("popcount_proof", &[("W", 16)], &Change::new("popcount_group", "{1'b0, low} +", "{1'b0, low} |"));
    // The counts of 128 and 256 bits have 22 and 43 groups, that of 43 bits 8, and those of 22 and 8 bits 4 and 2.
    for width in [2, 4, 6, 8, 22] {
        assert_eq!(holds("popcount_proof", &["lib"], &[("W", width)], None).ok(), Some(true), "{width} bits");
    }
    let no_weight = Change::new("popcount", "(COUNT_W'(count_of_twos) << 1)", "COUNT_W'(count_of_twos)");
    for width in [43, 128, 256] {
        prove("popcount_step_proof", &[("W", width)], &no_weight);
    }
    for width in [64, 128, 256] {
        prove("some_set_proof", &[("W", width)], &Change::new("some_of_sets", "(a[0] && a[2])", "1'b0"));
    }
    prove("serial_after_proof", &[], &Change::new("serial_after", "(distance != '0)", "1'b1"));
}

#[test]
fn t22_the_last_writer_of_an_address_is_proved_by_induction() {
    if !are_installed(&["yosys"]) {
        return;
    }
    for writers in [2, 3, 5] {
        let is_proved = holds_always("ram_live_proof", &["lib"], &[("WRITES", writers)], None);
        assert!(is_proved.expect("yosys has a verdict"), "{writers} writers");
    }
    for (from, to) in [
        (".wdata_i(!first_before)", ".wdata_i(first_before)"),
        ("= first[r] != second[r]", "= first[r] == second[r]"),
        (".raddr_i({waddr_i[i*A+:A], raddr_i})", ".raddr_i({waddr_i[j*A+:A], raddr_i})"),
    ] {
        let change = Change::new("ram_live", from, to);
        let changed = holds_always("ram_live_proof", &["lib"], &[], Some(&change)).expect("yosys has a verdict");
        assert!(!changed, "ram_live holds although {change:?}");
    }
}

/// Returns whether `flow_set`, with a change, is proved to be a queue.
fn is_queue(change: Option<&Change>) -> bool {
    let net = |name: &str| format!("i_set.{name}_q");
    let cell = |place: u32| format!("i_set.g_bank[{}].i_bank.memory_q[{}]", place % 4, place / 4);
    let cells: Vec<String> = (0..8).rev().map(cell).collect();
    let registers = ["head", "tail", "count", "waits", "waiting"].map(|name| (name, net(name)));
    let nets: Vec<(&str, String)> = registers.into_iter().chain([("cells", cells.join(","))]).collect();
    holds_always_inside("flow_set_proof", &["lib"], ("flow_set", &nets), change).expect("yosys has a verdict")
}

#[test]
fn t2_a_set_of_flows_is_proved_to_keep_their_order_and_to_lose_none() {
    if !are_installed(&["yosys"]) {
        return;
    }
    assert!(is_queue(None));
}

#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn t2_faults_in_a_set_of_flows_are_noticed() {
    if !are_installed(&["yosys"]) {
        return;
    }
    for (from, to) in [
        ("if (push_i[p-1]) first =", "if (push_i[4-p]) first ="),
        ("is_early = is_stored || (waits_q != 4'd0)", "is_early = is_stored"),
        ("early = is_stored ? stored", "early = (count_q > (F + 1)'(1)) ? stored"),
        ("(pop_i && !is_early) ?", "pop_i ?"),
        ("placed = (pop_i && !is_stored) ? (waits_q & (waits_q - 4'd1)) : waits_q", "placed = waits_q"),
        ("place = tail_q + F'(places)", "place = tail_q + F'(p)"),
        ("= place[F-1:2]", "= tail_q[F-1:2]"),
        ("head_q + F'(is_taken)", "head_q + F'(pop_i)"),
        ("(F + 1)'(places) - (F + 1)'(is_taken)", "(F + 1)'(places)"),
        ("waiting_q <= flow_i", "if (pop_i) waiting_q <= flow_i"),
    ] {
        assert!(!is_queue(Some(&Change::new("flow_set", from, to))), "flow_set holds although {to}");
    }
}

/// Returns the first set position from `head` on by looking at one after the other.
fn naive(map: &[u64], head: u32, width: u32) -> Option<u32> {
    (0..width).map(|step| (head + step) % width).find(|at| map[*at as usize / 64] >> (at % 64) & 1 == 1)
}

/// Compares the search in a ring of `width` bits with the naive one, for `cases`.
fn compare(model: &mut Model, cases: &[(Vec<u64>, u32)], width: u32) {
    let records: Vec<u64> =
        cases.iter().flat_map(|(map, head)| map.iter().copied().chain([u64::from(*head)])).collect();
    let answers = model.run(&records).expect("the model runs");
    for ((map, head), answer) in cases.iter().zip(answers.chunks_exact(2)) {
        let found = (answer[0] == 1).then_some(answer[1] as u32);
        assert_eq!(found, naive(map, *head, width), "{map:x?} from {head} in {width} bits");
    }
}

fn search(width: u64) -> Circuit {
    let position = width.ilog2();
    let inputs = [("map_i", width as u32), ("head_i", position)];
    let outputs = [("found_o", 1), ("position_o", position)];
    let circuit = Circuit::written("first_in_ring", &["lib"], Timing::Combinational, &inputs, &outputs);
    circuit.with("W", width).called(&format!("search_{width}"))
}

#[test]
fn t21_find_first_in_a_ring_equals_a_naive_search() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let widths = [32, 64, 128, 256];
    let verilated = Verilated::build(&widths.map(search)).expect("the circuits compile without warnings");
    let start = |width: u64| verilated.start(&format!("search_{width}"), 1).expect("the model starts");

    // The example of Tonic, appendix C.
    let answer = start(32).run(&[1 << 5 | 1 << 30, 6]).expect("the model runs");
    assert_eq!(answer, [1, 30]);

    let pairs = (0..32_u32).flat_map(|one| (one..32).map(move |other| 1_u64 << one | 1 << other));
    let mut cases: Vec<(Vec<u64>, u32)> = pairs.flat_map(|map| (0..32).map(move |head| (vec![map], head))).collect();
    cases.extend((0..32).map(|head| (vec![0], head)));
    compare(&mut start(32), &cases, 32);

    let mut rng = RandomStreams::new(21).stream("maps");
    for width in [64, 128, 256] {
        let random = |_| {
            let words = width as usize / 64;
            // Of each word, a bit remains with a probability of 2 to the power of -`thin`.
            let thin = rng.below(7);
            let mut word = || (0..=thin).fold(u64::MAX, |bits, _| bits & rng.bits());
            let map = (0..words).map(|_| word()).collect();
            (map, rng.below(width) as u32)
        };
        let cases: Vec<(Vec<u64>, u32)> = (0..50_000).map(random).collect();
        compare(&mut start(width), &cases, width as u32);
    }
}

#[test]
fn t21_the_other_form_of_find_first_equals_a_naive_search() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let (inputs, outputs) = ([("map_i", 64)], [("found_o", 1), ("position_o", 6)]);
    let circuit = Circuit::written("first_set_isolated", &["lib"], Timing::Combinational, &inputs, &outputs);
    let verilated = Verilated::build(&[circuit.with("W", 64)]).expect("the circuit compiles without warnings");
    let mut rng = RandomStreams::new(22).stream("maps");
    let random = (0..10_000).map(|_| (0..=rng.below(7)).fold(u64::MAX, |bits, _| bits & rng.bits()));
    let maps: Vec<u64> = (0..64).map(|at| 1 << at).chain([0, u64::MAX]).chain(random).collect();
    let answers = verilated.start("first_set_isolated", 1).expect("the model starts").run(&maps).expect("it runs");
    for (map, answer) in maps.iter().zip(answers.chunks_exact(2)) {
        let position = naive(&[*map], 0, 64).map_or(0, u64::from);
        assert_eq!(answer, [u64::from(*map != 0), position], "{map:x}");
    }
}
