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

/// Two samples need a page more where the thread is behind, and that is all the memory there is: the largest batch is
/// another one.
#[test]
fn a_largest_batch_also_fits_where_the_thread_is_behind() {
    let required = dcgan("1GiB")["peak"]["required_bytes"].as_u64().unwrap() >> 20;
    for more in [0, 9] {
        let memory = format!("{}MiB", required + more);
        let largest = &answer("max-batch dcgan --advise=never", &memory)["cards"][0]["max_batch"];
        let estimate = answer(&format!("estimate dcgan --batch {largest}"), &memory);
        assert_eq!(estimate["fits"], true);
        assert_ne!(estimate["lag_fits"], false);
    }
}
