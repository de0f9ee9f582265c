//! JSON, for programs.

use serde::Serialize;

/// `report` as JSON.
pub fn render<R: Serialize>(report: &R) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(report)?)
}
