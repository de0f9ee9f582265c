//! CSV, for spreadsheets and programs.

use super::Table;

/// `table` as CSV: a header with the unit of each column in its name, and numbers.
pub fn render(table: &Table) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(
        table
            .columns
            .iter()
            .map(|column| column.csv_name.as_bytes()),
    )?;
    for row in &table.rows {
        writer.write_record(row.iter().map(|cell| cell.csv()))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}
