//! Runs the command and looks at what it says.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing that these tests start takes longer, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a finished command has said.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The command with `arguments`, its streams captured, in the root of the tree.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnic"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The root of the tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs to the end.
pub fn rnic<S: AsRef<OsStr>>(arguments: &[S]) -> Said {
    finish(command(arguments).spawn().expect("the command starts"))
}

/// Waits for the end, and kills what hangs.
pub fn finish(mut child: Child) -> Said {
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
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
            let err = err.join().expect("reading does not fail");
            panic!("it hangs; so far it has said: {err}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    Said { status, out: out.join().expect("reading"), err: err.join().expect("reading") }
}

impl Said {
    /// It ended well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.status.success(), "{self:#?}");
        self
    }

    /// It ended well, and standard output is one JSON object.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let said = self.ok();
        let value: serde_json::Value =
            serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:#?}"));
        assert!(value.is_object(), "{said:#?}");
        value
    }

    /// It ended with `code` and one line on standard error that has all of `says`; nothing on standard output.
    #[track_caller]
    pub fn refused(self, code: i32, says: &[&str]) {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        assert_eq!(self.err.lines().count(), 1, "one line: {self:#?}");
        assert!(self.err.starts_with("rnic: "), "{self:#?}");
        assert!(self.out.is_empty(), "{self:#?}");
        for part in says {
            assert!(self.err.contains(part), "does not say `{part}`: {self:#?}");
        }
    }
}

/// The first line that a running command says on `stream`, without waiting for more.
pub fn first_line(stream: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while matches!(stream.read(&mut byte), Ok(1)) && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("what it says is text")
}
