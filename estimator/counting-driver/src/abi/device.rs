//! Devices and their contexts.

use std::ffi::{c_char, c_uint, c_void};

use super::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, SUCCESS, Status, driver, put};
use crate::config::CardConfig;
use crate::driver::{Card, Driver};

/// CUDA 13.0, the version that the programs of `docs/cuda_build.md` are built for: their kernels are compiled
/// to PTX that a driver of this version loads.
const VERSION: i32 = 13_000;

fn card(driver: &'static Driver, device: i32) -> Option<&'static Card> {
    driver.cards.get(usize::try_from(device).ok()?)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> Status {
    driver(|_| SUCCESS)
}

/// # Safety
///
/// `version` is null or a place for an `i32`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> Status {
    // SAFETY: the caller guarantees a valid `version`.
    driver(|_| unsafe { put(version, VERSION) })
}

/// # Safety
///
/// `count` is null or a place for an `i32`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> Status {
    // SAFETY: the caller guarantees a valid `count`.
    driver(|driver| unsafe { put(count, driver.cards.len() as i32) })
}

/// # Safety
///
/// `device` is null or a place for an `i32`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut i32, ordinal: i32) -> Status {
    driver(|driver| match card(driver, ordinal) {
        // SAFETY: the caller guarantees a valid `device`.
        Some(_) => unsafe { put(device, ordinal) },
        None => INVALID_DEVICE,
    })
}

/// Writes `text` and a terminating zero into the `size` bytes at `place`, cut to fit.
///
/// # Safety
///
/// `place` is null or has room for `size` bytes.
unsafe fn put_text(place: *mut c_char, size: i32, text: &str) -> Status {
    let Some(room) = usize::try_from(size)
        .ok()
        .and_then(|size| size.checked_sub(1))
    else {
        return INVALID_VALUE;
    };
    if place.is_null() {
        return INVALID_VALUE;
    }
    let bytes = &text.as_bytes()[..text.len().min(room)];
    // SAFETY: `place` has room for `room` bytes and a zero; `bytes` is no longer, and a Rust slice
    // never overlaps what a caller hands in to be written.
    unsafe {
        place
            .cast::<u8>()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        place.add(bytes.len()).write(0);
    }
    SUCCESS
}

/// # Safety
///
/// `name` is null or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, size: i32, device: i32) -> Status {
    driver(|driver| match card(driver, device) {
        // SAFETY: the caller guarantees a valid `name`.
        Some(card) => unsafe { put_text(name, size, &card.config.name) },
        None => INVALID_DEVICE,
    })
}

/// # Safety
///
/// `bus_id` is null or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(
    bus_id: *mut c_char,
    size: i32,
    device: i32,
) -> Status {
    driver(|driver| match card(driver, device) {
        // SAFETY: the caller guarantees a valid `bus_id`.
        Some(_) => unsafe { put_text(bus_id, size, &format!("0000:{:02x}:00.0", device + 1)) },
        None => INVALID_DEVICE,
    })
}

/// `CUuuid`: 16 bytes. All are zero but the last, the card's number from 1 on, so that nobody takes it for
/// the UUID of a real card.
///
/// # Safety
///
/// `uuid` is null or a place for 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) -> Status {
    driver(|driver| match card(driver, device) {
        Some(_) => {
            let mut bytes = [0; 16];
            bytes[15] = (device + 1) as u8;
            // SAFETY: the caller guarantees a valid `uuid`.
            unsafe { put(uuid, bytes) }
        }
        None => INVALID_DEVICE,
    })
}

/// # Safety
///
/// The same as for [`cuDeviceGetUuid_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) -> Status {
    // SAFETY: the same interface.
    unsafe { cuDeviceGetUuid_v2(uuid, device) }
}

/// # Safety
///
/// `bytes` is null or a place for a `usize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> Status {
    driver(|driver| match card(driver, device) {
        // SAFETY: the caller guarantees a valid `bytes`.
        Some(card) => unsafe { put(bytes, card.config.total_bytes as usize) },
        None => INVALID_DEVICE,
    })
}

/// The value of `CUdevice_attribute` number `attribute`, for those that CubeCL's runtime asks for. What
/// `card` does not state comes from the table "Technical Specifications per Compute Capability" in the CUDA
/// C++ Programming Guide, where it is the same for all from 5.0 on.
fn attribute_of(card: &CardConfig, attribute: i32) -> Option<i32> {
    Some(match attribute {
        // Threads per block; the largest block.
        1..=3 => 1024,
        4 => 64,
        // The largest grid.
        5 => i32::MAX,
        6 | 7 => 65_535,
        // Shared memory per block without opting in.
        8 => 48 << 10,
        // Constant memory, threads in a warp, registers per block.
        9 => 64 << 10,
        10 => 32,
        12 => 64 << 10,
        16 => card.multiprocessors as i32,
        // The device can copy while it computes (15), maps host memory (19) and has unified addresses (41).
        // It is not integrated into the host's chipset (18) and allows any number of contexts (20).
        15 | 19 | 41 => 1,
        18 | 20 => 0,
        75 => (card.compute_capability / 10) as i32,
        76 => (card.compute_capability % 10) as i32,
        97 => card.shared_memory_per_block as i32,
        // Memory pools (`cuMemAllocAsync`).
        115 => 1,
        _ => return None,
    })
}

/// # Safety
///
/// `value` is null or a place for an `i32`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut i32,
    attribute: i32,
    device: i32,
) -> Status {
    driver(|driver| {
        let Some(card) = card(driver, device) else {
            return INVALID_DEVICE;
        };
        match attribute_of(&card.config, attribute) {
            // SAFETY: the caller guarantees a valid `value`.
            Some(number) => unsafe { put(value, number) },
            None => INVALID_VALUE,
        }
    })
}

/// The context of a card: the card's number, from 1 on, since null is no context.
fn context(card: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(card + 1)
}

/// # Safety
///
/// `place` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(place: *mut *mut c_void, device: i32) -> Status {
    driver(|driver| match card(driver, device) {
        Some(_) => {
            driver.retain(device as usize);
            // SAFETY: the caller guarantees a valid `place`.
            unsafe { put(place, context(device as usize)) }
        }
        None => INVALID_DEVICE,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: i32) -> Status {
    driver(|_| SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> Status {
    driver(|driver| {
        let card = context.addr().checked_sub(1);
        if card.is_some_and(|card| card >= driver.cards.len()) {
            return INVALID_CONTEXT;
        }
        Driver::set_current(card);
        SUCCESS
    })
}

/// # Safety
///
/// `place` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(place: *mut *mut c_void) -> Status {
    let current = Driver::current().map_or(std::ptr::null_mut(), context);
    // SAFETY: the caller guarantees a valid `place`.
    driver(|_| unsafe { put(place, current) })
}

/// # Safety
///
/// `device` is null or a place for an `i32`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut i32) -> Status {
    driver(|_| match Driver::current() {
        // SAFETY: the caller guarantees a valid `device`.
        Some(card) => unsafe { put(device, card as i32) },
        None => INVALID_CONTEXT,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Status {
    driver(|driver| {
        driver.wait();
        SUCCESS
    })
}

/// Streams have no priorities: both ends of the range are 0, as documented for such devices.
///
/// # Safety
///
/// Each place is null or one for an `i32`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(
    least: *mut i32,
    greatest: *mut i32,
) -> Status {
    driver(|_| {
        for place in [least, greatest] {
            if !place.is_null() {
                // SAFETY: the caller guarantees two valid places.
                unsafe { place.write(0) };
            }
        }
        SUCCESS
    })
}
