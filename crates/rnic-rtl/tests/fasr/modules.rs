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
        ("then_o", 3),
    ];
    Circuit::written("fasr_tx", FOLDERS, Timing::Combinational, &inputs, &outputs)
}

pub fn place() -> Circuit {
    let inputs = [("lane_i", LANE), ("hole_i", 24), ("psn_i", 24)];
    let outputs = [("needed_o", 7), ("bit_o", 10), ("first_o", 10), ("first_base_o", 24), ("run_o", 10)];
    Circuit::written("fasr_place", FOLDERS, Timing::Combinational, &inputs, &outputs)
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

pub const COMMAND: u32 = 73;
pub const RECEIVED: u32 = 80;
pub const SEND: u32 = 68;

/// The whole transport layer, with FaSR or go-back-N.
pub fn top(name: &str, gbn: u64) -> Circuit {
    let inputs = [
        ("rto_i", 24),
        ("rto_extension_i", 24),
        ("command_valid_i", 1),
        ("command_i", COMMAND),
        ("data_valid_i", 1),
        ("data_i", RECEIVED),
        ("ack_valid_i", 1),
        ("ack_i", RECEIVED),
        ("wqe_valid_i", 1),
        ("wqe_i", 26),
        ("rdreq_valid_i", 1),
        ("rdreq_qp_i", 10),
        ("rdreq_psn_i", 24),
        ("hold_i", 4),
    ];
    let outputs = [
        ("command_ready_o", 1),
        ("data_ready_o", 1),
        ("ack_ready_o", 1),
        ("wqe_ready_o", 1),
        ("rdreq_ready_o", 1),
        ("send_valid_o", 1),
        ("send_o", SEND),
        ("done_o", 1),
        ("done_event_o", EVENT),
        ("done_next_o", 24),
        ("done_timer_o", TIMER),
        ("now_o", 24),
        ("blocks_free_o", 8),
        ("units_taken_o", UNITS as u32),
    ];
    Circuit::written("fasr_top", FOLDERS, Timing::Clocked, &inputs, &outputs).with("GBN", gbn).called(name)
}

/// The Send Queue with its classes.
pub fn send() -> Circuit {
    let inputs = [
        ("hold_i", 4),
        ("ack_valid_i", 1),
        ("ack_i", ACK),
        ("rdreq_valid_i", 1),
        ("rdreq_qp_i", 10),
        ("rdreq_psn_i", 24),
        ("retx_valid_i", 1),
        ("retx_i", RETX),
        ("new_valid_i", 1),
        ("new_qp_i", 10),
        ("new_psn_i", 24),
    ];
    let outputs = [
        ("ack_space_o", 5),
        ("rdreq_ready_o", 1),
        ("retx_space_o", 8),
        ("new_ready_o", 1),
        ("valid_o", 1),
        ("send_o", SEND),
    ];
    Circuit::written("fasr_send", FOLDERS, Timing::Clocked, &inputs, &outputs)
}

pub fn rto() -> Circuit {
    let inputs = [("run_i", 1), ("now_i", 24), ("una_i", 24), ("next_i", 24), ("timer_i", TIMER), ("ready_i", 1)];
    let outputs = [("at_o", 10), ("valid_o", 1), ("event_o", EVENT)];
    Circuit::written("fasr_rto", FOLDERS, Timing::Clocked, &inputs, &outputs)
}

pub fn cc() -> Circuit {
    let inputs = [
        ("go_i", 1),
        ("now_i", 24),
        ("rto_i", 24),
        ("wqe_valid_i", 1),
        ("wqe_i", 26),
        ("una_i", 24),
        ("next_i", 24),
        ("ready_i", 1),
    ];
    let outputs = [
        ("wqe_ready_o", 1),
        ("at_o", 10),
        ("valid_o", 1),
        ("qp_o", 10),
        ("psn_o", 24),
        ("write_next_o", 1),
        ("write_next_value_o", 24),
        ("write_timer_o", 1),
        ("timer_o", TIMER),
    ];
    Circuit::written("fasr_cc", FOLDERS, Timing::Clocked, &inputs, &outputs)
}

pub fn manager() -> Circuit {
    // The reset is an input, so that packets arrive during one.
    let inputs = [
        ("rst_n", 1),
        ("command_valid_i", 1),
        ("command_i", COMMAND),
        ("data_valid_i", 1),
        ("data_i", RECEIVED),
        ("ack_valid_i", 1),
        ("ack_i", RECEIVED),
        ("data_event_ready_i", 1),
        ("ack_event_ready_i", 1),
    ];
    let outputs = [
        ("command_ready_o", 1),
        ("data_ready_o", 1),
        ("ack_ready_o", 1),
        ("started_o", 1),
        ("init_o", 1),
        ("init_at_o", 10),
        ("init_rcv_nxt_o", 24),
        ("init_una_o", 24),
        ("data_event_valid_o", 1),
        ("data_event_o", EVENT),
        ("ack_event_valid_o", 1),
        ("ack_event_o", EVENT),
    ];
    Circuit::written("fasr_manager", FOLDERS, Timing::Clocked, &inputs, &outputs)
}

pub fn update() -> Circuit {
    let inputs = [
        ("init_i", 1),
        ("init_at_i", 10),
        ("init_rcv_nxt_i", 24),
        ("init_una_i", 24),
        ("cc_next_i", 1),
        ("cc_timer_i", 1),
        ("cc_at_i", 10),
        ("cc_next_psn_i", 24),
        ("cc_timer_value_i", TIMER),
        ("sr_i", 1),
        ("sr_timer_i", 1),
        ("sr_at_i", 10),
        ("sr_value_i", CONTEXT),
        ("sr_timer_value_i", TIMER),
    ];
    let outputs = [
        ("cc_go_o", 1),
        ("sr_go_o", 1),
        ("write_sr_o", 1),
        ("write_sr_at_o", 10),
        ("write_sr_value_o", CONTEXT),
        ("write_next_o", 1),
        ("write_next_at_o", 10),
        ("write_next_value_o", 24),
        ("write_timer_o", 1),
        ("write_timer_at_o", 10),
        ("write_timer_value_o", TIMER),
    ];
    Circuit::written("fasr_update", FOLDERS, Timing::Combinational, &inputs, &outputs)
}
