//! The answer where the queue lag decides whether a step fits.
//!
//! The test uses burn's plain configuration, in which a device showed how much DCGAN needs in both cases (see
//! `a_thread_that_is_behind_finds_other_pages`): with a queue lag, a page of 9 MiB more.
#![cfg(not(any(feature = "fusion", feature = "autotune")))]

mod command;

use command::fit_check;
use serde_json::Value;

fn answer(question: &str, memory: &str) -> Value {
    let mut program = fit_check();
    program.args(question.split(' '));
    program.args("--runtime wgpu --format json --quiet --memory".split(' '));
    let answer = program.arg(memory).output().unwrap();
    serde_json::from_slice(&answer.stdout).unwrap()
}

fn dcgan(memory: &str) -> Value {
    answer("estimate dcgan --batch 2", memory)
}

/// With what it needs the step fits, and with one MiB less it does not, since it does not where the thread is behind.
#[test]
fn a_fit_does_not_depend_on_the_thread() {
    let required = dcgan("1GiB")["peak"]["required_bytes"].as_u64().unwrap() >> 20;
    assert_eq!(dcgan(&format!("{required}MiB"))["fits"], true);
    let less = dcgan(&format!("{}MiB", required - 1));
    assert_eq!(less["fits"], false);
    let reason = less["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("where the device's thread is behind the program"),
        "{reason}"
    );
}

/// The largest batch is one that `estimate` calls fitting.
#[test]
fn a_largest_batch_also_fits_where_the_thread_is_behind() {
    let required = dcgan("1GiB")["peak"]["required_bytes"].as_u64().unwrap() >> 20;
    for less in [0, 9] {
        let memory = format!("{}MiB", required - less);
        let largest = &answer("max-batch dcgan --advise=never", &memory)["cards"][0]["max_batch"];
        let estimate = answer(&format!("estimate dcgan --batch {largest}"), &memory);
        assert_eq!(estimate["fits"], true);
    }
}
