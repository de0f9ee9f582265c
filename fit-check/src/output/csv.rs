//! For spreadsheets.

use super::Sheet;

/// `sheets` as CSV, an empty line between them.
pub fn render(sheets: &[Sheet]) -> anyhow::Result<String> {
    let mut parts = Vec::with_capacity(sheets.len());
    for sheet in sheets {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(sheet.header.iter().map(|name| name.as_bytes()))?;
        for row in &sheet.rows {
            writer.write_record(row)?;
        }
        parts.push(String::from_utf8(writer.into_inner()?)?);
    }
    Ok(parts.join("\n"))
}
