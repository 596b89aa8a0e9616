//! User namespaces without a mapping of user ids, and programs with more rights than their callers.
#![expect(unsafe_code, reason = "it enters namespaces by system calls")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::another_user::Other;

/// Runs the command in a new user namespace with no ids mapped: in it every user, including the process itself,
/// appears as user 65534.
fn without_numbers(command: &mut Command) -> &mut Command {
    let unshare_user = || {
        // SAFETY: changes the namespace of the calling process, which has one thread.
        let done = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the function calls the kernel once and touches no memory.
    unsafe { command.pre_exec(unshare_user) }
}

#[test]
fn a_snapshot_of_a_process_with_an_unmapped_user_cannot_be_read() {
    let watched = [("RNIC_TEST_WATCHED", "yes".to_owned())];
    // With mapped ids, the process's own user can read it.
    let Some(mut victim) = Other::start("is_watched", &watched) else { return };
    let name = [("RNIC_TEST_NAME", victim.said("NAME"))];
    let Some(mut same_user) = Other::start("reads_a_snapshot", &name) else { return };
    assert_ne!(same_user.said("READ"), "0 bytes");

    let Some(mut victim) = Other::start_with("is_watched", &watched, without_numbers) else { return };
    let name = [("RNIC_TEST_NAME", victim.said("NAME"))];
    assert!(name[0].1.starts_with("rnic-top-65534-"), "{name:?}");
    // Neither another user, nor the root of the initial namespace, nor another user without a mapped id.
    let Some(mut other) = Other::start("reads_a_snapshot", &name) else { return };
    assert_eq!(other.said("READ"), "0 bytes");
    let Some(mut other) = Other::start_with("reads_a_snapshot", &name, without_numbers) else { return };
    assert_eq!(other.said("READ"), "0 bytes");
}

/// Makes the program run with the rights of the file's owner (set-user-id).
fn set_user_id(command: &mut Command) -> &mut Command {
    let rights = std::fs::Permissions::from_mode(0o4_755);
    std::fs::set_permissions(command.get_program(), rights).expect("the test owns the file");
    command
}

#[test]
fn a_privileged_program_ignores_the_environment() {
    let variables = [("RNIC_TEST_ENVIRONMENT", "yes".to_owned()), ("RNIC_PCAP", "of-the-caller.pcap".to_owned())];
    let Some(mut plain) = Other::start("reads_its_environment", &variables) else { return };
    assert_eq!(plain.said("CAPTURE"), "Some(\"of-the-caller.pcap\")");
    let Some(mut privileged) = Other::start_with("reads_its_environment", &variables, set_user_id) else { return };
    if privileged.said("SECURE") == "0" {
        return eprintln!("skipped: no program of the folder for temporary files gets more rights than its caller");
    }
    assert_eq!(privileged.said("CAPTURE"), "None");
}
