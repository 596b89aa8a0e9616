//! Programs of the distribution, unmodified, between two processes.
//!
//! They are small and quick. What is not installed is skipped with a reason, or fails with `RNIC_REQUIRE_APPS=1`.

mod common;

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Returns a free TCP port, over which programs exchange their addresses.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port().to_string()
}

/// Runs `line` as server and as client; both must succeed. Returns the client's output.
fn pair(line: &str) -> Option<Output> {
    let words: Vec<&str> = line.split(' ').collect();
    if !common::is_installed(words[0]) {
        return None;
    }
    for _ in 0..ATTEMPTS {
        let (client, server) = once(&words);
        let both = client.status.success() && server.status.success();
        // On a busy machine, perftest may find the clock that it calibrates too uneven and exit. This is not an error
        // of the library.
        if !both
            && [&client, &server].into_iter().any(|end| common::output_text(end).contains("Correlation coefficient"))
        {
            continue;
        }
        assert!(both, "{line}\nclient: {}\nserver: {}", common::output_text(&client), common::output_text(&server));
        return Some(client);
    }
    panic!("{line}: the machine is too busy for perftest to read its clock, {ATTEMPTS} times");
}

/// Number of attempts to run a pair of programs if perftest cannot calibrate its clock.
const ATTEMPTS: usize = 5;

/// Runs `words` as server and as client; returns the output of both.
fn once(words: &[&str]) -> (Output, Output) {
    let port = free_port();
    let server_line: Vec<&str> = words.iter().copied().chain(["-p", &port]).collect();
    let client_line: Vec<&str> = server_line.iter().copied().chain(["127.0.0.1"]).collect();
    let mut server = common::command(&server_line, SECONDS);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout(1) starts");
    // A client that starts too early exits immediately; it is then started again.
    for _ in 0..50 {
        let client = common::command(&client_line, SECONDS).output().expect("timeout(1) starts");
        let too_early = String::from_utf8_lossy(&client.stderr).contains("Couldn't connect");
        if client.status.success() || !too_early {
            return (client, server.wait_with_output().expect("the server ends"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = server.kill();
    let _ = server.wait();
    panic!("{}: no server", words.join(" "));
}

/// Runs every line as a pair of programs.
fn pairs(lines: &[&str]) {
    for line in lines {
        pair(line);
    }
}

#[test]
fn the_device_is_listed_and_described() {
    for (line, expected) in [("ibv_devices", "rnic0"), ("ibv_devinfo -v", "GID[")] {
        let words: Vec<&str> = line.split(' ').collect();
        if !common::is_installed(words[0]) {
            continue;
        }
        let output = common::command(&words, SECONDS).output().expect("timeout(1) starts");
        let said = common::output_text(&output);
        assert!(output.status.success() && said.contains(expected), "{line}: {said}");
    }
}

/// The list of devices must come from the program's allocator, not the library's own: qperf releases it with `free`.
#[test]
fn the_list_of_devices_may_be_released_with_free() {
    const PROGRAM: &str = r"
        #include <malloc.h>
        #include <stdlib.h>
        struct ibv_device;
        struct ibv_device **ibv_get_device_list(int *);
        int main(void) {
            for (int i = 0; i < 1000; i++) {
                int count = 0;
                struct ibv_device **list = ibv_get_device_list(&count);
                if (!list || count != 1 || !list[0] || list[1]) return 2;
                /* A stranger's memory has no size that makes sense to this allocator. */
                size_t bytes = malloc_usable_size(list);
                if (bytes < 2 * sizeof *list || bytes > 64) return 3;
                free(list);
            }
            return 0;
        }";
    let dir = tempfile::tempdir().expect("a folder");
    let (source, program) = (dir.path().join("list.c"), dir.path().join("list"));
    std::fs::write(&source, PROGRAM).expect("a file");
    // `cc` is available: the library itself is linked with it.
    let mut cc = Command::new("cc");
    cc.arg(&source).arg("-o").arg(&program).arg(common::libraries().join("libibverbs.so.1"));
    let output = cc.output().expect("cc starts");
    assert!(output.status.success(), "{}", common::output_text(&output));
    let program = program.to_str().expect("the path is UTF-8");
    let output = common::command(&[program], SECONDS).output().expect("timeout(1) starts");
    assert!(output.status.success(), "{}", common::output_text(&output));
}

#[test]
fn the_device_description_is_printed_once() {
    if let Some(client) = pair("ibv_rc_pingpong -d rnic0 -g 0 -n 10") {
        let said = String::from_utf8_lossy(&client.stderr).into_owned();
        assert_eq!(said.matches("rnic: software device rnic0 (not hardware)").count(), 1, "{said}");
    }
}

/// The program itself says only that it cannot modify its queue pair.
#[test]
fn a_peer_without_a_gid_is_explained_once_unless_quiet() {
    if !common::is_installed("ibv_rc_pingpong") {
        return;
    }
    for quiet in ["off", "on"] {
        let port = free_port();
        let line = ["ibv_rc_pingpong", "-d", "rnic0", "-n", "10", "-p", &port];
        let end = |more: &[&str]| {
            let mut end = common::command(&[&line[..], more].concat(), SECONDS);
            end.env("RNIC_QUIET", quiet).stdout(Stdio::piped()).stderr(Stdio::piped());
            end
        };
        let server = end(&[]).spawn().expect("timeout(1) starts");
        let client = loop {
            let client = end(&["127.0.0.1"]).output().expect("timeout(1) starts");
            if !String::from_utf8_lossy(&client.stderr).contains("Couldn't connect") {
                break client;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        let server = server.wait_with_output().expect("a child");
        assert!(!client.status.success(), "{}", common::output_text(&client));
        // The server has the client's address first, and closes the connection when it cannot use it.
        let said = common::output_text(&server);
        let lines = said.matches("rnic: the program names its peer without a GID").count();
        assert_eq!(lines, usize::from(quiet == "off"), "{said}");
        assert_eq!(said.contains("ibv_rc_pingpong and the like: -g 0"), lines == 1, "{said}");
    }
}

/// A capture file limited to 64 units of 512 bytes, as if the disk were full.
#[test]
fn an_early_end_of_a_capture_is_reported_once_unless_quiet() {
    let program = "ib_write_bw -d rnic0 -n 200 -q 2";
    if !common::is_installed("ib_write_bw") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("a.pcap");
    for quiet in ["off", "on"] {
        let limited = format!("trap '' XFSZ; ulimit -f 64; exec {program} \"$@\"");
        let port = free_port();
        let mut server = common::command(&["ib_write_bw", "-d", "rnic0", "-n", "200", "-q", "2", "-p", &port], SECONDS);
        let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout(1) starts");
        let line = ["sh", "-c", &limited, "sh", "-p", &port, "127.0.0.1"];
        let client = loop {
            let mut client = common::command(&line, SECONDS);
            client.env("RNIC_PCAP", &capture).env("RNIC_QUIET", quiet);
            let client = client.output().expect("timeout(1) starts");
            if !String::from_utf8_lossy(&client.stderr).contains("Couldn't connect") {
                break client;
            }
            assert!(server.try_wait().expect("a child").is_none(), "{}", common::output_text(&client));
            std::thread::sleep(Duration::from_millis(100));
        };
        let _ = server.wait();
        let said = String::from_utf8_lossy(&client.stderr).into_owned();
        let told = said
            .matches(
                "rnic: the packet capture stopped early and is incomplete: cannot write the capture: File too large",
            )
            .count();
        assert!(
            client.status.success(),
            "the program failed after the end of the capture: {}",
            common::output_text(&client)
        );
        assert_eq!(told, usize::from(quiet == "off"), "{}", common::output_text(&client));
    }
}

#[test]
fn pingpongs_check_their_data() {
    pairs(&[
        "ibv_rc_pingpong -d rnic0 -g 0 -c",
        "ibv_rc_pingpong -d rnic0 -g 0 -c -e",
        "ibv_rc_pingpong -d rnic0 -g 0 -c -N",
        "ibv_rc_pingpong -d rnic0 -g 0 -c -s 100000 -m 1024",
        "ibv_rc_pingpong -d rnic0 -g 0 -c -t",
        "ibv_uc_pingpong -d rnic0 -g 0 -c",
        "ibv_ud_pingpong -d rnic0 -g 0 -c",
        "ibv_srq_pingpong -d rnic0 -g 0 -c -q 8",
    ]);
}

#[test]
fn bandwidth_programs_complete() {
    pairs(&[
        "ib_write_bw -d rnic0 -n 500",
        "ib_write_bw -d rnic0 -n 200 -b",
        "ib_write_bw -d rnic0 -n 200 -q 8",
        "ib_write_bw -d rnic0 -n 100 -a",
        "ib_write_bw -d rnic0 -n 500 -c UC",
        "ib_read_bw -d rnic0 -n 500",
        "ib_read_bw -d rnic0 -n 200 -b -q 8",
        "ib_send_bw -d rnic0 -n 500",
        "ib_send_bw -d rnic0 -n 500 -e",
        "ib_send_bw -d rnic0 -n 200 -b -q 8",
        "ib_send_bw -d rnic0 -n 500 --use-srq",
        "ib_atomic_bw -d rnic0 -n 500",
        "ib_atomic_bw -d rnic0 -n 500 -A CMP_AND_SWAP",
    ]);
}

#[test]
fn latency_programs_complete() {
    pairs(&[
        "ib_write_lat -d rnic0 -n 200",
        "ib_read_lat -d rnic0 -n 200",
        "ib_send_lat -d rnic0 -n 200",
        "ib_send_lat -d rnic0 -n 200 -e",
        "ib_send_lat -d rnic0 -n 200 -c UD",
        "ib_send_lat -d rnic0 -n 200 -c UC",
        "ib_atomic_lat -d rnic0 -n 200",
    ]);
}

/// Time limit for a program, in seconds.
const SECONDS: u32 = 60;
