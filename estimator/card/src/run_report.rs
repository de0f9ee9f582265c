//! The messages between a program on a simulated card and the process that started it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use recording::Recording;
use serde::{Deserialize, Serialize};

use crate::device_spec::DeviceSpec;

/// The device that a program runs on and the end of its run, passed in an environment variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// The card and its runtime.
    pub device: DeviceSpec,
    /// The run ends after this many equal training steps in a row.
    pub steps: usize,
    /// The run ends after this many seconds at the latest.
    pub seconds: u64,
    /// The file for the [`RunReport`].
    pub run_report: PathBuf,
}

impl RunConfig {
    /// The name of the environment variable.
    pub const VARIABLE: &str = "FIT_CHECK_CARD";

    /// The configuration as the value of the variable, in JSON.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("names and numbers are JSON")
    }

    /// Reads the configuration from the value of the variable.
    ///
    /// # Errors
    ///
    /// `text` is not the JSON of a configuration.
    pub fn from_text(text: &str) -> Result<Self, RunReportError> {
        serde_json::from_str(text).map_err(RunReportError::Content)
    }
}

/// Why a program's run on a card ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The program completed enough steps.
    Steps,
    /// The program itself ended, in whatever way.
    Program,
    /// The run reached its time limit.
    Time,
}

/// The report of a program's run on a card.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    /// Why the run ended.
    pub ending: StopReason,
    /// The positions of the events of each equal step, if there were enough steps.
    pub steps: Vec<Range<usize>>,
    /// Whether burn tuned kernels.
    pub tuned: bool,
    /// The recording of the run.
    pub recording: Recording,
}

impl RunReport {
    /// Writes the report to the file at `path`, in full or not at all.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), RunReportError> {
        let unfinished = path.with_extension("unfinished");
        let mut file = BufWriter::new(File::create(&unfinished)?);
        serde_json::to_writer(&mut file, self).map_err(RunReportError::Content)?;
        file.flush()?;
        std::fs::rename(&unfinished, path)?;
        Ok(())
    }

    /// Reads a report from the file at `path`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or does not contain a report.
    pub fn read(path: &Path) -> Result<Self, RunReportError> {
        let file = BufReader::new(File::open(path)?);
        serde_json::from_reader(file).map_err(RunReportError::Content)
    }
}

/// Why a configuration or a report could not be passed on.
#[derive(Debug, thiserror::Error)]
pub enum RunReportError {
    /// The file could not be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The content is not valid.
    #[error("invalid configuration or report of a simulated run: {0}")]
    Content(serde_json::Error),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use recording::{Bytes, Event, KernelId, Metadata, MetadataId, Stream};

    use super::*;
    use crate::Runtime;

    #[test]
    fn what_is_written_is_read_again() {
        let mut recording = Recording::default();
        let stream = Stream(7);
        recording.kernels.push("matmul".into());
        let input = recording.add_buffer(Bytes::mib(3), false);
        let output = recording.add_buffer(Bytes(512), true);
        recording.streams.push(stream);
        recording.events.extend([
            Event::Stream(0),
            Event::Allocate(input),
            Event::Allocate(output),
            Event::Write,
        ]);
        recording.metadata = Arc::new(vec![Metadata { hash: 1, words: 12 }]);
        recording.add_launch(KernelId(0), Some(MetadataId(0)), &[input], &[output]);
        recording.add_read(vec![4, 8]);
        recording.events.push(Event::Free(input));
        let run_report = RunReport {
            ending: StopReason::Time,
            steps: vec![1..3, 3..5],
            tuned: false,
            recording,
        };
        let file = std::env::temp_dir().join(format!("report-{}", std::process::id()));
        run_report.write(&file).unwrap();
        let read = RunReport::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read.ending, run_report.ending);
        assert_eq!(read.steps, run_report.steps);
        assert_eq!(read.recording.events, run_report.recording.events);
        assert_eq!(read.recording.buffers, run_report.recording.buffers);
        assert_eq!(read.recording.kernels, run_report.recording.kernels);
        assert_eq!(read.recording.launches, run_report.recording.launches);
        assert_eq!(read.recording.streams, [stream]);
        assert_eq!(read.recording.reads_back, [[4, 8]]);
        assert_eq!(read.recording.metadata, run_report.recording.metadata);
        let Event::Launch(launch) = read.recording.events[4] else {
            panic!("{:?}", read.recording.events);
        };
        assert_eq!(read.recording.reads(launch), [input]);
        assert_eq!(read.recording.writes(launch), [output]);
    }

    #[test]
    fn a_configuration_survives_the_environment() {
        let run_config = RunConfig {
            device: DeviceSpec::unlimited(Runtime::Vulkan)
                .with_memory(Bytes::gib(8), Bytes::mib(300)),
            steps: 3,
            seconds: 60,
            run_report: "a folder/a report".into(),
        };
        let read = RunConfig::from_text(&run_config.to_text()).unwrap();
        assert_eq!(read, run_config);
        assert!(RunConfig::from_text("rtx-3090").is_err());
    }
}
