//! The parts of a page for a terminal.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, presets};

use super::{Cell, Table};

/// The style of titles.
pub const TITLE: Style = Style::new().bold();
/// The style of text that few people need.
pub const FAINT: Style = Style::new().dimmed();
/// The style of "fits".
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// The style of "does not fit".
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// `text` in `style`.
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// A bar of at most `width` cells, with `share` of it filled. Any share above zero shows something.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// `number` with a separator between groups of three digits.
pub fn grouped(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// `text` without terminal styles.
pub fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// `table` with aligned columns, numbers to the right.
pub fn columns(table: &Table) -> String {
    let mut lines = comfy_table::Table::new();
    lines.load_preset(presets::NOTHING);
    lines.set_header(table.columns.iter().map(|column| column.name.as_ref()));
    for row in &table.rows {
        lines.add_row(row.iter().map(Cell::text));
    }
    for (index, column) in lines.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        let mut cells = table.rows.iter().filter_map(|row| row.get(index));
        if cells.all(Cell::is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let page = indented(&lines.to_string());
    match page.split_once('\n') {
        Some((header, rows)) => format!("{}\n{rows}", styled(FAINT, header)),
        None => page,
    }
}

/// Indents every line by two spaces.
pub fn indented(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let _ = writeln!(out, "  {}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_something_for_anything() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(0.0001, 10), "▏");
        assert_eq!(bar(0.5, 10), "█████");
        assert_eq!(bar(1.0, 10), "██████████");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(25_557_032), "25,557,032");
    }
}
