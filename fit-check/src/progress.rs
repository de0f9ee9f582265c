//! What is going on, on stderr, where it takes longer than half a second.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar that appears when work takes long, and only on a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
}

/// Before this, nothing is shown.
const PATIENCE: Duration = Duration::from_millis(500);

impl Progress {
    /// For `steps` steps; none is shown if `quiet`.
    pub fn new(quiet: bool, steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {pos}/{len}") {
            bar.set_style(style);
        }
        let shown = bar.clone();
        if !quiet {
            // Drawing starts late, and ends with the bar.
            std::thread::spawn(move || {
                std::thread::sleep(PATIENCE);
                if !shown.is_finished() {
                    shown.set_draw_target(ProgressDrawTarget::stderr());
                    shown.enable_steady_tick(Duration::from_millis(100));
                }
            });
        }
        Self {
            bar,
            lines: !quiet && std::io::stderr().is_terminal(),
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

    /// Nothing is left to do.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
