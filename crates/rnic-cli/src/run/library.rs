//! Where our libraries are.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The folder with all of our libraries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// The first folder that has them: `RNIC_LIBRARY_DIR`, and those beside the command.
    ///
    /// # Errors
    /// When none has, or the dynamic linker could not be told its name.
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

    /// Those in `folder`, whether they are there or not.
    #[cfg(test)]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The verbs library.
    pub fn verbs(&self) -> PathBuf {
        self.folder.join(VERBS)
    }

    /// The path shim.
    pub fn shim(&self) -> PathBuf {
        self.folder.join(SHIM)
    }
}

/// Where to look, best first.
fn candidates() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    // Links are followed: beside the command is where the command is, not where somebody has linked it.
    let command = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let beside = command.parent().unwrap_or(Path::new("."));
    let above = beside.parent().unwrap_or(beside);
    vec![beside.join("lib/rnic"), above.join("lib/rnic")]
}

const VARIABLE: &str = "RNIC_LIBRARY_DIR";
const VERBS: &str = "libibverbs.so.1";
const CM: &str = "librdmacm.so.1";
const SHIM: &str = "librnic-shim.so";
