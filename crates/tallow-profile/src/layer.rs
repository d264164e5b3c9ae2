//! [`layer`]: how a profiler listens to `tracing`, beside whatever else a program's subscriber does.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::profile::{Counter, Span, Stage};
use crate::session::{self, MemoryEvent, Open, intern, lock, next_span};
use crate::{Error, Result};

/// Whether a layer is part of the process's global subscriber.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// A profiler's ear, for programs with a subscriber of their own. Programs without one need nothing: a profiler installs
/// one.
///
/// As long as no profiler records, the layer has every call site disabled.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry().with(tallow_profile::layer());
/// tracing::subscriber::set_global_default(subscriber)?;
/// let profiler = tallow_profile::Profiler::start()?;
/// # profiler.finish();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer<S>() -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Collect.with_filter(WhileRecording)
}

/// Makes sure that a layer listens.
pub(crate) fn install() -> Result<()> {
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    let subscriber = tracing_subscriber::registry().with(layer());
    match tracing::subscriber::set_global_default(subscriber) {
        // Another thread may have been faster.
        Err(_) if !INSTALLED.load(Ordering::Acquire) => Err(Error::OtherSubscriber),
        _ => {
            INSTALLED.store(true, Ordering::Release);
            Ok(())
        }
    }
}

/// Lets through what belongs to a profile, while one is recorded.
struct WhileRecording;

/// Targets of events that a profile keeps.
const EVENTS: [&str; 3] = ["tallow::counter", "tallow::memory", "tallow::stage"];

fn is_wanted(metadata: &Metadata<'_>) -> bool {
    if metadata.is_event() {
        return EVENTS.contains(&metadata.target());
    }
    metadata.target().starts_with("tallow")
        || session::with_buffer(|session, _| *metadata.level() <= session.level).unwrap_or(false)
}

impl<S> Filter<S> for WhileRecording {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        session::is_recording() && is_wanted(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if session::is_recording() && is_wanted(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match session::is_recording() {
            true => LevelFilter::TRACE,
            false => LevelFilter::OFF,
        })
    }
}

/// Writes spans into the buffers of the recording.
struct Collect;

/// What a span carries in the subscriber's memory.
struct Data(Arc<Mutex<Span>>, u64);

impl<S> Layer<S> for Collect
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_register_dispatch(&self, _: &tracing::Dispatch) {
        INSTALLED.store(true, Ordering::Release);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            extensions.get::<Data>().map(|data| data.1)
        });
        let number = next_span();
        let mut data = Span {
            id: number,
            parent,
            name: attributes.metadata().name(),
            op: None,
            module: None,
            shape: None,
            flops: 0,
            bytes: 0,
            thread: 0,
            opened_by: session::with_buffer(|_, buffer| buffer.thread).unwrap_or(0),
            start: 0,
            end: 0,
            flow: None,
            fields: Vec::new(),
        };
        attributes.record(&mut Fields(&mut data));
        span.extensions_mut()
            .insert(Data(Arc::new(Mutex::new(data)), number));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(Data(data, _)) = span.extensions().get::<Data>() {
            values.record(&mut Fields(&mut lock(data)));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let extensions = span.extensions();
        let Some(Data(data, number)) = extensions.get::<Data>() else {
            return;
        };
        let (data, id, name) = (data.clone(), *number, span.name());
        session::with_buffer(|session, buffer| {
            let start = session.now();
            buffer.open.push(Open {
                data,
                id,
                name,
                start,
            });
        });
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let extensions = span.extensions();
        let Some(&Data(_, number)) = extensions.get::<Data>() else {
            return;
        };
        session::with_buffer(|session, buffer| {
            let end = session.now();
            let Some(place) = buffer.open.iter().rposition(|open| open.id == number) else {
                return;
            };
            let open = buffer.open.remove(place);
            if session::is_recording() && session.has_room() {
                let thread = buffer.thread;
                buffer.spans.push(open.closed(thread, end));
            }
        });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut values = Values::default();
        event.record(&mut values);
        session::with_buffer(|session, buffer| {
            let time = session.now();
            match event.metadata().target() {
                "tallow::counter" => buffer.counters.push(Counter {
                    name: values.text("counter"),
                    time,
                    value: values.number("value"),
                }),
                "tallow::stage" => {
                    let batch = buffer.open.iter().rfind(|open| open.name == "batch");
                    buffer.stages.push(Stage {
                        span: batch.map(|open| open.id),
                        name: values.text("stage"),
                        time: values.number("nanoseconds"),
                        count: values.number("count"),
                    });
                }
                _ => buffer.memory.push(values.memory(time)),
            }
        });
    }
}

impl Open {
    /// The span as it is told when it ends.
    pub(crate) fn closed(&self, thread: usize, end: u64) -> Span {
        Span {
            thread,
            start: self.start,
            end,
            ..lock(&self.data).clone()
        }
    }
}

/// Sorts the fields of a span to where they belong.
struct Fields<'a>(&'a mut Span);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "op" => self.0.op = Some(intern(value)),
            "module" => self.0.module = Some(intern(value)),
            "shape" => self.0.shape = Some(intern(value)),
            name => self.0.fields.push((name, value.to_string())),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "flops" => self.0.flops = value,
            "bytes" => self.0.bytes = value,
            "flow" => self.0.flow = Some(value),
            name => self.0.fields.push((name, value.to_string())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

/// The fields of an event.
#[derive(Default)]
struct Values {
    texts: Vec<(&'static str, Arc<str>)>,
    numbers: Vec<(&'static str, u64)>,
}

impl Values {
    fn text(&self, name: &str) -> Arc<str> {
        let mut texts = self.texts.iter();
        let found = texts.find(|(known, _)| *known == name);
        found.map_or_else(|| intern(""), |(_, text)| text.clone())
    }

    fn number(&self, name: &str) -> u64 {
        self.find(name).unwrap_or(0)
    }

    fn find(&self, name: &str) -> Option<u64> {
        let mut numbers = self.numbers.iter();
        numbers
            .find(|(known, _)| *known == name)
            .map(|(_, number)| *number)
    }

    fn memory(&self, time: u64) -> MemoryEvent {
        let hold = self.find("hold");
        MemoryEvent {
            time,
            number: hold.unwrap_or_else(|| self.number("free")),
            held: hold.map(|_| (self.number("bytes"), self.text("op"), self.text("module"))),
        }
    }
}

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.texts.push((field.name(), intern(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.push((field.name(), value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.numbers
            .push((field.name(), u64::try_from(value).unwrap_or(0)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
