//! A program on the command line without the `--` before it.

use std::fmt;
use std::path::Path;

use clap::error::ErrorKind;

use crate::user_error::UserError;

/// What people start a training program with.
const STARTERS: [&str; 9] = [
    "accelerate",
    "conda",
    "deepspeed",
    "ipython",
    "llamafactory-cli",
    "poetry",
    "torchrun",
    "trl",
    "uv",
];

/// The commands that take a program after `--`.
const TAKE_A_PROGRAM: [&str; 4] = ["run", "max-batch", "table", "verify"];

/// The error in place of clap's `error` if the command line `words` has a program and no `--`: clap's tips are about
/// the options of that program.
pub fn missing(words: &[String], error: &clap::Error) -> Option<UserError> {
    let kinds = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand];
    if !kinds.contains(&error.kind()) || words.iter().any(|word| word == "--") {
        return None;
    }
    let start = words.iter().skip(1).position(|word| is_program(word))? + 1;
    let (ours, program) = words.split_at(start);
    let command = ours.get(1).map(String::as_str);
    let ours = match command.is_some_and(|command| TAKE_A_PROGRAM.contains(&command)) {
        true => ours[1..].join(" "),
        false => "run --gpu 24GB".into(),
    };
    let python = if is_script(&program[0]) {
        "python "
    } else {
        ""
    };
    let typed = program.join(" ");
    let begins = UserError::new(format!("`{}` begins a program", program[0]));
    Some(begins.hint(format!(
        "write -- before it: fit-check {ours} -- {python}{typed}"
    )))
}

/// Whether `word` starts a program: Python, what starts Python, or a script.
fn is_program(word: &str) -> bool {
    let name = Path::new(word).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    name.starts_with("python") || STARTERS.contains(&&*name) || is_script(word)
}

/// Whether `text` is the name of a script of Python.
pub fn is_script(text: &str) -> bool {
    text.ends_with(".py")
}

/// The command that follows `script`.
pub fn following(script: impl fmt::Display) -> String {
    format!("fit-check run --gpu CARD -- python {script}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    /// What is said of `line`, which clap refuses.
    fn said(line: &str) -> Option<String> {
        let words: Vec<_> = line.split(' ').map(String::from).collect();
        let refused = cli::command().try_get_matches_from(&words).unwrap_err();
        missing(&words, &refused).map(|error| error.to_string())
    }

    #[test]
    fn the_line_is_repeated_with_two_dashes() {
        for (typed, hint) in [
            (
                "fit-check run --gpu 24GB python train.py --lr 0.1",
                "fit-check run --gpu 24GB -- python train.py --lr 0.1",
            ),
            (
                "fit-check max-batch --gpu 24GB .venv/bin/python3.12 train.py --batch-size {batch}",
                "fit-check max-batch --gpu 24GB -- .venv/bin/python3.12 train.py --batch-size {batch}",
            ),
            ("fit-check run train.py", "fit-check run -- python train.py"),
            (
                "fit-check torchrun --nproc-per-node 4 train.py",
                "fit-check run --gpu 24GB -- torchrun --nproc-per-node 4 train.py",
            ),
        ] {
            let said = said(typed).unwrap();
            assert!(said.ends_with(&format!(": {hint}")), "{said}");
        }
    }

    #[test]
    fn another_mistake_is_left_to_clap() {
        for typed in [
            "fit-check run --gpus 24GB -- python train.py",
            "fit-check estimate resnet-50 --btch 3",
            "fit-check estimat resnet-50",
        ] {
            assert_eq!(said(typed), None, "{typed}");
        }
    }
}
