//! Cells of a row of a table, in a process of their own.
//!
//! burn and CubeCL keep what they learn about a device for as long as their process lives: with fused steps, some
//! 50 MB for each row. A process that ends with its cells gives that back.

use std::process::ExitStatus;

use estimator::{BatchObserver, CellResult, DeviceSpec, Tuning, largest_fits, on_this_thread};
use model_zoo::Request;
use serde::{Deserialize, Serialize};

use crate::child_process;
use crate::model_source::AnyModel;
use crate::step::training_job;

/// The task of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowTask {
    /// The model's [text](AnyModel::text).
    pub model: String,
    /// How it is trained; its batch is searched for.
    pub request: Request,
    /// The only runs that have to complete, if not all.
    pub only: Option<Tuning>,
    /// The columns.
    pub devices: Vec<DeviceSpec>,
    /// Whether the process uses one thread, because others like it use the other cores.
    pub one_thread: bool,
}

/// A message of the process, one line each; columns are numbered as in the task.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// The search for the largest batch of this column begins.
    Begins(usize),
    /// The largest batch of this column is known.
    Found(usize, Box<CellResult>),
}

/// Runs `task` in a process of its own and passes each of its messages to `on_message`. Returns how the process
/// ended, as the end of a sentence.
pub(super) fn run(task: &RowTask, on_message: impl FnMut(Message)) -> String {
    match try_run(task, on_message) {
        Ok(status) => format!("ended too early ({status})"),
        Err(error) => format!("could not be used: {error}"),
    }
}

fn try_run(task: &RowTask, on_message: impl FnMut(Message)) -> anyhow::Result<ExitStatus> {
    let mut command = child_process::command("row")?;
    // A terminal's Ctrl-C is for the program that shows the table.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    child_process::send_task(&mut child, task)?;
    child_process::messages(child.stdout.take()).for_each(on_message);
    Ok(child.wait()?)
}

/// In the process: executes the task on stdin. The process ends when its parent does.
///
/// # Errors
///
/// The task cannot be read, or its model does not exist or does not accept it.
pub fn run_child() -> anyhow::Result<()> {
    let task: RowTask = child_process::task()?;
    let model = AnyModel::of_text(&task.model)?;
    let job = task.request.resolve(&model)?;
    let rows = std::iter::once(&job);
    let fill = || {
        let rows = rows.map(|job| {
            training_job(&model, job)
                .only(task.only)
                .without_first_runs()
        });
        largest_fits(rows, &task.devices, &Sender);
    };
    match task.one_thread {
        true => on_this_thread(fill),
        false => fill(),
    }
    Ok(())
}

/// Sends what is found to the parent.
struct Sender;

impl BatchObserver for Sender {
    fn begins(&self, _job: usize, device: usize) {
        child_process::send(&Message::Begins(device));
    }

    fn found(&self, _job: usize, device: usize, found: &CellResult) {
        child_process::send(&Message::Found(device, Box::new(found.clone())));
    }
}
