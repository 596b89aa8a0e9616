//! Measures an unmodified program under `rnic run`, for comparison.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Returns half of a round trip of 8-byte Sends by `ib_send_lat` over UDP, the median in microseconds; or the reason
/// why it cannot be measured.
pub fn ib_send_lat() -> Result<f64, String> {
    let rnic = rnic()?;
    let port = free_port()?.to_string();
    let start = |server: Option<&str>, processor: &str| {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", processor, "timeout", "60"]).arg(&rnic);
        command.args(["run", "--quiet", "--bypass", "off", "--"]);
        command.args(["ib_send_lat", "-F", "-s", "8", "-n", "20000", "-p", &port]).args(server);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let server = start(None, "1").map_err(|error| format!("taskset: {error}"))?;
    let mut server = Ended(server);
    // The server prints nothing when it starts to listen; a client that starts too early is refused, and is started
    // again.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(250));
        let client = start(Some("127.0.0.1"), "0").and_then(Child::wait_with_output);
        let client = client.map_err(|error| format!("ib_send_lat: {error}"))?;
        if let Some(median) = typical(&String::from_utf8_lossy(&client.stdout)) {
            return Ok(median);
        }
        if let Ok(Some(status)) = server.0.try_wait() {
            return Err(format!("ib_send_lat does not run here: {status}"));
        }
    }
    Err("ib_send_lat: no result".to_owned())
}

/// A child process that is killed when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path of the command next to this bench: `<target>/release/rnic`.
fn rnic() -> Result<PathBuf, String> {
    let executable = std::env::current_exe().map_err(|error| error.to_string())?;
    let path = executable.ancestors().nth(2).map(|folder| folder.join("rnic")).filter(|path| path.is_file());
    path.ok_or_else(|| "there is no rnic beside the benches: make build".to_owned())
}

fn free_port() -> Result<u16, String> {
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    socket.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Returns the value `t_typical` in the row for 8 bytes.
fn typical(output: &str) -> Option<f64> {
    let mut rows = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|row| row.first() == Some(&"8"))?.get(4)?.parse().ok()
}
