//! Two network namespaces with a virtual cable between them, in place of two machines; requires root.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The cable and the namespaces that it joins. Dropping it removes all of them.
#[derive(Debug)]
pub(crate) struct Cable {
    /// Namespace and device of each end.
    ends: [(String, String); 2],
}

impl Cable {
    /// Addresses of the two ends.
    pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

    /// Initial MTU, in bytes.
    pub(crate) const MTU: u32 = 1_500;

    /// Creates a cable.
    ///
    /// # Errors
    /// When the system refuses an operation; a description.
    pub(crate) fn create() -> Result<Self, String> {
        let name = format!("{}-{}", std::process::id(), CABLES_CREATED.fetch_add(1, Ordering::Relaxed));
        let cable = Self { ends: ["s", "c"].map(|end| (format!("rnic-{end}-{name}"), format!("r{end}{name}"))) };
        let [(near, near_device), (far, far_device)] = &cable.ends;
        ip(&format!("netns add {near}"))?;
        ip(&format!("netns add {far}"))?;
        ip(&format!("link add {near_device} netns {near} type veth peer name {far_device} netns {far}"))?;
        for ((namespace, device), address) in cable.ends.iter().zip(Self::ADDRESSES) {
            ip(&format!("-n {namespace} address add {address}/24 dev {device}"))?;
            ip(&format!("-n {namespace} link set {device} mtu {} up", Self::MTU))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        Ok(cable)
    }

    /// Returns the beginning of a command line that runs at this end.
    pub(crate) fn inside(&self, end: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.ends[end].0]);
        command
    }

    /// Takes the device of one end down: packets of that end have no route, those of the other end are lost.
    pub(crate) fn take_down(&self, end: usize) -> Result<(), String> {
        self.set(end, "down")
    }

    /// Brings the device up again.
    pub(crate) fn bring_up(&self, end: usize) -> Result<(), String> {
        self.set(end, "up")
    }

    /// Sets the MTU of both ends to `bytes`.
    pub(crate) fn set_mtu(&self, bytes: u32) -> Result<(), String> {
        (0..2).try_for_each(|end| self.set(end, &format!("mtu {bytes}")))
    }

    fn set(&self, end: usize, setting: &str) -> Result<(), String> {
        let (namespace, device) = &self.ends[end];
        ip(&format!("-n {namespace} link set {device} {setting}"))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for (namespace, _) in &self.ends {
            // An error has no effect on the next cable, which has another name.
            let _ = ip(&format!("netns delete {namespace}"));
        }
    }
}

fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split_whitespace()).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`ip {line}` (it takes root): {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Number of cables of this process so far. Used in the names because device names are short, and process ids have up
/// to seven digits.
static CABLES_CREATED: AtomicU32 = AtomicU32::new(0);
