//! The circuits of `rtl/fasr` that are tested, with their ports.

use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::spec::fasr::{BLOCKS, UNITS};

pub const CONTEXT: u32 = 110;
pub const LANE: u32 = 103;
pub const EVENT: u32 = 66;
pub const ACK: u32 = 66;
pub const RETX: u32 = 45;
pub const TIMER: u32 = 26;
pub const UNIT: u32 = 2 * LANE;

const FOLDERS: &[&str] = &["fasr", "lib"];

pub fn rx() -> Circuit {
    let inputs = [("psn_i", 24), ("sr_i", CONTEXT), ("lane_i", LANE), ("can_open_i", 1), ("blocks_free_i", 7)];
    let outputs = [
        ("sr_o", CONTEXT),
        ("lane_o", LANE),
        ("say_o", 3),
        ("placed_o", 1),
        ("lost_o", 4),
        ("records_o", 1),
        ("needed_o", 7),
        ("bit_o", 10),
        ("first_o", 10),
        ("then_o", 3),
        ("walk_from_o", 24),
    ];
    Circuit::written("fasr_rx", FOLDERS, Timing::Combinational, &inputs, &outputs)
}

pub fn tx() -> Circuit {
    let inputs = [
        ("kind_i", 4),
        ("cumulative_i", 24),
        ("psn_i", 24),
        ("lost_i", 4),
        ("next_i", 24),
        ("sr_i", CONTEXT),
        ("lane_i", LANE),
        ("can_open_i", 1),
        ("blocks_free_i", 7),
    ];
    let outputs = [
        ("sr_o", CONTEXT),
        ("lane_o", LANE),
        ("advanced_o", 1),
        ("is_empty_o", 1),
        ("finished_o", 1),
        ("retransmits_o", 1),
        ("from_o", 24),
        ("to_o", 24),
        ("records_o", 1),
        ("needed_o", 7),
        ("bit_o", 10),
        ("first_o", 10),
        ("in_head_o", 1),
        ("then_o", 3),
    ];
    Circuit::written("fasr_tx", FOLDERS, Timing::Combinational, &inputs, &outputs)
}

pub fn pool1() -> Circuit {
    let inputs = [
        ("read_i", 5),
        ("write_i", 1),
        ("write_at_i", 5),
        ("unit_i", UNIT),
        ("take_i", 1),
        ("release_i", 1),
        ("release_at_i", 5),
    ];
    let outputs = [("unit_o", UNIT), ("any_free_o", 1), ("offer_o", 5), ("taken_o", UNITS as u32)];
    Circuit::written("fasr_pool1", FOLDERS, Timing::Clocked, &inputs, &outputs)
}

pub fn pool2() -> Circuit {
    let inputs = [
        ("read_i", 7),
        ("set_i", 1),
        ("take_i", 1),
        ("link_i", 1),
        ("tail_i", 7),
        ("bits_i", 10),
        ("release_i", 1),
        ("release_at_i", 7),
    ];
    let outputs = [("word_o", 10), ("next_o", 7), ("offer_o", 7), ("free_o", 8), ("taken_o", BLOCKS as u32)];
    Circuit::written("fasr_pool2", FOLDERS, Timing::Clocked, &inputs, &outputs)
}

/// Ports of the SR module and of the one for go-back-N.
pub fn sr(module: &str) -> Circuit {
    let inputs = [
        ("go_i", 1),
        ("ev_valid_i", 1),
        ("ev_i", EVENT),
        ("sr_i", CONTEXT),
        ("next_i", 24),
        ("timer_i", TIMER),
        ("now_i", 24),
        ("rto_i", 24),
        ("rto_extension_i", 24),
    ];
    let outputs = [
        ("ev_ready_o", 1),
        ("ack_valid_o", 1),
        ("ack_o", ACK),
        ("retx_valid_o", 1),
        ("retx_o", RETX),
        ("write_o", 1),
        ("sr_o", CONTEXT),
        ("write_timer_o", 1),
        ("timer_o", TIMER),
        ("done_o", 1),
        ("cycles_o", 7),
        ("lane_o", LANE),
        ("blocks_free_o", 8),
        ("units_taken_o", UNITS as u32),
    ];
    Circuit::written(module, FOLDERS, Timing::Clocked, &inputs, &outputs)
}
