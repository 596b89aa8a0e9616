//! Two network namespaces with a cable between them, as two machines: it takes root.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The cable, and what it joins. Dropped, nothing of it is left.
#[derive(Debug)]
pub(crate) struct Cable {
    /// Namespace and device of each end.
    ends: [(String, String); 2],
}

impl Cable {
    /// The addresses of its ends.
    pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

    /// The MTU that it has at first.
    pub(crate) const MTU: u32 = 1_500;

    /// Lays one.
    ///
    /// # Errors
    /// When the system does not let us, in words.
    pub(crate) fn lay() -> Result<Self, String> {
        let name = format!("{}-{}", std::process::id(), LAID.fetch_add(1, Ordering::Relaxed));
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

    /// The beginning of a command that runs at this end.
    pub(crate) fn inside(&self, end: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.ends[end].0]);
        command
    }

    /// Takes the device of one end down: packets of that end find no way, those of the other vanish.
    pub(crate) fn cut(&self, end: usize) -> Result<(), String> {
        self.set(end, "down")
    }

    /// Puts it up again.
    pub(crate) fn mend(&self, end: usize) -> Result<(), String> {
        self.set(end, "up")
    }

    /// Lets both ends carry packets of `bytes`.
    pub(crate) fn set_mtu(&self, bytes: u32) -> Result<(), String> {
        (0..2).try_for_each(|end| self.set(end, &format!("mtu {bytes}")))
    }

    fn set(&self, end: usize, what: &str) -> Result<(), String> {
        let (namespace, device) = &self.ends[end];
        ip(&format!("-n {namespace} link set {device} {what}"))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for (namespace, _) in &self.ends {
            // The next one has another name.
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

/// Cables of this process so far: names of devices are short, and numbers of processes have seven digits at most.
static LAID: AtomicU32 = AtomicU32::new(0);
