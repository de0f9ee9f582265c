//! The child process: it trains, sends messages through stdout, and ends.

use std::io::Write;

use burn::tensor::Device;
use cubecl_server::dry_run::DryRun;
use estimator::record::Pools;
use estimator::{Bytes, DeviceDescription, Tuning, configure_burn, pools_of, upstream};
use model_zoo::{Job, Model, NoopObserver};

use super::ballast::{self, Ballast};
use super::devices::{self, DeviceName, DeviceReport};
use super::driver::Driver;
use super::observer::DeviceObserver;
use super::{Message, Mode, Opened, Task, Training, process};
use crate::child_process;
use crate::step::{STEPS, training_device};

/// Executes the task on stdin; `find` returns the model of the name in the task. The process ends when its
/// parent does.
///
/// # Errors
///
/// The task cannot be read or executed. Failures of the device are messages on stdout instead.
pub fn run<M: Model + Sync>(find: impl Fn(&str) -> anyhow::Result<M>) -> anyhow::Result<()> {
    let task: Task = child_process::task()?;
    std::panic::set_hook(Box::new(|panic| {
        if panic
            .location()
            .is_some_and(|place| upstream::is_probe_overflow(place.file()))
        {
            return;
        }
        send(&Message::Failed(message(panic)));
        // burn's other threads would wait for the one that panicked.
        std::process::exit(1);
    }));
    match task {
        Task::List => send(&Message::Found(devices::list())),
        Task::Probe(name) => {
            open(name, Driver::load().as_ref());
        }
        Task::Train(name, training) => {
            configure_burn(training.fused);
            let driver = Driver::load();
            if let Some((device, opened)) = open(name, driver.as_ref()) {
                let device_memory = move || driver.as_ref()?.used(&opened.report.name);
                let model = find(&training.model)?;
                train(&model, &training, device, device_memory)?;
            }
        }
        Task::Hold(name, left) => {
            let driver = Driver::load();
            if let Some((device, opened)) = open(name, driver.as_ref()) {
                let free = || driver.as_ref()?.free(&opened.report.name);
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
    let opened = Opened {
        report: DeviceReport::new(name, &description.name, version),
        free: driver.and_then(|driver| driver.free(&description.name)),
        description,
    };
    send(&Message::Device(Box::new(opened.clone())));
    Some((device, opened))
}

fn train<M: Model + Sync>(
    model: &M,
    training: &Training,
    mut device: Device,
    device_memory: impl Fn() -> Option<Bytes> + 'static,
) -> anyhow::Result<()> {
    let job = training.request.resolve(model)?;
    if let Err(refused) = device.configure(job.precision.float_type()) {
        send(&Message::Failed(refused.to_string()));
        return Ok(());
    }
    let _dry_run = (training.mode == Mode::DryRun).then(DryRun::new);
    if let Some(limit) = training.limit {
        process::limit(limit)?;
    }
    let device = training_device(device, &job);
    let left = match training.tuning {
        Tuning::Warm if cfg!(feature = "autotune") => tune(model, &job, &device),
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
    if let Err(failed) = model.train(&job, &device, STEPS, &mut observer) {
        send(&Message::Failed(failed.0));
    }
    Ok(())
}

/// Runs the step once, so that burn's tuner knows its kernels, and frees its memory. CubeCL has pools for
/// each thread, so the step runs on a thread of its own, and the pools of this one stay empty. Returns what
/// the other pools still hold: burn keeps some of what a program has released until its next step.
fn tune<M: Model + Sync>(model: &M, job: &Job, device: &Device) -> Pools {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let Ok(()) = model.train(job, device, STEPS, &mut NoopObserver);
        });
    });
    let _ = device.sync();
    device.memory_cleanup();
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

/// Writes a message as one line to stdout, at once: the process may not live to send another.
fn send(message: &Message) {
    if let Ok(line) = serde_json::to_string(message) {
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}

fn message(panic: &std::panic::PanicHookInfo) -> String {
    let payload = panic.payload_as_str().unwrap_or("no message");
    // The first lines say what happened; the rest is a trace.
    payload.lines().take(6).collect::<Vec<_>>().join(" ")
}
