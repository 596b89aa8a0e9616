//! Locates the project's libraries.

use std::path::{Path, PathBuf};

use super::unpack::{self, Bundle};
use crate::built_in::{LIBRARIES, LIBRARIES_DIGEST};
use crate::failure::Failure;

/// The folder that contains all of the project's libraries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// Returns the folder that contains the libraries: `RNIC_LIBRARY_DIR`, one of the folders near the command, or the
    /// one into which the libraries of the command itself are unpacked.
    ///
    /// # Errors
    /// When there are no libraries, or the name of the folder cannot be passed to the dynamic linker.
    pub fn find() -> Result<Self, Failure> {
        let folders = candidates();
        let folder = match folders.iter().find(|folder| folder.join(VERBS_FILE).is_file()) {
            Some(folder) => std::path::absolute(folder).map_err(|error| Failure::file(folder, error))?,
            None if BUNDLE.files.is_empty() || std::env::var_os(VARIABLE).is_some_and(|given| !given.is_empty()) => {
                return Err(none_in(&folders));
            }
            None => unpacked()?,
        };
        let missing = [SHIM_FILE, CM_FILE, SOCKETS_FILE].into_iter().find(|name| !folder.join(name).exists());
        if let Some(name) = missing {
            return Err(Failure::input(format!("{}: {name} is missing; build it with `make build`", folder.display())));
        }
        if folder.to_string_lossy().contains([':', ' ', ';']) {
            let reason = "LD_PRELOAD does not support spaces, colons or semicolons in a folder name; copy the folder";
            return Err(Failure::file(&folder, format!("{reason} and name the copy in {VARIABLE}")));
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
        self.folder.join(VERBS_FILE)
    }

    /// Returns the path of the library for TCP sockets.
    pub fn sockets(&self) -> PathBuf {
        self.folder.join(SOCKETS_FILE)
    }

    /// Returns the path of the path shim.
    pub fn shim(&self) -> PathBuf {
        self.folder.join(SHIM_FILE)
    }
}

/// Returns the folders to search, the preferred one first.
fn candidates() -> Vec<PathBuf> {
    if let Some(override_folder) = std::env::var_os(VARIABLE).filter(|override_folder| !override_folder.is_empty()) {
        return vec![override_folder.into()];
    }
    // Resolves links: the libraries are next to the executable itself, not next to a link to it.
    let command = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let command_folder = command.parent().unwrap_or(Path::new("."));
    let parent_folder = command_folder.parent().unwrap_or(command_folder);
    vec![command_folder.join("lib/rnic"), parent_folder.join("lib/openrnic")]
}

/// Unpacks the libraries of the command.
fn unpacked() -> Result<PathBuf, Failure> {
    let advice = format!("name a folder with OpenRNIC's libraries in {VARIABLE}, or run `make install`");
    let cache = unpack::cache_folder()
        .ok_or_else(|| Failure::input(format!("neither HOME nor XDG_CACHE_HOME is an absolute path; {advice}")))?;
    BUNDLE.unpack(&cache).map_err(|error| {
        Failure::input(format!("cannot unpack the libraries into {}/openrnic: {error}; or {advice}", cache.display()))
    })
}

fn none_in(folders: &[PathBuf]) -> Failure {
    let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Failure::input(format!(
        "OpenRNIC's libibverbs.so.1 was not found in {}, and is not part of this command (cargo alone cannot link it); \
         run `make install` in the source tree, which installs command and libraries, or `make build`, or name its \
         folder in {VARIABLE}",
        looked.join(" or ")
    ))
}

/// The libraries that are part of the command; none unless it was built with RNIC_EMBED_LIBRARIES.
const BUNDLE: Bundle = Bundle { files: LIBRARIES, digest: LIBRARIES_DIGEST, links: &[(CM_FILE, VERBS_FILE)] };

const VARIABLE: &str = "RNIC_LIBRARY_DIR";
const VERBS_FILE: &str = "libibverbs.so.1";
const CM_FILE: &str = "librdmacm.so.1";
const SHIM_FILE: &str = "librnic-shim.so";
const SOCKETS_FILE: &str = "librnic_sockets.so";
