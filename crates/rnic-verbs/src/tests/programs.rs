//! Transport programs that are loaded while a device is open (Tonic section 3.5).

use std::borrow::Cow;

use rnic_engine::QpSnapshot;
use rnic_host::observe::{ControlReply, ControlRequest, ProgramRequest};
use rnic_host::{Offers, Settings};
use rnic_transports::programs;

use super::bench::{Bench, Options, Side};
use crate::abi::IBV_WC_SUCCESS;
use crate::context::Context;
use crate::watch::carry_out;

/// Makes the device of `side` offer `transports`, as if it had been opened so.
fn offer(side: &Side, transports: &str) {
    let settings = Settings::from_variables([("RNIC_TRANSPORT", transports)]).expect("legal settings");
    let offers = Offers::of(&settings).expect("transports");
    // SAFETY: an open device.
    unsafe { Context::of(side.context) }.shared.control(|core| core.offers = offers);
}

/// Sends a request for the device of `side`, as `rnic program load` does.
fn load(side: &Side, program: Option<String>) -> ControlReply {
    let program_file = program.map(String::into_bytes);
    // SAFETY: an open device.
    carry_out(unsafe { &Context::of(side.context).shared }, ControlRequest::Program(ProgramRequest { program_file }))
}

/// Returns transport and loaded program of the queue pair with this number.
fn program_of(side: &Side, number: u32) -> (&'static str, Option<String>) {
    let is_it = |pair: &(QpSnapshot, _)| pair.0.info.number.get() == number;
    // SAFETY: an open device.
    let found = unsafe { Context::of(side.context) }.shared.inspect(|core| core.nic.queue_pairs().find(is_it));
    let (pair, _) = found.expect("the queue pair exists");
    (pair.transport, pair.program.map(Cow::into_owned))
}

/// Creates a queue pair, which does nothing, and returns its transport and loaded program.
fn program_of_new(side: &Side) -> (&'static str, Option<String>) {
    let qp = side.another_qp().expect("fewer than the limit exist");
    // SAFETY: a valid queue pair, which is destroyed once.
    unsafe {
        let found = program_of(side, (*qp).qp_num);
        assert_eq!(crate::qp::ibv_destroy_qp(qp), 0);
        found
    }
}

fn file_of(name: &str) -> Option<String> {
    Some(programs::to_file(programs::find(name).expect("registered")).expect("it has graphs"))
}

#[test]
fn t28_new_queue_pairs_take_a_loaded_program_and_others_keep_theirs() {
    let bench = Bench::new(&Options::default());
    offer(&bench.a, "tonic-sack,roce-gbn");
    let loaded = |program: Option<&str>| ControlReply::Loaded {
        program: program.map(str::to_owned),
        transports: vec!["tonic-sack".to_owned()],
    };
    assert_eq!(load(&bench.a, file_of("reno")), loaded(Some("reno")));
    let first = program_of_new(&bench.a);
    assert_eq!(load(&bench.a, file_of("new-reno")), loaded(Some("new-reno")));
    let second = program_of_new(&bench.a);
    assert_eq!(load(&bench.a, None), loaded(None));
    let third = program_of_new(&bench.a);
    let found = [program_of(&bench.a, bench.a.qpn()), first, second, third];
    let of_sack = |program: Option<&str>| ("tonic-sack", program.map(str::to_owned));
    assert_eq!(found, [("irn", None), of_sack(Some("reno")), of_sack(Some("new-reno")), of_sack(None)]);
    // The connection that existed before is not disturbed.
    assert_eq!(bench.a.post(&mut bench.write(7, 5)), Ok(()));
    assert_eq!(bench.a.wait().status, IBV_WC_SUCCESS);
}

#[test]
fn t28_a_file_that_is_no_program_changes_nothing() {
    let bench = Bench::new(&Options::default());
    offer(&bench.a, "tonic-sack");
    let text = file_of("reno").expect("a file");
    let other_version = text.replacen("version = 2", "version = 9", 1);
    assert_ne!(text, other_version);
    let cut = text[..text.len() / 2].to_owned();
    for (file, expected) in [(other_version, "version"), (cut, ""), (String::new(), ""), ("\0".to_owned(), "")] {
        let reply = load(&bench.a, Some(file));
        let ControlReply::Refused(reason) = reply else { panic!("{reply:?}") };
        assert!(reason.contains(expected) && reason.lines().count() == 1, "{reason}");
    }
    // Rate programs for receivers that drop packets do not run over this transport.
    let reply = load(&bench.a, file_of("dcqcn"));
    assert!(matches!(&reply, ControlReply::Refused(reason) if reason.contains("tonic-dcqcn")), "{reply:?}");
    assert_eq!(program_of_new(&bench.a), ("tonic-sack", None));
}
