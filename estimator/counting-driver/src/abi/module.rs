//! Modules, and the launches of their kernels.

use std::ffi::{CStr, c_char, c_uint, c_void};

use super::stream::clock_of;
use super::{INVALID_VALUE, SUCCESS, Status, driver, put};
use crate::kernel::Kernel;

/// The code of a loaded module.
struct Module {
    ptx: String,
}

/// Loads PTX. Modules live as long as the process: CubeCL unloads none.
///
/// # Safety
///
/// `place` is null or a place for a pointer; `image` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(place: *mut *mut c_void, image: *const c_void) -> Status {
    driver(|_| {
        if image.is_null() || place.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: by the documentation, an image is PTX that ends with a zero, a cubin or a fatbin; of the
        // last two, which nothing here loads, this reads up to the first zero.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        let ptx = text.to_string_lossy().into_owned();
        let module = Box::into_raw(Box::new(Module { ptx }));
        // SAFETY: the caller guarantees a valid `place`.
        unsafe { put(place, module.cast()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(_module: *mut c_void) -> Status {
    driver(|_| SUCCESS)
}

/// # Safety
///
/// `place` is null or a place for a pointer, `module` is one that `cuModuleLoadData` gave out, `name` a
/// string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    place: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> Status {
    driver(|_| {
        if module.is_null() || name.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: modules are given out by `cuModuleLoadData` alone, and never freed.
        let module = unsafe { &*module.cast::<Module>() };
        // SAFETY: the caller guarantees a valid `name`.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let kernel = Box::into_raw(Box::new(Kernel::new(&name, &module.ptx)));
        // SAFETY: the caller guarantees a valid `place`.
        unsafe { put(place, kernel.cast()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(_function: *mut c_void, _name: i32, _value: i32) -> Status {
    driver(|_| SUCCESS)
}

/// Advances the clock of `stream` by the time of the launch, and runs nothing.
///
/// # Safety
///
/// `function` is null or one that `cuModuleGetFunction` gave out, `stream` null or one that was
/// created and not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    stream: *mut c_void,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Status {
    driver(|driver| {
        // SAFETY: functions are given out by `cuModuleGetFunction` alone, and never freed.
        let Some(kernel) = (unsafe { function.cast::<Kernel>().as_ref() }) else {
            return INVALID_VALUE;
        };
        let time = driver.launch(kernel);
        // SAFETY: the caller guarantees a valid `stream`.
        unsafe { clock_of(stream) }.advance(time);
        SUCCESS
    })
}

/// Writes zeros: only kernels read tensor maps, and none runs.
///
/// # Safety
///
/// `map` is null or a place for 128 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(map: *mut [u64; 16]) -> Status {
    // SAFETY: the caller guarantees a valid `map`; the interface's other arguments are not read.
    driver(|_| unsafe { put(map, [0; 16]) })
}

/// # Safety
///
/// The same as for [`cuTensorMapEncodeTiled`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeIm2col(map: *mut [u64; 16]) -> Status {
    // SAFETY: as in [`cuTensorMapEncodeTiled`].
    driver(|_| unsafe { put(map, [0; 16]) })
}

/// # Safety
///
/// The same as for [`cuTensorMapEncodeTiled`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeIm2colWide(map: *mut [u64; 16]) -> Status {
    // SAFETY: as in [`cuTensorMapEncodeTiled`].
    driver(|_| unsafe { put(map, [0; 16]) })
}
