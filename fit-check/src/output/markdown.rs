//! Markdown, for issues and pages.

use super::{Column, Table};

/// `tables` as Markdown tables.
pub fn render(tables: &[Table]) -> String {
    let mut text = String::new();
    for table in tables {
        if !table.title.is_empty() {
            text += &format!("### {}\n\n", table.title);
        }
        text += &line(
            table
                .columns
                .iter()
                .map(|Column { name, .. }| name.to_string()),
        );
        text += &format!("|{}\n", "---|".repeat(table.columns.len()));
        for row in &table.rows {
            text += &line(row.iter().map(|cell| cell.text().replace('|', "\\|")));
        }
        text.push('\n');
    }
    text
}

/// A line of a table, with its line end.
pub fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}
