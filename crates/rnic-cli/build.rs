//! Makes the files that are part of the command: plans and experiments, and, when RNIC_EMBED_LIBRARIES names their
//! folder, the shared objects that `scripts/link-verbs` has made. Without that variable, `rnic run` needs the shared
//! objects as files, because cargo cannot link them (their version map, see ARCHITECTURE.md).
//!
//! A script instead of a crate for embedded folders, because it notices added files, and needs no file system at run
//! time in debug builds either.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    // Read at run time, because a build directory may serve several checkouts.
    let crate_dir = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let root = fs::canonicalize(Path::new(&crate_dir).join("../.."))?;
    let mut text = "/// Plans and experiments.\npub static TEXTS: rnic_reproduce::FileTable = &[\n".to_owned();
    for folder in TEXTS {
        let mut files = Vec::new();
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
        collect(&root.join(folder), &mut files)?;
        files.sort();
        for file in files {
            let name = file.strip_prefix(&root).expect("it is below").display().to_string();
            writeln!(text, "    ({name:?}, include_str!({:?})),", file.display().to_string()).expect("memory suffices");
        }
    }
    text.push_str("];\n");
    libraries(&mut text)?;
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("built_in.rs"), text)
}

/// Appends the libraries, and the first half of the digest of their contents.
fn libraries(text: &mut String) -> io::Result<()> {
    println!("cargo::rerun-if-env-changed={LIBRARIES_VARIABLE}");
    text.push_str("/// Shared objects for `rnic run`.\npub static LIBRARIES: &[(&str, &[u8])] = &[\n");
    let mut digest = Sha256::new();
    if let Some(folder) = env::var_os(LIBRARIES_VARIABLE).filter(|folder| !folder.is_empty()) {
        let folder = fs::canonicalize(folder)?;
        for name in LIBRARIES {
            let file = folder.join(name);
            println!("cargo::rerun-if-changed={}", file.display());
            let bytes = fs::read(&file)?;
            digest.update(format!("{name} {}\n", bytes.len()));
            digest.update(bytes);
            writeln!(text, "    ({name:?}, include_bytes!({:?})),", file.display().to_string())
                .expect("memory suffices");
        }
    }
    let hex: String = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    writeln!(text, "];\n/// Digest of their contents.\npub const LIBRARIES_DIGEST: &str = {hex:?};")
        .expect("memory suffices");
    Ok(())
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| ENDS.iter().any(|known| end == *known)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Folders of texts.
const TEXTS: [&str; 2] = ["plans", "experiments"];
/// Ends of the names of their files: plans, flows and networks.
const ENDS: [&str; 4] = ["toml", "csv", "cm", "topo"];
/// Folder of the shared objects.
const LIBRARIES_VARIABLE: &str = "RNIC_EMBED_LIBRARIES";
/// Files of that folder; librdmacm.so.1 is a link to the first.
const LIBRARIES: [&str; 3] = ["libibverbs.so.1", "librnic-shim.so", "librnic_sockets.so"];
