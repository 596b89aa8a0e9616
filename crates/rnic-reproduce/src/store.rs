//! Samples kept on disk, a file each, so that a repeated command runs only what is new.
//!
//! A sample is found by its run's key, which covers the plan, its files, the seed and [`SOURCES`](crate::SOURCES):
//! whatever changes what a run does changes the key.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::input::{LINE_BYTES_MAX, read_text};
use crate::run::Sample;

/// A folder of samples.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// The folder `path`, made when it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Self(path.to_owned()))
    }

    /// The sample of the run with this key; one that cannot be read counts as none.
    pub fn get(&self, key: &str) -> Option<Sample> {
        let text = read_text(&self.path(key), LINE_BYTES_MAX).ok()?;
        serde_json::from_str(&text).ok().filter(|sample: &Sample| sample.key == key)
    }

    /// Keeps `sample`: whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, sample: &Sample) -> io::Result<()> {
        let (path, partial) = (self.path(&sample.key), self.0.join(format!(".{}.partial", sample.key)));
        fs::write(&partial, serde_json::to_string(sample)?)?;
        fs::rename(partial, path)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.json"))
    }
}
