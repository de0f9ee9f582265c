//! The parts of a page for a terminal.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};

use super::{Cell, Column, Table};

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

/// The width of the page: that of the terminal, or as the environment says, or 80; from 40 to 120 columns.
pub fn width() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let named = std::env::var("COLUMNS").ok();
    let named = named.and_then(|columns| columns.parse().ok());
    terminal.or(named).unwrap_or(80).clamp(40, 120)
}

/// The number of columns that `text` takes, without its styles.
fn columns_of(text: &str) -> usize {
    plain(text).chars().count()
}

/// `text` in lines of at most [`width()`] columns, the first indented by `first` and the others by `others`. Lines end between
/// words, and within a word that is too long for a line after a sign such as a dot.
pub fn wrapped(text: &str, first: usize, others: usize) -> String {
    wrapped_to(text, width(), first, others)
}

fn wrapped_to(text: &str, width: usize, first: usize, others: usize) -> String {
    // An amount stays with its unit.
    let mut text = text.to_string();
    for unit in ["B", "KiB", "MiB", "GiB", "TiB", "%"] {
        for end in ["", ",", ";", ":", ".", ")"] {
            let unit = format!("{unit}{end}");
            text = text.replace(&format!(" {unit} "), &format!("{NO_BREAK}{unit} "));
        }
        if let Some(before) = text.strip_suffix(&format!(" {unit}")) {
            text = format!("{before}{NO_BREAK}{unit}");
        }
    }
    let mut page = " ".repeat(first);
    let mut used = first;
    let mut is_empty = true;
    for part in text.split(' ').flat_map(|word| parts(word, width - others)) {
        let columns = columns_of(part.text);
        let space = usize::from(!is_empty && part.begins_word);
        if !is_empty && used + space + columns > width {
            page.push('\n');
            page += &" ".repeat(others);
            used = others;
        } else {
            page += &" ".repeat(space);
            used += space;
        }
        page += part.text;
        used += columns;
        is_empty = false;
    }
    page.replace(NO_BREAK, " ")
}

/// A space at which no line ends.
const NO_BREAK: char = '\u{a0}';

/// What stays on one line.
struct Part<'a> {
    text: &'a str,
    begins_word: bool,
}

/// `word`, in parts after signs if it takes more than `width` columns.
fn parts(word: &str, width: usize) -> impl Iterator<Item = Part<'_>> {
    let whole = columns_of(word) <= width;
    let is_sign = move |sign: char| !whole && ".,_-/:".contains(sign);
    let mut parts = word.split_inclusive(is_sign).peekable();
    // A word without letters keeps the space before it.
    let empty = parts.peek().is_none().then_some("");
    let parts = empty.into_iter().chain(parts).enumerate();
    parts.map(|(index, text)| Part {
        text,
        begins_word: index == 0,
    })
}

/// The lines of `text`, each [wrapped](wrapped()) and indented by `indent`; what is left of a line is indented by two more.
pub fn wrapped_lines(text: &str, indent: usize) -> String {
    let mut page = String::new();
    for line in text.lines() {
        let own = line.len() - line.trim_start().len();
        let _ = writeln!(
            page,
            "{}",
            wrapped(line.trim(), indent + own, indent + own + 2)
        );
    }
    page
}

/// The space between two columns.
const GAP: usize = 2;

/// `table` with aligned columns, numbers to the right, in at most [`width()`] columns: texts are wrapped, and what has no room
/// beside the first columns follows below.
pub fn columns(table: &Table) -> String {
    columns_within(table, width())
}

fn columns_within(table: &Table, width: usize) -> String {
    let columns = table.columns.iter().enumerate();
    let columns: Vec<_> = columns
        .map(|(index, column)| TextColumn::new(table, index, column))
        .collect();
    // The columns before the first number name the row, and every block has them.
    let names = columns.iter().position(|column| column.is_number);
    let (names, rest) = columns.split_at(names.unwrap_or(columns.len()));
    let blocks = blocks(names, rest, width);
    let blocks = blocks.iter().map(|block| {
        let shown: Vec<_> = names.iter().chain(*block).collect();
        lines(&shown, table.rows.len(), width)
    });
    blocks.collect::<Vec<_>>().join("\n")
}

/// Divides `rest` into as many columns as have room beside `names`.
fn blocks<'a>(names: &[TextColumn], rest: &'a [TextColumn], width: usize) -> Vec<&'a [TextColumn]> {
    let least = |column: &TextColumn| column.least + GAP;
    let room = width.saturating_sub(names.iter().map(least).sum());
    let mut blocks = Vec::new();
    let mut begin = 0;
    let mut used = 0;
    for (index, column) in rest.iter().enumerate() {
        if index > begin && used + least(column) > room {
            blocks.push(&rest[begin..index]);
            (begin, used) = (index, 0);
        }
        used += least(column);
    }
    blocks.push(&rest[begin..]);
    blocks
}

/// A column of texts.
struct TextColumn {
    header: String,
    cells: Vec<String>,
    is_number: bool,
    /// The columns that its longest line takes, and those that it needs at least.
    longest: usize,
    least: usize,
}

impl TextColumn {
    fn new(table: &Table, index: usize, column: &Column) -> Self {
        let cells = || table.rows.iter().filter_map(|row| row.get(index));
        let texts: Vec<_> = cells().map(Cell::text).collect();
        let is_number = !texts.is_empty() && cells().all(Cell::is_number);
        let all = || texts.iter().map(String::as_str).chain([&*column.name]);
        let longest = all().map(columns_of).max().unwrap_or_default();
        // Longer words are divided after signs.
        let words = all().flat_map(|text| text.split(' ')).map(columns_of);
        let longest_word = words.max().unwrap_or_default();
        let least = match is_number {
            true => longest,
            false => longest_word.min(24),
        };
        Self {
            header: column.name.to_string(),
            cells: texts,
            is_number,
            longest,
            least,
        }
    }
}

/// `rows` rows of `columns` below their headers, indented.
fn lines(columns: &[&TextColumn], rows: usize, width: usize) -> String {
    let widths = widths(columns, width);
    let headers: Vec<&str> = columns.iter().map(|column| &*column.header).collect();
    let header = row(columns, &headers, &widths);
    let mut page = String::new();
    for line in header.lines() {
        let _ = writeln!(page, "{}", styled(FAINT, line));
    }
    for index in 0..rows {
        let cells: Vec<&str> = columns.iter().map(|column| &*column.cells[index]).collect();
        page += &row(columns, &cells, &widths);
    }
    page
}

/// The width of each column: the widest texts are wrapped until all have room.
fn widths(columns: &[&TextColumn], width: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = columns.iter().map(|column| column.longest).collect();
    loop {
        let used = widths.iter().sum::<usize>() + GAP * columns.len();
        let shrinks = |index: &usize| widths[*index] > columns[*index].least;
        let widest = (0..columns.len())
            .filter(shrinks)
            .max_by_key(|index| widths[*index]);
        match widest.filter(|_| used > width) {
            Some(widest) => widths[widest] -= 1,
            None => return widths,
        }
    }
}

/// A row of `cells` in these `widths`.
fn row(columns: &[&TextColumn], cells: &[&str], widths: &[usize]) -> String {
    let cells = cells.iter().zip(widths);
    let cells: Vec<Vec<String>> = cells
        .map(|(cell, width)| {
            let wrapped = wrapped_to(cell, (*width).max(1), 0, 0);
            wrapped.lines().map(String::from).collect()
        })
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or_default();
    let mut page = String::new();
    for line in 0..height {
        let mut text = String::new();
        for ((column, cell), width) in columns.iter().zip(&cells).zip(widths) {
            let part = cell.get(line).map_or("", String::as_str);
            let room = " ".repeat(width.saturating_sub(columns_of(part)));
            text += &" ".repeat(GAP);
            text += &match column.is_number {
                true => room + part,
                false => part.to_string() + &room,
            };
        }
        let _ = writeln!(page, "{}", text.trim_end());
    }
    page
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

    #[test]
    fn lines_end_between_words() {
        let text = "an allocation of 98.0 MiB in the backward phase does not fit";
        let page = wrapped_to(text, 24, 2, 4);
        assert!(page.lines().all(|line| line.len() <= 24), "{page}");
        let words: Vec<_> = page.split_whitespace().collect();
        assert_eq!(words.join(" "), text);
        let path = wrapped_to("bert.encoder.layers.11.pwff.linear_inner", 20, 0, 2);
        assert_eq!(path, "bert.encoder.layers.\n  11.pwff.linear_\n  inner");
    }

    #[test]
    fn a_table_that_is_too_wide_is_wrapped_and_divided() {
        let rows: Vec<u64> = (0..2).collect();
        let mut table = Table::of("", &rows).column("model", |_| "a name of several words");
        for card in ["RTX 3090", "RTX 4090", "H100 SXM 80GB", "A100 80GB"] {
            table = table.column(card, |row| 1_000_000 + row);
        }
        let table = table.build();
        for width in [40, 60, 80, 100] {
            let page = plain(&columns_within(&table, width));
            assert!(
                page.lines().all(|line| line.len() <= width),
                "{width}:\n{page}"
            );
            for word in ["several", "1,000,001", "H100 SXM 80GB"] {
                assert!(page.contains(word), "{word} in {width}:\n{page}");
            }
        }
    }
}
