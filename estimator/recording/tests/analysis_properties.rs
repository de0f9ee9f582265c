//! Compares lifetimes, categories and the timeline with a computation by brute force, on random streams of
//! events.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use recording::{
    Analysis, Breakdown, BufferId, Bytes, Category, Event, LayerId, Mark, Phase, Pools, Recording,
    Role,
};

/// One action of a random program.
#[derive(Clone, Debug)]
enum Act {
    Allocate(u64),
    /// Frees one of the buffers in use.
    Free(prop::sample::Index),
    Launch(prop::sample::Index, prop::sample::Index),
    /// Ends the phase, and reports roles for buffers in use.
    End(Vec<(prop::sample::Index, u8)>),
}

fn act() -> impl Strategy<Value = Act> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        5 => (1u64..1000).prop_map(Act::Allocate),
        3 => index().prop_map(Act::Free),
        3 => (index(), index()).prop_map(|(from, to)| Act::Launch(from, to)),
        1 => prop::collection::vec((index(), 0u8..4), 0..6).prop_map(Act::End),
    ]
}

const PHASES: [Phase; 5] = [
    Phase::Init,
    Phase::Data,
    Phase::Forward,
    Phase::Backward,
    Phase::Optimizer,
];

/// The recording of a program that does `acts`; its phases come in the usual order. Only some programs report the
/// phases of their batches.
fn recording(acts: &[Act], has_batches: bool) -> Recording {
    let mut phases = PHASES.to_vec();
    phases.retain(|phase| has_batches || *phase != Phase::Data);
    let mut recording = Recording::default();
    recording.kernels.push("kernel".into());
    let mut live: Vec<BufferId> = Vec::new();
    let mut phase = 0;
    for act in acts {
        match act {
            Act::Allocate(bytes) => {
                let buffer = recording.add_buffer(Bytes(*bytes), bytes % 7 == 0);
                recording.events.push(Event::Allocate(buffer));
                live.push(buffer);
            }
            Act::Free(index) if !live.is_empty() => {
                let buffer = live.swap_remove(index.index(live.len()));
                recording.events.push(Event::Free(buffer));
            }
            Act::Launch(from, to) if !live.is_empty() => {
                let (from, to) = (*from.get(&live), *to.get(&live));
                recording.add_launch(recording::KernelId(0), None, &[from], &[to]);
            }
            Act::End(said) => {
                let roles = said
                    .iter()
                    .filter(|_| !live.is_empty())
                    .map(|(index, role)| {
                        let layer = LayerId(0);
                        let role = match role {
                            0 => Role::Parameter(layer),
                            1 => Role::Buffer(layer),
                            2 => Role::Gradient(layer),
                            _ => Role::Input,
                        };
                        (*index.get(&live), role)
                    });
                let roles = roles.collect();
                recording.add_mark(Mark {
                    peak_reserved: Bytes::ZERO,
                    phase: phases[phase],
                    step: 0,
                    roles,
                    pools: Pools::default(),
                });
                phase = if phase + 1 == phases.len() {
                    1
                } else {
                    phase + 1
                };
            }
            _ => {}
        }
    }
    recording
}

/// The category of `buffer` at the mark `mark`, by the words of the documentation of [`estimator::Categories`].
fn at_mark(
    recording: &Recording,
    live_at: &[BTreeSet<BufferId>],
    buffer: BufferId,
    mark: usize,
) -> Category {
    let seen: Vec<usize> = (0..live_at.len())
        .filter(|mark| live_at[*mark].contains(&buffer))
        .collect();
    if recording.buffer(buffer).metadata {
        // Metadata is a temporary, unless the program claims the buffer as its own.
        let said = recording.marks[mark]
            .roles
            .iter()
            .any(|(b, _)| *b == buffer);
        let was_input = inputs(recording, live_at, buffer, mark);
        if !said && !was_input {
            return Category::Temporaries;
        }
    }
    let said: Vec<Role> = recording.marks[mark]
        .roles
        .iter()
        .filter(|(b, _)| *b == buffer)
        .map(|(_, role)| *role)
        .collect();
    if inputs(recording, live_at, buffer, mark) {
        return Category::Inputs;
    }
    if let Some(role) = decided(&said) {
        return role;
    }
    let phase = |mark: usize| recording.marks[mark].phase;
    let freed = recording.events.contains(&Event::Free(buffer));
    let has_batches = (0..recording.marks.len()).any(|mark| phase(mark) == Phase::Data);
    let next = if has_batches {
        Phase::Data
    } else {
        Phase::Forward
    };
    let outlives = seen.iter().any(|update| {
        let next_step = |mark: &usize| mark > update && phase(*mark) == next;
        phase(*update) == Phase::Optimizer && (!freed || seen.iter().any(next_step))
    });
    match phase(seen[0]) {
        Phase::Init | Phase::Optimizer => Category::Optimizer,
        Phase::Backward if outlives => Category::Optimizer,
        _ if outlives && optimizer_wrote(recording, buffer) => Category::Optimizer,
        _ if outlives => Category::Buffers,
        Phase::Data => Category::Inputs,
        Phase::Forward => Category::Activations,
        Phase::Backward => Category::Gradients,
    }
}

/// Whether some launch writes `buffer` and the next mark ends an optimizer's phase.
fn optimizer_wrote(recording: &Recording, buffer: BufferId) -> bool {
    let events = &recording.events;
    (0..events.len()).any(|position| {
        let Event::Launch(launch) = events[position] else {
            return false;
        };
        let next = events[position..].iter().find_map(|event| match event {
            Event::Mark(mark) => Some(recording.marks[*mark as usize].phase),
            _ => None,
        });
        recording.writes(launch).contains(&buffer) && next == Some(Phase::Optimizer)
    })
}

/// The category of the last reported role, but a parameter stays one.
fn decided(said: &[Role]) -> Option<Category> {
    let mut category = None;
    for role in said {
        let next = match role {
            Role::Parameter(_) | Role::Kept(_) => Category::Parameters,
            Role::Buffer(_) => Category::Buffers,
            Role::Gradient(_) => Category::Gradients,
            Role::Input => Category::Inputs,
        };
        if category != Some(Category::Parameters) {
            category = Some(next);
        }
    }
    category
}

/// Whether `buffer` was an input at the mark before `mark`.
fn inputs(
    recording: &Recording,
    live_at: &[BTreeSet<BufferId>],
    buffer: BufferId,
    mark: usize,
) -> bool {
    mark > 0
        && live_at[mark - 1].contains(&buffer)
        && at_mark(recording, live_at, buffer, mark - 1) == Category::Inputs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn categories_add_up_and_are_what_the_documentation_says(
        acts in prop::collection::vec(act(), 1..120), has_batches in any::<bool>()
    ) {
        let recording = recording(&acts, has_batches);
        let analysis = Analysis::of(&recording);
        let timeline = &analysis.timeline;

        // Brute force: walk the events and remember which buffers are in use.
        let mut live_at: Vec<BTreeSet<BufferId>> = Vec::new();
        let mut live: BTreeSet<BufferId> = BTreeSet::new();
        let mut history = Vec::new();
        for event in &recording.events {
            match event {
                Event::Allocate(buffer) => { live.insert(*buffer); }
                Event::Free(buffer) => { live.remove(buffer); }
                Event::Mark(_) => live_at.push(live.clone()),
                _ => {}
            }
            history.push(live.clone());
        }
        let marks: Vec<usize> = recording.events.iter().enumerate()
            .filter(|(_, event)| matches!(event, Event::Mark(_)))
            .map(|(position, _)| position)
            .collect();
        for (position, live) in history.iter().enumerate() {
            let total: Bytes = live.iter().map(|buffer| recording.buffer(*buffer).bytes).sum();
            prop_assert_eq!(timeline.live(position), total);
            let breakdown = analysis.breakdown(&recording, position);
            prop_assert_eq!(breakdown.total(), total);

            let before = marks.iter().rposition(|mark| *mark <= position);
            let after = marks.iter().position(|mark| *mark > position);
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for buffer in live {
                let known = [before, after].into_iter().flatten()
                    .find(|mark| live_at[*mark].contains(buffer))
                    .map(|mark| at_mark(&recording, &live_at, *buffer, mark));
                let category = known.unwrap_or(Category::Temporaries);
                prop_assert_eq!(analysis.categories.get(*buffer, position), category);
                *expected.entry(category.to_string()).or_default() += recording.buffer(*buffer).bytes.0;
            }
            for (category, bytes) in expected {
                let category: Category = serde_category(&category);
                prop_assert_eq!(breakdown[category].0, bytes);
            }
        }
        // The peak is the first of the highest moments.
        if let Some(peak) = timeline.peak(&recording) {
            let highest = history.iter().enumerate().map(|(position, _)| timeline.live(position)).max();
            prop_assert_eq!(Some(peak.live), highest);
            prop_assert!((0..peak.position).all(|position| timeline.live(position) < peak.live));
        }
    }

    #[test]
    fn a_history_adds_up_at_each_instant_and_loses_no_peak_where_it_is_thinned(
        acts in prop::collection::vec(act(), 1..120), parts in 1usize..20, has_batches in any::<bool>()
    ) {
        let recording = recording(&acts, has_batches);
        let analysis = Analysis::of(&recording);
        let history = analysis.history(&recording);

        let instants: Vec<Breakdown> = (0..recording.events.len())
            .map(|position| analysis.breakdown(&recording, position))
            .collect();
        let at = |position: usize| {
            let past = history.points.iter().take_while(|moment| moment.position <= position);
            past.last().map(|moment| moment.in_use).unwrap_or_default()
        };
        for (position, instant) in instants.iter().enumerate() {
            prop_assert_eq!(at(position), *instant);
            prop_assert_eq!(instant.total(), analysis.timeline.live(position));
        }

        for position in 0..=recording.events.len() {
            let step = history.step_around(position);
            prop_assert!(step.contains(&position) || position == step.end);
        }
        let all = 0..recording.events.len();
        let downsample = history.downsample(all, parts);
        prop_assert!(downsample.windows(2).all(|pair| pair[0].position <= pair[1].position));
        prop_assert!(downsample.iter().all(|moment| at(moment.position) == moment.in_use || moment.position == 0));
        // The first, and of each part the fewest and most bytes, the last, and the most of each category.
        prop_assert!(downsample.len() <= 1 + (3 + CATEGORIES.len()) * parts);
        let most = |of: &dyn Fn(&Breakdown) -> Bytes| {
            let kept = downsample.iter().map(|moment| of(&moment.in_use)).max();
            (kept, instants.iter().map(of).max())
        };
        let (kept, known) = most(&Breakdown::total);
        prop_assert_eq!(kept, known.or(Some(Bytes::ZERO)));
        for category in CATEGORIES {
            let (kept, known) = most(&|instant| instant[category]);
            prop_assert_eq!(kept, known.or(Some(Bytes::ZERO)));
        }
    }
}

const CATEGORIES: [Category; 8] = [
    Category::Parameters,
    Category::Gradients,
    Category::Optimizer,
    Category::Activations,
    Category::Temporaries,
    Category::Workspaces,
    Category::Inputs,
    Category::Buffers,
];

fn serde_category(name: &str) -> Category {
    CATEGORIES
        .into_iter()
        .find(|category| category.to_string() == name)
        .expect("a category")
}
