//! Memory over time, and who holds it when most is held.
//!
//! Three things are told apart: outputs that candle's tape keeps for the backward pass (eager training), the values of compiled
//! plans, and what is there all the time: parameters, gradients, the optimizer's state. The process's resident memory is
//! sampled beside them.

use std::collections::{BTreeMap, HashMap};

use crate::profile::{Holder, Memory, Span};
use crate::session::MemoryEvent;

/// Resident memory of this process in bytes, where the system tells it.
pub(crate) fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // The page size of every Linux that candle's CPU backend is built for.
    Some(pages * 4096)
}

/// Holders that are listed.
const LISTED: usize = 20;

/// Adds up who holds what. `events` are in order of time.
pub(crate) fn account(spans: &[Span], events: &[MemoryEvent], notes: &[(String, u64)]) -> Memory {
    let (arena, plans) = arenas(spans);
    let (tape, peak) = tape(events, &arena);
    let mut memory = Memory {
        peak_at: peak,
        holders: held_at(events, peak),
        tape,
        arena,
        ..Memory::default()
    };
    memory.holders.extend(
        plans
            .into_iter()
            .filter(|plan| plan.since <= peak)
            .flat_map(|plan| plan.holders),
    );
    memory
        .holders
        .extend(notes.iter().map(|(what, bytes)| Holder {
            what: what.clone(),
            module: String::new(),
            bytes: *bytes,
        }));
    memory.holders.sort_by(|a, b| {
        let order = b.bytes.cmp(&a.bytes);
        order.then_with(|| (&a.what, &a.module).cmp(&(&b.what, &b.module)))
    });
    memory.holders.truncate(LISTED);
    memory
}

struct Arena {
    since: u64,
    holders: Vec<Holder>,
}

/// Memory of the plans that have run by each time, and what is in it.
fn arenas(spans: &[Span]) -> (Vec<(u64, u64)>, Vec<Arena>) {
    let mut known: HashMap<(&str, &str), ()> = HashMap::new();
    let (mut line, mut arenas, mut sum) = (Vec::new(), Vec::new(), 0);
    for span in spans.iter().filter(|span| span.name == "plan") {
        let (Some(bytes), Some(holders)) = (span.field("arena"), span.field("holders")) else {
            continue;
        };
        if known.insert((bytes, holders), ()).is_some() {
            continue;
        }
        sum += bytes.parse().unwrap_or(0);
        line.push((span.start, sum));
        arenas.push(Arena {
            since: span.start,
            holders: holders.lines().filter_map(holder).collect(),
        });
    }
    (line, arenas)
}

/// `bytes, operation, module`, separated by tabs.
fn holder(line: &str) -> Option<Holder> {
    let mut parts = line.split('\t');
    let bytes = parts.next()?.parse().ok()?;
    Some(Holder {
        bytes,
        what: format!("{} (in a plan)", parts.next()?),
        module: parts.next().unwrap_or_default().to_string(),
    })
}

/// What the tape holds over time, and when tape and arenas hold the most.
fn tape(events: &[MemoryEvent], arena: &[(u64, u64)]) -> (Vec<(u64, u64)>, u64) {
    let mut held: HashMap<u64, u64> = HashMap::new();
    let (mut line, mut sum) = (Vec::with_capacity(events.len()), 0u64);
    let (mut peak, mut most) = (0, 0);
    let mut look = |time: u64, bytes: u64| {
        if bytes > most {
            (peak, most) = (time, bytes);
        }
    };
    for event in events {
        match &event.held {
            Some((bytes, ..)) => {
                held.insert(event.number, *bytes);
                sum += bytes;
            }
            None => sum -= held.remove(&event.number).unwrap_or(0),
        }
        line.push((event.time, sum));
        look(event.time, sum + at(arena, event.time));
    }
    for &(time, bytes) in arena {
        look(time, bytes + at(&line, time));
    }
    (line, peak)
}

/// The value of a line of steps.
fn at(line: &[(u64, u64)], time: u64) -> u64 {
    let after = line.partition_point(|&(start, _)| start <= time);
    after.checked_sub(1).map_or(0, |index| line[index].1)
}

/// What the tape holds at a time, by operation and module.
fn held_at(events: &[MemoryEvent], time: u64) -> Vec<Holder> {
    let mut held = HashMap::new();
    for event in events.iter().take_while(|event| event.time <= time) {
        match &event.held {
            Some(what) => drop(held.insert(event.number, what)),
            None => drop(held.remove(&event.number)),
        }
    }
    let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (bytes, op, module) in held.into_values() {
        *sums.entry((op, module)).or_default() += bytes;
    }
    let holders = sums.into_iter().map(|((op, module), bytes)| Holder {
        what: format!("{op} (on the tape)"),
        module: module.to_string(),
        bytes,
    });
    holders.collect()
}
