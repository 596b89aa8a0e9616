//! The place of OpenRNIC's crates, on which new packages depend.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// File by which a source tree is recognized.
const RECOGNIZED_BY: &str = "crates/rnic-program/Cargo.toml";

/// Root of the tree from which this command was built.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Address of the repository.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Source of OpenRNIC's crates for a package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Root of a source tree, absolute.
    Tree(String),
    /// The repository at this address.
    Repository(&'static str),
}

impl Source {
    /// Returns the tree at `given`; without one, the tree from which this command was built, or the repository if that
    /// tree does not exist.
    ///
    /// # Errors
    /// When there is no source tree at `given`, or its path cannot be written into a manifest.
    pub fn choose(given: Option<&Path>) -> Result<Self, Failure> {
        match given {
            Some(given) => Self::tree(given),
            None => Ok(Self::default_for(Path::new(BUILT_FROM))),
        }
    }

    fn default_for(built_from: &Path) -> Self {
        Self::tree(built_from).unwrap_or(Self::Repository(REPOSITORY))
    }

    fn tree(root: &Path) -> Result<Self, Failure> {
        if !root.join(RECOGNIZED_BY).is_file() {
            return Err(Failure::file(root, format!("not a source tree of OpenRNIC: there is no {RECOGNIZED_BY}")));
        }
        let root: PathBuf = root.canonicalize().map_err(|error| Failure::file(root, error))?;
        match root.to_str() {
            Some(text) if !text.contains(|c: char| c.is_control() || matches!(c, '"' | '\\')) => {
                Ok(Self::Tree(text.to_owned()))
            }
            _ => Err(Failure::file(&root, "a manifest cannot name this path; move the source tree")),
        }
    }

    /// Returns the entry of a manifest for OpenRNIC's crate called `name`.
    pub fn dependency(&self, name: &str) -> String {
        match self {
            Self::Tree(root) => format!("{name} = {{ path = \"{root}/crates/{name}\" }}"),
            Self::Repository(address) => format!("{name} = {{ git = \"{address}\" }}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(place) => f.write_str(place),
            Self::Repository(place) => f.write_str(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_does_not_exist_is_replaced_by_the_repository() {
        let here = Source::default_for(Path::new(BUILT_FROM));
        assert!(matches!(&here, Source::Tree(root) if Path::new(root).is_absolute() && !root.contains("..")), "{here}");
        let moved = Source::default_for(Path::new("/nonexistent/openrnic"));
        assert_eq!(moved.dependency("rnic-base"), format!("rnic-base = {{ git = \"{REPOSITORY}\" }}"));
        assert!(REPOSITORY.starts_with("https://"), "{REPOSITORY}");
    }
}
