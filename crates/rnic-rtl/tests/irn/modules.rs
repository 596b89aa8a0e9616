//! IRN's modules as circuits, and their records: words of inputs, and words of outputs by the specification.

use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::spec::irn::{Acknowledgement, Effect, ReceiveContext, SendContext, WINDOW};

/// Folders of `rtl` with the modules.
pub const FOLDERS: [&str; 2] = ["irn", "lib"];

/// Width of an id, of a distance, and of a map.
const ID: u32 = 24;
const DISTANCE: u32 = 8;
const MAP: u32 = WINDOW;

/// Words of the inputs and outputs of one event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub inputs: Vec<u64>,
    pub outputs: Vec<u64>,
}

/// Splits a map into its two words.
pub const fn words(map: u128) -> [u64; 2] {
    [map as u64, (map >> 64) as u64]
}

/// Returns the flags as the circuit packs them.
pub fn flags(context: &SendContext) -> u64 {
    u64::from(context.recovering) | u64::from(context.extended) << 1 | u64::from(context.timed_out) << 2
}

fn combinational(module: &str, inputs: &[(&str, u32)], outputs: &[(&str, u32)]) -> Circuit {
    Circuit::written(module, &FOLDERS, Timing::Combinational, inputs, outputs)
}

pub fn receive_data() -> Circuit {
    let context = [("expected_i", ID), ("msn_i", ID), ("high_i", MAP), ("low_i", MAP)];
    let next = [("expected_o", ID), ("msn_o", ID), ("high_o", MAP), ("low_o", MAP)];
    let answer = [("answer_o", 2), ("selective_o", ID), ("completions_o", DISTANCE), ("place_o", 1)];
    let inputs = [&[("psn_i", ID), ("arrival_i", 2)], &context[..]].concat();
    combinational("irn_receive_data", &inputs, &[next, answer].concat())
}

/// Runs receiveData of the specification on `context`.
pub fn run_receive_data(context: &mut ReceiveContext, psn: u32, effect: Effect) -> Record {
    let words_of = |context: &ReceiveContext| {
        let [high, low] = [words(context.high), words(context.low)];
        [&[u64::from(context.expected), u64::from(context.msn)], &high[..], &low[..]].concat()
    };
    let inputs = [vec![psn.into(), effect as u64], words_of(context)].concat();
    let received = context.receive_data(psn, effect);
    let answer =
        [received.answer as u64, received.selective.into(), received.completions.into(), received.place.into()];
    Record { inputs, outputs: [words_of(context), answer.to_vec()].concat() }
}

pub fn tx_free() -> Circuit {
    let inputs = [
        ("allowed_i", 1),
        ("has_new_i", 1),
        ("cap_i", DISTANCE),
        ("una_i", ID),
        ("next_i", ID),
        ("again_i", DISTANCE),
        ("lost_i", DISTANCE),
        ("flags_i", 4),
        ("sacked_i", MAP),
    ];
    let outputs =
        [("next_o", ID), ("again_o", DISTANCE), ("send_o", 1), ("psn_o", ID), ("is_again_o", 1), ("timer_o", 2)];
    combinational("irn_tx_free", &inputs, &outputs)
}

/// Runs txFree of the specification on `context`, if it is allowed to send.
pub fn run_tx_free(context: &mut SendContext, allowed: bool, has_new: bool, cap: u32) -> Record {
    let event = [u64::from(allowed), u64::from(has_new), u64::from(cap)];
    let before = [context.una, context.next, context.again, context.lost].map(u64::from);
    let inputs = [&event[..], &before, &[flags(context)], &words(context.sacked)].concat();
    let sent = if allowed { context.tx_free(has_new, cap) } else { None };
    let packet = sent.map_or([0; 4], |sent| [1, sent.psn.into(), sent.is_again.into(), sent.timer as u64]);
    Record { inputs, outputs: [&[context.next.into(), context.again.into()], &packet[..]].concat() }
}

pub fn receive_ack() -> Circuit {
    let inputs = [
        ("is_nack_i", 1),
        ("cumulative_i", ID),
        ("has_selective_i", 1),
        ("selective_i", ID),
        ("una_i", ID),
        ("next_i", ID),
        ("again_i", DISTANCE),
        ("lost_i", DISTANCE),
        ("presumed_i", DISTANCE),
        ("recovery_i", ID),
        ("flags_i", 4),
        ("sacked_i", MAP),
    ];
    let outputs = [
        ("una_o", ID),
        ("again_o", DISTANCE),
        ("lost_o", DISTANCE),
        ("presumed_o", DISTANCE),
        ("recovery_o", ID),
        ("flags_o", 4),
        ("sacked_o", MAP),
        ("acknowledged_o", DISTANCE),
        ("is_new_selective_o", 1),
        ("timer_o", 2),
    ];
    combinational("irn_receive_ack", &inputs, &outputs)
}

/// Runs receiveAck of the specification on `context`.
pub fn run_receive_ack(context: &mut SendContext, ack: Acknowledgement) -> Record {
    let selective = ack.selective.unwrap_or(0);
    let event = [ack.is_nack.into(), ack.cumulative.into(), ack.selective.is_some().into(), u64::from(selective)];
    let inputs = [&event[..], &[context.una.into(), context.next.into()], &state(context)].concat();
    let done = context.receive_ack(ack);
    let answer = [done.packets.into(), done.is_new_selective.into(), done.timer as u64];
    Record { inputs, outputs: [&[context.una.into()], &state(context)[..], &answer].concat() }
}

/// Returns the words of the context after `next`.
fn state(context: &SendContext) -> Vec<u64> {
    let numbers = [context.again, context.lost, context.presumed, context.recovery].map(u64::from);
    [&numbers[..], &[flags(context)], &words(context.sacked)].concat()
}

pub fn timeout() -> Circuit {
    let inputs = [
        ("low_packets_i", DISTANCE),
        ("una_i", ID),
        ("next_i", ID),
        ("again_i", DISTANCE),
        ("lost_i", DISTANCE),
        ("presumed_i", DISTANCE),
        ("recovery_i", ID),
        ("flags_i", 4),
    ];
    let outputs = [
        ("again_o", DISTANCE),
        ("lost_o", DISTANCE),
        ("presumed_o", DISTANCE),
        ("recovery_o", ID),
        ("flags_o", 4),
        ("acts_o", 1),
        ("timer_o", 2),
    ];
    combinational("irn_timeout", &inputs, &outputs)
}

/// Runs timeout of the specification on `context`.
pub fn run_timeout(context: &mut SendContext, low_packets: u32) -> Record {
    let numbers = |context: &SendContext| {
        let numbers = [context.again, context.lost, context.presumed, context.recovery].map(u64::from);
        [&numbers[..], &[flags(context)]].concat()
    };
    let event = [u64::from(low_packets), context.una.into(), context.next.into()];
    let inputs = [&event[..], &numbers(context)].concat();
    let expired = context.timeout(low_packets);
    Record { inputs, outputs: [numbers(context), vec![expired.acts.into(), expired.timer as u64]].concat() }
}
