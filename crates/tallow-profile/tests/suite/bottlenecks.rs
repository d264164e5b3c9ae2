//! The bottleneck report names what holds a training up, and the setting to change; what it says helps.

use std::time::Duration;

use candle_core::{Result, Tensor};
use candle_nn::{Module, ModuleT, VarBuilder};
use tallow_data::transform::{FloatImage, pipeline};
use tallow_data::{Image, Loader, LoaderConfig, source};
use tallow_profile::{Finding, Part, Profile, Schedule, Waiting};
use tallow_tensor::ops;
use tracing::info_span;

use crate::{builder, images, params, record, turn};

const BATCH: usize = 4;

/// Trains on pictures that take `transform` to change: a step takes 15 ms, whatever the machine.
fn train(transform: Duration, config: LoaderConfig) -> Profile {
    let pictures: Vec<(Image, u32)> = (0..24 * BATCH as u32)
        .map(|label| (Image::new(vec![1; 12], [2, 2], 3).unwrap(), label % 10))
        .collect();
    let slow = move |image: FloatImage| {
        std::thread::sleep(transform);
        Ok(image)
    };
    let changes = pipeline().to_tensor().lambda(slow);
    let loader = Loader::train(source::list(pictures), changes, config).unwrap();
    let _turn = turn();
    let profiler = builder()
        .schedule(Schedule::once(6, 0, 12))
        .start()
        .unwrap();
    for batch in loader.batches(0).unwrap() {
        let _span = info_span!("training step").entered();
        batch.unwrap();
        std::thread::sleep(Duration::from_millis(15));
        drop(_span);
        profiler.step();
    }
    profiler.finish()
}

fn waiting(profile: &Profile) -> Option<Waiting> {
    let findings = profile.bottlenecks().findings;
    findings.into_iter().find_map(|finding| match finding {
        Finding::WaitingForData(waiting) => Some(waiting),
        _ => None,
    })
}

#[test]
fn a_starved_loader_is_named_and_the_fixed_one_is_not() {
    let _turn = turn();
    // A batch takes 56 ms, a step 15: the book's case, where loading takes 73 % of the time.
    let slow = Duration::from_millis(14);
    let profile = train(slow, LoaderConfig::train(BATCH).with_workers(1));
    let found = waiting(&profile).expect("it waits for data");
    assert!((0.6..0.85).contains(&found.share), "{found:?}");
    assert!(
        found.stage.as_deref().unwrap().starts_with("Lambda in"),
        "{found:?}"
    );
    assert!(found.stage_share > 0.9, "{found:?}");
    assert_eq!(found.workers, 1);
    assert!(found.workers_needed > 2, "{found:?}");
    let report = profile.bottlenecks();
    assert!(matches!(report.findings[0], Finding::WaitingForData(_)));
    let text = report.to_string();
    let advice = format!(
        "Set `LoaderConfig::workers` to {} (now 1)",
        found.workers_needed
    );
    assert!(
        text.contains("Data loading takes") && text.contains(&advice),
        "{text}"
    );

    // As the report says.
    let workers = found.workers_needed as usize;
    let fixed = train(slow, LoaderConfig::train(BATCH).with_workers(workers));
    assert_eq!(waiting(&fixed), None, "{}", fixed.bottlenecks());

    // Or a transform that doesn't take its time.
    let cheap = train(Duration::ZERO, LoaderConfig::train(BATCH).with_workers(1));
    assert_eq!(waiting(&cheap), None, "{}", cheap.bottlenecks());
}

#[test]
fn a_loader_without_workers_is_told_to_have_some() {
    let _turn = turn();
    let slow = Duration::from_millis(14);
    let profile = train(slow, LoaderConfig::train(BATCH).with_workers(0));
    let found = waiting(&profile).expect("it waits for data");
    assert_eq!((found.workers, found.prefetch), (0, 0));
    let text = found.to_string();
    assert!(
        text.contains("Batches are made while the training waits"),
        "{text}"
    );
}

/// Turns a value over through candle, which a capture can't follow.
struct Raw;

impl ModuleT for Raw {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> Result<Tensor> {
        xs.affine(-1.0, 0.5)?.sin()
    }
}

struct Net {
    head: tallow_nn::Linear,
}

impl Net {
    fn new(vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            head: tallow_nn::Linear::new(12, 3, vb.pp("head"))?,
        })
    }
}

impl ModuleT for Net {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.head
            .forward(&Raw.forward_t(&ops::flatten(xs, 1)?, train)?)
    }
}

#[test]
fn a_graph_break_is_named_with_its_remedy_whenever_it_runs() {
    let _turn = turn();
    let model = Net::new(params().builder()).unwrap();
    let x = images((2, 3, 2, 2));
    let compiled = {
        let options = tallow_compile::Options::default().fullgraph(false);
        tallow_compile::compile(&model, &x, options).unwrap()
    };
    // It was compiled before: what runs now tells.
    let profile = record(|| {
        for _ in 0..3 {
            compiled.forward(&x).unwrap();
        }
    });
    let found = profile
        .bottlenecks()
        .findings
        .into_iter()
        .find_map(|finding| match finding {
            Finding::GraphBreak { reason, runs, .. } => Some((reason, runs)),
            _ => None,
        });
    let (reason, runs) = found.expect("it broke");
    assert_eq!(runs, 3);
    assert!(reason.contains("write instead"), "{reason}");
}

#[test]
fn small_batches_are_named() {
    let _turn = turn();
    let profile = record(|| {
        let _forward = info_span!(target: "tallow", "forward").entered();
        let x = images((1, 1, 1, 1));
        for _ in 0..10 {
            for _ in 0..10 {
                ops::relu(&x).unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let text = profile.bottlenecks().to_string();
    assert!(text.contains("Raise the batch size"), "{text}");
}

#[test]
fn a_training_without_faults_is_left_in_peace() {
    let _turn = turn();
    let profile = record(|| {
        let _span = info_span!("training step").entered();
        std::thread::sleep(Duration::from_millis(5));
    });
    let report = profile.bottlenecks();
    assert!(report.findings.is_empty(), "{report}");
    assert!(report.to_string().contains("Nothing holds it up"));
    assert_eq!(profile.parts()[0].part, Part::Other);
}
