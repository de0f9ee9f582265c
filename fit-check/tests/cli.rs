//! Pins every behaviour of the command line: the pages of `docs/` that show it are its tests.

#[test]
fn the_documentation_shows_what_the_program_does() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().to_str().unwrap();
    trycmd::TestCases::new()
        // On a busy machine the program would be slow enough to print a line of progress.
        .env("FIT_CHECK_NO_PROGRESS", "1")
        // The settings and the kept answers of whoever runs the tests do not count.
        .env("CLICOLOR_FORCE", "")
        .env("FIT_CHECK_CACHE_DIR", own)
        .env("XDG_CACHE_HOME", own)
        .env("XDG_DATA_HOME", own)
        // Nor does the network, nor whose models are in the cache of Hugging Face's libraries.
        .env("HF_HUB_CACHE", "../fit-check/tests/own_models/hub")
        .env("HF_HUB_OFFLINE", "1")
        .case("../docs/examples.md")
        .case("../docs/bad_input.md")
        .case("../docs/own_models.md")
        .case("../README.md")
        .case("../docs/pytorch.md")
        .case("../docs/several_gpus.md")
        .register_bin("own_code", example("own_code"));
}

/// The program of an example. Cargo builds it for the tests, beside the program itself.
fn example(name: &str) -> std::path::PathBuf {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_fit-check"));
    program
        .with_file_name("examples")
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION)
}
