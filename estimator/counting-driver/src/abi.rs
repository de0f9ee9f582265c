//! The functions of a CUDA driver, with the names, arguments and results of its documentation (CUDA Driver
//! API, 13.0). All unsafe code is here and in the modules below. It is of three kinds, for which the
//! interface makes the caller responsible:
//!
//! - it writes a result through a pointer that the caller provides for it ([`put`]);
//! - it reads or writes a string or a block of memory whose size the caller states;
//! - it uses a handle that another function gave out.

mod device;
mod error;
mod memory;
mod module;
mod stream;

use crate::driver::Driver;

/// `CUresult`.
pub(crate) type Status = i32;

/// `CUDA_SUCCESS`.
pub(crate) const SUCCESS: Status = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: Status = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: Status = 2;
/// `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: Status = 100;
/// `CUDA_ERROR_INVALID_DEVICE`.
pub(crate) const INVALID_DEVICE: Status = 101;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub(crate) const INVALID_CONTEXT: Status = 201;
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: Status = 801;

/// Runs `function` with the driver of this process, and counts the call.
fn driver(function: impl FnOnce(&'static Driver) -> Status) -> Status {
    match Driver::get() {
        Some(driver) => {
            driver.journal.called();
            function(driver)
        }
        None => NO_DEVICE,
    }
}

/// What the dynamic linker calls when the process ends, unless a signal kills it.
// SAFETY: entries of this section are functions without arguments that return (System V ABI, "Initialization and
// Termination Functions"). The driver is a static that is never dropped.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = {
    extern "C" fn at_exit() {
        if let Some(driver) = Driver::loaded() {
            driver.exits();
        }
    }
    at_exit
};

/// Writes `value` to `place`, which the caller provides.
///
/// # Safety
///
/// `place` is null, or a place for a `T` that nothing else uses meanwhile.
unsafe fn put<T>(place: *mut T, value: T) -> Status {
    if place.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: `place` is not null; the caller guarantees the rest.
    unsafe { place.write(value) };
    SUCCESS
}
