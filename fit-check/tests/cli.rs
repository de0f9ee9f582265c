//! Every behaviour of the command line, pinned: the pages of `docs/` that show it are its tests.

#[test]
fn the_documentation_shows_what_the_program_does() {
    trycmd::TestCases::new()
        .case("../docs/examples.md")
        .case("../docs/bad_input.md");
}
