//! Several ranks make the same training as one, and end together, however they end.

use std::panic::catch_unwind;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor};
use candle_nn::ModuleT;
use tallow_compile::Options;
use tallow_data::Batch;
use tallow_nn::{SimpleCifar, SimpleCifarConfig};
use tallow_tensor::{Params, ops};
use tallow_train::distributed::{Alone, Collective, Threads, run_threads, run_threads_within};
use tallow_train::hooks::{ClassScores, RunFolder};
use tallow_train::{
    AdamW, Checkpointing, EmaConfig, Error, GradientClip, Hook, HookContext, LrFinder, Result,
    TrainerBuilder,
};

use crate::joint::{self, CLASSES, Run, Small, images};
use crate::toy::{batch, batches, quiet, toy, toy_of_width};

fn world<M: ModuleT>(
    model: impl Fn(&Params) -> M + Sync,
    settings: impl Fn(TrainerBuilder<M>) -> TrainerBuilder<M> + Sync,
) -> Vec<Run> {
    run_threads(2, |ranks| {
        Run::new(Some(Arc::new(ranks)), &model, &settings)
    })
    .unwrap()
}

fn alone<M: ModuleT>(
    model: impl Fn(&Params) -> M,
    settings: impl Fn(TrainerBuilder<M>) -> TrainerBuilder<M>,
) -> Run {
    Run::new(None, model, settings).unwrap()
}

fn cifar(params: &Params) -> SimpleCifar {
    let config = SimpleCifarConfig {
        in_channels: 1,
        num_classes: CLASSES,
        dropout: 0.0,
    };
    SimpleCifar::from_config(config, params.builder()).unwrap()
}

#[test]
fn two_ranks_equal_one_process_with_both_their_batches() {
    let two = world(cifar, |builder| builder.sync_batch_norm(true));
    let one = alone(cifar, |builder| builder);
    two[0].assert_equals(&one, "eager");
    assert_eq!(two[0].values, two[1].values);
    assert_eq!(two[0].measured(), two[1].measured());
}

#[test]
fn two_compiled_ranks_equal_one_process() {
    let compiled = |builder: TrainerBuilder<SimpleCifar>| builder.compile(Options::default());
    let two = world(cifar, |builder| compiled(builder).sync_batch_norm(true));
    let one = alone(cifar, compiled);
    two[0].assert_equals(&one, "compiled");
    assert_eq!(two[0].values, two[1].values);
}

#[test]
fn accumulation_clipping_and_averaged_weights_see_all_ranks() {
    let settings = |builder: TrainerBuilder<Small>| {
        builder
            .accumulate(2)
            .clip(GradientClip::norm(0.5))
            .ema(EmaConfig::new(0.9))
            .top_k(2)
    };
    for compiled in [false, true] {
        let settings = |builder| match compiled {
            true => settings(builder).compile(Options::default()),
            false => settings(builder),
        };
        let two = world(Small::new, |builder| {
            settings(builder).sync_batch_norm(true)
        });
        let one = alone(Small::new, settings);
        two[0].assert_equals(&one, &format!("compiled: {compiled}"));
        let top_k = |run: &Run| run.history.epochs[1].evaluation.as_ref().unwrap().top_k;
        assert_eq!(top_k(&two[0]), top_k(&one));
    }
}

#[test]
fn without_synchronised_statistics_ranks_agree_with_each_other_alone() {
    for compiled in [false, true] {
        let settings = |builder: TrainerBuilder<Small>| match compiled {
            true => builder.compile(Options::default()),
            false => builder,
        };
        let two = world(Small::new, settings);
        assert_eq!(two[0].values, two[1].values);
        assert!(two[0].difference(&alone(Small::new, settings)) > 1e-4);
    }
}

#[test]
fn a_world_of_one_is_no_world_to_the_bit() {
    for compiled in [false, true] {
        let settings = |builder: TrainerBuilder<Small>| match compiled {
            true => builder.accumulate(2).compile(Options::default()),
            false => builder.accumulate(2),
        };
        let none = alone(Small::new, settings);
        let of_one = |ranks: Arc<dyn Collective>| {
            let synced = |builder| settings(builder).sync_batch_norm(true);
            Run::new(Some(ranks), Small::new, synced)
        };
        let one = of_one(Arc::new(Alone)).unwrap();
        let thread = run_threads(1, |ranks| of_one(Arc::new(ranks))).unwrap();
        for run in [&one, &thread[0]] {
            assert_eq!(run.values, none.values);
            assert_eq!(run.measured(), none.measured());
        }
    }
}

/// The samples from `first` on of a batch.
fn part(of: &Batch, first: usize, count: usize) -> Batch {
    let images = of
        .images
        .narrow(0, first, count)
        .unwrap()
        .contiguous()
        .unwrap();
    let labels = of
        .labels
        .narrow(0, first, count)
        .unwrap()
        .contiguous()
        .unwrap();
    Batch::new(images, labels).unwrap()
}

#[test]
fn ranks_count_by_their_samples() {
    let whole: Vec<Batch> = joint::training(&images(96), 16, Alone.shard())
        .batches(0)
        .unwrap()
        .collect::<tallow_data::Result<_>>()
        .unwrap();
    let train =
        |data: &[Batch], settings: &dyn Fn(TrainerBuilder<Small>) -> TrainerBuilder<Small>| {
            let params = Params::f32_cpu();
            let builder = quiet(Small::new(&params), params.clone()).epochs(3);
            let mut trainer = settings(builder).build()?;
            let loss = trainer.fit(&data, None)?.epochs[2].train.loss;
            Ok::<_, Error>((joint::values(&params), loss))
        };
    for compiled in [false, true] {
        let settings = |builder: TrainerBuilder<Small>| {
            let builder = builder.optimizer(tallow_train::Sgd::new(0.05));
            match compiled {
                true => builder.compile(Options::default()),
                false => builder,
            }
        };
        let (one, loss) = train(&whole, &settings).unwrap();
        let two = run_threads(2, |ranks| {
            let (first, count) = [(0, 11), (11, 5)][ranks.rank()];
            let mine: Vec<Batch> = whole
                .iter()
                .map(|batch| part(batch, first, count))
                .collect();
            train(&mine, &|builder| {
                settings(builder)
                    .sync_batch_norm(true)
                    .distributed(ranks.clone())
            })
        });
        let (two, joint_loss) = &two.unwrap()[0];
        assert!((loss - joint_loss).abs() < 1e-5, "{loss} and {joint_loss}");
        for ((name, one), (_, two)) in one.iter().zip(two) {
            for (one, two) in one.iter().zip(two) {
                assert!((one - two).abs() < 1e-5, "{name}: {one} and {two}");
            }
        }
    }
}

/// Fails, panics or stops in one step of one rank.
struct At {
    rank: usize,
    step: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Error,
    Panic,
    Stop,
}

impl Hook for At {
    fn on_gradients(&mut self, context: &mut HookContext<'_>, _: &mut GradStore) -> Result<()> {
        if (context.rank(), context.step()) != (self.rank, self.step) {
            return Ok(());
        }
        match self.what {
            What::Error => Err(Error::hook("the disk is full")),
            What::Panic => panic!("out of luck"),
            What::Stop => {
                context.request_stop();
                Ok(())
            }
        }
    }
}

/// Trains a toy on each rank; what each rank's `fit` gave, as text.
fn with_hook(rank: usize, what: What) -> (Result<Vec<u64>>, Vec<String>) {
    let heard = Mutex::new(Vec::new());
    let steps = run_threads(2, |ranks| {
        let (model, params) = toy();
        let number = ranks.rank();
        let hook = At {
            rank,
            step: 3,
            what,
        };
        let builder = quiet(model, params).distributed(ranks).epochs(5);
        let mut trainer = builder.hook(Box::new(hook)).build()?;
        let result = trainer.fit(&batches(4), None);
        if let Err(error) = &result {
            heard.lock().unwrap().push(format!("{number}: {error}"));
        }
        result.map(|_| trainer.steps())
    });
    (steps, heard.into_inner().unwrap())
}

#[test]
fn an_error_on_one_rank_ends_all_and_names_it() {
    for rank in [0, 1] {
        let (result, mut heard) = with_hook(rank, What::Error);
        let expected = format!("rank {rank} ended the run: the disk is full");
        assert_eq!(result.unwrap_err().to_string(), expected);
        heard.sort();
        let mut each = [
            format!("{rank}: the disk is full"),
            format!("{}: {expected}", 1 - rank),
        ];
        each.sort();
        assert_eq!(heard, each);
    }
}

#[test]
fn a_panic_on_one_rank_ends_all_and_names_it() {
    let (result, heard) = with_hook(1, What::Panic);
    let expected = "rank 1 ended the run: panicked: out of luck";
    assert_eq!(result.unwrap_err().to_string(), expected);
    assert_eq!(heard, [format!("0: {expected}")]);
}

#[test]
fn a_stop_on_any_rank_stops_all_after_the_same_step() {
    for rank in [0, 1] {
        let (result, heard) = with_hook(rank, What::Stop);
        assert_eq!(result.unwrap(), [4, 4]);
        assert!(heard.is_empty());
    }
}

#[test]
fn a_rank_that_ends_early_is_named() {
    let result = run_threads(3, |ranks| match ranks.rank() {
        1 => Ok(()),
        _ => ranks.barrier(),
    });
    let error = result.unwrap_err().to_string();
    assert_eq!(
        error,
        "rank 1 ended the run: has ended while other ranks wait for it"
    );
}

#[test]
fn a_rank_that_hangs_is_named_after_the_timeout() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let (release, wait) = (Mutex::new(Some(release)), Mutex::new(wait));
    let result = run_threads_within(Duration::from_millis(50), 2, |ranks| {
        if ranks.rank() == 1 {
            // Until rank 0 has given up.
            let _hung_up = wait.lock().unwrap().recv();
            return Ok(());
        }
        let result = ranks.barrier();
        drop(release.lock().unwrap().take());
        result
    });
    let error = result.unwrap_err().to_string();
    assert_eq!(error, "rank 1 ended the run: gave no answer for 50ms");
}

#[test]
fn ranks_with_other_models_settings_or_calls_are_named() {
    let error = |program: &(dyn Fn(Threads) -> Result<()> + Sync)| {
        run_threads(2, program).unwrap_err().to_string()
    };
    let models = error(&|ranks| {
        let (model, params) = toy_of_width(8 + ranks.rank());
        quiet(model, params).distributed(ranks).build().map(|_| ())
    });
    assert!(
        models.contains("rank 1") && models.contains("other parameters"),
        "{models}"
    );
    let settings = error(&|ranks| {
        let (model, params) = toy();
        let builder = quiet(model, params).accumulate(1 + ranks.rank() as u64);
        builder.distributed(ranks).build().map(|_| ())
    });
    assert!(
        settings.contains("rank 1") && settings.contains("other settings"),
        "{settings}"
    );
    let calls = error(&|ranks| match ranks.rank() {
        0 => ranks.barrier(),
        _ => ranks.sum(&mut [1.0, 2.0]),
    });
    assert!(
        calls.contains("rank 1") && calls.contains("a sum of 2 f32"),
        "{calls}"
    );
    let refused = error(&|ranks| {
        let (model, params) = toy();
        let mut trainer = quiet(model, params).distributed(ranks).build()?;
        trainer
            .find_lr(&batches(2), &LrFinder::default())
            .map(|_| ())
    });
    assert!(refused.contains("range test"), "{refused}");
}

#[test]
fn parameters_that_drift_apart_are_found() {
    struct Meddler;

    impl Hook for Meddler {
        fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
            if context.rank() == 1 {
                let (_, var) = context.params().trainable().remove(0);
                var.set(&(var.as_detached_tensor() * 1.001)?)?;
            }
            Ok(())
        }
    }

    let result = run_threads(2, |ranks| {
        let (model, params) = toy();
        let builder = quiet(model, params).distributed(ranks);
        let mut trainer = builder.hook(Box::new(Meddler)).build()?;
        trainer.fit(&batches(2), None).map(|_| ())
    });
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("rank 1") && error.contains("other parameters"),
        "{error}"
    );
}

#[test]
fn ranks_begin_with_the_parameters_of_rank_0() {
    let seen = run_threads(3, |ranks| {
        let params = Params::f32_cpu();
        let model = Small::new(&params);
        for entry in &params {
            entry
                .var
                .set(&(entry.var.as_detached_tensor() + ranks.rank() as f64)?)?;
        }
        quiet(model, params.clone()).distributed(ranks).build()?;
        Ok::<_, Error>(joint::values(&params))
    });
    let first = Params::f32_cpu();
    let _model = Small::new(&first);
    for values in seen.unwrap() {
        assert_eq!(values, joint::values(&first));
    }
}

/// Every file below a folder, by its path in it.
fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path.display().to_string()),
        }
    }
    all
}

/// Three epochs of four steps; gives the parameters.
fn train_small(
    ranks: Threads,
    settings: impl FnOnce(TrainerBuilder<Small>) -> TrainerBuilder<Small>,
) -> Result<Vec<(String, Vec<f32>)>> {
    let params = Params::f32_cpu();
    let shard = ranks.shard();
    let builder = quiet(Small::new(&params), params.clone())
        .optimizer(AdamW::new(1e-2))
        .ema(EmaConfig::new(0.9))
        .epochs(3)
        .sync_batch_norm(true)
        .distributed(ranks);
    let mut trainer = settings(builder).build()?;
    trainer.fit(&joint::training(&images(130), 32, shard), None)?;
    Ok(joint::values(&params))
}

#[test]
fn rank_0_alone_writes_and_all_go_on_from_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let stopped = run_threads(2, |ranks| {
        let own = folder.path().join(ranks.rank().to_string());
        train_small(ranks, |builder| {
            let stop = At {
                rank: 1,
                step: 5,
                what: What::Stop,
            };
            builder
                .hook(Box::new(Checkpointing::new(own.join("checkpoint"))))
                .hook(Box::new(stop))
                .run_folder(RunFolder::new(own.join("run")))
        })
    });
    assert!(files(&folder.path().join("0")).len() >= 6);
    assert!(files(&folder.path().join("1")).is_empty());

    let path = folder.path().join("0/checkpoint");
    let resumed = run_threads(2, |ranks| {
        train_small(ranks, |builder| builder.resume(&path))
    });
    let (stopped, resumed) = (stopped.unwrap(), resumed.unwrap());
    let whole = run_threads(2, |ranks| train_small(ranks, |builder| builder)).unwrap();
    assert_eq!(resumed, whole);
    assert_ne!(stopped, whole);
}

/// Keeps what dropout left of ones.
struct Dropped {
    inner: crate::toy::Toy,
    masks: Arc<Mutex<Vec<Vec<f32>>>>,
}

impl ModuleT for Dropped {
    fn forward_t(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let ones = Tensor::ones(64, candle_core::DType::F32, &Device::Cpu)?;
        let mask = ops::dropout(&ones, 0.5, train)?;
        self.masks.lock().unwrap().push(mask.to_vec1()?);
        self.inner.forward_t(images, train)
    }
}

#[test]
fn ranks_drop_other_elements() {
    let masks = run_threads(2, |ranks| {
        let (inner, params) = toy();
        let masks = Arc::new(Mutex::new(Vec::new()));
        let model = Dropped {
            inner,
            masks: masks.clone(),
        };
        let mut trainer = quiet(model, params)
            .distributed(ranks)
            .accumulate(2)
            .build()?;
        trainer.fit(&batches(4), None)?;
        let masks = masks.lock().unwrap().clone();
        Ok::<_, Error>(masks)
    });
    let mut masks = masks.unwrap().concat();
    assert_eq!(masks.len(), 8);
    masks.sort_by(|a, b| a.partial_cmp(b).unwrap());
    masks.dedup();
    assert_eq!(masks.len(), 8);
}

#[test]
fn an_epoch_ends_with_the_first_rank_that_has_no_more_batches() {
    let steps = run_threads(2, |ranks| {
        let mine: Vec<Batch> = (0..3 + ranks.rank()).map(|index| batch(index, 6)).collect();
        let (model, params) = toy();
        let mut trainer = quiet(model, params).distributed(ranks).epochs(2).build()?;
        let history = trainer.fit(&mine, None)?;
        Ok::<_, Error>((trainer.steps(), history.epochs[0].train.samples))
    });
    assert_eq!(steps.unwrap(), [(6, 36), (6, 36)]);
}

#[test]
fn scores_by_class_are_those_of_all_samples() {
    let data = images(50);
    let matrix = |ranks: Arc<dyn Collective>| {
        let scores = ClassScores::new(CLASSES)?;
        let matrix = scores.matrix();
        let params = Params::f32_cpu();
        let builder = quiet(Small::new(&params), params).hook(Box::new(scores));
        let shard = ranks.shard();
        let mut trainer = builder.distributed(ranks).build()?;
        let metrics = trainer.evaluate(&joint::evaluation(&data, shard))?;
        let rows: Vec<Vec<u64>> = matrix.get().rows().map(<[u64]>::to_vec).collect();
        Ok::<_, Error>((rows, metrics))
    };
    let two = run_threads(3, |ranks| matrix(Arc::new(ranks))).unwrap();
    let one = matrix(Arc::new(Alone)).unwrap();
    for two in two {
        assert_eq!(two.0, one.0);
        assert_eq!(
            (two.1.samples, two.1.accuracy),
            (one.1.samples, one.1.accuracy)
        );
        assert!((two.1.loss - one.1.loss).abs() < 1e-6);
    }
}

#[test]
fn sums_may_be_under_way_together() {
    let sums = run_threads(3, |ranks| {
        let own = ranks.rank() as f32;
        let first = ranks.start_sum(vec![own, 1.0])?;
        let second = ranks.start_sum(vec![10.0 * own])?;
        let mut third = [own as f64];
        ranks.sum_f64(&mut third)?;
        let mut bytes = [ranks.rank() as u8; 2];
        ranks.broadcast(2, &mut bytes)?;
        Ok::<_, Error>((second.wait()?, first.wait()?, third, bytes))
    });
    for (second, first, third, bytes) in sums.unwrap() {
        assert_eq!((first, second), (vec![3.0, 3.0], vec![30.0]));
        assert_eq!((third, bytes), ([3.0], [2, 2]));
    }
    assert!(
        catch_unwind(|| run_threads(0, |_| Ok::<_, Error>(())))
            .unwrap()
            .is_err()
    );
}
