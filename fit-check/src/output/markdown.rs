//! For issues and pages.

use super::Sheet;

/// `sheets` as Markdown tables.
pub fn render(sheets: &[Sheet]) -> String {
    let mut text = String::new();
    for sheet in sheets {
        if !sheet.title.is_empty() {
            text += &format!("### {}\n\n", sheet.title);
        }
        text += &format!("| {} |\n", sheet.header.join(" | "));
        text += &format!("|{}\n", "---|".repeat(sheet.header.len()));
        for row in &sheet.rows {
            let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            text += &format!("| {} |\n", cells.join(" | "));
        }
        text.push('\n');
    }
    text
}
