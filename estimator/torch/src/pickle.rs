//! Reads the pickles of Python that hold only plain data: none, booleans, numbers, texts, bytes, lists, tuples and
//! dictionaries (`pickletools.py` of Python 3.14; protocols 2 to 5).
//!
//! An instruction to import or call anything is refused, so a pickle from anywhere can be read. No crate is used, since the
//! one for this (serde-pickle 1.2) copies an object at each of its uses: a snapshot names the same frames thousands
//! of times.

use std::collections::HashMap;

/// Why a pickle cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// It ends in the middle, or is no pickle.
    #[error("the file ends in the middle, or is no pickle")]
    End,
    /// It would call or import something.
    #[error("it is a pickle that runs code (instruction {0:#04x}), and no code of a file is run")]
    Code(u8),
    /// Its instructions do not fit together.
    #[error("the pickle is damaged")]
    Damaged,
}

/// An object, as an index into the objects of a pickle.
type Id = u32;

#[derive(Debug)]
enum Object {
    /// None, a float, or bytes: nothing that a reader asks for.
    Other,
    Integer(i64),
    Text(String),
    /// A list, a tuple or a set.
    List(Vec<Id>),
    Dictionary(Vec<(Id, Id)>),
}

/// A pickle in memory. Objects that it shares are there once.
#[derive(Debug)]
pub struct Pickle {
    objects: Vec<Object>,
    root: Id,
}

/// An object of a pickle.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pickle: &'a Pickle,
    id: Id,
}

impl<'a> Item<'a> {
    fn object(self) -> &'a Object {
        &self.pickle.objects[self.id as usize]
    }

    /// The value of a key of a dictionary.
    pub fn field(self, key: &str) -> Option<Self> {
        let Object::Dictionary(fields) = self.object() else {
            return None;
        };
        let mut fields = fields.iter().rev();
        let (_, value) = fields.find(|(id, _)| {
            matches!(&self.pickle.objects[*id as usize], Object::Text(text) if text == key)
        })?;
        Some(Self {
            pickle: self.pickle,
            id: *value,
        })
    }

    /// The integer at a key; 0 if there is none.
    pub fn integer(self, key: &str) -> i64 {
        match self.field(key).map(Self::object) {
            Some(Object::Integer(integer)) => *integer,
            _ => 0,
        }
    }

    /// The text at a key; empty if there is none.
    pub fn text(self, key: &str) -> &'a str {
        match self.field(key).map(Self::object) {
            Some(Object::Text(text)) => text,
            _ => "",
        }
    }

    /// The items of the list at a key.
    pub fn list(self, key: &str) -> impl Iterator<Item = Item<'a>> + use<'a> {
        self.field(key).into_iter().flat_map(Self::items)
    }

    /// The items, if this is a list.
    pub fn items(self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let items = match self.object() {
            Object::List(items) => items.as_slice(),
            _ => &[],
        };
        let pickle = self.pickle;
        items.iter().map(move |id| Item { pickle, id: *id })
    }

    /// How many items it has, if it is a list.
    pub fn len(self) -> usize {
        self.items().count()
    }
}

impl Pickle {
    /// Reads the pickle at the begin of `bytes`.
    ///
    /// # Errors
    ///
    /// It is damaged, or would run code.
    pub fn read(bytes: &[u8]) -> Result<Self, PickleError> {
        let mut machine = Machine {
            rest: bytes,
            objects: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        while machine.step()? {}
        let root = machine.stack.pop().ok_or(PickleError::Damaged)?;
        Ok(Self {
            objects: machine.objects,
            root,
        })
    }

    /// The object that was pickled.
    pub fn root(&self) -> Item<'_> {
        Item {
            pickle: self,
            id: self.root,
        }
    }
}

/// Python's machine for pickles, as far as it makes plain data.
struct Machine<'a> {
    rest: &'a [u8],
    objects: Vec<Object>,
    stack: Vec<Id>,
    /// The heights of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

impl<'a> Machine<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PickleError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(PickleError::End)?;
        self.rest = rest;
        Ok(taken)
    }

    /// An unsigned number of `count` bytes, the least one first.
    fn number(&mut self, count: usize) -> Result<u64, PickleError> {
        let bytes = self.take(count)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// So many bytes as a number of `count` bytes says.
    fn counted(&mut self, count: usize) -> Result<&'a [u8], PickleError> {
        let length = self.number(count)?;
        self.take(usize::try_from(length).map_err(|_| PickleError::End)?)
    }

    /// A line of text, as older instructions have.
    fn line(&mut self) -> Result<&'a str, PickleError> {
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or(PickleError::End)?;
        let line = self.take(end + 1)?;
        std::str::from_utf8(&line[..end]).map_err(|_| PickleError::Damaged)
    }

    fn push(&mut self, object: Object) {
        self.stack.push(self.objects.len() as Id);
        self.objects.push(object);
    }

    fn text(&mut self, count: usize) -> Result<(), PickleError> {
        let text = self.counted(count)?;
        self.push(Object::Text(String::from_utf8_lossy(text).into_owned()));
        Ok(())
    }

    /// The integer of so many bytes in two's complement; one that is too long for an `i64` is no address or size.
    fn long(&mut self, bytes: &[u8]) {
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let fill = if negative { 0xff } else { 0 };
        let mut all = [fill; 8];
        let kept = bytes.len().min(8);
        all[..kept].copy_from_slice(&bytes[..kept]);
        self.push(Object::Integer(i64::from_le_bytes(all)));
    }

    fn pop(&mut self) -> Result<Id, PickleError> {
        self.stack.pop().ok_or(PickleError::Damaged)
    }

    fn pop_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or(PickleError::Damaged)?))
    }

    fn list(&mut self, items: Vec<Id>) {
        self.push(Object::List(items));
    }

    fn tuple(&mut self, count: usize) -> Result<(), PickleError> {
        let start = self
            .stack
            .len()
            .checked_sub(count)
            .ok_or(PickleError::Damaged)?;
        let items = self.stack.split_off(start);
        self.list(items);
        Ok(())
    }

    fn extend(&mut self, more: Vec<Id>) -> Result<(), PickleError> {
        match self.top()? {
            Object::List(items) => items.extend(more),
            _ => return Err(PickleError::Damaged),
        }
        Ok(())
    }

    fn set_items(&mut self, more: Vec<Id>) -> Result<(), PickleError> {
        let pairs = more.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        match self.top()? {
            Object::Dictionary(fields) => fields.extend(pairs),
            _ => return Err(PickleError::Damaged),
        }
        Ok(())
    }

    fn top(&mut self) -> Result<&mut Object, PickleError> {
        let top = *self.stack.last().ok_or(PickleError::Damaged)?;
        Ok(&mut self.objects[top as usize])
    }

    fn remember(&mut self, key: u64) -> Result<(), PickleError> {
        let top = *self.stack.last().ok_or(PickleError::Damaged)?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: u64) -> Result<(), PickleError> {
        let known = *self.memo.get(&key).ok_or(PickleError::Damaged)?;
        self.stack.push(known);
        Ok(())
    }

    /// Follows one instruction; false if it was the last.
    fn step(&mut self) -> Result<bool, PickleError> {
        let instruction = self.take(1)?[0];
        match instruction {
            b'.' => return Ok(false),
            // PROTO, FRAME
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            _ => {
                self.scalar(instruction).or_else(|error| match error {
                    // It is an instruction of another kind.
                    PickleError::Code(_) => self.container(instruction),
                    error => Err(error),
                })?;
            }
        }
        Ok(true)
    }

    fn scalar(&mut self, instruction: u8) -> Result<(), PickleError> {
        match instruction {
            b'N' => self.push(Object::Other),
            0x88 => self.push(Object::Integer(1)),
            0x89 => self.push(Object::Integer(0)),
            b'K' => {
                let bytes = self.number(1)?;
                self.push(Object::Integer(bytes as i64));
            }
            b'M' => {
                let bytes = self.number(2)?;
                self.push(Object::Integer(bytes as i64));
            }
            b'J' => {
                let bytes = self.take(4)?;
                self.long(bytes);
            }
            0x8a | 0x8b => {
                let bytes = self.counted(if instruction == 0x8a { 1 } else { 4 })?;
                self.long(bytes);
            }
            b'I' | b'L' => {
                let line = self.line()?.trim_end_matches('L');
                let integer = line.parse().map_err(|_| PickleError::Damaged)?;
                self.push(Object::Integer(integer));
            }
            b'G' => {
                self.take(8)?;
                self.push(Object::Other);
            }
            b'F' => {
                self.line()?;
                self.push(Object::Other);
            }
            0x8c => self.text(1)?,
            b'X' => self.text(4)?,
            0x8d => self.text(8)?,
            b'V' => {
                let text = self.line()?.to_string();
                self.push(Object::Text(text));
            }
            b'C' | b'B' | 0x8e => {
                self.counted(match instruction {
                    b'C' => 1,
                    b'B' => 4,
                    _ => 8,
                })?;
                self.push(Object::Other);
            }
            code => return Err(PickleError::Code(code)),
        }
        Ok(())
    }

    fn container(&mut self, instruction: u8) -> Result<(), PickleError> {
        match instruction {
            b']' | b')' | 0x8f => self.list(Vec::new()),
            b'}' => self.push(Object::Dictionary(Vec::new())),
            b'l' | b't' | 0x91 => {
                let items = self.pop_mark()?;
                self.list(items);
            }
            b'd' => {
                let items = self.pop_mark()?;
                self.push(Object::Dictionary(Vec::new()));
                self.set_items(items)?;
            }
            0x85 => self.tuple(1)?,
            0x86 => self.tuple(2)?,
            0x87 => self.tuple(3)?,
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])?;
            }
            b'e' | 0x90 => {
                let items = self.pop_mark()?;
                self.extend(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(vec![key, value])?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set_items(items)?;
            }
            0x94 => self.remember(self.memo.len() as u64)?,
            b'q' | b'r' => {
                let key = self.number(if instruction == b'q' { 1 } else { 4 })?;
                self.remember(key)?;
            }
            b'h' | b'j' => {
                let key = self.number(if instruction == b'h' { 1 } else { 4 })?;
                self.recall(key)?;
            }
            b'p' | b'g' => {
                let key = self.line()?.parse().map_err(|_| PickleError::Damaged)?;
                match instruction {
                    b'p' => self.remember(key)?,
                    _ => self.recall(key)?,
                }
            }
            code => return Err(PickleError::Code(code)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each written by Python 3.11: `pickle.dumps({"a": [1, -2, 300, 2**40, True, None, 1.5], "b": ("x", "x")}, protocol)`.
    #[test]
    fn plain_data_of_every_protocol_is_read() {
        let files: [&[u8]; 3] = [
            include_bytes!("../data/plain0.pickle"),
            include_bytes!("../data/plain2.pickle"),
            include_bytes!("../data/plain5.pickle"),
        ];
        for file in files {
            let pickle = Pickle::read(file).unwrap();
            let integers: Vec<_> = pickle
                .root()
                .list("a")
                .map(|item| match item.object() {
                    Object::Integer(integer) => Some(*integer),
                    _ => None,
                })
                .collect();
            assert_eq!(
                integers,
                [
                    Some(1),
                    Some(-2),
                    Some(300),
                    Some(1 << 40),
                    Some(1),
                    None,
                    None
                ]
            );
            assert_eq!(pickle.root().list("b").count(), 2);
            assert_eq!(pickle.root().text("c"), "");
        }
    }

    #[test]
    fn code_is_not_run() {
        // `os.system("true")`, protocol 0.
        let call = b"cos\nsystem\n(S'true'\ntR.";
        assert_eq!(Pickle::read(call).unwrap_err(), PickleError::Code(b'c'));
    }

    #[test]
    fn a_part_of_a_pickle_is_an_error() {
        let file = include_bytes!("../data/plain5.pickle");
        for end in 0..file.len() {
            assert!(Pickle::read(&file[..end]).is_err());
        }
        assert_eq!(Pickle::read(b"(((e.").unwrap_err(), PickleError::Damaged);
    }
}
