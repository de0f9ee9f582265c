//! Every behaviour of the command line, pinned: the pages of `docs/` that show it are its tests.

#[test]
fn the_documentation_shows_what_the_program_does() {
    trycmd::TestCases::new()
        // A busy machine is slow enough for a line of it.
        .env("FIT_CHECK_NO_PROGRESS", "1")
        .case("../docs/examples.md")
        .case("../docs/bad_input.md")
        .case("../docs/own_models.md")
        .register_bin("own_code", example("own_code"));
}

/// The program of an example, which cargo builds for the tests beside the program itself.
fn example(name: &str) -> std::path::PathBuf {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_fit-check"));
    program
        .with_file_name("examples")
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION)
}
