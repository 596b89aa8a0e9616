//! Knowledge of the other processes that share a page: whether they run, and whether they read the same clock.
//!
//! Processes of one user in one network namespace may still be in different namespaces of process IDs, in which the
//! same number means another process, and of time, in which the monotonic clock differs (namespaces(7)). A namespace is
//! identified by the inode number of its file in `/proc`; zero stands for an unknown one.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

/// A process, as it has described itself on a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Namespace of `pid`; zero if unknown.
    pub(crate) namespace: u64,
}

impl Process {
    /// Returns this process. Its namespace counts as unknown when `/proc` is that of another namespace.
    pub(crate) fn own() -> Self {
        let pid = std::process::id();
        let own_proc = fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == pid.to_string().as_str());
        Self { pid, namespace: if own_proc { namespace("pid") } else { 0 } }
    }

    /// Returns whether the process `other` is known to have ended. A new process with its number, or one in another
    /// namespace, makes it unknown.
    pub(crate) fn knows_ended(self, other: Self) -> bool {
        if self.namespace == 0 || other.namespace != self.namespace {
            return false;
        }
        match fs::read(format!("/proc/{}/stat", other.pid)) {
            Ok(stat) => is_zombie(&String::from_utf8_lossy(&stat)),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

/// Returns the namespace of the monotonic clock of this process; zero when the kernel has no such namespaces.
pub(crate) fn time_namespace() -> u64 {
    namespace("time")
}

fn namespace(kind: &str) -> u64 {
    fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |file| file.ino())
}

/// Returns whether `stat`, from `/proc/PID/stat` (proc_pid_stat(5)), is that of a process that has ended, but has not
/// been waited for by its parent. The first thread of a process may have ended before the others.
fn is_zombie(stat: &str) -> bool {
    // The name of the program, in parentheses, may contain any character.
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_ascii_whitespace();
    let has_ended = fields.next().is_some_and(|state| state == "Z" || state == "X");
    let threads = fields.nth(THREADS_AFTER_STATE).and_then(|count| count.parse::<u64>().ok());
    has_ended && threads.is_some_and(|count| count <= 1)
}

/// Number of fields between the state and the number of threads.
const THREADS_AFTER_STATE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_to_have_ended_when_it_is_a_zombie_or_gone() {
        let own = Process::own();
        assert!(own.namespace != 0 && !own.knows_ended(own));
        let mut child = Command::new("sleep").arg("60").spawn().expect("a child");
        let of_child = Process { pid: child.id(), ..own };
        assert!(!own.knows_ended(of_child));
        child.kill().expect("it runs");
        let is_noticed = (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            own.knows_ended(of_child)
        });
        assert!(is_noticed, "a zombie counts as a running process");
        child.wait().expect("it was a child");
        assert!(own.knows_ended(of_child));
        let elsewhere = Process { namespace: own.namespace + 1, ..of_child };
        assert!(!own.knows_ended(elsewhere), "a number means another process in another namespace");
        assert!(!Process { namespace: 0, ..own }.knows_ended(Process { namespace: 0, ..of_child }));
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_runs() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) Z b) {state} 1 7 7 0 -1 4227084 0 0 0 0 1 2 0 0 20 0 {threads} 0 100 0 0")
        };
        assert!(is_zombie(&stat("Z", 1)) && is_zombie(&stat("X", 1)));
        assert!(!is_zombie(&stat("Z", 2)) && !is_zombie(&stat("S", 1)));
        for text in ["", "7 (a", "7 (a) Z", "7 (a) Z x"] {
            assert!(!is_zombie(text), "{text}");
        }
    }
}
