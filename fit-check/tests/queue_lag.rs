//! The answer where the queue lag decides whether a step fits.
//!
//! The test uses burn's plain configuration, in which a device showed how much DCGAN needs in both cases (see
//! `a_thread_that_is_behind_finds_other_pages`): with a queue lag, a page of 9 MiB more.
#![cfg(not(any(feature = "fusion", feature = "autotune")))]

use std::process::Command;

use serde_json::Value;

fn dcgan(memory: &str) -> Value {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fit-check"));
    program.args("estimate dcgan --batch 2 --runtime wgpu --format json --quiet".split(' '));
    let answer = program.args(["--memory", memory]).output().unwrap();
    serde_json::from_slice(&answer.stdout).unwrap()
}

#[test]
fn a_close_fit_says_whether_it_depends_on_the_thread() {
    let required = dcgan("1GiB")["peak"]["required_bytes"].as_u64().unwrap() >> 20;
    let fits = |more: u64| {
        let answer = dcgan(&format!("{}MiB", required + more));
        (answer["fits"].clone(), answer["lag_fits"].clone())
    };
    assert_eq!(fits(0), (true.into(), false.into()));
    assert_eq!(fits(8), (true.into(), false.into()));
    assert_eq!(fits(9), (true.into(), true.into()));
    assert_eq!(fits(100), (true.into(), Value::Null));
}
