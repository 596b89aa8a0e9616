//! Helpers that run the `rnic` command and examine its output.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Time limit for every process that these tests start; enough even on a busy machine.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Exit status and output of a command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub out: String,
    /// Exit status.
    pub err: String,
}

/// Returns the command with `arguments`, to be run in the root of the source tree with captured output streams.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnic"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Root of the source tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the command until it ends.
pub fn rnic<S: AsRef<OsStr>>(arguments: &[S]) -> CommandOutput {
    finish(command(arguments).spawn().expect("the command starts"))
}

/// Waits until the child ends; kills it when it takes too long.
pub fn finish(mut child: Child) -> CommandOutput {
    let drain = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut stream) = stream {
                stream.read_to_string(&mut text).expect("what it says is text");
            }
            text
        })
    };
    let out = drain(child.stdout.take().map(|stream| Box::new(stream) as _));
    let err = drain(child.stderr.take().map(|stream| Box::new(stream) as _));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child's status can be read") {
            break status;
        }
        if start.elapsed() > COMMAND_TIMEOUT {
            // The processes that it has started hold its output open; they end with it if it leads a group.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
            let err = err.join().expect("no panic");
            panic!("it hangs; so far it has said: {err}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    CommandOutput { status, out: out.join().expect("no panic"), err: err.join().expect("no panic") }
}

impl CommandOutput {
    /// Asserts that the command succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.status.success(), "{self:#?}");
        self
    }

    /// Asserts that the command succeeded and that standard output is one JSON object, which is returned.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let output = self.ok();
        let value: serde_json::Value =
            serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:#?}"));
        assert!(value.is_object(), "{output:#?}");
        value
    }

    /// Asserts that the command ended with exit code `code`, with nothing on standard output and one line on standard
    /// error that contains every string of `expected_texts`.
    #[track_caller]
    pub fn assert_refused(self, code: i32, expected_texts: &[&str]) {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        assert_eq!(self.err.lines().count(), 1, "not one line: {self:#?}");
        assert!(self.err.starts_with("rnic: "), "{self:#?}");
        assert!(self.out.is_empty(), "{self:#?}");
        for text in expected_texts {
            assert!(self.err.contains(text), "does not say `{text}`: {self:#?}");
        }
    }
}

/// Returns the first line that a running command writes to `stream`, without waiting for more output.
pub fn first_line(stream: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while matches!(stream.read(&mut byte), Ok(1)) && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("what it says is text")
}
