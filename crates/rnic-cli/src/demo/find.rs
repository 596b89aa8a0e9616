//! Finds a real file of some tens of megabytes, on any machine that can build this project.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Smallest file size in bytes: smaller transfers finish too soon to show a difference, larger ones take too long for
/// a demonstration.
const BYTES_MIN: u64 = 10 << 20;
const BYTES_MAX: u64 = 100 << 20;
/// Maximum number of folders that are searched for a file: /usr/lib can be large.
const FOLDERS_MAX: usize = 4_000;

/// Returns the file that was requested, or one that is found on this machine.
///
/// # Errors
/// When the requested file cannot be read or is empty, or no file of a suitable size is found.
pub fn file(requested: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = requested {
        return readable(path).map(|()| path.to_owned());
    }
    let toolchain = sysroot().and_then(|root| largest_fit(&[root.join("lib"), root.join("bin")]));
    let system = || largest_fit(&[PathBuf::from("/usr/lib"), PathBuf::from("/usr/bin")]);
    toolchain.or_else(system).ok_or_else(|| {
        Failure::input("no file of 10 to 100 MiB was found in the Rust toolchain or /usr/lib; name a file with --file")
    })
}

fn readable(path: &Path) -> Result<(), Failure> {
    let metadata = fs::metadata(path).map_err(|error| Failure::file(path, error))?;
    if !metadata.is_file() {
        return Err(Failure::file(path, "this is not a regular file"));
    }
    fs::File::open(path).map_err(|error| Failure::file(path, error))?;
    if metadata.len() == 0 { Err(Failure::file(path, "the file is empty")) } else { Ok(()) }
}

/// Returns the folder of the toolchain; its compiler library is a suitable file to transfer.
fn sysroot() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).stderr(Stdio::null()).output().ok()?;
    let root = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(root.trim_end()))
}

/// Returns the largest readable file of a suitable size at or below `folders`; among files of equal size, the first
/// by name.
fn largest_fit(folders: &[PathBuf]) -> Option<PathBuf> {
    let mut best: Option<(u64, PathBuf)> = None;
    let mut waiting: Vec<PathBuf> = folders.to_vec();
    let mut seen = 0;
    while let Some(folder) = waiting.pop().filter(|_| seen < FOLDERS_MAX) {
        seen += 1;
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            // Does not follow links, so that no cycle of links is possible.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if metadata.is_file() && (BYTES_MIN..=BYTES_MAX).contains(&metadata.len()) {
                let (bytes, path) = (metadata.len(), entry.path());
                let is_better = best.as_ref().is_none_or(|(best_bytes, best_path)| {
                    bytes > *best_bytes || bytes == *best_bytes && path < *best_path
                });
                if is_better && fs::File::open(&path).is_ok() {
                    best = Some((bytes, path));
                }
            }
        }
    }
    best.map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_suitable_file_is_found_in_subfolders() {
        let root = tempfile::tempdir().expect("a folder for the test");
        let below = root.path().join("a/b");
        fs::create_dir_all(&below).expect("a folder");
        let make = |path: PathBuf, bytes: u64| {
            fs::File::create(path).expect("a file").set_len(bytes).expect("a sparse file can be created");
        };
        make(root.path().join("small"), BYTES_MIN - 1);
        make(root.path().join("huge"), BYTES_MAX + 1);
        assert_eq!(largest_fit(&[root.path().to_owned()]), None);
        make(root.path().join("fit"), BYTES_MIN);
        make(below.join("best"), BYTES_MIN + 1);
        assert_eq!(largest_fit(&[root.path().to_owned()]), Some(below.join("best")));
    }

    #[test]
    fn a_file_that_cannot_be_moved_is_refused_by_name() {
        let root = tempfile::tempdir().expect("a folder for the test");
        let empty = root.path().join("empty");
        fs::write(&empty, "").expect("a file");
        for (path, says) in
            [(root.path().join("gone"), "No such file"), (root.path().into(), "regular"), (empty, "empty")]
        {
            let failure = file(Some(&path)).expect_err("nothing to move").to_string();
            assert!(failure.contains(says) && failure.contains(&path.display().to_string()), "{failure}");
        }
    }
}
