//! When spans are recorded, and what is recorded of them.

use tallow_profile::{Error, Phase, Profiler, Schedule};
use tallow_tensor::{ops, scope};
use tracing::{Level, debug_span, info_span, trace_span};

use crate::{builder, images, record, turn};

#[test]
fn an_operation_is_recorded_with_its_module_and_shapes() {
    let profile = record(|| {
        let _module = scope::enter("encoder.act");
        ops::relu(&images((2, 3, 4, 4))).unwrap();
    });
    let relu = profile.spans.iter().find(|span| span.name == "op").unwrap();
    assert_eq!(relu.op.as_deref(), Some("relu"));
    assert_eq!(relu.module.as_deref(), Some("encoder.act"));
    assert_eq!(relu.shape.as_deref(), Some("[2, 3, 4, 4] -> [2, 3, 4, 4]"));
    assert_eq!((relu.flops, relu.bytes), (96, 2 * 4 * 96));
    let module = profile
        .spans
        .iter()
        .find(|span| span.id == relu.parent.unwrap());
    assert_eq!(module.unwrap().name, "module");
    assert_eq!(
        profile.threads[relu.thread],
        profile.threads[profile.main_thread]
    );
}

#[test]
fn nothing_is_recorded_before_and_after() {
    let _turn = turn();
    let x = images((1, 1, 2, 2));
    ops::relu(&x).unwrap();
    let profiler = builder().start().unwrap();
    ops::relu6(&x).unwrap();
    let profile = profiler.finish();
    assert!(!tallow_tensor::trace::is_on());
    ops::relu(&x).unwrap();
    let labels: Vec<&str> = profile.spans.iter().map(|span| span.label()).collect();
    assert_eq!(labels, ["relu6"]);
    assert_eq!(profiler.finish().spans.len(), 1);
}

#[test]
fn spans_of_the_program_are_recorded_up_to_a_level() {
    let open = || {
        let _a = info_span!("mine", batch = 3).entered();
        let _b = debug_span!("details").entered();
        let _c = trace_span!("more details").entered();
    };
    let names = |level: Option<Level>| {
        let _turn = turn();
        let builder = match level {
            Some(level) => builder().level(level),
            None => builder(),
        };
        let profiler = builder.start().unwrap();
        open();
        let profile = profiler.finish();
        let mine = profile.spans.iter().find(|span| span.name == "mine");
        assert_eq!(mine.and_then(|span| span.number("batch")), Some(3));
        profile
            .spans
            .iter()
            .map(|span| span.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["mine"]);
    assert_eq!(names(Some(Level::DEBUG)), ["mine", "details"]);
    assert_eq!(
        names(Some(Level::TRACE)),
        ["mine", "details", "more details"]
    );
}

#[test]
fn a_schedule_chooses_the_steps() {
    let _turn = turn();
    let schedule = Schedule {
        skip_first: 1,
        wait: 1,
        warmup: 1,
        active: 2,
        repeat: 2,
    };
    let ready = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = ready.clone();
    let profiler = builder()
        .schedule(schedule)
        .on_ready(move |profile| {
            let steps = profile
                .steps
                .iter()
                .map(|step| step.number)
                .collect::<Vec<_>>();
            seen.lock().unwrap().push(steps);
        })
        .start()
        .unwrap();
    for step in 0..20u64 {
        let span = info_span!("loop", step);
        span.in_scope(|| ops::relu(&images((1, 1, 2, 2))).unwrap());
        drop(span);
        profiler.step();
    }
    let profile = profiler.finish();
    assert_eq!(*ready.lock().unwrap(), [[3, 4], [7, 8]]);
    let loops = profile.spans.iter().filter(|span| span.name == "loop");
    let loops: Vec<u64> = loops.filter_map(|span| span.number("step")).collect();
    assert_eq!(loops, [3, 4, 7, 8]);
    assert_eq!(profile.windows.len(), 2);
    for (step, window) in profile.steps.chunks(2).zip(&profile.windows) {
        assert!(window.start <= step[0].start && step[1].end <= window.end);
    }
}

#[test]
fn phases_are_those_of_pytorch() {
    use Phase::{Active, Off, Warmup};
    // torch.profiler.schedule(skip_first=2, wait=1, warmup=2, active=1, repeat=0)
    let schedule = Schedule {
        skip_first: 2,
        wait: 1,
        warmup: 2,
        active: 1,
        repeat: 0,
    };
    let phases: Vec<Phase> = (0..10).map(|step| schedule.phase(step)).collect();
    assert_eq!(
        phases,
        [
            Off, Off, Off, Warmup, Warmup, Active, Off, Warmup, Warmup, Active
        ]
    );
    assert_eq!(Schedule::ALWAYS.phase(u64::MAX - 1), Active);
}

#[test]
fn a_span_that_is_open_at_the_end_counts_as_far_as_it_came() {
    let _turn = turn();
    let profiler = builder().start().unwrap();
    let span = info_span!("whole").entered();
    ops::relu(&images((1, 1, 2, 2))).unwrap();
    let profile = profiler.finish();
    drop(span);
    let whole = profile
        .spans
        .iter()
        .find(|span| span.name == "whole")
        .unwrap();
    assert_eq!(whole.end, profile.windows[0].end);
}

#[test]
fn only_one_profiler_records() {
    let _turn = turn();
    let first = builder().start().unwrap();
    assert!(matches!(Profiler::start(), Err(Error::Busy)));
    let wrong = Schedule::once(0, 0, 0);
    assert!(matches!(
        builder().schedule(wrong).start(),
        Err(Error::Setting { .. })
    ));
    drop(first);
    // One that was never finished lets go as well.
    builder().start().unwrap().finish();
}

#[test]
fn too_many_spans_are_counted_and_not_kept() {
    let _turn = turn();
    let profiler = builder().most_spans(10).start().unwrap();
    let x = images((1, 1, 2, 2));
    for _ in 0..25 {
        ops::relu(&x).unwrap();
    }
    let profile = profiler.finish();
    assert_eq!((profile.spans.len(), profile.dropped), (10, 15));
    assert!(profile.summary().contains("15 spans were left out"));
}

#[test]
fn threads_are_told_apart() {
    let profile = record(|| {
        let x = images((1, 1, 2, 2));
        ops::relu(&x).unwrap();
        let thread = std::thread::Builder::new().name("helper".into());
        let other = thread.spawn(move || ops::relu6(&x).unwrap());
        other.unwrap().join().unwrap();
    });
    let thread = |label: &str| {
        let span = profile.spans.iter().find(|span| span.label() == label);
        span.unwrap().thread
    };
    assert_eq!(thread("relu"), profile.main_thread);
    assert_eq!(profile.threads[thread("relu6")], "helper");
}
