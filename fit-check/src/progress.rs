//! Shows the progress of long work on stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The current work and how far it is. A terminal shows a bar if the work takes longer than [`BAR_DELAY`];
/// elsewhere a line appears every [`BETWEEN_LINES`].
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
}

/// The time before the bar appears.
const BAR_DELAY: Duration = Duration::from_millis(500);

/// The time before the first line, and from one line to the next.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// The environment variable that hides the progress, whatever the options.
const NO_PROGRESS: &str = "FIT_CHECK_NO_PROGRESS";

impl Progress {
    /// The progress of `steps` steps; hidden if `quiet`, or if [`NO_PROGRESS`] is set.
    pub fn new(quiet: bool, steps: u64) -> Self {
        let quiet = quiet || std::env::var_os(NO_PROGRESS).is_some();
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {wide_msg} {pos}/{len} {elapsed}")
        {
            bar.set_style(style);
        }
        let terminal = std::io::stderr().is_terminal();
        if !quiet {
            let shown = bar.clone();
            std::thread::spawn(move || match terminal {
                true => draw(&shown),
                false => print(&shown),
            });
        }
        Self {
            bar,
            lines: !quiet && terminal,
        }
    }

    /// Begins the next step.
    pub fn at(&self, what: &str) {
        self.bar.set_message(what.to_string());
        if self.bar.length() == Some(self.bar.position()) {
            // There are more steps than was thought.
            self.bar.inc_length(1);
        }
        self.bar.inc(1);
    }

    /// Shows a part of the answer before the whole is there.
    pub fn line(&self, text: &str) {
        if self.lines {
            self.bar.suspend(|| anstream::eprintln!("{text}"));
        }
    }

    /// Shows a note before the answer, wherever stderr goes.
    pub fn note(&self, text: &str) {
        self.bar.suspend(|| anstream::eprintln!("{text}"));
    }

    /// Ends the progress.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    /// Ends the progress when an error ends the work.
    fn drop(&mut self) {
        self.done();
    }
}

/// Draws `bar` if it has not finished after [`BAR_DELAY`].
fn draw(bar: &ProgressBar) {
    std::thread::sleep(BAR_DELAY);
    if !bar.is_finished() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.enable_steady_tick(Duration::from_millis(100));
    }
}

/// Prints the state of `bar` every [`BETWEEN_LINES`], until it finishes.
fn print(bar: &ProgressBar) {
    let start = Instant::now();
    loop {
        std::thread::sleep(BETWEEN_LINES);
        if bar.is_finished() {
            return;
        }
        anstream::eprintln!(
            "{} ({} of {}, {} s so far)",
            bar.message(),
            bar.position(),
            bar.length().unwrap_or_default(),
            start.elapsed().as_secs()
        );
    }
}
