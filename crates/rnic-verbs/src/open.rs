//! Opening and closing of devices: either with a new NIC, or as another context of a device that is already open.

use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rnic_host::{Offers, Settings, print_message};

use crate::abi::*;
use crate::cancel::CancellationGuard;
use crate::context::{Context, Shared};
use crate::core::Core;
use crate::device::{self, Device};
use crate::errno::{Errno, Result, pointer};
use crate::operations::structure;
use crate::{fork, opened, watch, wire};

/// Implements `ibv_open_device`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_open_device(_device: *mut ibv_device) -> *mut ibv_context {
    pointer(open(Device::get()))
}

/// Implements `ibv_close_device`.
///
/// # Safety
/// `context` is from `ibv_open_device`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { Context::close(context) };
    0
}

/// Opens the device.
fn open(device: &'static Device) -> Result<*mut ibv_context> {
    let _cancellation_guard = CancellationGuard::begin();
    fork::watch();
    let settings = Settings::from_environment().map_err(|error| {
        print_message(&error);
        Errno::INVALID
    })?;
    device::open_with(&settings);
    if let Some(shared) = opened::only(&settings) {
        return Ok(import(opened::command_channel()?, shared));
    }
    open_new(device, &settings)
}

fn open_new(device: &'static Device, settings: &Settings) -> Result<*mut ibv_context> {
    let offers = Offers::of(settings).map_err(|error| {
        print_message(&error);
        Errno::INVALID
    })?;
    let mut nic = wire::open(settings).map_err(|error| {
        print_message(&error);
        Errno::from(error)
    })?;
    watch::capture(&mut nic, settings)?;
    let wire = device::wire(settings, nic.port());
    device::announce(settings, &wire);
    let command = opened::command_channel()?;
    let shared = Shared::start(Core::new(nic, offers, settings), settings)?;
    opened::announce(&command, &shared);
    let observer = watch::observe(&shared, settings, &wire);
    Ok(Context::make(structure(device), command, shared, observer))
}

/// Creates another context of an open device. The asynchronous events of its objects are delivered to the context that
/// fetches first.
pub(crate) fn import(command: OwnedFd, shared: Arc<Shared>) -> *mut ibv_context {
    Context::make(structure(Device::get()), command, shared, None)
}
