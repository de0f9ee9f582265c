//! Keeps the files of this machine as they are while a user's program runs. What the program writes goes into memory
//! that only it and the processes that it starts see, and is gone when they end.
//!
//! On Linux the program gets a mount namespace of its own. All files are read-only there, except in overlays, which have
//! the real folder below and memory above: over every mount for the administrator, over home, working folder and the folders
//! for temporary files for an ordinary user, who needs a user namespace for that, which some systems refuse. Devices, shared
//! memory (`/dev`) and what the program reaches through the network are not kept.

#[cfg(target_os = "linux")]
mod layout;
#[cfg(target_os = "linux")]
mod namespace;

use std::path::Path;
use std::process::Command;

use crate::user_error::UserError;

/// The option with which a user lets a program write.
pub const ALLOW_WRITES: &str = "--allow-writes";

/// The folder on which the program's file system is built. It has to exist for as long as the program runs.
#[derive(Debug)]
#[must_use = "dropping it takes the program's files away"]
pub struct KeptFiles {
    #[cfg(target_os = "linux")]
    _folder: tempfile::TempDir,
}

/// Checks that [`keep_files`] is possible, for a program that is yet to be built.
///
/// # Errors
///
/// The system does not allow it. The hint is to let the program write.
pub fn check() -> Result<(), UserError> {
    keep_files(&mut Command::new("true"), &[]).map(drop)
}

/// Makes the process that `command` starts, and all that it starts, leave the files of this machine as they are, except
/// those in the folders `real`. The working folder of `command` is to be set before.
///
/// # Errors
///
/// The system does not allow it. The hint is to let the program write.
pub fn keep_files(command: &mut Command, real: &[&Path]) -> Result<KeptFiles, UserError> {
    imp(command, real).map_err(|error| {
        UserError::new(format!(
            "the program could change your files, and this system refuses what would keep it from that, a mount namespace: {error}"
        ))
        .hint(format!(
            "{ALLOW_WRITES} starts it all the same: what it saves replaces what was there, with values that are zero"
        ))
    })
}

#[cfg(target_os = "linux")]
fn imp(command: &mut Command, real: &[&Path]) -> std::io::Result<KeptFiles> {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::Builder::new()
        .prefix("fit-check-files-")
        .tempdir()?;
    let path = folder.path().to_path_buf();
    crate::interrupt::at_end(move || {
        // Gone already, if the program has ended.
        let _ = std::fs::remove_dir(path);
        None
    });
    let here = match command.get_current_dir() {
        Some(here) => here.canonicalize()?,
        None => std::env::current_dir()?,
    };
    let view = namespace::View::new(folder.path(), &here, real)?;
    view.try_out()?;
    // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
    unsafe { command.pre_exec(move || Ok(view.enter()?)) };
    Ok(KeptFiles { _folder: folder })
}

#[cfg(not(target_os = "linux"))]
fn imp(_: &mut Command, _: &[&Path]) -> std::io::Result<KeptFiles> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    /// Runs `script` in `folder`, with the folder `real` as it is. None where the system has no such namespaces.
    fn run(script: &str, folder: &Path, real: &Path) -> Option<String> {
        let mut command = Command::new("sh");
        command.arg("-ec").arg(script).current_dir(folder);
        let kept = match keep_files(&mut command, &[real]) {
            Ok(kept) => kept,
            Err(refused) => {
                assert!(refused.to_string().contains(ALLOW_WRITES), "{refused}");
                return None;
            }
        };
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        drop(kept);
        Some(String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn what_was_there_stays_and_the_program_sees_what_it_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let real = tempfile::tempdir().unwrap();
        let weights = folder.path().join("weights");
        fs::write(&weights, "trained").unwrap();
        fs::create_dir(folder.path().join("checkpoints")).unwrap();
        fs::write(folder.path().join("checkpoints/1"), "old").unwrap();
        fs::write(folder.path().join("log"), "line\n").unwrap();
        let script = format!(
            "echo zeros > weights; rm -r checkpoints; mkdir checkpoints; echo new > checkpoints/2; mv log log.old; \
             echo more >> log.old; echo fresh > fresh; echo tmp > \"${{TMPDIR:-/tmp}}/fit-check-test-$$\"; \
             echo report > {}/report; cat weights checkpoints/* log.old; pwd",
            real.path().display()
        );
        let Some(seen) = run(&script, folder.path(), real.path()) else {
            return;
        };
        let here = folder.path().canonicalize().unwrap();
        assert_eq!(
            seen,
            format!("zeros\nnew\nline\nmore\n{}\n", here.display())
        );
        assert_eq!(fs::read_to_string(&weights).unwrap(), "trained");
        assert_eq!(
            fs::read_to_string(folder.path().join("checkpoints/1")).unwrap(),
            "old"
        );
        assert_eq!(
            fs::read_to_string(folder.path().join("log")).unwrap(),
            "line\n"
        );
        assert!(
            !folder.path().join("fresh").exists() && !folder.path().join("checkpoints/2").exists()
        );
        assert_eq!(
            fs::read_to_string(real.path().join("report")).unwrap(),
            "report\n"
        );
    }
}
