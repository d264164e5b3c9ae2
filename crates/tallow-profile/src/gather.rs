//! From the buffers of all threads to a [`Profile`], when a cycle of the schedule ends.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Profile;
use crate::memory;
use crate::profile::Window;
use crate::session::{MemoryEvent, Session};

/// Throws away what was recorded so far. Spans that are open go on from `now`; what is on the tape stays known.
pub(crate) fn discard(session: &Session, now: u64) {
    session.each_buffer(|buffer| {
        buffer.spans.clear();
        buffer.stages.clear();
        buffer.counters.clear();
        for open in &mut buffer.open {
            open.start = now;
        }
    });
}

/// Takes what was recorded in a window; spans that are open end with it here, and go on in the next one.
pub(crate) fn gather(
    session: &Session,
    window: Window,
    main_thread: usize,
    notes: &[(String, u64)],
) -> Profile {
    let mut profile = Profile {
        windows: vec![window],
        main_thread,
        ..Profile::default()
    };
    let mut events: Vec<MemoryEvent> = Vec::new();
    session.each_buffer(|buffer| {
        profile.threads.push(buffer.name.clone());
        profile.spans.append(&mut buffer.spans);
        for open in &mut buffer.open {
            if session.has_room() {
                profile.spans.push(open.closed(buffer.thread, window.end));
            }
            open.start = window.end;
        }
        profile.stages.append(&mut buffer.stages);
        profile.counters.append(&mut buffer.counters);
        events.append(&mut buffer.memory);
    });
    // Another thread may have gone on while this one was gathering.
    for span in &mut profile.spans {
        span.start = span.start.clamp(window.start, window.end);
        span.end = span.end.clamp(span.start, window.end);
    }
    profile
        .spans
        .sort_by_key(|span| (span.start, std::cmp::Reverse(span.end), span.id));
    profile.counters.sort_by_key(|counter| counter.time);
    events.sort_by_key(|event| (event.time, event.held.is_none()));
    one_copy(&mut profile);
    profile.memory = memory::account(&profile.spans, &events, notes);
    profile
}

/// Equal texts of different threads become one.
fn one_copy(profile: &mut Profile) {
    let mut known: HashMap<Arc<str>, ()> = HashMap::new();
    let mut share = |text: &mut Option<Arc<str>>| {
        if let Some(text) = text {
            match known.get_key_value(text) {
                Some((first, ())) => *text = first.clone(),
                None => drop(known.insert(text.clone(), ())),
            }
        }
    };
    for span in &mut profile.spans {
        share(&mut span.op);
        share(&mut span.module);
        share(&mut span.shape);
    }
}
