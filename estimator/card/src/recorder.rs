//! Writes a recording while a program uses a card.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use cubecl_environment::stream::StreamId;
use cubecl_server::memory_management::WeakMemoryBinding;
use recording::{
    BufferId, Bytes, CallBatch, Event, KernelId, Layer, LayerId, Layout, LayoutId, Metadata,
    MetadataId, Recording, Stream,
};

/// Buffers that the program may have dropped since the recorder last checked them. Checking every buffer
/// before each allocation would make a long recording take quadratic time.
#[derive(Debug)]
pub(crate) enum Suspects {
    /// Any buffer: the program ran in between.
    All,
    /// The buffers with these managed-memory ids: the program stood still, and the calls executed since held
    /// no others.
    These(Vec<usize>),
}

impl Suspects {
    /// Adds the buffers that a finished call held.
    pub fn add(&mut self, ids: impl IntoIterator<Item = usize>) {
        if let Self::These(known) = self {
            known.extend(ids);
        }
    }
}

/// Records what happens to a card.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The recording so far.
    pub recording: Recording,
    /// Buffers in use, in the order of birth, with a weak reference to their managed memory. CubeCL counts
    /// the holders of that memory, and the pool itself is one of them.
    live: Vec<(BufferId, WeakMemoryBinding)>,
    /// The buffers by managed-memory id.
    ids: HashMap<usize, BufferId>,
    kernels: HashMap<&'static str, KernelId>,
    layers: HashMap<Layer, LayerId>,
    metadata: HashMap<Vec<u64>, MetadataId>,
    layouts: HashMap<Layout, LayoutId>,
    /// By [`BufferId`]: whether anything was written to the buffer.
    written: Vec<bool>,
    stream: Option<StreamId>,
}

impl Recorder {
    /// Records an event on `stream`.
    pub fn event(&mut self, stream: StreamId, event: Event) {
        self.turn_to(stream);
        self.recording.events.push(event);
    }

    /// Records that the program read data on `stream`: the bytes for each buffer.
    pub fn read(&mut self, stream: StreamId, bytes: Vec<u64>) {
        self.turn_to(stream);
        self.recording.add_read(bytes);
    }

    /// Makes `stream` the stream of the events that follow.
    fn turn_to(&mut self, stream: StreamId) {
        if self.stream != Some(stream) {
            self.stream = Some(stream);
            let streams = &mut self.recording.streams;
            let stream = Stream(stream.value);
            let known = streams.iter().position(|known| *known == stream);
            let place = known.unwrap_or_else(|| {
                streams.push(stream);
                streams.len() - 1
            });
            self.recording.events.push(Event::Stream(place as u32));
        }
    }

    /// Records which of the `suspects` only their pool still holds, in the order of birth.
    pub(crate) fn note_freed(&mut self, suspects: &Suspects) {
        let is_free = |memory: &WeakMemoryBinding| memory.upgrade().is_none();
        let events = &mut self.recording.events;
        let mut freed = |buffer: BufferId| events.push(Event::Free(buffer));
        match suspects {
            Suspects::All => self.live.retain(|(buffer, memory)| {
                let free = is_free(memory);
                if free {
                    freed(*buffer);
                }
                !free
            }),
            Suspects::These(ids) => {
                let known = ids.iter().filter_map(|id| self.ids.get(id).copied());
                let mut known: Vec<_> = known.collect();
                known.sort_unstable();
                for buffer in known {
                    let place = self.live.binary_search_by_key(&buffer, |(live, _)| *live);
                    if let Some(place) = place.ok().filter(|place| is_free(&self.live[*place].1)) {
                        self.live.remove(place);
                        freed(buffer);
                    }
                }
            }
        }
    }

    /// Records the allocation of a buffer; `id` is the id of its managed memory.
    pub fn allocated(
        &mut self,
        stream: StreamId,
        id: usize,
        memory: WeakMemoryBinding,
        bytes: Bytes,
        metadata: bool,
    ) -> BufferId {
        let buffer = self.recording.add_buffer(bytes, metadata);
        self.event(stream, Event::Allocate(buffer));
        self.live.push((buffer, memory));
        self.ids.insert(id, buffer);
        buffer
    }

    /// Records that the device's thread begins to execute calls from the queue, in which so many launches wait, and
    /// what the program has dropped by then; `drains` if the program waits until the queue is empty.
    pub fn begin_call_batch(&mut self, launches: usize, drains: bool) {
        self.recording.call_batches.push(CallBatch {
            position: self.recording.events.len(),
            launches,
            drains,
        });
        self.note_freed(&Suspects::All);
    }

    /// Records what only its pool still holds, while the queue is empty.
    pub fn note_dropped(&mut self) {
        let position = self.recording.events.len();
        self.note_freed(&Suspects::All);
        if self.recording.events.len() > position {
            self.recording.call_batches.push(CallBatch {
                position,
                launches: 0,
                drains: true,
            });
        }
    }

    /// Whether the latest batch of calls was all that the queue held.
    pub fn is_drained(&self) -> bool {
        let last = self.recording.call_batches.last();
        last.is_none_or(|last| last.drains)
    }

    /// Notes the shapes that `buffer` was allocated for, if they are known.
    pub fn laid_out(&mut self, buffer: BufferId, layout: Option<Layout>) {
        let next = LayoutId(self.layouts.len() as u32);
        let known = &mut self.recording.layouts;
        let layout = layout.map(|layout| {
            *self.layouts.entry(layout).or_insert_with_key(|layout| {
                Arc::make_mut(known).push(layout.clone());
                next
            })
        });
        let buffers = Arc::make_mut(&mut self.recording.buffers);
        buffers[buffer.0 as usize].layout = layout;
    }

    /// Notes that the step goes on without `buffer`: see [`Buffer::optional`](recording::Buffer).
    pub fn make_optional(&mut self, buffer: BufferId) {
        let buffers = Arc::make_mut(&mut self.recording.buffers);
        buffers[buffer.0 as usize].optional = true;
    }

    /// Whether `buffer` was in use when the recorder last looked.
    pub fn is_live(&self, buffer: BufferId) -> bool {
        let place = self.live.binary_search_by_key(&buffer, |(live, _)| *live);
        place.is_ok()
    }

    /// The buffer with this managed-memory id.
    pub fn buffer(&self, id: usize) -> Option<BufferId> {
        self.ids.get(&id).copied()
    }

    /// The kernel called `name`.
    pub fn kernel(&mut self, name: &'static str) -> KernelId {
        let next = KernelId(self.kernels.len() as u32);
        *self.kernels.entry(name).or_insert_with(|| {
            self.recording.kernels.push(name.into());
            next
        })
    }

    /// The number of `layer`.
    pub fn layer(&mut self, layer: Layer) -> LayerId {
        let next = LayerId(self.layers.len() as u32);
        let known = &mut self.recording.layers;
        *self.layers.entry(layer.clone()).or_insert_with(|| {
            known.push(layer);
            next
        })
    }

    /// The id of metadata with this content; `None` if it is empty.
    pub fn metadata(&mut self, words: &[u64]) -> Option<MetadataId> {
        if words.is_empty() {
            return None;
        }
        if let Some(known) = self.metadata.get(words) {
            return Some(*known);
        }
        let new = MetadataId(self.metadata.len() as u32);
        self.metadata.insert(words.to_vec(), new);
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        Arc::make_mut(&mut self.recording.metadata).push(Metadata {
            hash: hasher.finish(),
            words: words.len() as u32,
        });
        Some(new)
    }

    /// Notes that data was written to `buffer`.
    pub fn filled(&mut self, buffer: BufferId) {
        self.mark_written(&[buffer]);
    }

    /// What a launch reads, and what it writes, by the ids of the managed memory. If burn does not declare it,
    /// `reads` and `writes` are equal, and no kernel is compiled that could tell. Then buffers that nothing
    /// has written before count as outputs, and a launch without such a buffer counts as in place on its
    /// first operand.
    pub fn operands(&self, reads: &[usize], writes: &[usize]) -> (Vec<BufferId>, Vec<BufferId>) {
        let buffers = |ids: &[usize]| -> Vec<BufferId> {
            ids.iter().filter_map(|id| self.buffer(*id)).collect()
        };
        let (mut reads, mut writes) = (buffers(reads), buffers(writes));
        if reads == writes {
            let written = |buffer: &BufferId| self.written.get(buffer.0 as usize) == Some(&true);
            let (old, new): (Vec<_>, Vec<_>) = reads.iter().partition(|buffer| written(buffer));
            match new.is_empty() {
                true => writes.truncate(1),
                false => (reads, writes) = (old, new),
            }
        }
        (reads, writes)
    }

    /// Records a launch of `kernel`, with its [operands](Self::operands).
    pub fn launch(
        &mut self,
        stream: StreamId,
        kernel: &'static str,
        metadata: &[u64],
        reads: &[BufferId],
        writes: &[BufferId],
    ) {
        let kernel = self.kernel(kernel);
        let metadata = self.metadata(metadata);
        self.mark_written(writes);
        self.turn_to(stream);
        self.recording.add_launch(kernel, metadata, reads, writes);
    }

    fn mark_written(&mut self, buffers: &[BufferId]) {
        self.written.resize(self.recording.buffers.len(), false);
        for buffer in buffers {
            self.written[buffer.0 as usize] = true;
        }
    }
}
