//! The user's program: the card that it runs on, and when enough of its steps were seen.

use std::ffi::c_int;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock, mpsc};
use std::time::{Duration, Instant};

use cubecl_server::config::cache::CacheConfig;
use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl_server::runtime::Runtime;
use recording::StepDetector;
use simulated_card::{CardState, RunConfig, RunReport, StopReason};

use crate::HipRuntime;
use crate::shim::{AmdDevice, Cards, install};

/// How often the watcher reads the recording. A step of the smallest network takes longer.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How long the card may take for calls that the program queued before it ended.
const LAST_CALLS: Duration = Duration::from_secs(5);

struct Run {
    run_config: RunConfig,
    card: Arc<CardState>,
    over: AtomicBool,
}

static RUN: OnceLock<Run> = OnceLock::new();

unsafe extern "C" {
    /// C library: calls `at_end` when the process ends of its own accord.
    safe fn atexit(at_end: extern "C" fn()) -> c_int;
    /// C library: ends the process and calls nothing any more.
    safe fn _exit(status: c_int) -> !;
}

/// Puts the card behind the shim, tells the parent process that the program uses it, and starts to watch its recording.
///
/// # Panics
///
/// The environment describes no card: `cargo fit-check` built the program, but something else started it.
pub fn begin() {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| {
        let text = std::env::var(RunConfig::VARIABLE).unwrap_or_default();
        let run_config = RunConfig::from_text(&text)
            .expect("built by `cargo fit-check`, this program has a card only when started by it");
        configure(&run_config);
        // The parent process takes an empty report as the sign that the card is used. Another process of the program may
        // have written one there.
        let report = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&run_config.run_report);
        if let Err(error) = report {
            // Without it the parent process would take the program for one that does not use the card.
            unwritable(&run_config, &error);
            _exit(1);
        }
        let card = CardState::new(run_config.device.clone());
        simulated_card::insert(card.clone());
        install(Cards {
            serve: simulated_card::serve,
            present: simulated_card::present,
            reads: |shape, strides| {
                let runtime = RUN.get().map(|run| run.run_config.device.runtime);
                let runtime = runtime.unwrap_or(simulated_card::Runtime::Cuda);
                runtime.rules().can_read(shape, strides)
            },
        });
        let run = RUN.get_or_init(|| Run {
            run_config,
            card,
            over: AtomicBool::new(false),
        });
        atexit(at_end);
        std::thread::spawn(|| watch(run));
    });
}

/// Sets the user's own configuration of CubeCL, with two changes. What CubeCL keeps between processes goes into the
/// folder of this run, because the card does not exist and the folder does not outlive the run. And a kernel is timed
/// with the fewest samples that the configuration allows, as in `estimator/src/card.rs`, since it always takes the same
/// time.
fn configure(run_config: &RunConfig) {
    let mut config = CubeClRuntimeConfig::from_current_dir();
    config.autotune.disable_cache = true;
    if let Some(folder) = run_config.run_report.parent() {
        config.environment.path = CacheConfig::Directory(folder.to_path_buf());
    }
    config.autotune.bench.max_samples = config.autotune.bench.min_samples;
    CubeClRuntimeConfig::try_set(config);
}

/// Reads the recording until there are enough steps or the time is up, and then ends the program: nothing in
/// it can be asked to stop.
fn watch(run: &Run) {
    let until = Instant::now() + Duration::from_secs(run.run_config.seconds);
    let mut detector = StepDetector::new(run.run_config.steps);
    loop {
        std::thread::sleep(POLL_INTERVAL);
        let steps = detector.look(&run.card.recorder().recording);
        match steps {
            Some(steps) => run.end(StopReason::Steps, steps),
            None if Instant::now() > until => run.end(StopReason::Time, Vec::new()),
            None => {}
        }
    }
}

impl Run {
    fn end(&self, ending: StopReason, steps: Vec<std::ops::Range<usize>>) {
        if self.write_report(ending, steps) {
            _exit(0);
        }
        // The program is already ending by itself.
        std::thread::sleep(LAST_CALLS * 2);
    }

    /// Writes the report, unless that was done before. If it cannot be written, the parent process finds an
    /// empty one.
    fn write_report(&self, ending: StopReason, steps: Vec<std::ops::Range<usize>>) -> bool {
        if self.over.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut recorder = self.card.recorder();
        let mut recording = std::mem::take(&mut recorder.recording);
        // The recorder stays locked: nothing is recorded any more.
        std::mem::forget(recorder);
        if let Some(last) = steps.last() {
            recording.events.truncate(last.end);
        }
        let run_report = RunReport {
            ending,
            steps,
            tuned: self.card.tuned(),
            recording,
        };
        if let Err(error) = run_report.write(&self.run_config.run_report) {
            unwritable(&self.run_config, &error);
        }
        true
    }
}

/// Says on stderr why the report cannot be written.
fn unwritable(run_config: &RunConfig, error: &impl Display) {
    eprintln!("{}: {error}", run_config.run_report.display());
}

/// The end of the program. Another thread, which is still alive, waits until the card has executed the calls
/// that the program queued; then the report is written.
extern "C" fn at_end() {
    let Some(run) = RUN.get().filter(|run| !run.over.load(Ordering::SeqCst)) else {
        return;
    };
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let client = HipRuntime::client(&AmdDevice::new(0));
        let _ = cubecl_environment::future::block_on(client.sync());
        let _ = done.send(());
    });
    let _ = wait.recv_timeout(LAST_CALLS);
    run.write_report(StopReason::Program, Vec::new());
}
