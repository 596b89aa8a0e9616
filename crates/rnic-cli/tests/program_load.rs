//! Checks `rnic program load`: programs for a running process, here this test process.

mod common;

use std::io::Write as _;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fs, process, thread};

use common::{command, finish, rnic};
use rnic_host::observe::{self, ControlReply, ControlRequest, Observer, QueuePairSnapshot, Snapshot};
use rnic_host::{Offers, Settings};

/// Serves requests of this process as a device with three queue pairs does that offers `transports`.
fn device(transports: &str) -> (Arc<Mutex<Offers>>, Observer) {
    let settings = Settings::from_variables([("RNIC_TRANSPORT", transports)]).expect("legal settings");
    let offers = Arc::new(Mutex::new(Offers::of(&settings).expect("transports")));
    let changed = Arc::clone(&offers);
    let answer = move |request| {
        let ControlRequest::Program(request) = request else {
            return Some(ControlReply::Refused("no such request".to_owned()));
        };
        let changed = &mut changed.lock().expect("no panic");
        Some(request.program().map_or_else(|refused| refused, |program| observe::apply_program(program, changed)))
    };
    let snapshot = || Snapshot { queue_pairs: vec![QueuePairSnapshot::default(); 3], ..Snapshot::default() };
    let observer = observe::serve_with_control(move || Some(snapshot()), answer).expect("a socket and a thread");
    (offers, observer)
}

fn loaded(offers: &Mutex<Offers>) -> Option<String> {
    offers.lock().expect("no panic").preferred().profile().loaded_programs().map(std::borrow::Cow::into_owned)
}

/// Builds the file of a program, by the command.
fn build(folder: &Path, name: &str) -> String {
    let path = folder.join(format!("{name}.rnicp"));
    let path = path.to_str().expect("a path of letters").to_owned();
    rnic(&["program", "build", name, "--output", &path]).ok();
    path
}

/// One test, because the devices of all tests of this file belong to the same process.
#[test]
fn t28_a_program_is_loaded_into_a_running_process_or_refused_in_one_line() {
    let (offers, observer) = device("tonic-new-reno,irn");
    let folder = tempfile::tempdir().expect("a folder");
    let pid = process::id().to_string();
    let [reno, sack, dcqcn] = ["reno", "sack", "dcqcn"].map(|name| build(folder.path(), name));
    let report = rnic(&["program", "load", &pid, &reno, "--json"]).json();
    assert_eq!((&report["program"], &report["transports"][0]), (&"reno".into(), &"tonic-new-reno".into()), "{report}");
    assert_eq!((loaded(&offers).as_deref(), &report["queue_pairs_kept"]), (Some("reno"), &3.into()));
    let output = rnic(&["program", "load", &pid, &reno]).ok();
    assert!(output.out.contains("; the 3 existing ones keep their programs"), "{output:#?}");

    // A refused file changes nothing.
    let text = fs::read_to_string(&reno).expect("it was written");
    let file = |name: &str, text: &str| -> String {
        let path: PathBuf = folder.path().join(name);
        fs::write(&path, text).expect("it is written");
        path.to_str().expect("a path of letters").to_owned()
    };
    let other_version = file("version.rnicp", &text.replacen("version = 2", "version = 9", 1));
    let half = file("half.rnicp", &text[..text.len() / 2]);
    let refusals = [
        (&pid, &other_version, "version"),
        (&pid, &half, "half.rnicp"),
        (&pid, &"absent.rnicp".to_owned(), "absent.rnicp"),
        (&pid, &dcqcn, "--transport tonic-dcqcn"),
        (&"4294967295".to_owned(), &reno, "rnic top"),
    ];
    for (pid, file, expected) in refusals {
        rnic(&["program", "load", pid, file]).assert_refused(2, &[expected]);
    }
    assert_eq!(loaded(&offers).as_deref(), Some("reno"));

    // A loader that is killed while it writes.
    let name = observer.name().replace("rnic-top-", "rnic-ctl-");
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let mut killed = UnixStream::connect_addr(&address).expect("it listens");
    killed.write_all(b"{\"program_file\":[91,102").expect("it is sent");
    drop(killed);
    // Two at once: each is answered, and one of them is the last.
    let both = [&reno, &sack].map(|file| {
        let child = command(&["program", "load", &pid, file]).spawn().expect("the command starts");
        thread::spawn(|| finish(child).ok())
    });
    let _ = both.map(|loader| loader.join().expect("both are carried out"));
    let last = loaded(&offers);
    assert!([Some("reno"), Some("sack")].contains(&last.as_deref()));

    // A law takes the place of another part, and stands beside the program.
    let law = build(folder.path(), "law-water-filling");
    let report = rnic(&["program", "load", &pid, &law, "--json"]).json();
    let transports = report["transports"].as_array().map(Vec::len);
    assert_eq!((&report["program"], transports), (&"water-filling".into(), Some(2)), "{report}");
    assert_eq!(loaded(&offers), last.map(|program| format!("{program}, water-filling")));

    // A description is for a module, and not ignored elsewhere.
    for program in ["reno", folder.path().to_str().expect("a path of letters")] {
        let arguments = ["program", "build", program, "--description", &reno, "--output", &reno];
        rnic(&arguments).assert_refused(2, &["--description"]);
    }

    let output = rnic(&["program", "load", &pid, "none"]).ok();
    assert!(output.out.contains("as at the start"), "{output:#?}");
    assert_eq!(loaded(&offers), None);
}

/// `check` refuses the programs that a simulation or a device would refuse, with the action at fault.
#[test]
fn a_file_is_checked_with_the_contract_kit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("impatient.rnicp");
    let wrong = fs::read_to_string(common::root().join("crates/rnic-engine/tests/common/wrong.rnicp")).expect("a file");
    // Its window is closed at once, and not after more events than the kit has.
    fs::write(&path, wrong.replace("= 20000\n", "= 0\n")).expect("it is written");
    let path = path.to_str().expect("a path of letters");
    rnic(&["program", "check", path]).assert_refused(2, &["impatient.rnicp", "contract", "a.window is 0"]);
    let reno = build(folder.path(), "reno");
    assert!(rnic(&["program", "check", &reno]).ok().out.contains("contract kit"));
    for name in ["reno", "tonic-reno", "law-aimd"] {
        rnic(&["program", "check", name]).assert_refused(2, &[&format!("rnic program build {name} --output FILE")]);
    }
    rnic(&["program", "load", "ib_write_bw", &reno]).assert_refused(2, &["`rnic top`"]);
}

#[test]
fn a_circuit_has_a_head_and_the_modules_that_it_instantiates() {
    let reno = rnic(&["program", "emit", "tonic-reno"]).ok().out;
    assert!(reno.starts_with("// The transport program `reno`: ") && reno.contains("\nmodule reno_periodic"), "{reno}");
    assert!(!reno.contains("program_map_"), "a module that is not instantiated: {reno}");
    let sack = rnic(&["program", "emit", "sack"]).ok().out;
    assert!(sack.contains("\nmodule program_map_first"), "{sack}");
    assert!(rnic(&["program", "emit", "law-aimd"]).ok().out.starts_with("// The law `aimd` for control: "));
}
