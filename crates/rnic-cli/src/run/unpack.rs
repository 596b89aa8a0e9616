//! Libraries that are part of the command, as files for the dynamic linker, which loads nothing else.
//!
//! They are unpacked once into a folder of the user's cache, whose name has the digest of their contents. Another user
//! who could write there could run code in the user's programs, so that folder must belong to the user alone, and its
//! files are compared with the originals before every use.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Files to unpack.
#[derive(Clone, Copy, Debug)]
pub struct Bundle {
    /// Name and content of each.
    pub files: &'static [(&'static str, &'static [u8])],
    /// Digest of all contents.
    pub digest: &'static str,
    /// Symbolic links: name and target.
    pub links: &'static [(&'static str, &'static str)],
}

/// Returns the folder in which caches are kept: for root, whose HOME may be that of another user (sudo), /var/cache;
/// otherwise XDG_CACHE_HOME, or `.cache` in HOME.
pub fn cache_folder() -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some(PathBuf::from("/var/cache"));
    }
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))
}

impl Bundle {
    /// Returns the folder with the unpacked files below `cache`. It is written when it does not exist, and replaced
    /// when its files are not the originals.
    ///
    /// # Errors
    /// When it cannot be written, or does not belong to the user alone.
    pub fn unpack(&self, cache: &Path) -> io::Result<PathBuf> {
        if !cache.is_dir() {
            DirBuilder::new().recursive(true).mode(PRIVATE).create(cache)?;
        }
        let own = cache.join(FOLDER);
        make_private(&own)?;
        let folder = own.join(format!("lib-{}", self.digest));
        if self.is_intact(&folder) {
            return Ok(folder);
        }
        let partial = own.join(format!(".{}-{:016x}", self.digest, RandomState::new().build_hasher().finish()));
        let result = self.write(&partial).and_then(|()| self.put_in_place(&partial, &folder));
        let _ = fs::remove_dir_all(&partial);
        result.map(|()| folder)
    }

    /// Moves `partial` to `folder`, and what is there already away, unless another process has unpacked the same files.
    /// Programs that have loaded files of the old folder keep them.
    fn put_in_place(&self, partial: &Path, folder: &Path) -> io::Result<()> {
        if fs::rename(partial, folder).is_ok() || self.is_intact(folder) {
            return Ok(());
        }
        let old = partial.with_extension("old");
        match fs::rename(folder, &old) {
            // Another process has moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved?,
        }
        let placed = fs::rename(partial, folder);
        let _ = if old.is_dir() && !old.is_symlink() { fs::remove_dir_all(&old) } else { fs::remove_file(&old) };
        if self.is_intact(folder) { Ok(()) } else { placed }
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        DirBuilder::new().mode(PRIVATE).create(folder)?;
        for (name, bytes) in self.files {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(folder.join(name))?;
            file.write_all(bytes)?;
        }
        self.links.iter().try_for_each(|(name, target)| symlink(target, folder.join(name)))
    }

    /// Returns `true` if `folder` belongs to the user alone and contains every file as it should be.
    fn is_intact(&self, folder: &Path) -> bool {
        let has = |(name, bytes): &(&str, &[u8])| has_content(&folder.join(name), bytes);
        let links =
            |(name, target): &(&str, &str)| fs::read_link(folder.join(name)).is_ok_and(|to| to == Path::new(target));
        is_private(folder) && self.files.iter().all(has) && self.links.iter().all(links)
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(PRIVATE).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_private(folder) {
        return Ok(());
    }
    Err(io::Error::other("this must be a folder of this user, with mode 0700; remove it"))
}

/// Returns `true` if `folder` is a folder, not a link, that only this user can change.
fn is_private(folder: &Path) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o777 == PRIVATE)
}

fn has_content(path: &Path, expected: &[u8]) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == expected.len() as u64);
    let mut bytes = Vec::new();
    is_file && File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).is_ok() && bytes == expected
}

/// Name of this project's folder among the caches.
const FOLDER: &str = "openrnic";
const PRIVATE: u32 = 0o700;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const BUNDLE: Bundle =
        Bundle { files: &[("a.so", b"first"), ("b.so", b"second")], digest: "0123", links: &[("c.so", "a.so")] };

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the folder is ours");
    }

    #[test]
    fn files_are_unpacked_once_and_for_one_user() {
        let root = tempfile::tempdir().expect("a folder for the test");
        let cache = root.path().join("not/there");
        let folder = BUNDLE.unpack(&cache).expect("it is written");
        assert_eq!(names(&folder), ["a.so", "b.so", "c.so"]);
        assert_eq!(fs::read(folder.join("c.so")).expect("a link"), b"first");
        for path in [&folder, &cache.join(FOLDER)] {
            assert_eq!(fs::metadata(path).expect("a folder").mode() & 0o777, 0o700);
        }
        let inode = fs::metadata(&folder).expect("a folder").ino();
        assert_eq!(BUNDLE.unpack(&cache).expect("it is used"), folder);
        assert_eq!(fs::metadata(&folder).expect("a folder").ino(), inode, "written twice");
        assert_eq!(names(&cache.join(FOLDER)), ["lib-0123"], "a temporary folder remains");
    }

    #[test]
    fn files_that_are_not_the_originals_are_replaced() {
        type Damage = fn(&Path);
        let damages: [Damage; 5] = [
            |folder| fs::write(folder.join("b.so"), "sedond").expect("a file"),
            |folder| fs::remove_file(folder.join("a.so")).expect("a file"),
            |folder| {
                fs::remove_file(folder.join("c.so")).expect("a link");
                symlink("/etc/passwd", folder.join("c.so")).expect("a link");
            },
            |folder| set_mode(folder, 0o777),
            |folder| {
                fs::remove_dir_all(folder).expect("a folder");
                symlink("/", folder).expect("a link");
            },
        ];
        for (nth, damage) in damages.into_iter().enumerate() {
            let cache = tempfile::tempdir().expect("a folder for the test");
            let folder = BUNDLE.unpack(cache.path()).expect("it is written");
            damage(&folder);
            assert!(!BUNDLE.is_intact(&folder), "{nth}");
            assert_eq!(BUNDLE.unpack(cache.path()).expect("it is written"), folder);
            assert!(BUNDLE.is_intact(&folder), "{nth}");
            assert_eq!(names(&cache.path().join(FOLDER)), ["lib-0123"], "{nth}");
        }
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        let cache = tempfile::tempdir().expect("a folder for the test");
        let own = cache.path().join(FOLDER);
        fs::create_dir(&own).expect("a folder");
        set_mode(&own, 0o777);
        assert!(BUNDLE.unpack(cache.path()).expect_err("it is refused").to_string().contains("0700"));
        fs::remove_dir(&own).expect("a folder");
        symlink("/var", &own).expect("a link");
        assert!(BUNDLE.unpack(cache.path()).is_err());
    }

    #[test]
    fn processes_that_unpack_at_once_agree() {
        let cache = tempfile::tempdir().expect("a folder for the test");
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| BUNDLE.unpack(cache.path()))).collect();
            for one in all {
                assert!(BUNDLE.is_intact(&one.join().expect("no panic").expect("it is unpacked")));
            }
        });
        assert_eq!(names(&cache.path().join(FOLDER)), ["lib-0123"]);
    }
}
