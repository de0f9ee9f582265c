//! Reads what the recorder writes: one JSON array a line, whose first element is its kind.
//!
//! A stream that is kept names no block: `["A", bytes, operator, module, stream, kind]` is the next one, and `["F", n]` and `["R", n,
//! role, parameter]` are about the one that came `n` before that. Layers that are alike have the same lines then, which makes a
//! compressed file a quarter as long.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use recording::{Bytes, Phase, PhaseOfStep};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::counters::Counters;
use crate::trace::{
    Approximation, Block, BlockId, BlockKind, Event, Module, ModuleId, NameId, Role, Trace,
};

/// The version of the format.
pub const VERSION: u32 = 1;

/// The process that a stream is from: its first line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The version of the format.
    pub version: u32,
    /// PyTorch's version.
    pub torch: String,
    /// The version of CUDA that it was built for; none for a build without CUDA.
    pub cuda: Option<String>,
    /// Python's version.
    pub python: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The id of the process.
    pub pid: u32,
    /// Its rank among the processes of one training.
    pub rank: u32,
    /// The number of these processes.
    pub world_size: u32,
    /// The versions of the packages that it imported.
    pub packages: BTreeMap<String, String>,
    /// The settings that decide kernels and the allocator.
    pub settings: BTreeMap<String, Value>,
}

/// Why a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "reason")]
pub enum Ended {
    /// It made as many steps as were needed.
    Steps,
    /// It ended by itself.
    Exit,
    /// It failed.
    Error {
        /// What it raised.
        #[serde(default)]
        error: ProgramError,
    },
    /// A signal or somebody else ended it.
    Killed,
}

/// What a program raised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramError {
    /// The class of the exception.
    #[serde(rename = "type")]
    pub class: String,
    /// Its text.
    pub message: String,
    /// The file of the user's own program in which it was raised, or whose call raised it.
    pub file: Option<String>,
    /// The line in that file.
    pub line: Option<u32>,
    /// What to do, if the recorder knows.
    pub hint: Option<String>,
}

/// Everything that one process sent.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The process.
    pub process: Process,
    /// What it did to the device's memory.
    pub trace: Trace,
    /// PyTorch's counters at the end of each phase, if it was measured on a real GPU.
    pub counters: Vec<Counters>,
    /// The devices that it used.
    pub devices: BTreeSet<u32>,
    /// What was not followed exactly, the largest first.
    pub approximations: Vec<Approximation>,
    /// More about the program: the class of its optimizer, for instance.
    pub information: BTreeMap<String, Value>,
    /// How it ended; none if the stream breaks off.
    pub ended: Option<Ended>,
    /// Optimizer steps that it completed.
    pub steps: usize,
}

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The file or socket cannot be read.
    #[error("the recording cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A line is not what the format has there.
    #[error("line {line} of the recording is not understood: {reason}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

/// Reads a stream until its end. The last line may be incomplete: its process was killed.
///
/// # Errors
///
/// A line is not what the format has there.
pub fn read(mut lines: impl BufRead) -> Result<Recording, StreamError> {
    let mut reader = Reader::default();
    let mut line = String::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        if lines.read_line(&mut line)? == 0 {
            return Ok(reader.finish());
        }
        match reader.line(&line) {
            Ok(()) => {}
            Err(_) if !line.ends_with('\n') => return Ok(reader.finish()),
            Err(reason) => {
                return Err(StreamError::Line {
                    line: number,
                    reason,
                });
            }
        }
    }
}

/// Writes what `process` did as a stream that [`read`] reads.
///
/// # Errors
///
/// It cannot be written.
pub fn write(out: &mut impl Write, process: &Process, trace: &Trace) -> io::Result<()> {
    fn line(out: &mut impl Write, fields: impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &fields)?;
        out.write_all(b"\n")
    }
    let number = |index: Option<u32>| index.map_or(-1, i64::from);
    line(out, ("hello", process))?;
    let mut names: Vec<&str> = Vec::new();
    let mut name_ids = HashMap::new();
    let of_modules = trace.modules.iter();
    let of_modules = of_modules.flat_map(|module| [module.path.as_str(), &module.class]);
    for (index, name) in trace.names.iter().map(String::as_str).enumerate() {
        names.push(name);
        name_ids.entry(name).or_insert(index);
    }
    for name in of_modules {
        name_ids.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        });
    }
    for (index, name) in names.iter().enumerate() {
        line(out, ("n", index, name))?;
    }
    for (index, module) in trace.modules.iter().enumerate() {
        let (path, class) = (
            name_ids[module.path.as_str()],
            name_ids[module.class.as_str()],
        );
        line(out, ("m", index, path, class))?;
    }
    let mut born = 0;
    for event in trace.events.iter() {
        match *event {
            Event::Allocate(id) => {
                let block = trace.block(id);
                let operator = number(block.operator.map(|name| name.0));
                let module = number(block.module.map(|module| module.0));
                let kind = block.kind as u8;
                let fields = ("A", block.bytes, operator, module, block.stream, kind);
                line(out, fields)?;
                born = id.0;
                if let Some(role) = block.role {
                    let parameter = number(block.parameter.map(|name| name.0));
                    line(out, ("R", 0, role, parameter))?;
                }
            }
            Event::Free(id) => line(out, ("F", born - id.0))?,
            Event::EmptyCache => line(out, ["e"])?,
            Event::ResetPeaks => line(out, ["z"])?,
            Event::Phase(index) => {
                let phase = trace.phases[index as usize];
                line(out, ("p", phase.phase, phase.step))?;
            }
        }
    }
    Ok(())
}

/// The fields of an allocation: bytes, operator, module, stream, kind.
type Allocation = (u64, i64, i64, u32, u8);

#[derive(Default)]
struct Reader {
    recording: Recording,
    events: Vec<Event>,
    phases: Vec<PhaseOfStep>,
    names: Vec<String>,
    modules: Vec<Module>,
    approximations: HashMap<(String, String), Approximation>,
    alive: Vec<bool>,
}

fn parse<T: DeserializeOwned>(fields: &[Value]) -> Result<T, String> {
    serde_json::from_value(Value::Array(fields.to_vec())).map_err(|error| error.to_string())
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(());
        }
        // Nearly all lines are of these two kinds, and long recordings have 100,000 of them.
        if let Some(fields) = line.strip_prefix("[\"a\",") {
            return self.allocate(fields);
        }
        if let Some(fields) = line.strip_prefix("[\"f\",") {
            return self.free(number_of(fields)?);
        }
        if let Some(fields) = line.strip_prefix("[\"A\",") {
            let allocation: Allocation = array(fields)?;
            return self.born(allocation, 0);
        }
        if let Some(fields) = line.strip_prefix("[\"F\",") {
            return self.free(self.before_last(number_of(fields)?)?);
        }
        let fields: Vec<Value> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let (kind, fields) = fields.split_first().ok_or("it is empty")?;
        self.other(kind.as_str().ok_or("it has no kind")?, fields)
    }

    fn allocate(&mut self, fields: &str) -> Result<(), String> {
        let fields: (u32, u64, i64, i64, u32, u8, u32) = array(fields)?;
        let (block, bytes, operator, module, stream, kind, device) = fields;
        let next = self.recording.trace.blocks.len();
        if block as usize != next {
            return Err(format!("block {block} comes after block {next}"));
        }
        self.born((bytes, operator, module, stream, kind), device)
    }

    /// A block is born on a device.
    fn born(&mut self, allocation: Allocation, device: u32) -> Result<(), String> {
        let (bytes, operator, module, stream, kind) = allocation;
        let blocks = &mut self.recording.trace.blocks;
        let block = blocks.len() as u32;
        let operator = u32::try_from(operator).ok().map(NameId);
        let module = u32::try_from(module).ok().map(ModuleId);
        let known = operator.is_none_or(|name| (name.0 as usize) < self.names.len())
            && module.is_none_or(|module| (module.0 as usize) < self.modules.len());
        if !known {
            return Err("it names an operator or a module that no line before it has".into());
        }
        blocks.push(Block {
            bytes,
            operator,
            module,
            stream,
            kind: *BlockKind::ALL
                .get(kind as usize)
                .ok_or_else(|| format!("{kind} is no kind of a block"))?,
            role: None,
            parameter: None,
        });
        self.alive.push(true);
        self.recording.devices.insert(device);
        self.events.push(Event::Allocate(BlockId(block)));
        Ok(())
    }

    /// The block that came so many before the last one.
    fn before_last(&self, blocks: u32) -> Result<u32, String> {
        let born = self.alive.len() as u32;
        let block = born
            .checked_sub(1)
            .and_then(|last| last.checked_sub(blocks));
        block.ok_or_else(|| format!("no block came {blocks} before the last one"))
    }

    fn free(&mut self, block: u32) -> Result<(), String> {
        match self.alive.get_mut(block as usize) {
            Some(alive @ true) => *alive = false,
            _ => return Err(format!("block {block} is not there")),
        }
        self.events.push(Event::Free(BlockId(block)));
        Ok(())
    }

    fn other(&mut self, kind: &str, fields: &[Value]) -> Result<(), String> {
        match kind {
            "hello" => {
                let (process,): (Process,) = parse(fields)?;
                if process.version != VERSION {
                    return Err(format!(
                        "the format has version {}, not {VERSION}",
                        process.version
                    ));
                }
                self.recording.process = process;
            }
            "n" => {
                let (id, text): (usize, String) = parse(fields)?;
                in_order(id, self.names.len())?;
                self.names.push(text);
            }
            "m" => {
                let (id, path, class): (usize, usize, usize) = parse(fields)?;
                in_order(id, self.modules.len())?;
                let text = |name: usize| {
                    self.names
                        .get(name)
                        .cloned()
                        .ok_or("it names a text that is not there")
                };
                self.modules.push(Module {
                    path: text(path)?,
                    class: text(class)?,
                });
            }
            "r" => {
                let (block, role, parameter) = parse(fields)?;
                self.role(block, role, parameter)?;
            }
            "R" => {
                let (blocks, role, parameter) = parse(fields)?;
                self.role(self.before_last(blocks)?, role, parameter)?;
            }
            "p" => {
                let (phase, step): (Phase, usize) = parse(fields)?;
                self.events.push(Event::Phase(self.phases.len() as u32));
                self.phases.push(PhaseOfStep { phase, step });
                self.recording.steps = self.recording.steps.max(step);
            }
            "c" => self.recording.counters.push(parse(fields)?),
            "e" => self.events.push(Event::EmptyCache),
            "z" => self.events.push(Event::ResetPeaks),
            "x" => self.approximation(fields)?,
            "i" => {
                let (more,): (BTreeMap<String, Value>,) = parse(fields)?;
                self.recording.information.extend(more);
            }
            "bye" => self.bye(fields)?,
            // A recorder of another version may say more.
            _ => {}
        }
        Ok(())
    }

    fn role(&mut self, block: u32, role: Role, parameter: i64) -> Result<(), String> {
        let parameter = u32::try_from(parameter).ok().map(NameId);
        let known = parameter.is_none_or(|name| (name.0 as usize) < self.names.len());
        let blocks = &mut self.recording.trace.blocks;
        let block = blocks.get_mut(block as usize).filter(|_| known);
        let block = block.ok_or("it names a block or a parameter that is not there")?;
        block.role = Some(role);
        block.parameter = parameter;
        Ok(())
    }

    fn approximation(&mut self, fields: &[Value]) -> Result<(), String> {
        let (kind, text, bytes, count): (String, String, Bytes, u64) = parse(fields)?;
        let key = (kind.clone(), text.clone());
        let sum = self.approximations.entry(key).or_insert(Approximation {
            kind,
            text,
            bytes: Bytes::ZERO,
            count: 0,
        });
        sum.bytes = sum.bytes.max(bytes);
        sum.count += count;
        Ok(())
    }

    fn bye(&mut self, fields: &[Value]) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Bye {
            #[serde(default)]
            steps: usize,
            #[serde(flatten)]
            ended: Ended,
        }
        let (bye,): (Bye,) = parse(fields)?;
        self.recording.steps = self.recording.steps.max(bye.steps);
        self.recording.ended = Some(bye.ended);
        Ok(())
    }

    fn finish(self) -> Recording {
        let mut recording = self.recording;
        recording.trace.events = Arc::new(self.events);
        recording.trace.phases = Arc::new(self.phases);
        recording.trace.names = Arc::new(self.names);
        recording.trace.modules = Arc::new(self.modules);
        recording.approximations = self.approximations.into_values().collect();
        let order = |one: &Approximation| {
            (
                std::cmp::Reverse(one.bytes),
                one.kind.clone(),
                one.text.clone(),
            )
        };
        recording.approximations.sort_by_key(order);
        recording
    }
}

/// The fields of a line, up to its end.
fn array<T: DeserializeOwned>(fields: &str) -> Result<T, String> {
    serde_json::from_str(&format!("[{fields}")).map_err(|error| error.to_string())
}

/// The only field of a line.
fn number_of(fields: &str) -> Result<u32, String> {
    let block = fields.trim_end_matches(']').trim();
    block.parse().map_err(|_| format!("`{block}` is no block"))
}

fn in_order(id: usize, next: usize) -> Result<(), String> {
    match id == next {
        true => Ok(()),
        false => Err(format!("{id} comes where {next} should")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = r#"["hello", {"version": 1, "torch": "2.15.0", "python": "3.11", "pid": 7, "more": 1}]
["n", 0, "addmm"]
["n", 1, "fc"]
["n", 2, "Linear"]
["n", 3, "fc.weight"]
["m", 0, 1, 2]
["p", "init", 0]
["a", 0, 4000, -1, -1, 0, 0, 0]
["r", 0, "parameter", 3]
["p", "forward", 0]
["a", 1, 100, 0, 0, 0, 0, 0]
["x", "data-dependent size", "nonzero, train.py:7", 100, 1]
["x", "data-dependent size", "nonzero, train.py:7", 200, 1]
["f", 1]
["bye", {"reason": "error", "steps": 0, "error": {"type": "ValueError", "message": "no", "file": "train.py", "line": 7}}]
"#;

    #[test]
    fn a_stream_becomes_a_recording() {
        let recording = read(STREAM.as_bytes()).unwrap();
        let trace = &recording.trace;
        let weight = trace.block(BlockId(0));
        assert_eq!((weight.bytes, weight.role), (4000, Some(Role::Parameter)));
        assert_eq!(trace.module_path(BlockId(0)), Some("fc"));
        assert_eq!(
            (trace.operator(BlockId(1)), trace.module_path(BlockId(1))),
            (Some("addmm"), Some("fc"))
        );
        assert_eq!(trace.phase_at(3).unwrap().phase, Phase::Forward);
        assert_eq!(recording.approximations.len(), 1);
        assert_eq!(
            (
                recording.approximations[0].bytes,
                recording.approximations[0].count
            ),
            (Bytes(200), 2)
        );
        let Some(Ended::Error { error }) = recording.ended else {
            panic!("{:?}", recording.ended);
        };
        assert_eq!((error.class.as_str(), error.line), ("ValueError", Some(7)));
    }

    #[test]
    fn what_is_written_is_read() {
        let recording = read(STREAM.as_bytes()).unwrap();
        let mut written = Vec::new();
        write(&mut written, &recording.process, &recording.trace).unwrap();
        let again = read(written.as_slice()).unwrap();
        assert_eq!(
            (again.process, again.trace),
            (recording.process, recording.trace)
        );
    }

    #[test]
    fn a_measured_program_sends_counters() {
        let stream =
            "[\"hello\", {\"version\": 1}]\n[\"c\", \"backward\", 2, 100, 150, 1000, 1200]\n";
        let counters = Counters {
            phase: Phase::Backward,
            step: 2,
            allocated_bytes: 100,
            max_allocated_bytes: 150,
            reserved_bytes: 1000,
            max_reserved_bytes: 1200,
        };
        assert_eq!(read(stream.as_bytes()).unwrap().counters, [counters]);
    }

    #[test]
    fn a_stream_may_break_off_within_a_line() {
        let cut = &STREAM[..STREAM.find("\"forward\"").unwrap()];
        let recording = read(cut.as_bytes()).unwrap();
        assert_eq!((recording.ended, recording.trace.blocks.len()), (None, 1));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, reason) in [
            ("[\"f\", 5]", "block 5 is not there"),
            (
                "[\"a\", 3, 1, -1, -1, 0, 0, 0]",
                "block 3 comes after block 0",
            ),
            ("[\"a\", 0, 1, 9, -1, 0, 0, 0]", "names an operator"),
            ("[\"p\", \"sleep\", 0]", "unknown variant"),
            ("[\"hello\", {\"version\": 9}]", "version 9, not 1"),
            ("{}", "invalid type"),
        ] {
            let error = read(format!("[\"e\"]\n{line}\n").as_bytes())
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("line 2 ") && error.contains(reason),
                "{error}"
            );
        }
    }
}
