//! Programs and laws that this process has loaded: each file is checked once.

use std::sync::{Mutex, PoisonError};

use rnic_policy::kit::Violation;

/// The files that were loaded, with their policies. Nothing is removed, because a queue pair may use a policy until the
/// process ends.
pub(crate) struct LoadedFiles<P>(Mutex<Vec<LoadedFile<P>>>);

/// A file and its policy, or its violation of the contract.
struct LoadedFile<P> {
    bytes: Vec<u8>,
    policy: Result<P, Violation>,
}

impl<P: Clone> LoadedFiles<P> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the policy of a file with these contents. A file that is not known yet is loaded by `make`, which gets
    /// the number of files known so far; one that violates the contract is kept too, as it uses memory.
    ///
    /// # Errors
    /// When `make` fails, or the policy violates the contract.
    pub(crate) fn get<E: From<Violation>>(
        &self,
        bytes: &[u8],
        make: impl FnOnce(usize) -> Result<Result<P, Violation>, E>,
    ) -> Result<P, E> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = files.iter().find(|known| known.bytes == bytes) {
            return Ok(known.policy.clone()?);
        }
        let policy = make(files.len())?;
        files.push(LoadedFile { bytes: bytes.to_vec(), policy: policy.clone() });
        Ok(policy?)
    }
}
