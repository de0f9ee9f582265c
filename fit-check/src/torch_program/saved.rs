//! What is kept of a program in a file (`max-batch --save`).

use serde::{Deserialize, Serialize};
use torch_memory::saved::Saved;

use super::batches::Found;
use super::job::TorchJob;

/// What a file says of its program.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct About {
    /// The program and its arguments, with `{batch}`, or the name of a network.
    pub program: String,
    /// The training step, if the options of the command said all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<TorchJob>,
}

impl Found {
    /// The content of the file.
    ///
    /// # Errors
    ///
    /// None that a program can meet: it is written to memory.
    pub fn saved(&self) -> std::io::Result<Vec<u8>> {
        let saved = Saved {
            about: About {
                program: self.report.program.clone(),
                job: self.report.job.clone(),
            },
            recordings: self.recordings.clone(),
        };
        saved.content()
    }
}
