//! Proof of the lists of blocks, and the size of FaSR's circuits beside go-back-N.

use std::collections::BTreeMap;
use std::path::Path;

use rnic_rtl::circuit::rtl_folder;
use rnic_rtl::tools::{are_installed, run, write};

fn read(file: &str) -> String {
    std::fs::read_to_string(rtl_folder().join(file)).expect("the file exists")
}

/// Runs the proof with this text of the pool; returns whether it succeeds.
fn is_proved(pool: &str, blocks: u32) -> bool {
    let folder = tempfile::tempdir().expect("a new folder");
    let at = folder.path();
    for (name, text) in [
        ("first_set.sv", read("lib/first_set.sv")),
        ("fasr_pkg.sv", read("fasr/fasr_pkg.sv")),
        ("fasr_pool2.sv", pool.to_owned()),
        ("fasr_lists.sv", read("formal/fasr_lists.sv")),
    ] {
        write(&at.join(name), &text).expect("the file can be written");
    }
    let script = format!(
        "read_verilog -sv -formal first_set.sv fasr_pkg.sv fasr_pool2.sv fasr_lists.sv; \
         chparam -set N {blocks} fasr_lists; prep -top fasr_lists -flatten; memory -nomap; memory_map; opt -full; \
         sat -tempinduct -prove-asserts -set-assumes -maxsteps 3"
    );
    let log = run(at, "yosys", &["-p".to_owned(), script]).expect("yosys runs");
    let is_proved = log.contains("Induction step proven: SUCCESS!");
    assert!(is_proved || log.contains("FAIL!") || log.contains("Reached maximum number"), "{log}");
    is_proved
}

/// free and listed blocks are all blocks, no block is in two lists, and heads lead to tails, for any sequence of
/// operations on two lists of a pool of four blocks: by induction, so without a bound on the time. A pool that links or
/// releases wrongly is not proved.
#[test]
fn r10_no_block_is_lost_or_in_two_lists() {
    if !are_installed(&["yosys"]) {
        return;
    }
    let pool = read("fasr/fasr_pool2.sv");
    assert!(is_proved(&pool, 4));
    for (right, wrong) in [
        ("nexts[tail_i] <= offer_o", "nexts[tail_i] <= tail_i"),
        ("taken_d[release_at_i] = 1'b0", "taken_d[offer_o] = 1'b0"),
        ("free_d = free_d - 1'b1", "free_d = free_d"),
    ] {
        assert!(pool.contains(right));
        assert!(!is_proved(&pool.replace(right, wrong), 4), "{wrong} is not noticed");
    }
}

/// Returns the number of cells of each type of the transport layer.
fn cells(folder: &Path, gbn: u32) -> BTreeMap<String, u64> {
    let files = |name: &str| {
        let entries = std::fs::read_dir(rtl_folder().join(name)).expect("the folder exists");
        let mut files: Vec<String> = entries.flatten().map(|entry| entry.path().display().to_string()).collect();
        files.sort_by_key(|file| (!file.ends_with("_pkg.sv"), file.clone()));
        files.join(" ")
    };
    let script = format!(
        "read_verilog -sv {} {}; chparam -set GBN {gbn} fasr_top; hierarchy -top fasr_top; \
         synth_xilinx -family xcup -abc9 -flatten -noiopad -noclkbuf -top fasr_top; tee -o cells{gbn} stat",
        files("fasr"),
        files("lib")
    );
    run(folder, "yosys", &["-q".to_owned(), "-p".to_owned(), script]).expect("yosys runs");
    let report = std::fs::read_to_string(folder.join(format!("cells{gbn}"))).expect("yosys writes the report");
    let cell = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    report.lines().filter_map(cell).collect()
}

/// FaSR adds to go-back-N with the same contexts at most 0.7 % of the paper's device of 1,728,000 LUTs:
/// less than 12,100 LUTs, 24,000 registers and 18 block RAMs.
#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn r17_r19_fasr_adds_little_to_go_back_n() {
    if !are_installed(&["yosys"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a new folder");
    let [fasr, gbn] = std::thread::scope(|scope| {
        let other = scope.spawn(|| cells(folder.path(), 1));
        [cells(folder.path(), 0), other.join().expect("yosys runs")]
    });
    let count = |cells: &BTreeMap<String, u64>, prefixes: &[(&str, u64)]| -> u64 {
        let weight = |name: &str| prefixes.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(0, |(_, w)| *w);
        cells.iter().map(|(name, number)| weight(name) * number).sum()
    };
    // A RAM of LUTs takes eight; half a block RAM is counted as one half.
    let luts = [("LUT", 1), ("RAM32M", 8), ("RAM64M", 8)];
    let all =
        [(&luts[..], 12_100, "LUT"), (&[("FD", 1)], 24_000, "FF"), (&[("RAMB36", 2), ("RAMB18", 1)], 36, "RAMB18")];
    for (prefixes, limit, name) in all {
        let [with, without] = [&fasr, &gbn].map(|cells| count(cells, prefixes));
        println!("{name}: {with} with FaSR, {without} with go-back-N");
        assert!(without > 0 && with >= without && with - without < limit, "{name}: {with} {without}");
    }
    assert!(count(&fasr, &[("DSP", 1)]) == 0);
}
