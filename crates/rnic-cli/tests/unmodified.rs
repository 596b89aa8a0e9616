//! Checks that the commands in docs/unmodified-programs.md, docs/ci.md and the README work when typed, with the real
//! libraries and Debian's programs.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{finish, root};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

/// Returns the console blocks of a page, each as one script. After a command that runs in the background (`&`), the
/// script waits a second for it to start.
fn blocks_of(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).expect("the page");
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        if line.starts_with("```") {
            blocks.extend(block.take());
            block = (line == "```console").then(String::new);
        } else if let (Some(block), Some(typed)) = (&mut block, line.strip_prefix("$ ")) {
            block.push_str(typed);
            block.push_str(if typed.ends_with('&') { "\nsleep 1\n" } else { "\n" });
        }
    }
    blocks
}

/// Returns the console blocks of docs/unmodified-programs.md and docs/ci.md, and those of the README that concern
/// unmodified programs.
fn blocks() -> Vec<String> {
    let mut blocks = blocks_of("docs/unmodified-programs.md");
    blocks.extend(blocks_of("docs/ci.md"));
    blocks.extend(blocks_of("README.md").into_iter().filter(|block| block.contains("rnic run")));
    blocks
}

/// Returns the folder of the libraries that `scripts/link-verbs` made for these tests; `None` when that script was
/// not run.
fn libraries() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_BIN_EXE_rnic")).parent()?.join("lib/rnic");
    folder.join("libibverbs.so.1").exists().then_some(folder)
}

/// Returns `true` if every program that the script runs on the device is installed.
fn has_programs(script: &str) -> bool {
    let programs = script.lines().filter_map(|line| line.split(" -- ").nth(1)?.split_whitespace().next());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    programs.into_iter().all(is_there)
}

fn type_in(script: &str, folder: &Path) -> common::CommandOutput {
    let program = Path::new(env!("CARGO_BIN_EXE_rnic")).parent().expect("it is in a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &format!("{script}wait\n")]).env("PATH", path).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    finish(shell.spawn().expect("there is a shell"))
}

#[test]
fn the_page_has_commands_for_every_announced_feature() {
    let all = blocks().concat();
    for shown in ["rnic doctor", "ib_write_bw 127.0.0.1", "--loss 1%", "--pcap", "rnic top", "ucx_info", "fi_info"] {
        assert!(all.contains(shown), "{shown}: {all}");
    }
}

#[test]
fn every_command_of_the_page_runs() {
    if libraries().is_none() {
        eprintln!("skipped: the libraries are not built (scripts/link-verbs debug)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the test");
    for script in blocks() {
        if !has_programs(&script) {
            eprintln!("skipped, programs are not installed: {script}");
            continue;
        }
        let output = type_in(&script, folder.path());
        assert!(output.status.success(), "{script}: {output:#?}");
        if script.contains("ucx_info") {
            assert!(output.out.contains("Device: rnic0:1"), "{output:#?}");
            assert!(output.out.contains("provider: verbs"), "{output:#?}");
        }
        if script.contains("--pcap") {
            for name in ["server.pcap", "client.pcap"] {
                let bytes = fs::read(folder.path().join(name)).expect("a capture").len();
                assert!(bytes > 1_000, "{name} has {bytes} bytes");
            }
        }
    }
}

/// Returns port `nth` of this test run. Its block of ports is not used by the kernel, which allocates ports from
/// 32768 on, nor by the device, whose ports are multiples of 16. Up to 398 test runs can be in progress at the same
/// time.
fn port(nth: u32) -> u32 {
    assert!(nth < 15, "the next one is a device's");
    20_000 + std::process::id() % 398 * 32 + 1 + nth
}

/// Runs both ends of `rping` for test number `nth` with these options, three rounds. A client that starts too early
/// tries again. A server that has served a client ends; one that has rejected its client goes on listening and is
/// killed. `None` when the libraries or `rping` are missing.
fn ping(nth: u32, server: &str, client: &str, folder: &Path) -> Option<common::CommandOutput> {
    let port = port(nth);
    let script = format!(
        "timeout 60 rnic run --quiet {server} -- rping -s -a 127.0.0.1 -p {port} -C 3 &\n\
         rnic run --quiet {client} -- rping -c -a 127.0.0.1 -p {port} -C 3 || {{ echo refused; kill $!; }}\n\
         wait $! || true\n"
    );
    if libraries().is_none() || !has_programs(&script) {
        eprintln!("skipped: the libraries are not built (scripts/link-verbs debug), or there is no rping");
        return None;
    }
    Some(type_in(&script, folder))
}

/// Checks that the captures are complete for programs that end soon and close none of their objects.
#[test]
fn captures_of_short_programs_are_complete() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for (nth, transport) in ["irn", "falcon"].into_iter().enumerate() {
        let options = |name: &str| format!("--transport {transport} --pcap {transport}-{name}-%p.pcap");
        let Some(output) = ping(nth as u32, &options("server"), &options("client"), folder.path()) else { return };
        assert!(!output.out.contains("refused"), "{output:#?}");
    }
    let files: Vec<_> = fs::read_dir(folder.path()).expect("the folder").map(|file| file.expect("a file")).collect();
    assert_eq!(files.len(), 4, "not one capture for each program");
    for file in files {
        let bytes = file.metadata().expect("its length").len();
        assert!(bytes > 500, "{:?} has {bytes} bytes", file.file_name());
    }
}

/// The recording of a program under loss has the counters of its NIC and its queue pairs.
#[test]
fn a_recording_has_what_a_program_sent_and_lost() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let port = port(11);
    let options = "--loss 1% --transport irn --quiet";
    let program = format!("ib_write_bw -p {port} -s 65536 -D 3");
    let script = format!(
        "timeout 60 rnic run {options} -- {program} &\nsleep 1\n\
         rnic run --record client.parquet --record-interval 50ms {options} --latencies on -- {program} 127.0.0.1\n"
    );
    if libraries().is_none() || !has_programs(&script) {
        eprintln!("skipped: the libraries are not built (scripts/link-verbs debug), or there is no ib_write_bw");
        return;
    }
    let output = type_in(&script, folder.path()).ok();
    let file = fs::File::open(folder.path().join("client.parquet")).expect("a recording");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let mut rows: BTreeMap<(String, String), Vec<(u64, f64)>> = BTreeMap::new();
    for row in reader.get_row_iter(None).expect("rows") {
        let row = row.expect("it is readable");
        let text = |column| row.get_string(column).expect("a text").clone();
        assert!(row.get_uint(3).is_ok() == (text(1) == "flow") && text(2).starts_with("ib_write_bw-"), "{row:?}");
        let value = (row.get_ulong(0).expect("a time"), row.get_double(5).expect("a value"));
        rows.entry((text(1), text(4))).or_default().push(value);
    }
    let of = |kind: &str, metric: &str| rows.get(&(kind.to_owned(), metric.to_owned())).expect("it is recorded");
    let sum = |kind: &str, metric: &str| of(kind, metric).iter().map(|(_, value)| value).sum::<f64>();
    for kind in ["host", "flow"] {
        let (sent, again) = (sum(kind, "sent"), sum(kind, "retransmitted"));
        // One packet in a hundred is lost in each direction.
        assert!(sent > 1_000.0 && again > sent / 200.0 && again < sent / 10.0, "{kind}: {again} of {sent}: {output:?}");
    }
    let lost = sum("host", "lost");
    let share = lost / (sum("host", "sent") + sum("host", "retransmitted"));
    assert!((0.005..0.02).contains(&share), "{lost} lost");
    let times: Vec<_> = of("host", "sent_gbps").iter().map(|(at, _)| *at).collect();
    assert!(times.len() > 20 && times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    assert!(of("flow", "round_trip_us").iter().any(|(_, us)| *us > 0.0));
}

/// Programs that only exchange queue pair numbers end with "retry exceeded" at best, so the libraries tell both ends
/// why their packets are lost.
#[test]
fn both_ends_report_differing_settings_that_lose_packets() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let port = port(10);
    let cases = [
        (
            "--transport falcon",
            "",
            "uses transport irn, but this end uses falcon",
            "uses transport falcon, but this end uses irn",
        ),
        ("", "--mtu 1024", "sends packets of 1024 bytes, but this end", "but this end sends packets of 1024"),
        (
            "--transport falcon",
            "--transport falcon --set flows=4",
            "flows=4, no key, but this",
            "flows=1, no key, but this",
        ),
    ];
    for (server, client, at_server, at_client) in cases {
        // A path MTU of 4096 is replaced with the MTU that the path carries. Whether the programs succeed does not
        // matter here, as long as they end soon.
        let script = format!(
            "timeout 60 rnic run {server} -- ibv_rc_pingpong -g 0 -p {port} -m 4096 -n 2000 &\nsleep 1\n\
             timeout 60 rnic run {client} -- ibv_rc_pingpong -g 0 -p {port} -m 4096 -n 2000 127.0.0.1 || true\n\
             wait $! || true\n"
        );
        if libraries().is_none() || !has_programs(&script) {
            eprintln!(
                "skipped: the libraries are not built (scripts/link-verbs debug), or there is no ibv_rc_pingpong"
            );
            return;
        }
        let output = type_in(&script, folder.path());
        for expected in [at_server, at_client] {
            let is_reported = |line: &str| line.starts_with("rnic: the other end at ") && line.contains(expected);
            assert_eq!(output.err.lines().filter(|line| is_reported(line)).count(), 1, "{expected}: {output:#?}");
        }
    }
}

/// Settings that both ends of Falcon must share are compared before a program hangs, and both ends report a
/// difference.
#[test]
fn differing_falcon_settings_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for (name, byte) in [("one", 1), ("other", 2)] {
        fs::write(folder.path().join(name), [byte; 32]).expect("a secret");
    }
    let cases = [
        ("--set ordering=weak", "", "uses falcon with ordering=ordered", "uses falcon with ordering=weak"),
        ("--key one", "--key other", "flows=1, key ", "flows=1, key "),
        ("", "--key one", "flows=1, key ", "no key"),
    ];
    for ((server, client, here, there), nth) in cases.into_iter().zip(2..) {
        let falcon_options = |options: &str| format!("--transport falcon {options}");
        let Some(output) = ping(nth, &falcon_options(server), &falcon_options(client), folder.path()) else { return };
        let has_error_line =
            |begin: &str, text: &str| output.err.lines().any(|line| line.contains(begin) && line.contains(text));
        assert!(output.out.contains("refused"), "{output:#?}");
        assert!(has_error_line("rnic: connection with 127.0.0.1", here), "at the server: {output:#?}");
        assert!(has_error_line("rnic: connection refused: the other end", there), "at the client: {output:#?}");
    }
}

#[test]
fn every_setting_is_in_the_table_or_is_explained_by_the_command() {
    let page = fs::read_to_string(root().join("docs/unmodified-programs.md")).expect("the page");
    let table = page.lines().filter(|line| line.starts_with("| `--"));
    let mut rows = 0;
    for row in table {
        for name in row.split('`').filter(|code| code.starts_with("RNIC_")) {
            assert!(rnic_host::VARIABLES.iter().any(|variable| variable.name == name), "{name}");
            rows += 1;
        }
    }
    assert!(rows >= 10, "{rows}");
}
