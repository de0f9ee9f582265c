//! The child process: it trains, sends messages through stdout, and ends.

use std::panic::AssertUnwindSafe;

use burn::tensor::Device;
use cubecl_server::dry_run::DryRun;
use estimator::{
    Bytes, DeviceDescription, MAX_TUNING_RUNS, Tuning, choices_made, configure_burn,
    listen_on_devices, pools_of,
};
use model_zoo::{Job, Model};
use recording::Pools;

use super::ballast::{self, Ballast};
use super::devices::{self, DeviceName, DeviceReport};
use super::driver::{DeviceKey, Driver};
use super::observer::DeviceObserver;
use super::{Message, Mode, Opened, Task, Training, panics, process};
use crate::child_process::{self, send};
use crate::counting_driver::LiftedLimit;
use crate::step::{STEPS, training_device};

/// Executes the task on stdin; `find` returns the model of the name in the task. The process ends when its
/// parent does.
///
/// # Errors
///
/// The task cannot be read or executed. Failures of the device are messages on stdout instead.
pub fn run<M: Model + Sync>(find: impl Fn(&str) -> anyhow::Result<M>) -> anyhow::Result<()> {
    let task: Task = child_process::task()?;
    panics::report(|failed| send(&Message::Failed(failed)));
    match task {
        Task::List => send(&Message::Found(devices::list())),
        Task::Probe(name) => {
            open(name, Driver::load().as_ref());
        }
        Task::Train(name, training) => train(name, &training, find)?,
        Task::Hold(name, left) => {
            let driver = Driver::load();
            if let Some((device, opened)) = open(name, driver.as_ref()) {
                let key = DeviceKey::of(&device);
                let free = || driver.as_ref()?.free(key.as_ref()?);
                hold(
                    Ballast::new(device, opened.description.largest_page),
                    left,
                    free,
                );
            }
        }
    }
    send(&Message::Done);
    Ok(())
}

/// Opens the device `name` and sends its description; none if there is no such device.
fn open(name: DeviceName, driver: Option<&Driver>) -> Option<(Device, Opened)> {
    let device = name.find();
    let described = device.and_then(|device| {
        let description = DeviceDescription::of(&device)?;
        Some((device, description))
    });
    let Some((device, description)) = described else {
        send(&Message::NoDevice);
        return None;
    };
    let version = driver.and_then(Driver::version);
    let key = DeviceKey::of(&device);
    let opened = Opened {
        report: DeviceReport::new(name, &description.name, version),
        free: driver.zip(key).and_then(|(driver, key)| driver.free(&key)),
        description,
    };
    send(&Message::Device(Box::new(opened.clone())));
    Some((device, opened))
}

/// A device that is ready for a training.
struct SetUp<M> {
    /// The device with autodiff.
    device: Device,
    model: M,
    job: Job,
}

/// Opens the device and sets it up for `training`; none if that is not possible, which a message says.
fn set_up<M: Model + Sync>(
    name: DeviceName,
    training: &Training,
    find: impl Fn(&str) -> anyhow::Result<M>,
    driver: Option<&Driver>,
) -> anyhow::Result<Option<SetUp<M>>> {
    configure_burn(training.fused);
    if training.tuning == Tuning::Warm {
        listen_on_devices();
    }
    let Some((mut device, _)) = open(name, driver) else {
        return Ok(None);
    };
    let model = find(&training.model)?;
    let job = training.request.resolve(&model)?;
    if let Err(refused) = device.configure(job.precision.float_type()) {
        send(&Message::Failed(refused.to_string()));
        return Ok(None);
    }
    Ok(Some(SetUp {
        device: training_device(device, &job),
        model,
        job,
    }))
}

fn train<M: Model + Sync>(
    name: DeviceName,
    training: &Training,
    find: impl Fn(&str) -> anyhow::Result<M>,
) -> anyhow::Result<()> {
    let driver = Driver::load();
    let Some(set_up) = set_up(name, training, find, driver.as_ref())? else {
        return Ok(());
    };
    let SetUp { device, model, job } = set_up;
    let key = DeviceKey::of(&device);
    let device_memory = move || driver.as_ref()?.used(key.as_ref()?);
    let _dry_run = (training.mode == Mode::DryRun).then(DryRun::new);
    if let Some(limit) = training.limit {
        process::limit(limit)?;
    }
    let left = match training.tuning {
        Tuning::Warm if cfg!(feature = "autotune") => tune(&model, &job, &device, name.index),
        _ => Pools::default(),
    };
    let mut observer = DeviceObserver::new(
        device.clone(),
        left,
        training.sampled,
        device_memory,
        |mark| {
            send(&Message::Mark(Box::new(mark)));
        },
    );
    // CubeCL continues a panic of the device's thread on this one.
    let trained = std::panic::catch_unwind(AssertUnwindSafe(|| {
        model.train(&job, &device, STEPS, &mut observer)
    }));
    match trained {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failed)) => {
            send(&Message::Failed(panics::cause(failed.0)));
            Ok(())
        }
        Err(panic) => {
            send(&Message::Failed(panics::continued(&*panic)));
            // Whatever is dropped now may wait for the device's thread.
            std::process::exit(1);
        }
    }
}

/// Runs the step until burn's tuner has nothing left to choose, and frees its memory. What it chose in a run can
/// lead to kernels that it does not know in the next. The step is observed as the one that is measured, because
/// what burn fuses, and so tunes, depends on where the program waits for the device. CubeCL has pools for each
/// thread, so the step runs on threads of its own, and the pools of this one stay empty. Returns what the other
/// pools still hold: burn keeps some of what a program has released until its next step.
///
/// As on a simulated card, kernels are tuned where there is room for every candidate: the card with the index
/// `card` has no limit meanwhile, if it is one of the counting driver.
fn tune<M: Model + Sync>(model: &M, job: &Job, device: &Device, card: usize) -> Pools {
    let _lifted = LiftedLimit::new(card);
    for _ in 0..MAX_TUNING_RUNS {
        let known = choices_made();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut observer =
                    DeviceObserver::new(device.clone(), Pools::default(), false, || None, |_| {});
                // If the step fails here, so does the one that is measured.
                let _ = model.train(job, device, STEPS, &mut observer);
            });
        });
        let _ = device.sync();
        device.memory_cleanup();
        if choices_made() == known {
            break;
        }
    }
    pools_of(device)
}

/// Takes `ballast` until what is `free` exceeds `left` by less than a piece, and holds it until the parent
/// ends.
fn hold(mut ballast: Ballast, left: Bytes, free: impl Fn() -> Option<Bytes>) {
    match ballast::leave(left, free, |bytes| ballast.take(bytes)) {
        Ok(_) => send(&Message::Holding),
        Err(failed) => return send(&Message::Failed(failed)),
    }
    loop {
        std::thread::park();
    }
}
