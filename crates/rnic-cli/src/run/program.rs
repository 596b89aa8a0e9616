//! Locates the program, and checks whether the project's libraries can be preloaded into it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

use crate::failure::Failure;

/// Returns the program that a shell would run for this name.
///
/// # Errors
/// When there is no such program, or it may not be executed.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(name: &OsStr, search: &OsString) -> Result<PathBuf, Failure> {
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return match path.metadata() {
            Err(error) => Err(Failure::file(path, error)),
            Ok(metadata) if metadata.is_dir() => Err(Failure::file(path, "this is a folder; name a program")),
            Ok(_) if !is_executable(path) => {
                Err(Failure::file(path, "the file is not executable; run chmod +x, or name another program"))
            }
            Ok(_) => Ok(path.to_owned()),
        };
    }
    let found = std::env::split_paths(search).map(|folder| folder.join(path)).find(|path| is_executable(path));
    found.ok_or_else(|| Failure::file(path, "no program of this name is on the PATH"))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

/// Refuses programs for which the dynamic linker would not load the project's libraries, or would ignore them silently.
///
/// # Errors
/// When it is such a program.
pub fn check(path: &Path) -> Result<(), Failure> {
    let refused = |reason: &str| Err(Failure::file(path, reason));
    // Programs that can be executed but not read are left to the kernel.
    let Ok(head) = read_head(path) else { return Ok(()) };
    if head.starts_with(b"#!") {
        return check_interpreter(path, &head);
    }
    if is_privileged(path) {
        return refused(
            "the program is privileged (setuid, setgid or capabilities), so the dynamic linker ignores OpenRNIC's \
             libraries; run it as its owner, or run an unprivileged copy",
        );
    }
    match kind(&head) {
        Kind::Dynamic(interpreter) if interpreter.contains("musl") => {
            refused("the program is linked with musl, but OpenRNIC's libraries need glibc")
        }
        Kind::Dynamic(_) | Kind::Unknown => Ok(()),
        Kind::Static => refused(
            "the program is statically linked, so OpenRNIC's libraries cannot be loaded; use a dynamically linked \
             build",
        ),
        Kind::OtherMachine => {
            refused("the program is built for another processor or word size than OpenRNIC's libraries")
        }
    }
}

/// Checks the interpreter of a script, because the dynamic linker loads the interpreter.
fn check_interpreter(path: &Path, head: &[u8]) -> Result<(), Failure> {
    let line = head[2..].split(|byte| *byte == b'\n').next().unwrap_or_default();
    let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty()).unwrap_or_default();
    let interpreter = Path::new(OsStr::from_bytes(word));
    match read_head(interpreter) {
        Err(error) => {
            Err(Failure::file(path, format!("cannot read its interpreter {}: {error}", interpreter.display())))
        }
        // An interpreter that is itself a script is rare and left to the kernel.
        Ok(head) if head.starts_with(b"#!") => Ok(()),
        Ok(_) => check(interpreter),
    }
}

fn read_head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

/// Type of a program, as the dynamic linker treats it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// Dynamically linked; loaded by this interpreter.
    Dynamic(String),
    /// Statically linked; not loaded by the dynamic linker.
    Static,
    /// Built for another processor architecture than this command.
    OtherMachine,
    /// Type for files that are not ELF, or that cannot be parsed.
    Unknown,
}

fn kind(head: &[u8]) -> Kind {
    let other = || if head.starts_with(&elf::ELFMAG) { Kind::OtherMachine } else { Kind::Unknown };
    let Ok(header) = elf::FileHeader64::<Endianness>::parse(head) else { return other() };
    let Ok(endian) = header.endian() else { return other() };
    if header.e_machine(endian) != MACHINE {
        return Kind::OtherMachine;
    }
    let Ok(segments) = header.program_headers(endian, head) else { return Kind::Unknown };
    let interpreter = segments.iter().find_map(|segment| segment.interpreter(endian, head).ok().flatten());
    interpreter.map_or(Kind::Static, |path| Kind::Dynamic(String::from_utf8_lossy(path).into_owned()))
}

/// Returns `true` if running the program changes privileges: the dynamic linker then ignores preloaded libraries.
fn is_privileged(path: &Path) -> bool {
    let (Ok(metadata), Ok(own)) = (path.metadata(), Path::new("/proc/self").metadata()) else { return false };
    let sets_user = metadata.mode() & 0o4000 != 0 && metadata.uid() != own.uid();
    let sets_group = metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != own.gid();
    let has_capabilities = own.uid() != 0 && xattr::get(path, "security.capability").is_ok_and(|value| value.is_some());
    sets_user || sets_group || has_capabilities
}

/// Bytes read from the start of a file; they contain the program headers and the interpreter's name.
const HEAD_BYTES: u64 = 64 << 10;

/// Machine type for which this command is built.
const MACHINE: elf::Machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// Creates a file `name` with the contents `bytes` and the permissions `mode`.
    fn program(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the test owns the file");
        path
    }

    /// This test program itself, without the program header that names its interpreter.
    fn without_interpreter() -> Vec<u8> {
        let mut bytes = fs::read(std::env::current_exe().expect("a program")).expect("it can be read");
        bytes.truncate(HEAD_BYTES as usize);
        let header = elf::FileHeader64::<Endianness>::parse(&*bytes).expect("an ELF file");
        let endian = header.endian().expect("the byte order is valid");
        let segments = header.program_headers(endian, &*bytes).expect("the program has segments");
        let at = segments.iter().position(|segment| segment.p_type(endian) == elf::PT_INTERP).expect("an interpreter");
        let offset = header.e_phoff(endian) as usize + at * size_of::<elf::ProgramHeader64<Endianness>>();
        bytes[offset..offset + 4].copy_from_slice(&elf::PT_NULL.0.to_ne_bytes());
        bytes
    }

    #[test]
    fn programs_are_searched_in_the_path() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let search: OsString = format!("/nowhere:{}", folder.path().display()).into();
        let path = program(folder.path(), "tool", b"#!/bin/sh\n", 0o755);
        assert_eq!(find_in(OsStr::new("tool"), &search), Ok(path.clone()));
        assert_eq!(find_in(path.as_os_str(), &search), Ok(path));
        let plain = program(folder.path(), "notes", b"text", 0o644);
        for (name, says) in
            [(OsStr::new("notes"), "on the PATH"), (plain.as_os_str(), "chmod"), (folder.path().as_os_str(), "folder")]
        {
            let said = find_in(name, &search).expect_err("none").to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn programs_that_cannot_load_the_library_are_refused_with_the_reason() {
        assert_eq!(check(Path::new("/bin/sh")), Ok(()));
        assert!(matches!(kind(&read_head(Path::new("/bin/sh")).expect("readable")), Kind::Dynamic(_)));
        let folder = tempfile::tempdir().expect("a folder for the test");
        let static_program = program(folder.path(), "lonely", &without_interpreter(), 0o755);
        assert!(check(&static_program).expect_err("static").to_string().contains("statically linked"));
        let mut other_machine = without_interpreter();
        other_machine[18] ^= 0xff;
        let other_machine = program(folder.path(), "foreign", &other_machine, 0o755);
        assert!(check(&other_machine).expect_err("another processor").to_string().contains("another processor"));
    }

    #[test]
    fn scripts_are_checked_by_their_interpreter() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let static_program = program(folder.path(), "lonely", &without_interpreter(), 0o755);
        let script = |text: String| program(folder.path(), "script", text.as_bytes(), 0o755);
        assert_eq!(check(&script("#! /bin/sh -e\n:".to_owned())), Ok(()));
        let said = check(&script(format!("#!{}\n", static_program.display()))).expect_err("static").to_string();
        assert!(said.contains("statically linked"), "{said}");
        let said = check(&script("#!/nowhere/sh\n".to_owned())).expect_err("missing").to_string();
        assert!(said.contains("/nowhere/sh"), "{said}");
    }

    #[test]
    fn setuid_programs_are_refused() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = program(folder.path(), "own", b"", 0o4755);
        assert!(!is_privileged(&path), "a setuid program of the same user is privileged");
        let is_root = Path::new("/proc/self").metadata().expect("/proc/self exists").uid() == 0;
        if is_root {
            std::os::unix::fs::chown(&path, Some(65_534), None).expect("root may");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("root may");
            assert!(check(&path).expect_err("setuid").to_string().contains("setuid"));
        } else {
            assert!(check(Path::new("/bin/su")).expect_err("setuid").to_string().contains("setuid"));
        }
    }
}
