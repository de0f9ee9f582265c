//! Tables of typed cells. Every format shows the same cells: terminal, Markdown and HTML as people read them,
//! CSV as numbers.

use std::borrow::Cow;

use estimator::Bytes;

use super::terminal::grouped;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The title; empty if the table needs none.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Rows of one cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name for people.
    pub name: Cow<'static, str>,
    /// The name in CSV, with the unit of its numbers.
    pub csv_name: Cow<'static, str>,
}

/// A column called `name`. Its name in CSV, `csv_name`, ends with the unit of its numbers.
pub fn column(
    name: impl Into<Cow<'static, str>>,
    csv_name: impl Into<Cow<'static, str>>,
) -> Column {
    Column {
        name: name.into(),
        csv_name: csv_name.into(),
    }
}

impl Table {
    /// Begins a table called `title` with a row for each of `items`.
    pub fn of<T>(title: impl Into<String>, items: &[T]) -> TableBuilder<'_, T> {
        let table = Self {
            title: title.into(),
            columns: Vec::new(),
            rows: vec![Vec::new(); items.len()],
        };
        TableBuilder { items, table }
    }
}

/// A table with a row for each of `items`, built column by column.
pub struct TableBuilder<'a, T> {
    items: &'a [T],
    table: Table,
}

impl<'a, T> TableBuilder<'a, T> {
    /// Adds a column that is called `name` in CSV too; `cell` makes the cell of an item.
    pub fn column<C: Into<Cell>>(
        self,
        name: impl Into<Cow<'static, str>>,
        cell: impl Fn(&'a T) -> C,
    ) -> Self {
        let name = name.into();
        self.column_as(name.clone(), name, cell)
    }

    /// Adds a column with these names, which [`column()`] explains; `cell` makes the cell of an item.
    pub fn column_as<C: Into<Cell>>(
        mut self,
        name: impl Into<Cow<'static, str>>,
        csv_name: impl Into<Cow<'static, str>>,
        cell: impl Fn(&'a T) -> C,
    ) -> Self {
        self.table.columns.push(column(name, csv_name));
        for (row, item) in self.table.rows.iter_mut().zip(self.items) {
            row.push(cell(item).into());
        }
        self
    }

    /// The table.
    pub fn build(self) -> Table {
        self.table
    }
}

/// A value in a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text.
    Text(String),
    /// A number of things.
    Count(u64),
    /// Memory, which people read in the unit that fits.
    Bytes(Bytes),
    /// Memory that people read to the byte.
    ExactBytes(Bytes),
    /// A difference of memory.
    Difference(i64),
    /// A number with decimals, and the unit that people read after it.
    Decimal(f64, &'static str),
    /// Yes or no.
    Flag(bool),
    /// There is no value.
    Missing,
    /// There is no value yet: Ctrl-C came first.
    NotReached,
}

impl Cell {
    /// The memory that a job leaves free; a difference if memory is missing.
    pub fn headroom(bytes: i64) -> Self {
        match u64::try_from(bytes) {
            Ok(free) => Self::Bytes(Bytes(free)),
            Err(_) => Self::Difference(bytes),
        }
    }

    /// The text for people.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => grouped(*count),
            Self::Bytes(bytes) => bytes.to_string(),
            Self::ExactBytes(bytes) => grouped(bytes.0),
            Self::Difference(0) => "the same".into(),
            Self::Difference(bytes) => {
                let sign = if *bytes < 0 { "-" } else { "+" };
                format!("{sign}{}", Bytes(bytes.unsigned_abs()))
            }
            Self::Decimal(number, unit) => format!("{number} {unit}"),
            Self::Flag(true) => "yes".into(),
            Self::Flag(false) => "no".into(),
            Self::Missing => "-".into(),
            Self::NotReached => "…".into(),
        }
    }

    /// The text for programs: numbers without units, separators and rounding; empty for a missing value.
    pub fn csv(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Bytes(bytes) | Self::ExactBytes(bytes) => bytes.0.to_string(),
            Self::Difference(bytes) => bytes.to_string(),
            Self::Decimal(number, _) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Missing | Self::NotReached => String::new(),
        }
    }

    /// Whether columns of such cells are aligned to the right.
    pub fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Flag(_))
    }
}

/// Each of these types becomes cells of one kind.
macro_rules! impl_from {
    ($($type:ty => $kind:ident),*) => {$(
        impl From<$type> for Cell {
            fn from(value: $type) -> Self {
                Self::$kind(value.into())
            }
        }
    )*};
}

impl_from!(&str => Text, &String => Text, String => Text);
impl_from!(u64 => Count, Bytes => Bytes, bool => Flag);

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_units_and_programs_read_numbers() {
        let memory = Cell::from(Bytes::mib(3));
        assert_eq!(
            (memory.text().as_str(), memory.csv().as_str()),
            ("3.00 MiB", "3145728")
        );
        let count = Cell::from(25_557_032_u64);
        assert_eq!(
            (count.text().as_str(), count.csv().as_str()),
            ("25,557,032", "25557032")
        );
        let none = Cell::from(None::<Bytes>);
        assert_eq!((none.text().as_str(), none.csv().as_str()), ("-", ""));
        let later = Cell::NotReached;
        assert_eq!((later.text().as_str(), later.csv().as_str()), ("…", ""));
        let less = Cell::Difference(-1024);
        assert_eq!(
            (less.text().as_str(), less.csv().as_str()),
            ("-1.00 KiB", "-1024")
        );
        let headroom = [0, -1].map(|bytes| Cell::headroom(bytes).text());
        assert_eq!(headroom, ["0 B", "-1 B"]);
    }
}
