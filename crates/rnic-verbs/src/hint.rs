//! Hints: memory through which a program sets its weight and its rate limit at its NIC, without a system call (SCR
//! mechanism S-9).
//!
//! `include/rnic_hint.h` finds the function by `dlsym`, so that a program works without this library too.

use std::sync::Arc;

use rnic_host::HintLine;

use crate::abi::*;
use crate::context::Context;
use crate::device::Device;
use crate::errno::{Errno, Result, pointer};

/// Returns the line of the device, which exists until it is closed; null when the context is not of this library, or
/// was opened by the parent process.
///
/// # Safety
/// `context` is null, or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rnic_hint_open(context: *mut ibv_context) -> *mut HintLine {
    // SAFETY: guaranteed by the caller.
    pointer(unsafe { line_of(context) })
}

/// # Safety
/// `context` is null, or open.
unsafe fn line_of(context: *mut ibv_context) -> Result<*mut HintLine> {
    // SAFETY: guaranteed by the caller; every library's contexts begin with the same structure.
    if context.is_null() || unsafe { (*context).device } != Device::get().pointer() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the device is this library's, which has opened the context.
    let shared = &unsafe { Context::of(context) }.shared;
    if !shared.is_of_this_process() {
        return Err(Errno::FORKED);
    }
    // The line is atomics, which may be written through a shared reference.
    Ok(Arc::as_ptr(&shared.hint).cast_mut())
}
