//! Memory of the device and of the host.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::{INVALID_CONTEXT, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, Status, driver, put};
use crate::card::OutOfMemory;
use crate::driver::Driver;

/// `CUdeviceptr`.
type DevicePointer = u64;

/// # Safety
///
/// `place` is null or a place for an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(place: *mut DevicePointer, bytes: usize) -> Status {
    driver(|driver| {
        let Some(card) = Driver::current() else {
            return INVALID_CONTEXT;
        };
        if bytes == 0 || place.is_null() {
            return INVALID_VALUE;
        }
        match driver.allocate(card, bytes as u64) {
            // SAFETY: the caller guarantees a valid `place`.
            Ok(address) => unsafe { put(place, address) },
            Err(OutOfMemory) => OUT_OF_MEMORY,
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: DevicePointer) -> Status {
    driver(|driver| match address == 0 || driver.release(address) {
        true => SUCCESS,
        false => INVALID_VALUE,
    })
}

/// # Safety
///
/// The same as for [`cuMemAlloc_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(
    place: *mut DevicePointer,
    bytes: usize,
    _stream: *mut c_void,
) -> Status {
    // SAFETY: the same interface; nothing runs, so everything before it on the stream is done.
    unsafe { cuMemAlloc_v2(place, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: DevicePointer, _stream: *mut c_void) -> Status {
    cuMemFree_v2(address)
}

/// # Safety
///
/// Each place is null or one for a `usize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    driver(|driver| {
        let Some(card) = Driver::current() else {
            return INVALID_CONTEXT;
        };
        let memory = driver.memory(card);
        // SAFETY: the caller guarantees two valid places.
        match unsafe { put(free, memory.free() as usize) } {
            // SAFETY: as above.
            SUCCESS => unsafe { put(total, memory.total() as usize) },
            wrong => wrong,
        }
    })
}

/// Allocated blocks of host memory, with their sizes.
static HOST: LazyLock<Mutex<HashMap<usize, Layout>>> = LazyLock::new(Mutex::default);

/// Alignment of host memory in bytes: the page size of the system.
const PAGE: usize = 4096;

/// # Safety
///
/// `place` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(place: *mut *mut c_void, bytes: usize) -> Status {
    driver(|_| {
        let Ok(layout) = Layout::from_size_align(bytes.max(1), PAGE) else {
            return OUT_OF_MEMORY;
        };
        // SAFETY: the size is not zero.
        let block = unsafe { alloc_zeroed(layout) };
        if block.is_null() {
            return OUT_OF_MEMORY;
        }
        let mut blocks = HOST.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.insert(block.addr(), layout);
        // SAFETY: the caller guarantees a valid `place`.
        unsafe { put(place, block.cast()) }
    })
}

/// # Safety
///
/// The same as for [`cuMemAllocHost_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    place: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> Status {
    // SAFETY: the same interface; all host memory is the same here.
    unsafe { cuMemAllocHost_v2(place, bytes) }
}

/// # Safety
///
/// Nothing uses the block any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(block: *mut c_void) -> Status {
    driver(|_| {
        let mut blocks = HOST.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(layout) = blocks.remove(&block.addr()) else {
            return INVALID_VALUE;
        };
        // SAFETY: the block was given out by `cuMemAllocHost_v2` with this layout, and was not
        // freed since, or it would not be in the table.
        unsafe { dealloc(block.cast(), layout) };
        SUCCESS
    })
}

/// Drops the data: a simulated card stores none.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    _to: DevicePointer,
    _from: *const c_void,
    _bytes: usize,
    _stream: *mut c_void,
) -> Status {
    driver(|_| SUCCESS)
}

/// Drops the data: a simulated card stores none.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoD_v2(
    _to: DevicePointer,
    _from: *const c_void,
    _bytes: usize,
) -> Status {
    driver(|_| SUCCESS)
}

/// Writes zeros: a simulated card stores no data.
///
/// # Safety
///
/// `to` is null or has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(
    to: *mut c_void,
    _from: DevicePointer,
    bytes: usize,
) -> Status {
    driver(|driver| {
        driver.wait();
        if bytes > 0 && to.is_null() {
            return INVALID_VALUE;
        }
        if bytes > 0 {
            // SAFETY: `to` is not null, and the caller guarantees that there is room.
            unsafe { to.cast::<u8>().write_bytes(0, bytes) };
        }
        SUCCESS
    })
}

/// # Safety
///
/// The same as for [`cuMemcpyDtoH_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: DevicePointer,
    bytes: usize,
    _stream: *mut c_void,
) -> Status {
    // SAFETY: the same interface; it may be done at once.
    unsafe { cuMemcpyDtoH_v2(to, from, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(
    _to: DevicePointer,
    _from: DevicePointer,
    _bytes: usize,
    _stream: *mut c_void,
) -> Status {
    driver(|_| SUCCESS)
}

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
pub struct Copy2d {
    source_x_bytes: usize,
    source_y: usize,
    source_memory: c_uint,
    source_host: *const c_void,
    source_device: DevicePointer,
    source_array: *mut c_void,
    source_pitch: usize,
    target_x_bytes: usize,
    target_y: usize,
    target_memory: c_uint,
    target_host: *mut c_void,
    target_device: DevicePointer,
    target_array: *mut c_void,
    target_pitch: usize,
    width_bytes: usize,
    height: usize,
}

/// `CU_MEMORYTYPE_HOST`.
const ON_THE_HOST: c_uint = 1;

/// Copies rows: a read from the device returns zeros, a write to the device drops the data.
///
/// # Safety
///
/// `copy` is null or describes a copy; a target on the host that it names has room for its rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(copy: *const Copy2d, _stream: *mut c_void) -> Status {
    driver(|driver| {
        // SAFETY: the caller guarantees a valid `copy`.
        let Some(copy) = (unsafe { copy.as_ref() }) else {
            return INVALID_VALUE;
        };
        if copy.target_memory != ON_THE_HOST {
            return SUCCESS;
        }
        driver.wait();
        if copy.target_host.is_null() {
            return INVALID_VALUE;
        }
        for row in 0..copy.height {
            let offset = (copy.target_y + row) * copy.target_pitch + copy.target_x_bytes;
            // SAFETY: this row of `width_bytes` is part of the target that the caller describes.
            unsafe {
                let begin = copy.target_host.cast::<u8>().add(offset);
                begin.write_bytes(0, copy.width_bytes);
            }
        }
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(
    _to: DevicePointer,
    _value: u8,
    _bytes: usize,
    _stream: *mut c_void,
) -> Status {
    driver(|_| SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8_v2(_to: DevicePointer, _value: u8, _bytes: usize) -> Status {
    driver(|_| SUCCESS)
}
