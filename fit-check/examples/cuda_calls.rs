//! Calls CUDA's driver as its arguments say, for the tests of `fit-check run`: a program that opens
//! `libcuda.so.1` by its name, as burn's CUDA runtime does, and needs no GPU library to be built.
//!
//! ```console
//! $ fit-check run --memory 1GiB -- target/debug/examples/cuda_calls allocate 100 free allocate 50
//! ```
//!
//! `allocate MIB` takes memory (and goes on where it is refused), `free` gives the oldest back, `read`
//! reads a value and says it, `sleep SECONDS`, `abort` and `exit STATUS` end it.

use std::ffi::c_void;
use std::time::Duration;

use libloading::Library;

/// `CUresult`.
type Status = i32;

/// The driver, with a context on its first card.
struct Driver(Library);

impl Driver {
    /// # Panics
    ///
    /// There is none, or it does not do what its documentation says.
    fn open() -> Self {
        // SAFETY: loading a CUDA driver has no effect that something here would not expect.
        let driver = Self(unsafe { Library::new("libcuda.so.1") }.expect("a CUDA driver"));
        let mut context = std::ptr::null_mut::<c_void>();
        // SAFETY: the signatures are those of the CUDA driver API, and every pointer is to a local.
        unsafe {
            let init: unsafe extern "C" fn(u32) -> Status = driver.function(b"cuInit");
            let retain: unsafe extern "C" fn(*mut *mut c_void, i32) -> Status =
                driver.function(b"cuDevicePrimaryCtxRetain");
            let set: unsafe extern "C" fn(*mut c_void) -> Status =
                driver.function(b"cuCtxSetCurrent");
            assert_eq!([init(0), retain(&mut context, 0), set(context)], [0; 3]);
        }
        driver
    }

    /// # Safety
    ///
    /// `F` is the signature that the function `name` has.
    unsafe fn function<F: Copy>(&self, name: &[u8]) -> F {
        // SAFETY: the caller answers for the signature.
        *unsafe { self.0.get::<F>(name) }.expect("a function of the CUDA driver")
    }

    fn allocate(&self, bytes: usize) -> Result<u64, Status> {
        let mut address = 0;
        // SAFETY: as above.
        let status = unsafe {
            let allocate: unsafe extern "C" fn(*mut u64, usize) -> Status =
                self.function(b"cuMemAlloc_v2");
            allocate(&mut address, bytes)
        };
        match status {
            0 => Ok(address),
            status => Err(status),
        }
    }

    fn free(&self, address: u64) {
        // SAFETY: as above.
        let status = unsafe {
            let free: unsafe extern "C" fn(u64) -> Status = self.function(b"cuMemFree_v2");
            free(address)
        };
        assert_eq!(status, 0);
    }

    fn read(&self, address: u64) -> u32 {
        let mut value = 1;
        // SAFETY: as above; the value has the four bytes that are read.
        let status = unsafe {
            let read: unsafe extern "C" fn(*mut u32, u64, usize) -> Status =
                self.function(b"cuMemcpyDtoH_v2");
            read(&mut value, address, size_of::<u32>())
        };
        assert_eq!(status, 0);
        value
    }
}

fn main() {
    let driver = Driver::open();
    let mut held = std::collections::VecDeque::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> usize {
            arguments
                .next()
                .and_then(|it| it.parse().ok())
                .expect("a number")
        };
        match argument.as_str() {
            "allocate" => match driver.allocate(number() << 20) {
                Ok(address) => held.push_back(address),
                Err(status) => println!("refused with status {status}"),
            },
            "free" => driver.free(held.pop_front().expect("something is held")),
            "read" => println!("read {}", driver.read(held[0])),
            "sleep" => std::thread::sleep(Duration::from_secs(number() as u64)),
            "abort" => std::process::abort(),
            "exit" => std::process::exit(number() as i32),
            other => panic!("`{other}` is no call"),
        }
    }
}
