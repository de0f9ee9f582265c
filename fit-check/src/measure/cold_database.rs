//! The database in which CubeCL keeps what it tuned, for a cold step.

use std::process::Command;
use std::time::SystemTime;

use crate::counting_driver::{ENVIRONMENT, remove_environment};
use crate::interrupt;

/// A database of CubeCL for one process, which finds it empty: the kernels of a cold step are not tuned, whatever the
/// user's own database knows. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct ColdDatabase {
    name: String,
}

impl ColdDatabase {
    /// A database that no process has used yet.
    pub(super) fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanoseconds = now.map_or(0, |now| now.as_nanos());
        let name = format!("fit-check-cold-{}-{nanoseconds}", std::process::id());
        let left = name.clone();
        interrupt::at_end(move || {
            remove_environment(&left);
            None
        });
        Self { name }
    }

    /// Makes the process that `command` starts use this database.
    pub(super) fn apply(&self, command: &mut Command) {
        command.env(ENVIRONMENT, &self.name);
    }
}

impl Drop for ColdDatabase {
    fn drop(&mut self) {
        remove_environment(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_gets_a_database_of_its_own() {
        let database = || {
            let mut command = Command::new("fit-check");
            ColdDatabase::new().apply(&mut command);
            let (name, value) = command.get_envs().next().unwrap();
            assert_eq!(name, "CUBECL_ENVIRONMENT");
            value.unwrap().to_owned()
        };
        assert_ne!(database(), database());
    }
}
