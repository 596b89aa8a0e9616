//! Finds OpenRNIC resources that could outlive a process: files, shared memory, named sockets, child processes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Returns the names of all OpenRNIC files and shared memory, and of its named sockets that no process holds any more.
pub(crate) fn names() -> BTreeSet<String> {
    let is_ours = |name: &str| name.contains("rnic") && !TEMPORARY.iter().any(|prefix| name.contains(prefix));
    let mut found = BTreeSet::new();
    for dir in ["/dev/shm", "/tmp", "/run", "/var/run"] {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.path().to_string_lossy().into_owned());
        found.extend(names.filter(|path| is_ours(path)));
    }
    // Other users may run programs at the same time; only root can see which sockets they hold.
    if rustix::process::geteuid().is_root() {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let (held, fields) = (held_sockets(), |line: &str| {
            let mut words = line.split_whitespace().skip(6);
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        });
        let orphans = sockets.lines().filter_map(fields).filter(|(inode, name)| is_ours(name) && !held.contains(inode));
        found.extend(orphans.map(|(_, name)| name).filter(|name| is_named(name)));
    }
    found
}

/// Returns true when a socket still has its name: it may have been closed while `held_sockets` ran.
fn is_named(name: &str) -> bool {
    fs::read_to_string("/proc/net/unix").unwrap_or_default().lines().any(|line| line.ends_with(name))
}

/// Returns the inodes of all sockets that some process holds.
fn held_sockets() -> BTreeSet<String> {
    let files = processes().flat_map(|id| fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten());
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    let inode = |target: std::path::PathBuf| {
        let text = target.to_string_lossy().into_owned();
        text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).map(str::to_owned)
    };
    targets.filter_map(inode).collect()
}

/// Returns the processes whose environment contains `mark`, as `NAME=VALUE`, and that have not exited.
pub(crate) fn processes_with(mark: &str) -> Vec<u32> {
    let has_mark = |id: &u32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    };
    processes().filter(has_mark).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| std::str::from_utf8(entry.file_name().as_bytes()).ok()?.parse().ok())
}

/// Name prefixes of the temporary folders of these tests.
const TEMPORARY: [&str; 2] = ["rnic-apps-", "rnic-soak-"];
