//! What is going on, on stderr, where it takes a while.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is being done and how far it is: on a terminal a bar that appears when work takes longer than
/// [`TIMEOUT`]; elsewhere a line every [`BETWEEN_LINES`].
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
}

/// Before this, no bar is shown.
const TIMEOUT: Duration = Duration::from_millis(500);

/// From the start to the first line, and from one to the next.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// The variable of the environment with which no progress is shown, whatever the options.
const NONE: &str = "FIT_CHECK_NO_PROGRESS";

impl Progress {
    /// For `steps` steps; none is shown if `quiet`, nor where [`NONE`] is set.
    pub fn new(quiet: bool, steps: u64) -> Self {
        let quiet = quiet || std::env::var_os(NONE).is_some();
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

    /// The next step begins.
    pub fn at(&self, what: &str) {
        self.bar.set_message(what.to_string());
        self.bar.inc(1);
    }

    /// Shows a part of the answer before the whole is there.
    pub fn line(&self, text: &str) {
        if self.lines {
            self.bar.suspend(|| anstream::eprintln!("{text}"));
        }
    }

    /// Shows what somebody is to know before the answer is there, wherever stderr goes.
    pub fn note(&self, text: &str) {
        self.bar.suspend(|| anstream::eprintln!("{text}"));
    }

    /// Nothing is left to do.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    /// An error ends the work too.
    fn drop(&mut self) {
        self.done();
    }
}

/// Draws `bar` where the work takes long; it ends with the bar.
fn draw(bar: &ProgressBar) {
    std::thread::sleep(TIMEOUT);
    if !bar.is_finished() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.enable_steady_tick(Duration::from_millis(100));
    }
}

/// Prints where `bar` is, again and again until it ends.
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
