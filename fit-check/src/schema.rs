//! The JSON schema of every answer, derived from the types of the reports.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::cargo::ProgramReport;
use crate::commands::cache::CacheReport;
use crate::counting_driver::ProgramMemoryReport;
use crate::gpu_search::FitsReport;
use crate::job_info::SCHEMA;
use crate::measure::Found;
use crate::report::{
    EstimateReport, GpuReport, LimitReport, MaxBatchReport, MaxSeqReport, ModelReport, VerifyReport,
};
use crate::table::TableReport;
use crate::torch_program::TorchReport;
use crate::torch_program::batches::{TorchBatchReport, TorchTableReport};
use crate::torch_program::fitting::TorchFitsReport;
use crate::torch_program::verify_report::TorchVerifyReport;

/// The schema of all answers. Each kind of answer is a definition; a command with several kinds, such as `verify`, has
/// several.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut answers = Map::new();
    let mut add = |name: &str, answer: Value| {
        answers.insert(name.into(), answer);
    };
    add("estimate", of::<EstimateReport>(&mut generator));
    add("max_batch", of::<MaxBatchReport>(&mut generator));
    add("max_seq", of::<MaxSeqReport>(&mut generator));
    add("table", of::<TableReport>(&mut generator));
    add("verify", of::<VerifyReport>(&mut generator));
    add("verify_max_batch", of::<LimitReport>(&mut generator));
    add("verify_torch", of::<TorchVerifyReport>(&mut generator));
    add("verify_list", of::<Vec<Found>>(&mut generator));
    add("models", of::<Vec<ModelReport>>(&mut generator));
    add("gpus", of::<Vec<GpuReport>>(&mut generator));
    add("gpus_fits", of::<FitsReport>(&mut generator));
    add("program", of::<ProgramReport>(&mut generator));
    add("cache", of::<CacheReport>(&mut generator));
    add("run", of::<ProgramMemoryReport>(&mut generator));
    add("run_torch", of::<TorchReport>(&mut generator));
    add("torch_batches", of::<TorchBatchReport>(&mut generator));
    add("torch_table", of::<TorchTableReport>(&mut generator));
    add("torch_fits", of::<TorchFitsReport>(&mut generator));
    let names: Vec<_> = answers.keys().cloned().collect();
    let any_of = names
        .iter()
        .map(|name| json!({ "$ref": format!("#/$defs/{name}") }));
    let any_of: Vec<_> = any_of.collect();
    // The other definitions have the names of types, which begin with a capital letter.
    answers.extend(generator.take_definitions(true));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fit-check",
        "description": format!(
            "What fit-check prints with --format json, version {SCHEMA} of the interface. Fields may be \
             added within a version; none is removed or changes its meaning. Each answer has its own \
             definition, for instance #/$defs/estimate."
        ),
        "anyOf": any_of,
        "$defs": answers,
    })
}

/// The schema as the text of `docs/schema.json`.
pub fn text() -> String {
    let text = serde_json::to_string_pretty(&schema()).expect("a schema is JSON");
    text + "\n"
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    T::json_schema(generator).to_value()
}
