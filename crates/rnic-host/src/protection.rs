//! A NIC's secret, and the forms of the option `--key` that configures it.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use rnic_psp::{MASTER_KEY_BYTES, Secret, SecurityFormat};
use rnic_wire::falcon::psp::Cipher;
use zeroize::Zeroizing;

use crate::background;
use crate::sys::unix::own_uid;

/// Protection of Falcon packets; both ends need the same settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protection {
    /// Secret from which keys are derived.
    pub secret: Secret,
    /// The encapsulation: PSP or ESP.
    pub form: SecurityFormat,
    /// Cipher with which packets are encrypted.
    pub cipher: Cipher,
    /// Number of packets that are encrypted with a key before the next key replaces it, counted at each end
    /// independently: at least one and at most [`rnic_psp::PACKETS_PER_KEY`], or [`rnic_psp::esp::PACKETS_PER_KEY`]
    /// with ESP. Small values are for tests: a connection does not survive an outage in which one end seals 32 times
    /// this number of packets, and a packet that is delayed by more than one key change is lost.
    pub packets_per_key: u64,
}

impl Protection {
    /// Returns protection by PSP, with the maximum number of packets per key.
    pub const fn new(secret: Secret, cipher: Cipher) -> Self {
        Self { secret, form: SecurityFormat::Psp, cipher, packets_per_key: rnic_psp::PACKETS_PER_KEY }
    }

    /// Returns the same protection with the encapsulation `form`.
    #[must_use]
    pub const fn within(mut self, form: SecurityFormat) -> Self {
        self.form = form;
        self
    }

    /// Reads the value of `--key`, `FILE` or `esp:FILE`: keys are derived from the secret in the file, which has 32
    /// random bytes, or 64 hexadecimal digits. When other users may access the file, a warning is printed on standard
    /// error, once per process.
    ///
    /// # Errors
    /// When the file is not a secret; the error states what is valid.
    pub fn from_option(option: &Path) -> Result<Self, String> {
        let ((form, cipher), path) = Self::split(option);
        Ok(Self { form, cipher, ..Self::from_file(path)? })
    }

    /// Returns the form that `--key` names, and the file: before a colon there may be `psp`, `psp256`, `esp` or
    /// `esp256`. A file whose own name begins with such a prefix must be given with its directory.
    pub fn split(option: &Path) -> ((SecurityFormat, Cipher), &Path) {
        let bytes = option.as_os_str().as_bytes();
        for (word, form, cipher) in FORMS {
            if let Some(path) = bytes.strip_prefix(word.as_bytes()).and_then(|rest| rest.strip_prefix(b":")) {
                return ((form, cipher), Path::new(OsStr::from_bytes(path)));
            }
        }
        ((SecurityFormat::Psp, Cipher::Gcm128), option)
    }

    /// Returns the option with the absolute path of its file.
    ///
    /// # Errors
    /// When the path cannot be determined.
    pub fn absolute(option: &Path) -> io::Result<PathBuf> {
        let path = Self::split(option).1;
        let bytes = option.as_os_str().as_bytes();
        let mut whole = OsStr::from_bytes(&bytes[..bytes.len() - path.as_os_str().len()]).to_owned();
        whole.push(std::path::absolute(path)?);
        Ok(whole.into())
    }

    fn from_file(path: &Path) -> Result<Self, String> {
        let (bytes, file) = read_secret(path).map_err(|error| format!("cannot read the secret: {error}"))?;
        let secret = secret_of(&bytes)
            .map(Zeroizing::new)
            .ok_or("the secret has a wrong format; expected a file with 32 random bytes, or 64 hexadecimal digits")?;
        if let Some(warning) = exposure_warning(path, file.mode(), file.uid()) {
            static REPORTED: Once = Once::new();
            REPORTED.call_once(|| background::print_message(warning));
        }
        Ok(Self::new(Secret::new(*secret), Cipher::Gcm128))
    }
}

/// Packet forms that `--key` may name: AES-GCM with keys of 128 or 256 bits, within PSP or ESP.
const FORMS: [(&str, SecurityFormat, Cipher); 4] = [
    ("psp", SecurityFormat::Psp, Cipher::Gcm128),
    ("psp256", SecurityFormat::Psp, Cipher::Gcm256),
    ("esp", SecurityFormat::Esp, Cipher::Gcm128),
    ("esp256", SecurityFormat::Esp, Cipher::Gcm256),
];

/// Returns the contents of a file, up to one byte more than the longest secret, and its metadata.
fn read_secret(path: &Path) -> io::Result<(Zeroizing<Vec<u8>>, Metadata)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    // One more byte shows that the file is too long. The capacity is allocated in advance, because a growing vector
    // would leave copies of the secret in freed memory.
    let most = SECRET_TEXT_MAX + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * most));
    file.take(most as u64).read_to_end(&mut bytes)?;
    Ok((bytes, metadata))
}

/// Returns a warning for a secret that other users can read: a reader of it can decrypt, and forge, every packet.
pub(super) fn exposure_warning(path: &Path, mode: u32, owner: u32) -> Option<String> {
    let (others, path) = (mode & 0o077, path.display());
    if owner != 0 && owner != own_uid() {
        return Some(format!(
            "{path}: this secret belongs to user {owner}, who can read and change it; copy it to a file that you own"
        ));
    }
    (others != 0).then(|| {
        format!(
            "{path}: other users of this machine can access this secret (mode {:03o}); run chmod 600 {path}",
            mode & 0o777
        )
    })
}

pub(super) fn secret_of(bytes: &[u8]) -> Option<[u8; MASTER_KEY_BYTES]> {
    if let Ok(raw) = bytes.try_into() {
        return Some(raw);
    }
    let digits = bytes.trim_ascii();
    let mut secret = [0; MASTER_KEY_BYTES];
    if bytes.len() > SECRET_TEXT_MAX || digits.len() != 2 * secret.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(secret)
}

/// Maximum length of a secret file in hexadecimal form, including surrounding white space, in characters.
pub(super) const SECRET_TEXT_MAX: usize = 4 * MASTER_KEY_BYTES;
