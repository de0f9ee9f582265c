//! The pieces of a page for a terminal.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, Table, presets};

use super::Sheet;

/// The name of what is shown.
pub const TITLE: Style = Style::new().bold();
/// What one need not read.
pub const FAINT: Style = Style::new().dimmed();
/// It fits.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// It does not.
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// `text` in `style`.
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// A bar of at most `width` cells, `share` of it filled; something is shown for anything.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// `number` with a separator between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `sheet` with aligned columns, numbers to the right.
pub fn columns(sheet: &Sheet) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(sheet.header.iter().map(|name| name.as_ref()));
    for row in &sheet.rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        let numeric = sheet.rows.iter().all(|row| {
            let cell = row.get(index).map_or("", String::as_str);
            cell.is_empty() || cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit())
        });
        if numeric {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let page = indented(&table.to_string());
    match page.split_once('\n') {
        Some((header, rows)) => format!("{}\n{rows}", styled(FAINT, header)),
        None => page,
    }
}

/// Every line moved to the right by two.
pub fn indented(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let _ = writeln!(out, "  {}", line.trim_end());
    }
    out
}
