//! Traces follow Chrome's trace event format, which Perfetto reads.

use std::collections::{BTreeMap, HashMap};

use candle_nn::ModuleT;
use serde_json::Value;
use tallow_compile::{Options, compile};
use tallow_data::{Loader, LoaderConfig, source};
use tallow_nn::SimpleCifar;
use tallow_profile::Profile;

use crate::{images, params, record, turn};

/// Batches from workers, an eager pass and a compiled one.
fn mixed() -> Profile {
    let model = SimpleCifar::new(3, 10, params().builder()).unwrap();
    let x = images((2, 3, 16, 16));
    let compiled = compile(&model, &x, Options::default()).unwrap();
    let loader = Loader::collated(
        source::list(0..12u64),
        |number, _| Ok(number),
        Ok,
        LoaderConfig::eval(3).with_workers(2),
    );
    let loader = loader.unwrap();
    record(|| {
        let _span = tracing::info_span!("loop").entered();
        for batch in loader.batches(0).unwrap() {
            batch.unwrap();
            model.forward_t(&x, true).unwrap();
            compiled.forward(&x).unwrap();
        }
    })
}

fn number(event: &Value, key: &str) -> f64 {
    event[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no number `{key}` in {event}"))
}

/// The rules of the format for the phases that are written.
fn check(events: &[Value]) {
    let mut tracks: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    let mut flows: HashMap<(String, u64), Vec<(f64, String)>> = HashMap::new();
    for event in events {
        let phase = event["ph"].as_str().unwrap();
        let track = event["tid"].as_u64().unwrap();
        assert!(
            event["pid"].is_u64() && event["name"].is_string(),
            "{event}"
        );
        match phase {
            "M" => assert!(event["args"]["name"].is_string(), "{event}"),
            "X" => {
                let (start, duration) = (number(event, "ts"), number(event, "dur"));
                assert!(start >= 0.0 && duration >= 0.0, "{event}");
                tracks
                    .entry(track)
                    .or_default()
                    .push((start, start + duration));
            }
            "s" | "f" => {
                let key = (
                    event["name"].as_str().unwrap().into(),
                    event["id"].as_u64().unwrap(),
                );
                flows
                    .entry(key)
                    .or_default()
                    .push((number(event, "ts"), phase.into()));
            }
            "C" => {
                let args = event["args"].as_object().unwrap();
                assert!(
                    !args.is_empty() && args.values().all(Value::is_number),
                    "{event}"
                );
                assert!(number(event, "ts") >= 0.0);
            }
            other => panic!("phase {other} isn't written"),
        }
    }
    // Slices of a track lie side by side or within each other.
    for slices in tracks.values_mut() {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        for &(start, end) in slices.iter() {
            while open.last().is_some_and(|until| *until <= start + 1e-6) {
                open.pop();
            }
            assert!(
                open.last().is_none_or(|until| end <= until + 1e-3),
                "{start} {end} {open:?}"
            );
            open.push(end);
        }
    }
    for (key, ends) in &flows {
        assert_eq!(ends.len(), 2, "{key:?}");
        assert!(
            ends[0].1 == "s" && ends[1].1 == "f" && ends[0].0 <= ends[1].0,
            "{key:?} {ends:?}"
        );
    }
}

#[test]
fn a_trace_keeps_the_rules_of_its_format() {
    let _turn = turn();
    let profile = mixed();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    profile.write_trace(&path).unwrap();
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(trace["displayTimeUnit"], "ms");
    let events = trace["traceEvents"].as_array().unwrap();
    check(events);
    let with = |key: &str, value: &str| events.iter().filter(|event| event[key] == value).count();
    // From workers to the reader, and from the caller to the plan on the pool.
    let starts = |name: &str| {
        let found = events
            .iter()
            .filter(|event| event["ph"] == "s" && event["name"] == name);
        found.count()
    };
    assert_eq!(starts("call"), 4);
    assert_eq!(starts("batch"), 4);
    assert!(with("name", "batches ready") > 0);
    assert!(with("name", "tape (bytes)") > 0 && with("name", "plans (bytes)") > 0);
    assert!(with("name", "read and decode") == 4 && with("cat", "kernel") > 0);
    assert!(with("name", "thread_name") >= 4);
}

#[test]
fn a_trace_replaces_the_former_one_when_it_is_whole() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such/folder/trace.json");
    let profile = record(|| {});
    let error = profile.write_trace(&missing).unwrap_err().to_string();
    assert!(error.contains("trace.json"), "{error}");
    profile
        .write_trace(folder.path().join("trace.json"))
        .unwrap();
    profile
        .write_trace(folder.path().join("trace.json"))
        .unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_flame_graph_holds_the_time_of_all_stacks() {
    let _turn = turn();
    let profile = mixed();
    let folded = profile.folded();
    let total: u64 = folded
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    let own: u64 = profile
        .spans
        .iter()
        .filter(|span| span.parent.is_none())
        .map(|span| span.duration() / 1000)
        .sum();
    // Each line is cut to a microsecond.
    let lines = profile.spans.len() as u64;
    assert!(
        (own.saturating_sub(lines)..=own + lines).contains(&total),
        "{total} of {own}"
    );
    let deep = |parts: &[&str]| {
        let within = |line: &&String| parts.iter().all(|part| line.contains(part));
        folded.iter().any(|line| within(&line))
    };
    assert!(deep(&["plan", "features.1"]), "{folded:?}");
    let svg = profile.flame_graph().unwrap();
    assert!(svg.contains("<svg") && svg.contains("features.1.conv"));
    assert!(record(|| {}).flame_graph().is_err());
}
