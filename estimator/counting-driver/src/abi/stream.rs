//! Streams and events: nothing waits for anything, since nothing runs.

use std::ffi::{c_uint, c_void};

use super::{INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status, driver, put};
use crate::clock::{EventTime, StreamClock};

/// The clock of the default streams.
static DEFAULT_STREAM: StreamClock = StreamClock::new();

/// Handles below this are the default streams of the interface (`CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`),
/// which share a clock here.
const FIRST_HANDLE: usize = 3;

/// The clock of `stream`.
///
/// # Safety
///
/// `stream` is a default stream, or was created and not destroyed.
pub(super) unsafe fn clock_of<'a>(stream: *mut c_void) -> &'a StreamClock {
    match stream.addr() < FIRST_HANDLE {
        true => &DEFAULT_STREAM,
        // SAFETY: every other handle is a box that `cuStreamCreate` leaked; the caller guarantees that it
        // still exists.
        false => unsafe { &*stream.cast::<StreamClock>() },
    }
}

/// # Safety
///
/// `place` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(place: *mut *mut c_void, _flags: c_uint) -> Status {
    let stream = Box::into_raw(Box::new(StreamClock::new()));
    // SAFETY: the caller guarantees a valid `place`.
    driver(|_| unsafe { put(place, stream.cast()) })
}

/// # Safety
///
/// The same as for [`cuStreamCreate`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    place: *mut *mut c_void,
    flags: c_uint,
    _priority: i32,
) -> Status {
    // SAFETY: the same interface; there are no priorities.
    unsafe { cuStreamCreate(place, flags) }
}

/// # Safety
///
/// `stream` was created, and nothing uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> Status {
    driver(|_| {
        if stream.addr() < FIRST_HANDLE {
            return INVALID_VALUE;
        }
        // SAFETY: `cuStreamCreate` leaked this box, and the caller gives it up.
        drop(unsafe { Box::from_raw(stream.cast::<StreamClock>()) });
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(_stream: *mut c_void) -> Status {
    driver(|driver| {
        driver.wait();
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(_stream: *mut c_void) -> Status {
    driver(|_| SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(
    _stream: *mut c_void,
    _event: *mut c_void,
    _flags: c_uint,
) -> Status {
    driver(|_| SUCCESS)
}

/// A program that would capture its launches in a graph makes them one by one here.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(_stream: *mut c_void, _mode: c_uint) -> Status {
    driver(|_| NOT_SUPPORTED)
}

/// No stream is ever captured.
///
/// # Safety
///
/// `status` is null or a place for an `i32`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(_stream: *mut c_void, status: *mut i32) -> Status {
    // SAFETY: the caller guarantees a valid `status`.
    driver(|_| unsafe { put(status, 0) })
}

/// # Safety
///
/// `place` is null or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(place: *mut *mut c_void, _flags: c_uint) -> Status {
    let event = Box::into_raw(Box::new(EventTime::default()));
    // SAFETY: the caller guarantees a valid `place`.
    driver(|_| unsafe { put(place, event.cast()) })
}

/// # Safety
///
/// `event` was created, and nothing uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> Status {
    driver(|_| {
        if event.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: `cuEventCreate` leaked this box, and the caller gives it up.
        drop(unsafe { Box::from_raw(event.cast::<EventTime>()) });
        SUCCESS
    })
}

/// # Safety
///
/// `event` is null or was created and not destroyed; the same holds for `stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> Status {
    driver(|_| {
        // SAFETY: only `cuEventCreate` gives out events; the caller guarantees that it exists.
        let Some(event) = (unsafe { event.cast::<EventTime>().as_ref() }) else {
            return INVALID_VALUE;
        };
        // SAFETY: the caller guarantees a valid `stream`.
        event.record(unsafe { clock_of(stream) });
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(_event: *mut c_void) -> Status {
    driver(|driver| {
        driver.wait();
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(_event: *mut c_void) -> Status {
    driver(|_| SUCCESS)
}

/// # Safety
///
/// `milliseconds` is null or a place for an `f32`; both events were created and not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(
    milliseconds: *mut f32,
    start: *mut c_void,
    end: *mut c_void,
) -> Status {
    driver(|_| {
        // SAFETY: only `cuEventCreate` gives out events; the caller guarantees that they exist.
        let events = unsafe {
            (
                start.cast::<EventTime>().as_ref(),
                end.cast::<EventTime>().as_ref(),
            )
        };
        match events {
            // SAFETY: the caller guarantees a valid `milliseconds`.
            (Some(start), Some(end)) => unsafe { put(milliseconds, end.since(start)) },
            _ => INVALID_VALUE,
        }
    })
}

/// # Safety
///
/// The same as for [`cuEventElapsedTime_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: *mut c_void,
    end: *mut c_void,
) -> Status {
    // SAFETY: the same interface.
    unsafe { cuEventElapsedTime_v2(milliseconds, start, end) }
}
