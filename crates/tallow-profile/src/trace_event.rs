//! The trace event format of Chrome, which [Perfetto](https://ui.perfetto.dev) opens: spans by thread, arrows between
//! threads, counters.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::profile::Span;
use crate::{Profile, Result, folder};

/// The process of a trace; there is one.
const PROCESS: u64 = 1;
/// The track of the steps; threads follow it.
const STEPS: usize = 0;

/// The track of a thread.
fn track(thread: usize) -> usize {
    thread + 1
}

/// Microseconds, the unit of the format.
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

impl Profile {
    /// Writes a trace that `chrome://tracing` and Perfetto open (`export_chrome_trace`).
    ///
    /// # Errors
    /// [`Error::Write`](crate::Error::Write) names the file; what stood there before is untouched then.
    pub fn write_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        folder::write(path.as_ref(), |file| {
            write!(file, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
            for (index, event) in self.trace_events().into_iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                write!(file, "{comma}\n{event}")?;
            }
            writeln!(file, "\n]}}")
        })
    }

    /// The events of a trace, in the format's terms.
    pub fn trace_events(&self) -> Vec<Value> {
        let mut events = self.names();
        events.extend(self.steps.iter().map(|step| {
            json!({
                "ph": "X", "cat": "step", "name": format!("step {}", step.number),
                "pid": PROCESS, "tid": STEPS,
                "ts": microseconds(step.start), "dur": microseconds(step.end - step.start),
            })
        }));
        events.extend(self.spans.iter().map(slice));
        events.extend(self.stage_slices());
        events.extend(self.flows());
        events.extend(self.counter_events());
        events
    }

    fn names(&self) -> Vec<Value> {
        let name = |what: &str, tid: usize, name: &str| json!({"ph": "M", "name": what, "pid": PROCESS, "tid": tid, "args": {"name": name}});
        let mut names = vec![
            name("process_name", STEPS, "tallow"),
            name("thread_name", STEPS, "steps"),
        ];
        for (thread, text) in self.threads.iter().enumerate() {
            names.push(name("thread_name", track(thread), text));
        }
        names
    }

    /// Stages of a batch, drawn one after the other at its beginning: how long each took, not when.
    fn stage_slices(&self) -> Vec<Value> {
        let batches = self.spans.iter().filter(|span| span.name == "batch");
        let batches: HashMap<u64, &Span> = batches.map(|span| (span.id, span)).collect();
        let mut until: HashMap<u64, u64> = HashMap::new();
        let slices = self.stages.iter().filter_map(|stage| {
            let batch = batches.get(&stage.span?)?;
            let start = *until.get(&batch.id).unwrap_or(&batch.start);
            let end = (start + stage.time).min(batch.end);
            until.insert(batch.id, end);
            Some(json!({
                "ph": "X", "cat": "stage", "name": &*stage.name, "pid": PROCESS, "tid": track(batch.thread),
                "ts": microseconds(start), "dur": microseconds(end - start),
                "args": {"count": stage.count, "note": "the sum over a batch"},
            }))
        });
        slices.collect()
    }

    /// Arrows: from the making of a batch to its use, and from a call to what runs for it on another thread.
    fn flows(&self) -> Vec<Value> {
        let mut events = Vec::new();
        let mut made: HashMap<u64, &Span> = HashMap::new();
        for span in self.spans.iter().filter(|span| span.name == "batch") {
            made.extend(span.flow.map(|flow| (flow, span)));
        }
        let arrow = |name: &str, id: u64, from: (usize, u64), to: (usize, u64)| {
            let end = |ph: &str, (thread, time): (usize, u64)| {
                json!({
                    "ph": ph, "bp": "e", "cat": "flow", "name": name, "id": id, "pid": PROCESS,
                    "tid": track(thread), "ts": microseconds(time),
                })
            };
            [end("s", from), end("f", to)]
        };
        for span in self.spans.iter().filter(|span| span.name == "data_wait") {
            let Some(batch) = span.flow.and_then(|flow| made.get(&flow)) else {
                continue;
            };
            if batch.thread != span.thread && batch.end <= span.end {
                let (from, to) = ((batch.thread, batch.start), (span.thread, span.end));
                events.extend(arrow("batch", batch.id, from, to));
            }
        }
        let by_id: HashMap<u64, &Span> = self.spans.iter().map(|span| (span.id, span)).collect();
        for span in &self.spans {
            let Some(parent) = span.parent.and_then(|parent| by_id.get(&parent)) else {
                continue;
            };
            if parent.thread != span.thread && parent.start <= span.start {
                let (from, to) = ((parent.thread, parent.start), (span.thread, span.start));
                events.extend(arrow("call", span.id, from, to));
            }
        }
        events
    }

    fn counter_events(&self) -> Vec<Value> {
        let counter = |name: &str, time: u64, value: u64| {
            let mut args = Map::new();
            args.insert(name.to_string(), value.into());
            json!({
                "ph": "C", "name": name, "pid": PROCESS, "tid": STEPS,
                "ts": microseconds(time), "args": args,
            })
        };
        let counters = self.counters.iter();
        let mut events: Vec<Value> = counters
            .map(|each| counter(&each.name, each.time, each.value))
            .collect();
        let memory = [
            ("process memory (bytes)", &self.memory.process),
            ("tape (bytes)", &self.memory.tape),
            ("plans (bytes)", &self.memory.arena),
        ];
        for (name, line) in memory {
            events.extend(line.iter().map(|&(time, bytes)| counter(name, time, bytes)));
        }
        events
    }
}

fn slice(span: &Span) -> Value {
    let mut args = Map::new();
    let mut add = |name: &str, value: Value| {
        args.insert(name.to_string(), value);
    };
    let texts = [("module", &span.module), ("shape", &span.shape)];
    for (name, text) in texts {
        if let Some(text) = text {
            add(name, json!(&**text));
        }
    }
    for (name, number) in [("flops", span.flops), ("bytes", span.bytes)] {
        if number > 0 {
            add(name, number.into());
        }
    }
    for (name, value) in span.fields.iter().filter(|(name, _)| *name != "holders") {
        add(name, json!(value));
    }
    let name = match (span.name, &span.module) {
        ("module", Some(module)) => module,
        _ => span.label(),
    };
    json!({
        "ph": "X", "cat": span.name, "name": name, "pid": PROCESS, "tid": track(span.thread),
        "ts": microseconds(span.start), "dur": microseconds(span.duration()), "args": args,
    })
}
