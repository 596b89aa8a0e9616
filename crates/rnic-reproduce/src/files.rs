//! The places from which plans, experiments and the files that they name are read.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rnic_fabric::plan::TraceFiles;

use crate::input::{InputError, read_bytes, read_text};

/// A table of text files: the path of each, and its content.
pub type FileTable = &'static [(&'static str, &'static str)];

/// The place from which files are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Files {
    /// The file system.
    #[default]
    Disk,
    /// Files that are part of the program.
    BuiltIn(FileTable),
}

impl Files {
    /// Reads the text file at `path`, of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// When it does not exist, cannot be read, is not text, or is too large.
    pub fn read_text(self, path: &Path, bytes_max: u64) -> Result<String, InputError> {
        match self {
            Self::Disk => read_text(path, bytes_max),
            Self::BuiltIn(table) => match find(table, path) {
                Some(text) => Ok(text.to_owned()),
                None => Err(io::Error::from(io::ErrorKind::NotFound).into()),
            },
        }
    }

    /// Returns `true` if there is a regular file at `path`.
    pub fn has_file(self, path: &Path) -> bool {
        match self {
            Self::Disk => path.is_file(),
            Self::BuiltIn(table) => find(table, path).is_some(),
        }
    }

    /// Returns the folders in the folder at `path`, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn folders(self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut folders = BTreeSet::new();
        match self {
            Self::Disk => {
                for entry in fs::read_dir(path)? {
                    let entry = entry?.path();
                    if entry.is_dir() {
                        folders.insert(entry);
                    }
                }
            }
            Self::BuiltIn(table) => {
                for (name, _) in table {
                    let below = Path::new(name).parent().and_then(|folder| folder.strip_prefix(path).ok());
                    folders.extend(below.and_then(|below| below.components().next()).map(|first| path.join(first)));
                }
            }
        }
        Ok(folders.into_iter().collect())
    }
}

/// The folder of a plan, with the files and execution traces that the plan names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanFolder {
    /// The place of the folder.
    pub files: Files,
    /// Path in that place.
    pub path: PathBuf,
}

impl PlanFolder {
    /// Reads the text file `name`, of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn read_text(&self, name: &str, bytes_max: u64) -> Result<String, String> {
        self.files.read_text(&self.path.join(name), bytes_max).map_err(|error| error.to_string())
    }
}

impl TraceFiles for PlanFolder {
    fn list(&mut self, folder: &str) -> Result<Vec<String>, String> {
        if self.files != Files::Disk {
            return Err("the program itself has no execution traces".to_owned());
        }
        let entries = fs::read_dir(self.path.join(folder)).map_err(|error| error.to_string())?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.take(NAMES_MAX).collect::<io::Result<_>>().map_err(|error| error.to_string())
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
        read_bytes(&self.path.join(name), bytes_max).map_err(|error| format!("{name}: {error}"))
    }
}

/// Maximum number of files of a folder.
const NAMES_MAX: usize = 1 << 20;

/// Returns the file at `path` of a table; `..` leaves a folder.
fn find(table: FileTable, path: &Path) -> Option<&'static str> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::Normal(name) => plain.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    table.iter().find(|(name, _)| Path::new(name) == plain).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: FileTable =
        &[("plans/a.toml", "a"), ("papers/one/x/experiment.toml", "x"), ("papers/one/y/experiment.toml", "y")];

    #[test]
    fn built_in_files_are_found_as_on_disk() {
        let files = Files::BuiltIn(TABLE);
        let read = |path: &str| files.read_text(Path::new(path), 10).ok();
        assert_eq!(read("papers/one/x/../../../plans/a.toml").as_deref(), Some("a"));
        assert_eq!(read("plans/b.toml"), None);
        assert!(files.has_file(Path::new("plans/a.toml")) && !files.has_file(Path::new("plans")));
        let folders = |path: &str| files.folders(Path::new(path)).expect("no error is possible");
        assert_eq!(folders("papers"), [Path::new("papers/one")]);
        assert_eq!(folders("papers/one"), [Path::new("papers/one/x"), Path::new("papers/one/y")]);
        assert!(folders("plans").is_empty() && folders("nowhere").is_empty());
    }
}
