//! The tenants of the demonstration: processes that share a link with each other, and with no other process.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use rnic_base::{BitRate, Duration};

use crate::failure::Failure;

/// A tenant: `rnic perf`, which starts its other end itself. Both processes end when this value is dropped, or this
/// process ends.
#[derive(Debug)]
pub(super) struct Tenant(Child);

impl Tenant {
    /// Starts a measurement of the operations that `options` describe, for `span`, under a scheduler.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub(super) fn start(
        link_rate: BitRate,
        scheduler: &str,
        span: Duration,
        options: &[&str],
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::input(format!("cannot start a tenant: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args([
            "perf",
            "--json",
            "--attached",
            "--events",
            "--link-group",
            &format!("demo-{}", std::process::id()),
        ]);
        command.args(["--duration", &exact_time(span), "--set", &format!("schedule={scheduler}")]).args(options);
        // The settings of the user's programs are not those of this measurement.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"RNIC_")) {
            command.env_remove(name);
        }
        command.env("RNIC_LINK_RATE", exact_rate(link_rate));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map(Self).map_err(failed)
    }

    /// Waits for the end of the measurement, and returns the figures.
    ///
    /// # Errors
    /// When the process has failed.
    pub(super) fn end(mut self) -> Result<Figures, Failure> {
        let lost = |error: std::io::Error| Failure::input(format!("a tenant is lost: {error}"));
        // The process ends when its standard input is closed, so that remains open.
        let _input = self.0.stdin.take();
        let (mut figures, mut complaint) = (Vec::new(), String::new());
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_end(&mut figures).map_err(lost)?;
        }
        if let Some(mut errors) = self.0.stderr.take() {
            errors.read_to_string(&mut complaint).map_err(lost)?;
        }
        if !self.0.wait().map_err(lost)?.success() {
            return Err(Failure::input(format!("a tenant has failed: {}", complaint.trim())));
        }
        serde_json::from_slice(&figures).map(Figures).map_err(Failure::input)
    }
}

impl Drop for Tenant {
    /// Ends the process, unless it has ended. Its other end notices.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The JSON object that `rnic perf` has printed.
#[derive(Debug)]
pub(super) struct Figures(serde_json::Value);

impl Figures {
    /// Returns the number at `path`.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn number(&self, path: &[&str]) -> Result<f64, Failure> {
        let found = path.iter().try_fold(&self.0, |value, key| value.get(key)).and_then(serde_json::Value::as_f64);
        found.ok_or_else(|| Failure::input(format!("a tenant has not reported {}", path.join("."))))
    }
}

/// Returns a rate as an argument, without rounding.
pub(super) fn exact_rate(rate: BitRate) -> String {
    exact(rate.as_bps(), &[("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("kbps", 1_000)], "bps")
}

/// Returns a time as an argument, without rounding.
pub(super) fn exact_time(time: Duration) -> String {
    exact(time.as_ps(), &[("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000)], "ps")
}

fn exact(value: u64, units: &[(&str, u64)], smallest: &str) -> String {
    let whole = units.iter().find(|(_, scale)| value.is_multiple_of(*scale));
    whole.map_or_else(|| format!("{value}{smallest}"), |(unit, scale)| format!("{}{unit}", value / scale))
}
