//! Completion scripts for shells, and manual pages.

use clap::Command;
use clap_mangen::Man;

use crate::cli;
use crate::completion;
use crate::exit_status::FITS;
use crate::output;
use crate::user_error::UserError;

/// Prints the completion script of a shell.
pub fn completions(raw: &cli::Completions) -> anyhow::Result<u8> {
    output::print(&completion::script(&raw.shell.to_string())?)?;
    Ok(FITS)
}

/// Prints the manual page of the program or of one of its commands.
pub fn man(raw: &cli::Man) -> anyhow::Result<u8> {
    let mut program = cli::command();
    program.build();
    let page = match &raw.command {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command.clone(),
            None => return Err(unknown(name, &program).into()),
        },
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    output::print(&String::from_utf8(text)?)?;
    Ok(FITS)
}

fn unknown(name: &str, program: &Command) -> UserError {
    let names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
    UserError::new(format!("unknown command `{name}`"))
        .hint(format!("its commands are {}", names.join(", ")))
}
