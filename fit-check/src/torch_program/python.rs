//! The Python that a person uses.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::launch::find as find_program;
use crate::user_error::UserError;

const HINT: &str =
    "install Python with torch and transformers, or name one that has them: --python PATH";

/// Whether `program` is a Python without PyTorch.
pub fn lacks_torch(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with("python") {
        return false;
    }
    let looks = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)";
    let mut command = Command::new(program);
    command.args(["-c", looks]).stdin(Stdio::null());
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.code() == Some(1))
}

/// The Python that was `typed`; else that of the active virtual environment, or the first in PATH.
///
/// # Errors
///
/// There is none.
pub fn find(typed: Option<&Path>) -> Result<PathBuf, UserError> {
    if let Some(typed) = typed {
        let found = find_program(typed).filter(|path| path.is_file());
        return found.ok_or_else(|| {
            UserError::new(format!("there is no Python at {}", typed.display())).hint(HINT)
        });
    }
    // The variable that the script `activate` of a virtual environment sets.
    let environment = std::env::var_os("VIRTUAL_ENV");
    let own = environment.map(|folder| Path::new(&folder).join("bin").join("python"));
    let usual = ["python", "python3"].map(Path::new);
    own.filter(|path| path.is_file())
        .or_else(|| usual.into_iter().find_map(find_program))
        .ok_or_else(|| UserError::new("there is no Python in PATH").hint(HINT))
}
