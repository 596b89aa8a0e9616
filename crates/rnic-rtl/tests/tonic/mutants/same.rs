//! Mutants of Tonic's NIC that are the same circuit.

use rnic_rtl::mutants::family::Listed;

const fn same(module: &'static str, after: &'static [&'static str], reason: &'static str) -> Listed {
    Listed::new(module, after, reason)
}

/// Folders of circuits with each credit scheme.
pub const RATE: &[&str] = &["tonic", "lib", "gen/k64", "gen/maps", "gen/dcqcn"];
const WINDOW: &[&str] = &["tonic", "lib", "gen/k64", "gen/maps", "gen/reno"];
const TOKEN: &[&str] = &["tonic", "lib", "gen/k64", "gen/maps", "gen/ndp"];

/// All of them.
pub const SAME: &[Listed] = &[
    same(
        "dd_engine",
        &["(next_duty_dep.outstanding > COUNT_W'(tonic_pkg::STOP)", "next_duty_dep.back_pressured = 1'd0"],
        "at most STOP addresses wait (an assertion), so that there are fewer after one has left",
    ),
    same(
        "dd_engine",
        &[".mark_i(1'd1", ".first_i(24'd1", ".last_i(24'd1", ".restart_i(1'd1"],
        "of a new flow's answer, window, rate and timer are read, and no marks",
    ),
    same("dd_engine", &["next_window_gen.in_use = 1'd0"], "which flows are in use is kept in bits beside the memories"),
    same(
        "dd_engine",
        &[
            "visited_rate_q <= HAS_RATE || (answer_per.rate != duty_per.rate)",
            "incoming_o.has_rate = HAS_RATE || (answer_inc.rate != duty_inc.rate)",
        ],
        "a rate that has not changed may be set again, and nothing reads a rate in schemes without one",
    ),
    same(
        "dd_engine",
        &["periodic_o.has_grant = 1'd1", "periodic_o.grant = 24'd1"],
        "a visit grants nothing, so that credit reads no grant of it",
    ),
    same(
        "dd_engine",
        &["second_valid_q <= 1'd1", "departed_valid_q <= 3'd1", "visit_fetch_retry_q <= 1'd1", "visit_retry_q <= 1'd1"],
        "in a reset, when no flow is in use: packets, departures and visits of such flows have no effect",
    ),
    same(
        "dd_merge",
        &["(staying > COUNT_W'(tonic_pkg::STOP)) || \
           (duty_i.back_pressured && !(staying < COUNT_W'(tonic_pkg::START)))"],
        "with STOP addresses waiting a flow is back-pressured, so that the other condition holds",
    ),
    same(
        "dd_generate",
        &[
            "is_marked || (is_announced || (sent < 24'(window_i.size)))",
            "is_marked || (is_announced && (sent <= 24'(window_i.size)))",
        ],
        "the output is read only for a flow that is not idle, which has a segment: an assertion of dd_engine",
    ),
    same(
        "dd_marks",
        &["((last[22:0] >= 23'(most)) ? most : last[SIZE_W-1:0])"],
        "with equal numbers both sides of the choice are equal",
    )
    .proved(&[("dd_marks", RATE), ("dd_marks", WINDOW), ("dd_marks", TOKEN)]),
    same(
        "dd_answer",
        &["(window_i >= 9'(tonic_pkg::K)) ? SIZE_W'(tonic_pkg::K) : SIZE_W'(window_i)"],
        "with equal numbers both sides of the choice are equal",
    )
    .proved(&[("dd_answer", RATE), ("dd_answer", WINDOW), ("dd_answer", TOKEN)]),
    same("dd_answer", &["HAS_RATE ? rate_i : 23'd1"], "nothing reads a rate in schemes without one"),
    same(
        "cr_engine",
        &["wanted_inc = 1'd1", "wanted_per = 1'd1"],
        "with rates, timers insert flows into the ready set, and nothing reads these",
    )
    .proved(&[("cr_engine", RATE)]),
    same(
        "cr_engine",
        &[".has_inc_i(valid_inc || same_inc_per"],
        "what a visit sets replaces a packet's rate, and with the tokens that it grants a flow may send anyway",
    ),
    same(
        "cr_engine",
        &[".we_extra_i({valid_per || !(is_set && same_enq_per), is_set}"],
        "without a visit it writes what is there",
    ),
    same("cr_engine", &["left_credit = 40'd1"], "nothing reads credit in bytes in schemes without rates"),
    same(
        "cr_rate",
        &[".enters_i(1'd1"],
        "an address that enters is the oldest one in an empty ring only, from which none leaves in this cycle",
    ),
    same(
        "cr_rate",
        &["(grown_now >= most) ? most[39:0] : grown_now[39:0]"],
        "with equal numbers both sides of the choice are equal",
    )
    .proved(&[("cr_rate", RATE)]),
    same("cr_pace", &["is_far || (grown_i[31:16] > most)"], "with equal numbers both sides of the choice are equal")
        .proved(&[("cr_pace", RATE)]),
    same("cr_divide", &["high = high - {1'd1, by}"], "the highest bit of the difference is not read")
        .proved(&[("cr_divide", RATE)]),
    same("cr_divide", &["best = 31'd1", "cycles = 31'd1"], "both are written before they are read")
        .proved(&[("cr_divide", RATE)]),
    same("cr_divide", &["(!found || cycles <= best)"], "of two equal times either is the smallest")
        .proved(&[("cr_divide", RATE)]),
    same(
        "cr_divide",
        &["(best <= 31'd6", "(best >= 31'(MOST + 5)"],
        "with equal numbers both sides of the choice are equal",
    )
    .proved(&[("cr_divide", RATE)]),
    same("flow_turns", &["ended_q <= 1'd1"], "in a reset, when no flow has a turn that could end"),
    same("wheel", &["in_period[0] = 1'd1"], "nothing reads it: a flow that falls enters a slot of one cycle")
        .proved(&[("wheel", RATE)]),
    same(
        "wheel",
        &[".clear_i(!is_period"],
        "a slot's bit is cleared a cycle later, in which nothing reads it, and no flow enters that slot in a period",
    ),
    same("flow_set", &["is_popped = pop_i || found_o"], "only an assertion reads it").proved(&[("flow_set", &["lib"])]),
];
