//! The stack of module paths, and the spans that show it to profilers.

use std::sync::{Arc, Mutex, PoisonError};

use tallow_tensor::scope;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[test]
fn the_innermost_scope_wins_and_ends_with_its_guard() {
    assert_eq!(scope::path(), "");
    let outer = scope::enter("net");
    {
        let _inner = scope::enter("net.layer1.0.conv1");
        assert_eq!(scope::path(), "net.layer1.0.conv1");
        let _root = scope::enter("");
        assert_eq!(scope::path(), "");
    }
    assert_eq!(scope::path(), "net");
    drop(outer);
    assert_eq!(scope::path(), "");
}

#[test]
fn a_child_is_joined_to_the_scope_around_it() {
    let _first = scope::enter_child("encoder");
    let _second = scope::enter_child("block.3");
    assert_eq!(scope::path(), "encoder.block.3");
}

#[test]
fn a_guard_dropped_out_of_order_ends_what_was_entered_after_it() {
    let outer = scope::enter("a");
    let inner = scope::enter("b");
    drop(outer);
    assert_eq!(scope::path(), "");
    let _next = scope::enter("c");
    drop(inner);
    assert_eq!(
        scope::path(),
        "c",
        "a late guard must not end scopes that it didn't open"
    );
}

#[test]
fn a_panic_leaves_the_stack_as_it_was() {
    let _outer = scope::enter("outer");
    let result = std::panic::catch_unwind(|| {
        let _inner = scope::enter("inner");
        panic!("in the middle of a forward pass");
    });
    assert!(result.is_err());
    assert_eq!(scope::path(), "outer");
}

#[test]
fn each_thread_has_its_own_stack() {
    let _here = scope::enter("here");
    let there = std::thread::spawn(scope::path).join();
    assert_eq!(there.ok().as_deref(), Some(""));
}

/// Collects the `module` field of the spans of target `tallow`, as a profiler does.
#[derive(Default)]
struct Collector(Arc<Mutex<Vec<String>>>);

struct ModuleField<'a>(&'a mut Vec<String>);

impl Visit for ModuleField<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "module" {
            self.0.push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tallow" && metadata.name() == "module"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attributes.record(&mut ModuleField(&mut modules));
        Id::from_u64(modules.len() as u64)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, span: &Id) {
        let mut modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        modules.push(format!("end of {}", span.into_u64()));
    }
}

#[test]
fn a_profiler_sees_a_span_for_each_scope() {
    let modules = Arc::default();
    tracing::subscriber::with_default(Collector(Arc::clone(&modules)), || {
        let _outer = scope::enter("layer1");
        let _inner = scope::enter("layer1.conv");
    });
    let modules = modules.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(
        *modules,
        ["\"layer1\"", "\"layer1.conv\"", "end of 2", "end of 1"]
    );
}
