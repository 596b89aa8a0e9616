//! Locates the project's libraries.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The folder that contains all of the project's libraries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// Returns the first folder that contains the libraries: `RNIC_LIBRARY_DIR`, or one near the command.
    ///
    /// # Errors
    /// When no folder contains them, or the name of the folder cannot be passed to the dynamic linker.
    pub fn find() -> Result<Self, Failure> {
        let folders = candidates();
        let found = folders.iter().find(|folder| folder.join(VERBS).is_file());
        let Some(folder) = found else {
            let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            return Err(Failure::input(format!(
                "our libibverbs.so.1 is not in {}: build it with `make build`, or name its folder in {VARIABLE}",
                looked.join(" or ")
            )));
        };
        let folder = std::path::absolute(folder).map_err(|error| Failure::file(folder, error))?;
        let missing = [SHIM, CM].into_iter().find(|name| !folder.join(name).exists());
        if let Some(name) = missing {
            return Err(Failure::input(format!("{}: {name} is missing; build it with `make build`", folder.display())));
        }
        if folder.to_string_lossy().contains([':', ' ', ';']) {
            let reason = "LD_PRELOAD cannot name a folder with a blank or a colon in it; copy it elsewhere";
            return Err(Failure::file(&folder, format!("{reason} and name that in {VARIABLE}")));
        }
        Ok(Self { folder })
    }

    /// Returns the libraries in `folder`, without checking that they exist.
    #[cfg(test)]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the verbs library.
    pub fn verbs(&self) -> PathBuf {
        self.folder.join(VERBS)
    }

    /// Returns the path of the path shim.
    pub fn shim(&self) -> PathBuf {
        self.folder.join(SHIM)
    }
}

/// Returns the folders to search, the best first.
fn candidates() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    // Resolves links: libraries are beside the command itself, not beside a link to it.
    let command = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let beside = command.parent().unwrap_or(Path::new("."));
    let above = beside.parent().unwrap_or(beside);
    vec![beside.join("lib/rnic"), above.join("lib/rnic")]
}

const VARIABLE: &str = "RNIC_LIBRARY_DIR";
const VERBS: &str = "libibverbs.so.1";
const CM: &str = "librdmacm.so.1";
const SHIM: &str = "librnic-shim.so";
