//! The simulator and sockets run the same engine: from calls that one has recorded, the other decides in the same way.
//! Beside that, the times of one scenario on both.
//!
//! `cargo test -p rnic-conformance --test both -- --nocapture --test-threads=1 --include-ignored` prints the counts and
//! the tables of `docs/simulated-and-real.md`.

use rnic_conformance::both::figures::{Figures, SideBySide, distance};
use rnic_conformance::both::recording::{Received, What};
use rnic_conformance::both::replay::{Compared, replay};
use rnic_conformance::both::scenario::{Case, Run};

/// Go-back-N; IRN's recovery with a window, and with DCQCN on a link that marks; RACK-TLP with Swift and PLB over four
/// paths.
const CASES: [Case; 4] = [
    Case { transport: "roce-gbn", options: &[], marks: false, seed: 1 },
    Case { transport: "irn", options: &[("control", "aimd")], marks: false, seed: 1 },
    Case { transport: "irn", options: &[("control", "dcqcn")], marks: true, seed: 1 },
    Case { transport: "falcon", options: &[("flows", "4")], marks: false, seed: 1 },
];

/// Asserts that the recording contains what the scenario is for, so that equal decisions mean something. The bounds
/// hold on a machine that hardly runs the process, where timers are few: 80 messages are 1280 packets.
fn check_content(case: &Case, host: usize, compared: &Compared) {
    let Compared { calls, sent, repeated, turns, disordered, states, timers, .. } = *compared;
    let what = format!("{} host {host}: {compared:?}", case.transport);
    assert!(calls > 1_280 && sent > 20 && states > 100, "{what}");
    assert!(compared.congested > 2 || !case.marks, "{what}");
    if host == 0 {
        assert!(sent > 1_280 && repeated > 2 && turns > 10 && timers > 10, "{what}");
    } else {
        assert!(disordered > 2, "{what}");
    }
    println!("{what}");
}

fn replay_all(case: &Case, run: &Run, place: impl Fn(usize, &Run) -> Compared) {
    for host in 0..2 {
        check_content(case, host, &place(host, run));
    }
}

#[test]
fn what_sockets_have_recorded_the_engines_of_the_fabric_decide_in_the_same_way() {
    for case in CASES {
        let run = case.on_sockets();
        replay_all(&case, &run, |host, run| {
            let replayed =
                case.with_fabric_engine(|engine| replay(&run.recordings[host], &run.objects[host], engine, true));
            replayed.unwrap_or_else(|difference| panic!("{} host {host}: {difference}", case.transport))
        });
    }
}

#[test]
fn what_the_fabric_has_recorded_the_engines_of_sockets_decide_in_the_same_way() {
    for case in CASES {
        let run = case.on_fabric(None);
        replay_all(&case, &run, |host, run| {
            let replayed =
                case.with_socket_engine(|engine| replay(&run.recordings[host], &run.objects[host], engine, true));
            replayed.unwrap_or_else(|difference| panic!("{} host {host}: {difference}", case.transport))
        });
    }
}

/// The comparison finds a missing packet, a later timer, and the one setting in which the drivers differ on purpose.
#[test]
fn a_difference_is_found() {
    let case = CASES[1];
    let run = case.on_fabric(None);
    let objects = &run.objects[0];
    let replays =
        |recording, as_recorded| case.with_socket_engine(|engine| replay(recording, objects, engine, as_recorded));
    assert!(replays(&run.recordings[0], true).is_ok());
    assert!(replays(&run.recordings[0], false).is_err(), "bursts of limited queue pairs are longer on sockets");

    let of_peer = |what: &What| matches!(what, What::Receive(received, _) if matches!(**received, Received::Roce(..)));
    let place =
        run.recordings[0].calls.iter().rposition(|call| of_peer(&call.what)).expect("acknowledgements have arrived");
    let mut without = run.recordings[0].clone();
    without.calls.remove(place / 2 + without.calls[place / 2..].iter().position(|call| of_peer(&call.what)).unwrap());
    assert!(replays(&without, true).is_err(), "a packet is missing");

    let place = run.recordings[0].calls.iter().position(|call| call.what == What::Tick).expect("timers have expired");
    let mut later = run.recordings[0].clone();
    later.calls.remove(place);
    assert!(replays(&later, true).is_err(), "a timer was not processed");
}

/// Runs the scenario by itself on both, and prints the times. Asserts only that all messages complete and that losses
/// are repeated, which must hold whatever the machine does.
fn side_by_side(runs: u64) {
    for case in CASES {
        let (mut simulated, mut real) = (Figures::default(), Figures::default());
        for seed in 1..=runs {
            let case = Case { seed, ..case };
            let run = case.on_sockets();
            real.add(&run);
            simulated.add(&case.on_fabric(Some(run.recordings[0].burst)));
        }
        for figures in [&simulated, &real] {
            assert!(figures.repeated_percent.iter().all(|share| *share > 0.2), "1 % of all packets are lost");
        }
        println!("{}\n{}", case.transport, SideBySide { simulated: &simulated, real: &real });
    }
}

#[test]
fn the_same_scenario_side_by_side() {
    side_by_side(1);
}

#[test]
#[ignore = "half a minute, for the figures of docs/simulated-and-real.md"]
fn the_same_scenario_side_by_side_ten_times() {
    side_by_side(10);
}

#[test]
fn the_distance_of_distributions_is_the_largest_vertical_one() {
    assert_eq!(distance(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0]), 0.0);
    assert_eq!(distance(&[1.0, 2.0], &[3.0, 4.0]), 1.0);
    assert_eq!(distance(&[1.0, 2.0, 3.0, 4.0], &[3.0, 4.0, 5.0, 6.0]), 0.5);
}
