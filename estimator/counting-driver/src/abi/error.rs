//! The names and descriptions of results.

use std::ffi::{CStr, c_char};

use super::{
    INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_SUPPORTED, OUT_OF_MEMORY,
    SUCCESS, Status, put,
};

fn name(status: Status) -> Option<(&'static CStr, &'static CStr)> {
    Some(match status {
        SUCCESS => (c"CUDA_SUCCESS", c"no error"),
        INVALID_VALUE => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        OUT_OF_MEMORY => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        NO_DEVICE => (
            c"CUDA_ERROR_NO_DEVICE",
            c"no CUDA-capable device is detected",
        ),
        INVALID_DEVICE => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        INVALID_CONTEXT => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        NOT_SUPPORTED => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        _ => return None,
    })
}

/// # Safety
///
/// `text` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(status: Status, text: *mut *const c_char) -> Status {
    match name(status) {
        // SAFETY: the caller guarantees a valid `text`.
        Some((name, _)) => unsafe { put(text, name.as_ptr()) },
        None => INVALID_VALUE,
    }
}

/// # Safety
///
/// The same as for [`cuGetErrorName`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(status: Status, text: *mut *const c_char) -> Status {
    match name(status) {
        // SAFETY: the caller guarantees a valid `text`.
        Some((_, meaning)) => unsafe { put(text, meaning.as_ptr()) },
        None => INVALID_VALUE,
    }
}
